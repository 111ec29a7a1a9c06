"""The metrics that one process counts: plain numbers in dictionaries, with snapshots for the supervisor.

Counting is done per batch, never per message. The lateness of a batch is counted by a bisection for each bucket's bound
in the sorted due times, so it costs a few bisections, and a sort of due times that are nearly sorted.

Counters and histograms hold everything since the start of the process. So a lost snapshot loses nothing, as long as a
later one arrives.
"""

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tarry.service.metrics.families import LATENESS, Family

SeriesKey = tuple[str, ...]
"""A family's name and its label values, in order."""

_LATENESS_BOUNDS_MS = [round(bound * 1000) for bound in LATENESS.bounds]


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The metrics of one process at one time.

    Attributes:
        counters: the values of counters.
        histograms: for each histogram the count of each bucket alone (not cumulative), the infinite bucket included;
            then the sum of all values.
        gauges: the values of gauges.
    """

    counters: Mapping[SeriesKey, float] = field(default_factory=dict)
    histograms: Mapping[SeriesKey, Sequence[float]] = field(default_factory=dict)
    gauges: Mapping[SeriesKey, float] = field(default_factory=dict)

    def encode(self) -> dict[str, Any]:
        """Return the snapshot as a value for JSON."""
        return {
            "counters": [[*key, value] for key, value in self.counters.items()],
            "histograms": [[list(key), list(values)] for key, values in self.histograms.items()],
            "gauges": [[*key, value] for key, value in self.gauges.items()],
        }

    @classmethod
    def decode(cls, encoded: Mapping[str, Any]) -> "Snapshot":
        """Read the value that `encode` returned.

        Raises:
            KeyError, TypeError, ValueError: the value is not one that `encode` returns.
        """
        return cls(
            {tuple(key): float(value) for *key, value in encoded["counters"]},
            {tuple(key): tuple(float(value) for value in values) for key, values in encoded["histograms"]},
            {tuple(key): float(value) for *key, value in encoded["gauges"]},
        )


class Tally:
    """The metrics of one process, while it counts. Not thread-safe."""

    def __init__(self) -> None:
        self._counters: dict[SeriesKey, float] = {}
        self._histograms: dict[SeriesKey, list[float]] = {}
        self._gauges: dict[SeriesKey, float] = {}

    def count(self, family: Family, amount: float = 1, *labels: str) -> None:
        """Add to a counter."""
        if amount:
            key = (family.name, *labels)
            self._counters[key] = self._counters.get(key, 0) + amount

    def declare(self, family: Family, *labels: str) -> None:
        """Set a counter to 0 if it has no value yet: otherwise a rate would not see its first increase."""
        self._counters.setdefault((family.name, *labels), 0)

    def observe(self, family: Family, value: float, *labels: str) -> None:
        """Add one value to a histogram, in the family's unit."""
        values = self._histogram(family, labels)
        values[bisect_left(family.bounds, value)] += 1
        values[-1] += value

    def observe_lateness(self, intake: str, due_ms: Sequence[int], now_ms: int) -> None:
        """Add a batch to the lateness histogram.

        Args:
            intake: the topic.
            due_ms: the due times of its messages, ascending; none is after `now_ms`.
            now_ms: when the delivery was committed, wall time.
        """
        values = self._histogram(LATENESS, (intake,))
        later = len(due_ms)
        for place, bound_ms in enumerate(_LATENESS_BOUNDS_MS):
            # The messages before this index were later than the bound.
            beyond = bisect_left(due_ms, now_ms - bound_ms, 0, later)
            values[place] += later - beyond
            later = beyond
            if not later:
                break
        values[-2] += later
        values[-1] += (now_ms * len(due_ms) - sum(due_ms)) / 1000

    def replace_gauges(self, gauges: Mapping[SeriesKey, float]) -> None:
        """Replace all gauges. One that is not among these is removed, for example that of a released partition."""
        self._gauges = dict(gauges)

    def snapshot(self) -> Snapshot:
        """Return all metrics as they are now."""
        return Snapshot(
            dict(self._counters),
            {key: tuple(values) for key, values in self._histograms.items()},
            dict(self._gauges),
        )

    def _histogram(self, family: Family, labels: tuple[str, ...]) -> list[float]:
        key = (family.name, *labels)
        values = self._histograms.get(key)
        if values is None:
            values = self._histograms[key] = empty(family)
        return values


def empty(family: Family) -> list[float]:
    """Return the values of an empty histogram."""
    return [0] * (len(family.bounds) + 2)
