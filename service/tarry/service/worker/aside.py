"""Partitions that are assigned to us and set aside: they are not served, so that all others are.

- *quarantined*: only an operator can remove the cause (a foreign record in its journal, a log that was deleted, a topic
  that was not grown along with the intake, a missing right). It is tried again every minute.
- *away*: one of its logs has no leader, or a broker does not know the log although it may exist. It is taken over
  again as soon as all its logs have leaders.

Each is reported once, and again when one becomes the other or the reason changes: in the log, in a metric, and by
`/readyz`.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass

from tarry.kafka.types import Place
from tarry.service.worker.context import Context

TRY_EVERY_MS = 60_000
"""How often a quarantined partition is tried again."""


@dataclass(slots=True)
class _Aside:
    """Why a partition is not served.

    Attributes:
        why: one line.
        try_at_ms: monotonic; None: when its logs have leaders again.
    """

    why: str
    try_at_ms: int | None


class Aside:
    """The partitions of one process that are not served.

    Args:
        context: monotonic time and the log.
    """

    def __init__(self, context: Context) -> None:
        self._clock = context.clock
        self._on_event = context.on_event
        self._places: dict[Place, _Aside] = {}

    def __len__(self) -> int:
        return len(self._places)

    def lines(self) -> list[str]:
        """Return a line for each, with the reason."""
        quarantined, away = sorted(self.quarantined.items()), sorted(self.away.items())
        return [
            *(f"{topic}/{partition} is quarantined: {why}" for (topic, partition), why in quarantined),
            *(f"{topic}/{partition} waits: {why}" for (topic, partition), why in away),
        ]

    def __iter__(self) -> Iterator[Place]:
        return iter(list(self._places))

    def __contains__(self, place: Place) -> bool:
        return place in self._places

    @property
    def quarantined(self) -> Mapping[Place, str]:
        """Partitions that need an operator, and why."""
        return {place: one.why for place, one in self._places.items() if one.try_at_ms is not None}

    @property
    def away(self) -> Mapping[Place, str]:
        """Partitions with a log that has no leader, and why."""
        return {place: one.why for place, one in self._places.items() if one.try_at_ms is None}

    def quarantine(self, place: Place, why: str) -> None:
        """Set a partition aside until an operator removes the cause; it is tried again every minute."""
        self._put(place, why, self._clock.monotonic_ms() + TRY_EVERY_MS, "partition_quarantined")

    def set_away(self, place: Place, why: str) -> None:
        """Set a partition aside until all its logs have leaders."""
        self._put(place, why, None, "partition_waits")

    def _put(self, place: Place, why: str, try_at_ms: int | None, event: str) -> None:
        known = self._places.get(place)
        self._places[place] = _Aside(why, try_at_ms)
        if known is None or known.why != why or (known.try_at_ms is None) != (try_at_ms is None):
            self._on_event(event, topic=place[0], partition=place[1], reason=why)

    def due(self, away: Collection[Place]) -> list[Place]:
        """Return the partitions to try again now.

        Args:
            away: partitions with a log that is known to have no leader.
        """
        now_ms = self._clock.monotonic_ms()
        return [
            place
            for place, one in self._places.items()
            if place not in away and (one.try_at_ms is None or one.try_at_ms <= now_ms)
        ]

    def back(self, places: Iterable[Place]) -> None:
        """Report these partitions as served again."""
        for place in places:
            if self._places.pop(place, None) is not None:
                self._on_event("partition_back", topic=place[0], partition=place[1])

    def clear(self) -> None:
        """Forget all, because no partition is ours any more."""
        self._places.clear()

    def forget(self, places: Iterable[Place]) -> None:
        """Forget partitions that are no longer ours."""
        for place in places:
            self._places.pop(place, None)
