"""Notices a consumer that gets nothing though there is something to get.

When it loses its connections the client library may stop fetching for good: nothing comes and nothing is said, while
other clients beside it go on (librdkafka #4916; seen with 2.16, some times in an hour of cut connections). Only a new
consumer gets over it. That no record comes tells nothing by itself: so the brokers are asked, by another client.

What was fetched and waits for the reader has come. So nothing is concluded while the reader gets all that it can take.
"""

from collections.abc import Mapping

from tarry.clock import Clock
from tarry.kafka.offsets import Offsets, Pending
from tarry.kafka.types import Place

STALL_MS = 10_000
"""How long nothing comes of a partition before the brokers are asked whether there is something."""

MOST_STALL_MS = 300_000
"""The same at most: it doubles each time that a new consumer did not help, as where a quota of the brokers holds it."""

_LOOK_EVERY_MS = 500
_PAUSE_MS = 2_000
"""Who has not read for so long has not waited either."""


class StallWatch:
    """Watches over the partitions of one reader.

    Args:
        offsets: asks the brokers, by a client of its own.
        clock: monotonic time.
    """

    def __init__(self, offsets: Offsets, clock: Clock) -> None:
        self._offsets = offsets
        self._clock = clock
        self._looked_ms = -_PAUSE_MS
        self._since: dict[Place, tuple[int, int]] = {}
        """Where each partition stands, and since when."""
        self._patience_ms: dict[Place, int] = {}
        """Where a new consumer has not helped yet."""
        self._asked: Pending | None = None

    def look(self, positions: Mapping[Place, int], *, is_drained: bool) -> list[Place]:
        """Look at the partitions that are being read; called at each read, never waits.

        Args:
            positions: the offset that comes next of each.
            is_drained: whether the reader got less than it asked for, so that nothing waits for it.

        Returns:
            Those that stand still, though there is something behind their positions.
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
                self._since[place] = at, now_ms  # it is asked for again when as much time has passed
        return stalled
