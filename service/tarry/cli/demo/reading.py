"""The demo's reader: a read_committed consumer of the target topic, on its own thread."""

import threading
from collections.abc import Callable
from typing import Any, Final

from confluent_kafka import Consumer, KafkaError, TopicPartition

from tarry.cli.demo.tally import Arrival
from tarry.clock import Clock
from tarry.errors import TarryError
from tarry.headers import ID
from tarry.kafka.errors import group_errors, translate_group
from tarry.kafka.record_headers import headers_of
from tarry.kafka.settings import Cluster

_POLL_S: Final = 0.05
_ASK_WITHIN_S: Final = 10.0
_FINISH_WITHIN_MS: Final = 15_000


class ArrivalReader(threading.Thread):
    """Reads a topic from its beginning until `finish` is called.

    Args:
        bootstrap_servers: the cluster.
        topic: the topic to read.
        partitions: the number of partitions of the topic.
        clock: wall time for the arrival of a record, monotonic time for the bound on `finish`.
        on_arrival: called on this thread for each record.
    """

    def __init__(
        self, bootstrap_servers: str, topic: str, partitions: int, clock: Clock, on_arrival: Callable[[Arrival], None]
    ) -> None:
        super().__init__(name="demo-reader", daemon=True)
        self.error: Exception | None = None
        """The error that ended the thread, if any."""
        self._cluster = Cluster(bootstrap_servers)
        self._places = [TopicPartition(topic, partition, 0) for partition in range(partitions)]
        self._clock = clock
        self._on_arrival = on_arrival
        self._finish_asked = threading.Event()
        self._reached: dict[int, int] = {}

    def finish(self) -> None:
        """Read up to the current end of the topic, and stop. All writers must have stopped before this call."""
        self._finish_asked.set()
        if self.is_alive():
            self.join()

    def run(self) -> None:
        """Read the topic, and keep an error in `error`."""
        try:
            consumer = Consumer(self._cluster.reader())
            try:
                with group_errors("read the target"):
                    consumer.assign(self._places)
                    self._read(consumer)
            finally:
                consumer.close()
        except Exception as error:  # noqa: BLE001 - the thread that started this one raises it
            self.error = error

    def _read(self, consumer: Consumer) -> None:
        while not self._finish_asked.is_set():
            self._read_one(consumer)
        ends = {
            place.partition: consumer.get_watermark_offsets(place, timeout=_ASK_WITHIN_S)[1] for place in self._places
        }
        deadline_ms = self._clock.monotonic_ms() + _FINISH_WITHIN_MS
        while any(self._reached.get(partition, 0) < end for partition, end in ends.items()):
            if self._clock.monotonic_ms() > deadline_ms:
                raise TarryError("the target could not be read to its end")
            self._read_one(consumer)

    def _read_one(self, consumer: Consumer) -> None:
        record: Any = consumer.poll(_POLL_S)
        if record is None:
            return
        seen_ms = self._clock.now_ms()
        error = record.error()
        if error is None:
            ids = [value for name, value in headers_of(record) if name == ID]
            self._on_arrival(Arrival((ids[0] or b"").decode() if ids else "", record.timestamp()[1], seen_ms))
            self._reached[record.partition()] = record.offset() + 1
        elif error.code() == KafkaError._PARTITION_EOF:
            self._reached[record.partition()] = record.offset()
        elif error.fatal():
            raise translate_group(error, "read the target")
