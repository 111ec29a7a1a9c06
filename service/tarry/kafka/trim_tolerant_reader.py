"""A reader for inspection from outside: it goes on after deleted records, and does not wait without limit."""

from collections.abc import Mapping, Sequence
from typing import Any

from confluent_kafka import Message

from tarry.clock import Clock
from tarry.errors import RetriableError
from tarry.kafka.reader import Reader
from tarry.kafka.settings import QUEUE_KBYTES, Cluster
from tarry.kafka.types import Place

PATIENCE_MS = 60_000
"""How long no record may come of a log that is not read to its end; a dead writer's transaction lasts half that."""


class TrimTolerantReader(Reader):
    """A reader that skips deleted records, and gives up when no record comes for long.

    Args:
        cluster: the Kafka cluster.
        clock: monotonic time.
    """

    def __init__(self, cluster: Cluster, clock: Clock) -> None:
        super().__init__(forgiving(cluster), self._warn, is_denial_final=True)
        self._clock = clock
        self._warning = "no answer, or a transaction is open"
        self._waits_since_ms = 0

    def _warn(self, text: str) -> None:
        self._warning = text

    def open(self, starts: Mapping[Place, int]) -> None:
        """Begin to read partitions at offsets."""
        self._waits_since_ms = self._clock.monotonic_ms()
        super().open(starts)

    def read(self, most: int, timeout_s: float) -> tuple[Sequence[Message], Mapping[Place, int]]:
        """Wait for the first record, and return those that are there with it; see `Reader`.

        An onlooker reads many short logs: waiting for more than there is would take most of its time.

        Raises:
            RetriableError: no record has come for `PATIENCE_MS`.
        """
        records, reached = super().read_first(most, timeout_s)
        if records or reached:
            self._waits_since_ms = self._clock.monotonic_ms()
        elif self._clock.monotonic_ms() - self._waits_since_ms > PATIENCE_MS:
            raise RetriableError(f"no record came for {PATIENCE_MS // 1000} s: {self._warning}")
        return records, reached


def forgiving(cluster: Cluster) -> Cluster:
    """Return a cluster whose readers go on at the beginning of the log when their next records are deleted."""
    return _Forgiving(cluster.bootstrap_servers, cluster.options, cluster.clients, cluster.reads_as)


class _Forgiving(Cluster):
    __slots__ = ()

    def reader(self, queue_kbytes: int = QUEUE_KBYTES) -> dict[str, Any]:
        # The end of one log must not hold up the first record of the next one.
        return {**super().reader(queue_kbytes), "auto.offset.reset": "earliest", "fetch.wait.max.ms": 10}
