"""The numbers of all processes together, over all lives of each.

A process that is started anew counts from nothing. So what its last life had counted is kept and added: a counter of
the service never goes back while the supervisor lives. What a process counted after its last snapshot, at most a
second before a kill -9, is not known.

Gauges are those of the processes that live; the ones with the label `process` are shown for each, the others added up.
"""

from collections.abc import Iterable, Mapping, Sequence
from itertools import product

from tarry.service.metrics.families import FAMILIES, Family
from tarry.service.metrics.tally import Key, Snapshot, Tally, empty

_PER_PROCESS = frozenset(family.name for family in FAMILIES if "process" in family.labels)


class Totals:
    """Adds up. Not safe between threads.

    Args:
        labels: all values of labels that are known from the start: counters begin at 0 for each of them, so that the
            first event already is an increase. A family with a label that is not among them begins empty.
    """

    def __init__(self, labels: Mapping[str, Sequence[str]]) -> None:
        self.own = Tally()
        """What the supervisor counts itself."""
        self._live: dict[int, Snapshot] = {}
        self._counters: dict[Key, float] = {}
        self._histograms: dict[Key, list[float]] = {}
        for family in FAMILIES:
            for key in _keys(family, labels):
                if family.kind == "counter":
                    self._counters[key] = 0
                elif family.kind == "histogram":
                    self._histograms[key] = empty(family)

    def update(self, process: int, snapshot: Snapshot) -> None:
        """Take the newest snapshot of a process; it replaces the last one of the same life."""
        self._live[process] = snapshot

    def end(self, process: int) -> None:
        """A process's life is over: keep what it counted, forget its gauges."""
        if (snapshot := self._live.pop(process, None)) is not None:
            _add(self._counters, self._histograms, snapshot)

    def sum(self) -> Snapshot:
        """All numbers as they are now."""
        counters = dict(self._counters)
        histograms = {key: list(values) for key, values in self._histograms.items()}
        own = self.own.snapshot()
        gauges: dict[Key, float] = dict(own.gauges)
        for snapshot in (*self._live.values(), own):
            _add(counters, histograms, snapshot)
        for process, snapshot in self._live.items():
            for key, value in snapshot.gauges.items():
                whole = (*key, str(process)) if key[0] in _PER_PROCESS else key
                gauges[whole] = gauges.get(whole, 0) + value
        return Snapshot(counters, histograms, gauges)


def _add(counters: dict[Key, float], histograms: dict[Key, list[float]], snapshot: Snapshot) -> None:
    for key, value in snapshot.counters.items():
        counters[key] = counters.get(key, 0) + value
    for key, values in snapshot.histograms.items():
        before = histograms.get(key)
        histograms[key] = list(values) if before is None else [a + b for a, b in zip(before, values, strict=True)]


def _keys(family: Family, labels: Mapping[str, Sequence[str]]) -> Iterable[Key]:
    if any(label not in labels for label in family.labels):
        return []
    return [(family.name, *values) for values in product(*(labels[label] for label in family.labels))]
