"""Follows an intake's results: reads each partition from where it ended at the start, and knows where to look back.

A result stands behind all that the partition of results held when its message was not yet in the intake. So from
time to time a *mark* is made: how far the results are read, then where the intake ends. Whatever stands at or behind
that end of the intake has its results at or behind that place of the results.
"""

from collections.abc import Callable, Iterable
from typing import NamedTuple

from confluent_kafka import Consumer, KafkaError, Message, TopicPartition

from tarry.clock import Clock
from tarry.errors import RetriableError, UsageError
from tarry.kafka.contact import Contact
from tarry.kafka.errors import group_errors, translate_group
from tarry.kafka.offsets import Offsets
from tarry.kafka.patience import patiently
from tarry.kafka.settings import Cluster
from tarry.kafka.topics import RESULTS

CONNECT_WITHIN_S = 30.0
PATIENCE_S = 10.0
LOOK_WITHIN_S = 5.0
"""How long who follows may stand still for a question."""
READ_MOST = 1_000
QUEUE_KBYTES = 16_384
_MARKS = 256

_NOBODY_GETS_OVER_IT = frozenset(
    {  # not GROUP_AUTHORIZATION_FAILED: the library looks for its group's coordinator, and has no use for it
        KafkaError._AUTO_OFFSET_RESET,
        KafkaError.OFFSET_OUT_OF_RANGE,
        KafkaError._UNKNOWN_TOPIC,
        KafkaError._UNKNOWN_PARTITION,
        KafkaError.UNKNOWN_TOPIC_OR_PART,
        KafkaError.TOPIC_AUTHORIZATION_FAILED,
        KafkaError.CLUSTER_AUTHORIZATION_FAILED,
    }
)

OnRecord = Callable[[int, int, bytes | None, bytes | None], None]
"""Takes partition, offset, key and value."""


class _Mark(NamedTuple):
    """How far results were read, by partition, before the intake ended there."""

    results: dict[int, int]
    intake: dict[int, int]


class Follower:
    """Reads the results of an intake; for one thread, but for `begin_of`.

    Args:
        cluster: where.
        intake: whose.
        clock: for the patience with brokers that are not ready.

    Raises:
        UsageError: there is no topic of results.
        BrokerError: no answer.
    """

    def __init__(self, cluster: Cluster, intake: str, clock: Clock) -> None:
        self.topic = intake + RESULTS
        self._intake = intake
        self._contact = Contact(cluster.bootstrap_servers, clock)
        self._consumer = cluster.clients.consumer({**cluster.reader(QUEUE_KBYTES), "error_cb": self._contact.note})
        # Its clients fetch nothing: a question behind a fetch that waits for records would wait as long.
        self._offsets = Offsets(cluster.clients.admin(cluster.admin()), cluster.reads_as, cluster)
        self.positions: dict[int, int] = {}
        self._marks: tuple[_Mark, ...] = ()
        try:
            self._reach()
            # Topics that were just made have no leaders for a moment.
            patiently(self._begin, clock, PATIENCE_S)
        except BaseException:
            self.close()
            raise

    def begin_of(self, partition: int, offset: int) -> int | None:
        """Where the results of what stands at an offset of the intake begin; None: it may be before any mark."""
        for mark in reversed(self._marks):
            if mark.intake[partition] <= offset:
                return mark.results[partition]
        return None

    def mark(self) -> None:
        """Remember how far the results are read, in front of where the intake ends."""
        try:
            with group_errors(f"read {self._intake}"):
                mark = self._mark()
        except RetriableError:
            return  # the mark before does as well: there is more to look back to, that is all
        self._marks = (self._marks[0], *self._marks[1:][-_MARKS:], mark)

    def read(self, wait_s: float, on_record: OnRecord) -> int:
        """Read what has come, or comes within some seconds.

        Returns:
            How many records.

        Raises:
            BrokerError: it can't be read, and will not be.
        """
        count = 0
        for record in consume(self._consumer, wait_s, self.topic):
            partition, offset = record.partition() or 0, record.offset() or 0
            if record.error() is None:
                on_record(partition, offset, record.key(), record.value())
                count += 1
                offset += 1
            self.positions[partition] = offset
        return count

    def clients(self) -> list[object]:
        """Those that it reads and asks by."""
        return [self._consumer, *self._offsets.clients()]

    def close(self) -> None:
        """Close the clients."""
        self._consumer.close()
        self._offsets.close()

    def _reach(self) -> None:
        if self._contact.make(self._consumer.list_topics, self._consumer.poll, self.topic) is not None:
            raise UsageError(f"there is no topic {self.topic}: has `tarry serve` served its intake?")

    def _begin(self) -> None:
        with group_errors(f"read {self.topic}"):
            self.positions = self._ends(self.topic, self._count())
            self._marks = (self._mark(),)
            self._consumer.assign([TopicPartition(self.topic, *position) for position in self.positions.items()])

    def _count(self) -> range:
        found = self._consumer.list_topics(self.topic, timeout=CONNECT_WITHIN_S).topics[self.topic]
        if found.error is not None:
            raise translate_group(found.error, f"ask for {self.topic}")
        return range(len(found.partitions))

    def _mark(self) -> _Mark:
        results = dict(self.positions)
        return _Mark(results, self._ends(self._intake, results))

    def _ends(self, topic: str, partitions: Iterable[int]) -> dict[int, int]:
        """Where partitions end, for a read_committed reader."""
        places = [(topic, number) for number in partitions]
        return {number: end for (_, number), end in self._offsets.ends(places, committed=True).items()}


def consume(consumer: Consumer, wait_s: float, topic: str) -> list[Message]:
    """Wait for a record or the end of a partition, and take what else is there.

    Returns:
        Records, and ends: those have an error.

    Raises:
        BrokerError: the topic can't be read, and will not be.
    """
    with group_errors(f"read {topic}"):
        first = consumer.poll(wait_s)
        events = [] if first is None else [first, *consumer.consume(READ_MOST, 0)]
    taken = []
    for event in events:
        error = event.error()
        if error is None or error.code() == KafkaError._PARTITION_EOF:
            taken.append(event)
        elif error.fatal() or error.code() in _NOBODY_GETS_OVER_IT:
            raise translate_group(error, f"read {topic}")
        # The client gets over anything else by itself.
    return taken
