"""A consumer without a group: it reads the partitions that are opened, from the given offsets, and commits nothing."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition

from tarry.errors import LogError
from tarry.kafka.errors import error_of, group_errors, translate_group
from tarry.kafka.rights import DENIED
from tarry.kafka.settings import QUEUE_KBYTES, Cluster
from tarry.kafka.stall import StallWatch
from tarry.kafka.types import Place

if TYPE_CHECKING:
    from concurrent.futures import Future

CONNECT_S = 1.0
"""How long to wait for the first connection."""

_OUT_OF_RANGE = frozenset({KafkaError._AUTO_OFFSET_RESET, KafkaError.OFFSET_OUT_OF_RANGE})

_NOTHING: Mapping[Place, int] = {}
_error = Message.error


class Reader:
    """Reads committed records of the partitions that are opened.

    Args:
        cluster: the Kafka cluster.
        on_warning: takes the text of an error from which the client recovers by itself.
        queue_kbytes: how much it fetches ahead.
        watch: tells when the client has stopped fetching and must be replaced; None: no check.
        is_denial_final: whether a right to a topic that is missing is an error; otherwise it is a warning, and the
            reader waits. It needs no right to the group whose name the client library wants.
    """

    def __init__(
        self,
        cluster: Cluster,
        on_warning: Callable[[str], None],
        queue_kbytes: int = QUEUE_KBYTES,
        watch: StallWatch | None = None,
        *,
        is_denial_final: bool = False,
    ) -> None:
        self._clients = cluster.clients
        self._properties = cluster.reader(queue_kbytes)
        self._consumer = self._clients.consumer(self._properties)
        self._replaced: list[tuple[Consumer, Future[None]]] = []
        """Consumers that have stopped fetching, while they are being closed."""
        self._on_warning = on_warning
        self._watch = watch
        self._is_denial_final = is_denial_final
        self._opened: dict[Place, int] = {}
        """The offset at which each open partition was opened."""
        self._positions: dict[Place, int] = {}
        """The next offset of each open partition."""
        self._paused: set[Place] = set()
        self._stalled: list[Place] = []
        self._lost: dict[Place, LogError] = {}
        """Errors of partitions that no longer hold their next offset; raised after the others' records are returned."""

    def open(self, starts: Mapping[Place, int]) -> None:
        """Begin to read partitions at offsets."""
        self._begin(self._consumer, starts)
        self._opened.update(starts)
        self._positions.update(starts)

    def _begin(self, consumer: Consumer, starts: Mapping[Place, int]) -> None:
        if not consumer.assignment():
            self._connect(consumer, next(iter(starts))[0])
        with group_errors("begin to read"):
            consumer.incremental_assign([TopicPartition(*place, at) for place, at in starts.items()])

    def _connect(self, consumer: Consumer, topic: str) -> None:
        """Connect before a connection is needed: the client tries only once a second, and no record comes until then.

        Measured with librdkafka 2.16: up to 1 s to the first record without this, 60 ms with it. If no broker answers,
        the client goes on trying by itself.
        """
        try:
            consumer.list_topics(topic, CONNECT_S)
        except KafkaException as exception:
            self._on_warning(error_of(exception).str())

    def shut(self, places: Iterable[Place]) -> None:
        """Stop reading partitions. This also ends a pause, which would otherwise still hold at their next `open`."""
        shut = list(places)
        partitions = [TopicPartition(*place) for place in shut]
        with group_errors("stop reading"):
            self._consumer.resume(partitions)
            self._consumer.incremental_unassign(partitions)
        for place in shut:
            self._opened.pop(place, None)
            self._positions.pop(place, None)
            self._lost.pop(place, None)
        self._paused.difference_update(shut)

    def read(self, most: int, timeout_s: float) -> tuple[Sequence[Message], Mapping[Place, int]]:
        """Wait until `most` records have come or the time is over.

        Returns:
            The records, and the next offset of each partition whose end was reached, after transaction markers and
            aborted records. The client reports an end within the stream of records. So it is never an end from before
            `open`, as `position()` may be (confluent-kafka-python #1802).

        Raises:
            LogError: a partition no longer holds its next offset; raised until that partition is shut.
            FatalError: the right to read a topic is missing, and `is_denial_final`.
        """
        self._prepare()
        with group_errors("read"):
            records = self._consumer.consume(most, timeout_s)
        return self._sorted(records, is_drained=len(records) < most)

    def read_first(self, most: int, timeout_s: float) -> tuple[Sequence[Message], Mapping[Place, int]]:
        """Wait for the first record, and return it with those that are there with it; else as `read`."""
        self._prepare()
        with group_errors("read"):
            records = self._consumer.consume(1, timeout_s)
            if records:
                records += self._consumer.consume(most - 1, 0)
        return self._sorted(records, is_drained=len(records) < most)

    def _prepare(self) -> None:
        if self._lost:
            raise next(iter(self._lost.values()))
        if self._stalled:
            self._renew()

    def _sorted(self, records: list[Message], *, is_drained: bool) -> tuple[Sequence[Message], Mapping[Place, int]]:
        """Separate the records from the ends that were reached, and from errors."""
        if not any(map(_error, records)):
            self._note(records, _NOTHING, is_drained=is_drained)
            return records, _NOTHING
        reached: dict[Place, int] = {}
        good = []
        for record in records:
            error = record.error()
            if error is None:
                good.append(record)
            elif error.code() == KafkaError._PARTITION_EOF:
                reached[_place(record)] = record.offset() or 0
            elif error.code() in _OUT_OF_RANGE and self._is_outdated(record):
                self._on_warning(error.str())
            elif error.code() in _OUT_OF_RANGE:
                topic, partition = place = _place(record)
                self._lost[place] = LogError(
                    f"{topic}/{partition} no longer holds the records that come next ({error.str()}): "
                    "was its retention changed, or its data deleted?",
                    place,
                )
            elif self._is_denial_final and error.code() in DENIED and record.topic() is not None:
                raise translate_group(error, f"read {record.topic()}")
            else:
                self._on_warning(error.str())
        self._note(good, reached, is_drained=is_drained)
        if self._lost and not good and not reached:
            raise next(iter(self._lost.values()))
        return good, reached

    def pause(self, places: Iterable[Place]) -> None:
        """Stop fetching. This drops records that were fetched and not read, so use it seldom."""
        paused = list(places)
        with group_errors("pause"):
            self._consumer.pause([TopicPartition(*place) for place in paused])
        self._paused.update(paused)

    def resume(self, places: Iterable[Place]) -> None:
        """Fetch again after `pause`."""
        resumed = list(places)
        with group_errors("resume"):
            self._consumer.resume([TopicPartition(*place) for place in resumed])
        self._paused.difference_update(resumed)

    def clients(self) -> list[object]:
        """Return its librdkafka clients."""
        return [self._consumer, *(consumer for consumer, _ in self._replaced)]

    def close(self) -> None:
        """Close the client."""
        with group_errors("close the reader"):
            self._consumer.close()

    def _is_outdated(self, record: Message) -> bool:
        """Return whether an error belongs to an earlier `open` of a partition: the client may return it much later.

        For example, a process slept while another one trimmed a log. Then it gets an error about its former position,
        which is below the offset at which it reads now.
        """
        opened = self._opened.get(_place(record))
        return opened is None or 0 <= (record.offset() or 0) < opened

    def _note(self, records: Sequence[Message], reached: Mapping[Place, int], *, is_drained: bool) -> None:
        """Note the positions, and ask the watch whether the client has stopped fetching."""
        if self._watch is None:
            return
        # The last record of each partition is enough, and the records of a partition come in runs.
        left = set(self._positions)
        for record in reversed(records):
            place = _place(record)
            if place in left:
                self._positions[place] = (record.offset() or 0) + 1
                left.discard(place)
                if not left:
                    break
        for place, position in reached.items():
            if position > self._positions.get(place, position):
                self._positions[place] = position
        reading = {place: at for place, at in self._positions.items() if place not in self._paused}
        self._stalled = self._watch.look(reading, is_drained=is_drained)

    def _renew(self) -> None:
        """Replace a client that has stopped fetching; the new one goes on at the same positions."""
        stalled, self._stalled = [place for place in self._stalled if place in self._positions], []
        if not stalled:
            return
        topic, partition = stalled[0]
        self._on_warning(f"no records came from {topic}/{partition}, although it has some: its consumer is replaced")
        with group_errors("replace a consumer"):
            consumer = self._clients.consumer(self._properties)
        self._begin(consumer, self._positions)
        if self._paused:
            with group_errors("pause"):
                consumer.pause([TopicPartition(*place) for place in self._paused])
        # Closing may take long, and nothing has to wait for it.
        closing = self._clients.in_background(self._consumer.close)
        self._replaced = [(self._consumer, closing), *(one for one in self._replaced if not one[1].done())]
        self._consumer = consumer


def _place(record: Message) -> Place:
    return record.topic() or "", record.partition() or 0
