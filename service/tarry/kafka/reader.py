"""A consumer without a group: it reads what it is told to, from the offset it is told, and commits nothing."""

from collections.abc import Callable, Iterable, Mapping, Sequence

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition

from tarry.errors import LogError
from tarry.kafka.errors import error_of, group_errors
from tarry.kafka.settings import QUEUE_KBYTES, Cluster
from tarry.kafka.stall import StallWatch
from tarry.kafka.types import Place

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
        watch: tells when the client stands still, and is made anew; None: nobody looks.
    """

    def __init__(
        self,
        cluster: Cluster,
        on_warning: Callable[[str], None],
        queue_kbytes: int = QUEUE_KBYTES,
        watch: StallWatch | None = None,
    ) -> None:
        self._clients = cluster.clients
        self._properties = cluster.reader(queue_kbytes)
        self._consumer = self._clients.consumer(self._properties)
        self._on_warning = on_warning
        self._watch = watch
        self._opened: dict[Place, int] = {}
        """Where each partition that is open was opened."""
        self._positions: dict[Place, int] = {}
        """The offset that comes next of each partition that is open."""
        self._paused: set[Place] = set()
        self._stalled: list[Place] = []
        self._lost: dict[Place, LogError] = {}
        """Of partitions that no longer hold what comes next; told when what was read of the others is handed out."""

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
        """Have a connection before it is needed: the client looks for one once a second, and nothing comes until then.

        Measured with librdkafka 2.16: up to 1 s to the first record without, 60 ms with. Where no broker answers, the
        client goes on to look by itself.
        """
        try:
            consumer.list_topics(topic, CONNECT_S)
        except KafkaException as exception:
            self._on_warning(error_of(exception).str())

    def shut(self, places: Iterable[Place]) -> None:
        """Stop reading partitions. A pause is over, or it would outlive this, and whatever opens them next."""
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
        """Wait until `most` records are there or the time is over.

        Returns:
            The records, and for each partition whose end was reached the offset that comes next: past markers and
            aborted records. An end comes in the stream of records, so it is never one from before `open`, as
            `position()` may be (confluent-kafka-python #1802).

        Raises:
            LogError: a partition no longer holds the offset that comes next: raised until that is shut.
        """
        if self._lost:
            raise next(iter(self._lost.values()))
        if self._stalled:
            self._renew()
        with group_errors("read"):
            records = self._consumer.consume(most, timeout_s)
        is_drained = len(records) < most
        if not any(map(_error, records)):
            self._mind(records, _NOTHING, is_drained=is_drained)
            return records, _NOTHING
        reached: dict[Place, int] = {}
        good = []
        for record in records:
            error = record.error()
            if error is None:
                good.append(record)
            elif error.code() == KafkaError._PARTITION_EOF:
                reached[_place(record)] = record.offset() or 0
            elif error.code() in _OFF_THE_LOG and self._is_over(record):
                self._on_warning(error.str())
            elif error.code() in _OFF_THE_LOG:
                topic, partition = place = _place(record)
                self._lost[place] = LogError(
                    f"{topic}/{partition} no longer holds the records that come next ({error.str()}): "
                    "was its retention changed, or its data deleted?",
                    place,
                )
            else:
                self._on_warning(error.str())
        self._mind(good, reached, is_drained=is_drained)
        if self._lost and not good and not reached:
            raise next(iter(self._lost.values()))
        return good, reached

    def pause(self, places: Iterable[Place]) -> None:
        """Stop fetching; what was fetched and not read is thrown away, so use it seldom."""
        paused = list(places)
        with group_errors("pause"):
            self._consumer.pause([TopicPartition(*place) for place in paused])
        self._paused.update(paused)

    def resume(self, places: Iterable[Place]) -> None:
        """Go on after `pause`."""
        resumed = list(places)
        with group_errors("resume"):
            self._consumer.resume([TopicPartition(*place) for place in resumed])
        self._paused.difference_update(resumed)

    def close(self) -> None:
        """Close the client."""
        with group_errors("close the reader"):
            self._consumer.close()

    def _is_over(self, record: Message) -> bool:
        """Whether an error is of an earlier stretch of a partition: the client hands it out whenever it is asked next.

        Who slept while others emptied a bucket is told so of where it stood then, which is below where it reads now.
        """
        opened = self._opened.get(_place(record))
        return opened is None or 0 <= (record.offset() or 0) < opened

    def _mind(self, records: Sequence[Message], reached: Mapping[Place, int], *, is_drained: bool) -> None:
        """Note what was read, and whether the client stands still."""
        if self._watch is None:
            return
        # The last of each partition is enough, and they come in runs.
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
        """Go on with another client, where this one stands."""
        stalled, self._stalled = [place for place in self._stalled if place in self._positions], []
        if not stalled:
            return
        topic, partition = stalled[0]
        self._on_warning(f"nothing came of {topic}/{partition} though there is something: its consumer is made anew")
        with group_errors("make a consumer anew"):
            consumer = self._clients.consumer(self._properties)
        self._begin(consumer, self._positions)
        if self._paused:
            with group_errors("pause"):
                consumer.pause([TopicPartition(*place) for place in self._paused])
        # It may take its time, and nobody has to wait for it.
        self._clients.in_background(self._consumer.close)
        self._consumer = consumer


def _place(record: Message) -> Place:
    return record.topic() or "", record.partition() or 0
