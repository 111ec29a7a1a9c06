"""The totals in Prometheus's text format.

Each `Exposition` has its own registry, and does not use the library's global one, so it holds no other metrics.
"""

from collections.abc import Callable, Iterable
from itertools import accumulate
from typing import TypeVar

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

from tarry.service.metrics.families import FAMILIES, Family
from tarry.service.metrics.tally import SeriesKey, Snapshot

Value = TypeVar("Value")

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"


class Exposition:
    """The text of `/metrics`.

    Args:
        look: returns the metrics; called at each scrape.
        version: the version of the service.
    """

    def __init__(self, look: Callable[[], Snapshot], version: str) -> None:
        self._registry = CollectorRegistry(auto_describe=False)
        self._registry.register(_Shown(look, version))

    def text(self) -> bytes:
        """Return all metrics in Prometheus's text format."""
        return generate_latest(self._registry)


class _Shown(Collector):
    """Collects the values of all families."""

    def __init__(self, look: Callable[[], Snapshot], version: str) -> None:
        self._look = look
        self._version = version

    def collect(self) -> Iterable[Metric]:
        """Yield all metrics; the registry calls this at each scrape."""
        yield _build_info(self._version)
        snapshot = self._look()
        for family in FAMILIES:
            if family.kind == "histogram":
                yield _histogram(family, snapshot)
            else:
                yield _plain(family, snapshot)


def _build_info(version: str) -> Metric:
    metric = GaugeMetricFamily("tarry_build_info", "1; the version is in the label.", labels=["version"])
    metric.add_metric([version], 1)
    return metric


def _plain(family: Family, snapshot: Snapshot) -> Metric:
    made = CounterMetricFamily if family.kind == "counter" else GaugeMetricFamily
    metric = made(family.name, family.help, labels=family.labels)
    values = snapshot.counters if family.kind == "counter" else snapshot.gauges
    for labels, value in _of(family, values.items()):
        metric.add_metric(labels, value)
    return metric


def _histogram(family: Family, snapshot: Snapshot) -> Metric:
    metric = HistogramMetricFamily(family.name, family.help, labels=family.labels)
    bounds = [*(str(bound) for bound in family.bounds), "+Inf"]
    for labels, values in _of(family, snapshot.histograms.items()):
        *counts, total = values
        metric.add_metric(labels, list(zip(bounds, accumulate(counts), strict=True)), total)
    return metric


def _of(family: Family, items: Iterable[tuple[SeriesKey, Value]]) -> list[tuple[list[str], Value]]:
    """Return the values of one family with their labels, sorted by labels."""
    return sorted(((list(key[1:]), value) for key, value in items if key[0] == family.name), key=lambda found: found[0])
