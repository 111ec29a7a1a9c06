"""Prometheus metrics of outcome readers, for an application's own registry."""

from collections.abc import Iterator
from typing import Protocol

from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector


class Sizes(Protocol):
    """The sizes of an `OutcomeReader`."""

    @property
    def intake(self) -> str:
        """The intake whose outcomes it reads."""
        ...

    @property
    def waiting(self) -> int:
        """The number of waiting operations."""
        ...

    @property
    def delayed(self) -> int:
        """The number of operations in the timing wheel."""
        ...

    @property
    def watched(self) -> int:
        """The number of entries in the purgatory's watch lists."""
        ...

    @property
    def remembered(self) -> int:
        """The number of remembered results."""
        ...


class OutcomeMetrics(Collector):
    """Exports the sizes of outcome readers, with the intake as the label.

    Example:
        prometheus_client.REGISTRY.register(OutcomeMetrics(outcomes))

    Args:
        readers: `OutcomeReader`s, one for each intake.
    """

    def __init__(self, *readers: Sizes) -> None:
        self._readers = readers

    def collect(self) -> Iterator[Metric]:
        """Return the metrics; Prometheus calls it at each scrape."""
        gauges = {
            name: GaugeMetricFamily(f"tarry_outcomes_{name}", text, labels=["intake"])
            for name, text in (
                ("waiting", "Operations that wait for an outcome"),
                ("delayed", "Operations in the purgatory's timing wheel"),
                ("watched", "Entries under the purgatory's keys, settled ones until they are purged"),
                ("remembered", "Results remembered for those who wait for them later"),
            )
        }
        for reader in self._readers:
            sizes = {
                "waiting": reader.waiting,
                "delayed": reader.delayed,
                "watched": reader.watched,
                "remembered": reader.remembered,
            }
            for name, size in sizes.items():
                gauges[name].add_metric([reader.intake], size)
        yield from gauges.values()
