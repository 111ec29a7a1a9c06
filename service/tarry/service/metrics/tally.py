"""What one process counts: plain numbers in dictionaries, and snapshots of them that go over a pipe.

Counting happens once a batch, never once a message: a batch's lateness is counted by looking for each bucket's bound in
its sorted due times, so it costs a sort of what is nearly sorted and a few bisections.

Counters and histograms hold all that was counted since the process began. So a snapshot that never arrives loses
nothing as long as a later one does.
"""

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tarry.service.metrics.families import LATENESS, Family

Key = tuple[str, ...]
"""A family's name, and the values of its labels in their order."""

_LATENESS_BOUNDS_MS = [round(bound * 1000) for bound in LATENESS.bounds]


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The numbers of one process at one time.

    Attributes:
        counters: what only grows.
        histograms: for each bucket the count of it alone, the infinite one's included; then the sum of all values.
        gauges: what goes up and down.
    """

    counters: Mapping[Key, float] = field(default_factory=dict)
    histograms: Mapping[Key, Sequence[float]] = field(default_factory=dict)
    gauges: Mapping[Key, float] = field(default_factory=dict)

    def encode(self) -> dict[str, Any]:
        """As JSON can take it."""
        return {
            "counters": [[*key, value] for key, value in self.counters.items()],
            "histograms": [[list(key), list(values)] for key, values in self.histograms.items()],
            "gauges": [[*key, value] for key, value in self.gauges.items()],
        }

    @classmethod
    def decode(cls, encoded: Mapping[str, Any]) -> "Snapshot":
        """From what `encode` made.

        Raises:
            KeyError, TypeError, ValueError: it was not made by that.
        """
        return cls(
            {tuple(key): float(value) for *key, value in encoded["counters"]},
            {tuple(key): tuple(float(value) for value in values) for key, values in encoded["histograms"]},
            {tuple(key): float(value) for *key, value in encoded["gauges"]},
        )


class Tally:
    """Counts. Not safe between threads."""

    def __init__(self) -> None:
        self._counters: dict[Key, float] = {}
        self._histograms: dict[Key, list[float]] = {}
        self._gauges: dict[Key, float] = {}

    def count(self, family: Family, amount: float = 1, *labels: str) -> None:
        """Add to a counter."""
        if amount:
            key = (family.name, *labels)
            self._counters[key] = self._counters.get(key, 0) + amount

    def declare(self, family: Family, *labels: str) -> None:
        """Show a counter as 0 before anything is counted: a rate does not see the first of what was not there."""
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
            due_ms: due times of all its messages, ascending; none after `now_ms`.
            now_ms: when their delivery was committed, wall time.
        """
        values = self._histogram(LATENESS, (intake,))
        later = len(due_ms)
        for place, bound_ms in enumerate(_LATENESS_BOUNDS_MS):
            # Those before this index are later than the bound.
            beyond = bisect_left(due_ms, now_ms - bound_ms, 0, later)
            values[place] += later - beyond
            later = beyond
            if not later:
                break
        values[-2] += later
        values[-1] += (now_ms * len(due_ms) - sum(due_ms)) / 1000

    def replace_gauges(self, gauges: Mapping[Key, float]) -> None:
        """Forget all gauges, and take these: what is not among them is gone, as a partition given up is."""
        self._gauges = dict(gauges)

    def snapshot(self) -> Snapshot:
        """All numbers as they are now."""
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
    """A histogram of nothing."""
    return [0] * (len(family.bounds) + 2)
