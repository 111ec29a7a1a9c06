"""The metrics of all processes together, including processes that have ended.

A restarted process counts from 0. So the counts of its predecessor are kept and added, and a counter of the service
never decreases while the supervisor runs. The counts of a process after its last snapshot, at most the last second
before a kill -9, are lost.

Gauges are those of the running processes. A gauge with the label `process` is shown for each process; the others are
added up.
"""

from collections.abc import Iterable, Mapping, Sequence
from itertools import product

from tarry.service.metrics.families import FAMILIES, SERVED, Family
from tarry.service.metrics.tally import SeriesKey, Snapshot, Tally, empty

_PER_PROCESS = frozenset(family.name for family in FAMILIES if "process" in family.labels)


class Totals:
    """Adds up the metrics of all processes. Not thread-safe.

    Args:
        labels: the label values that are known at the start, by label. Counters begin at 0 for each of them, so that
            the first event is an increase. A family with another label begins empty.
        partitions: the number of partitions of each intake. `SERVED` has a row for each of them, and shows 0 while no
            process serves it.
    """

    def __init__(self, labels: Mapping[str, Sequence[str]], partitions: Mapping[str, int] | None = None) -> None:
        self.own = Tally()
        """The metrics that the supervisor counts itself."""
        self._live: dict[int, Snapshot] = {}
        self._unserved: dict[SeriesKey, float] = {
            (SERVED.name, intake, str(partition)): 0
            for intake, number in (partitions or {}).items()
            for partition in range(number)
        }
        self._counters: dict[SeriesKey, float] = {}
        self._histograms: dict[SeriesKey, list[float]] = {}
        for family in FAMILIES:
            for key in _keys(family, labels):
                if family.kind == "counter":
                    self._counters[key] = 0
                elif family.kind == "histogram":
                    self._histograms[key] = empty(family)

    def update(self, process: int, snapshot: Snapshot) -> None:
        """Take the newest snapshot of a process; it replaces the previous one of the same process."""
        self._live[process] = snapshot

    def end(self, process: int) -> None:
        """Note that a process has ended: keep its counts, drop its gauges."""
        if (snapshot := self._live.pop(process, None)) is not None:
            _add(self._counters, self._histograms, snapshot)

    def sum(self) -> Snapshot:
        """Return all metrics as they are now."""
        counters = dict(self._counters)
        histograms = {key: list(values) for key, values in self._histograms.items()}
        own = self.own.snapshot()
        gauges: dict[SeriesKey, float] = {**self._unserved, **own.gauges}
        for snapshot in (*self._live.values(), own):
            _add(counters, histograms, snapshot)
        for process, snapshot in self._live.items():
            for key, value in snapshot.gauges.items():
                whole = (*key, str(process)) if key[0] in _PER_PROCESS else key
                gauges[whole] = gauges.get(whole, 0) + value
        return Snapshot(counters, histograms, gauges)


def _add(counters: dict[SeriesKey, float], histograms: dict[SeriesKey, list[float]], snapshot: Snapshot) -> None:
    for key, value in snapshot.counters.items():
        counters[key] = counters.get(key, 0) + value
    for key, values in snapshot.histograms.items():
        before = histograms.get(key)
        histograms[key] = list(values) if before is None else [a + b for a, b in zip(before, values, strict=True)]


def _keys(family: Family, labels: Mapping[str, Sequence[str]]) -> Iterable[SeriesKey]:
    if any(label not in labels for label in family.labels):
        return []
    return [(family.name, *values) for values in product(*(labels[label] for label in family.labels))]
