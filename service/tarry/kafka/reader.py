"""A consumer without a group: it reads what it is told to, from the offset it is told, and commits nothing."""

from collections.abc import Callable, Iterable, Mapping, Sequence

from confluent_kafka import KafkaError, KafkaException, Message, TopicPartition

from tarry.errors import UsageError
from tarry.kafka.errors import error_of, group_errors
from tarry.kafka.place import Place
from tarry.kafka.settings import QUEUE_KBYTES, Cluster

CONNECT_S = 1.0

_OFF_THE_LOG = frozenset({KafkaError._AUTO_OFFSET_RESET, KafkaError.OFFSET_OUT_OF_RANGE})

_NOTHING: Mapping[Place, int] = {}
_error = Message.error


class Reader:
    """Reads committed records of assigned partitions.

    Args:
        cluster: where.
        on_warning: takes the text of an error that the client gets over by itself.
        queue_kbytes: how much it fetches ahead.
    """

    def __init__(self, cluster: Cluster, on_warning: Callable[[str], None], queue_kbytes: int = QUEUE_KBYTES) -> None:
        self._consumer = cluster.clients.consumer(cluster.reader(queue_kbytes))
        self._on_warning = on_warning

    def open(self, starts: Mapping[Place, int]) -> None:
        """Begin to read partitions at offsets."""
        if not self._consumer.assignment():
            self._connect(next(iter(starts))[0])
        with group_errors("begin to read"):
            self._consumer.incremental_assign([TopicPartition(*place, at) for place, at in starts.items()])

    def _connect(self, topic: str) -> None:
        """Have a connection before it is needed: the client looks for one once a second, and nothing comes until then.

        Measured with librdkafka 2.16: up to 1 s to the first record without, 60 ms with. Where no broker answers, the
        client goes on to look by itself.
        """
        try:
            self._consumer.list_topics(topic, CONNECT_S)
        except KafkaException as exception:
            self._on_warning(error_of(exception).str())

    def shut(self, places: Iterable[Place]) -> None:
        """Stop reading partitions. A pause is over, or it would outlive this, and whatever opens them next."""
        partitions = [TopicPartition(*place) for place in places]
        with group_errors("stop reading"):
            self._consumer.resume(partitions)
            self._consumer.incremental_unassign(partitions)

    def read(self, most: int, timeout_s: float) -> tuple[Sequence[Message], Mapping[Place, int]]:
        """Wait until `most` records are there or the time is over.

        Returns:
            The records, and for each partition whose end was reached the offset that comes next: past markers and
            aborted records. An end comes in the stream of records, so it is never one from before `open`, as
            `position()` may be (confluent-kafka-python #1802).

        Raises:
            UsageError: a partition no longer holds the offset that comes next.
        """
        with group_errors("read"):
            records = self._consumer.consume(most, timeout_s)
        if not any(map(_error, records)):
            return records, _NOTHING
        reached: dict[Place, int] = {}
        good = []
        for record in records:
            error = record.error()
            if error is None:
                good.append(record)
            elif error.code() == KafkaError._PARTITION_EOF:
                reached[_place(record)] = record.offset() or 0
            elif error.code() in _OFF_THE_LOG:
                topic, partition = _place(record)
                raise UsageError(
                    f"{topic}/{partition} no longer holds the records that come next ({error.str()}): "
                    "was its retention changed, or its data deleted?"
                )
            else:
                self._on_warning(error.str())
        return good, reached

    def pause(self, places: Iterable[Place]) -> None:
        """Stop fetching; what was fetched and not read is thrown away, so use it seldom."""
        with group_errors("pause"):
            self._consumer.pause([TopicPartition(*place) for place in places])

    def resume(self, places: Iterable[Place]) -> None:
        """Go on after `pause`."""
        with group_errors("resume"):
            self._consumer.resume([TopicPartition(*place) for place in places])

    def close(self) -> None:
        """Close the client."""
        with group_errors("close the reader"):
            self._consumer.close()


def _place(record: Message) -> Place:
    return record.topic() or "", record.partition() or 0
