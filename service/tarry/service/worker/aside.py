"""Partitions that the group gave us and that are not served, so that all others are.

- *quarantined*: something about it only a person can mend (a record in its journal that is not ours, a log that was
  deleted, a topic that was not grown along with the intake, a right that is missing). It is tried again every minute.
- *waiting*: one of its logs has no leader, or is not known to a broker and may be there all the same. It is taken over
  again as soon as all of them have one.

Either is said once, and again where the one becomes the other or the reason changes: in the log, in a metric, in what
`/readyz` says.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass

from tarry.clock import Clock
from tarry.kafka.types import Place

TRY_EVERY_MS = 60_000
"""How often it is tried whether a quarantined partition was mended."""


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
        clock: monotonic time.
        on_event: takes an event's name and fields, for the log.
    """

    def __init__(self, clock: Clock, on_event: Callable[..., None]) -> None:
        self._clock = clock
        self._on_event = on_event
        self._places: dict[Place, _Aside] = {}

    def __len__(self) -> int:
        return len(self._places)

    def lines(self) -> list[str]:
        """What there is to say of each, for people."""
        quarantined, waiting = sorted(self.quarantined.items()), sorted(self.waiting.items())
        return [
            *(f"{topic}/{partition} is quarantined: {why}" for (topic, partition), why in quarantined),
            *(f"{topic}/{partition} waits: {why}" for (topic, partition), why in waiting),
        ]

    def __iter__(self) -> Iterator[Place]:
        return iter(list(self._places))

    def __contains__(self, place: Place) -> bool:
        return place in self._places

    @property
    def quarantined(self) -> Mapping[Place, str]:
        """Those that only a person can mend, and why."""
        return {place: one.why for place, one in self._places.items() if one.try_at_ms is not None}

    @property
    def waiting(self) -> Mapping[Place, str]:
        """Those of which a log has no leader, and why."""
        return {place: one.why for place, one in self._places.items() if one.try_at_ms is None}

    def quarantine(self, place: Place, why: str) -> None:
        """Only a person can mend it."""
        self._put(place, why, self._clock.monotonic_ms() + TRY_EVERY_MS, "partition_quarantined")

    def wait(self, place: Place, why: str) -> None:
        """One of its logs has no leader."""
        self._put(place, why, None, "partition_waits")

    def _put(self, place: Place, why: str, try_at_ms: int | None, event: str) -> None:
        known = self._places.get(place)
        self._places[place] = _Aside(why, try_at_ms)
        if known is None or known.why != why or (known.try_at_ms is None) != (try_at_ms is None):
            self._on_event(event, topic=place[0], partition=place[1], reason=why)

    def due(self, away: Collection[Place]) -> list[Place]:
        """Those to be tried again now.

        Args:
            away: those of which a log is known to have no leader.
        """
        now_ms = self._clock.monotonic_ms()
        return [
            place
            for place, one in self._places.items()
            if place not in away and (one.try_at_ms is None or one.try_at_ms <= now_ms)
        ]

    def back(self, places: Iterable[Place]) -> None:
        """These are served again."""
        for place in places:
            if self._places.pop(place, None) is not None:
                self._on_event("partition_back", topic=place[0], partition=place[1])

    def clear(self) -> None:
        """Nothing is ours any more."""
        self._places.clear()

    def forget(self, places: Iterable[Place]) -> None:
        """These are no longer ours."""
        for place in places:
            self._places.pop(place, None)
