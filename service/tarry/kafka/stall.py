"""Noticing a consumer that has stopped fetching although there are records to fetch.

When it loses its connections, the client library may stop fetching permanently: no record and no error comes, while
other clients of the same process go on (librdkafka #4916; seen with 2.16, some times in an hour of cut connections).
Only a new consumer helps. That no record comes proves nothing by itself, so another client asks the brokers.

Records that were fetched may still wait in the client library for the reader. So the watch concludes nothing while each
read returns as many records as it asked for.
"""

from collections.abc import Mapping

from tarry.clock import Clock
from tarry.kafka.offsets import Offsets, PendingAnswers
from tarry.kafka.types import Place

STALL_MS = 10_000
"""How long no record of a partition comes before the brokers are asked whether there is one."""

MOST_STALL_MS = 300_000
"""The longest such time: it doubles whenever a new consumer did not help, for example because of a broker's quota."""

_LOOK_EVERY_MS = 500
_PAUSE_MS = 2_000
"""A reader that has not read for this long was not waiting for records meanwhile."""


class StallWatch:
    """Watches the partitions of one reader.

    Args:
        offsets: asks the brokers, with another client.
        clock: monotonic time.
    """

    def __init__(self, offsets: Offsets, clock: Clock) -> None:
        self._offsets = offsets
        self._clock = clock
        self._looked_ms = -_PAUSE_MS
        self._since: dict[Place, tuple[int, int]] = {}
        """The position of each partition, and since when it has not moved."""
        self._patience_ms: dict[Place, int] = {}
        """The increased waiting time of partitions for which a new consumer has not helped yet."""
        self._asked: PendingAnswers | None = None

    def look(self, positions: Mapping[Place, int], *, is_drained: bool) -> list[Place]:
        """Check the partitions that are being read, without waiting; call this at each read.

        Args:
            positions: the next offset of each.
            is_drained: whether the reader got fewer records than it asked for, so that none waits for it.

        Returns:
            The partitions whose position does not move, although there are records to read.
        """
        now_ms = self._clock.monotonic_ms()
        if now_ms - self._looked_ms < _LOOK_EVERY_MS:
            return []
        was_away = now_ms - self._looked_ms >= _PAUSE_MS
        self._looked_ms = now_ms
        known, self._since = self._since, {}
        for place, at in positions.items():
            at_before, since_ms = known.get(place, (at, now_ms))
            if at != at_before:
                self._patience_ms.pop(place, None)
            self._since[place] = (at, now_ms if at != at_before or was_away or not is_drained else since_ms)
        if self._asked is not None:
            return self._answered(now_ms) if self._asked.done else []
        silent = [place for place in self._since if self._is_silent(place, now_ms)]
        if silent:
            self._asked = self._offsets.ask_ends(silent, committed=True)
        return []

    def _is_silent(self, place: Place, now_ms: int) -> bool:
        return now_ms - self._since[place][1] >= self._patience_ms.get(place, STALL_MS)

    def _answered(self, now_ms: int) -> list[Place]:
        ends = self._asked.answers() if self._asked is not None else {}
        self._asked = None
        stalled = []
        for place, end in ends.items():
            if place in self._since and self._is_silent(place, now_ms):
                at = self._since[place][0]
                if end > at:
                    stalled.append(place)
                    self._patience_ms[place] = min(2 * self._patience_ms.get(place, STALL_MS), MOST_STALL_MS)
                self._since[place] = at, now_ms  # ask again only after the waiting time has passed once more
        return stalled
