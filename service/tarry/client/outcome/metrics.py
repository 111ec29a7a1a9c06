"""The sizes of what waits for outcomes, for an application's own metrics."""

from collections.abc import Iterator
from typing import Protocol

from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector


class Sizes(Protocol):
    """What an `OutcomeReader` says of itself."""

    @property
    def intake(self) -> str:
        """Whose outcomes."""
        ...

    @property
    def waiting(self) -> int:
        """Operations that wait."""
        ...

    @property
    def delayed(self) -> int:
        """Those in the timing wheel."""
        ...

    @property
    def watched(self) -> int:
        """Entries under keys."""
        ...

    @property
    def remembered(self) -> int:
        """Results."""
        ...


class OutcomeMetrics(Collector):
    """Shows the sizes of readers of outcomes, by intake.

    Example:
        prometheus_client.REGISTRY.register(OutcomeMetrics(outcomes))

    Args:
        readers: `OutcomeReader`s, one for each intake.
    """

    def __init__(self, *readers: Sizes) -> None:
        self._readers = readers

    def collect(self) -> Iterator[Metric]:
        """What Prometheus asks for."""
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
