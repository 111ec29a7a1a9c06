"""Follows an intake's results from their end at the start, and knows where the results of an intake record begin.

A message's result always has a higher offset than every result that was written before the message was produced. So
the follower makes a *mark* from time to time: it notes its position in the results, then the end offset of the intake.
A record at or after that intake offset has its results at or after that position.
"""

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, NamedTuple

from confluent_kafka import Consumer, KafkaError, Message, TopicPartition

from tarry.client.outcome.presence import Presence
from tarry.clock import Clock
from tarry.errors import RetriableError, UsageError
from tarry.kafka.contact import Contact
from tarry.kafka.errors import group_errors, translate_group
from tarry.kafka.offsets import Offsets
from tarry.kafka.patience import patiently
from tarry.kafka.settings import Cluster
from tarry.kafka.stall import StallWatch
from tarry.kafka.topics import RESULTS, no_intake

if TYPE_CHECKING:
    from concurrent.futures import Future

CONNECT_WITHIN_S = 30.0
"""How long to wait for the metadata of the results topic at the start, in seconds."""
PATIENCE_S = 10.0
"""How long to retry at the start while a new topic has no leaders, in seconds."""
READ_MOST = 1_000
"""The most records of one read."""
QUEUE_KBYTES = 16_384
"""How much librdkafka prefetches, in kB."""
_MARKS = 256
"""How many marks are kept, besides the first and the last; a search without a mark begins further back."""

_PERMANENT = frozenset(
    {  # not GROUP_AUTHORIZATION_FAILED: librdkafka looks up the group's coordinator, but the follower never uses it
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
"""Called with partition, offset, key and value."""


class _Mark(NamedTuple):
    """The positions in the results, and the end offsets of the intake a moment later, by partition."""

    results: dict[int, int]
    intake: dict[int, int]


class Follower:
    """Reads the results of an intake. Not thread-safe, except `begin_of`.

    Args:
        cluster: the Kafka cluster.
        intake: the intake.
        clock: measures the time-outs at the start.

    Raises:
        UsageError: the results topic does not exist.
        BrokerError: the brokers do not answer.
    """

    def __init__(self, cluster: Cluster, intake: str, clock: Clock) -> None:
        self.topic = intake + RESULTS
        self._intake = intake
        self._contact = Contact(cluster.bootstrap_servers, clock)
        self._clients = cluster.clients
        self._properties: dict[str, Any] = {**cluster.reader(QUEUE_KBYTES), "error_cb": self._contact.note}
        self._consumer = self._clients.consumer(self._properties)
        # Separate clients: on the consumer's connection a request would wait behind a long fetch.
        admin = cluster.clients.admin(cluster.admin())
        self.offsets = Offsets(admin, cluster.reads_as, cluster)
        """Asks the brokers about offsets."""
        self._presence = Presence(self.topic, admin, clock)
        self._watch = StallWatch(self.offsets, clock)
        self._has_stalled = False
        self._replaced: list[tuple[Consumer, Future[None]]] = []
        """Consumers that have stopped fetching, while they are being closed."""
        self.positions: dict[int, int] = {}
        self._marks: tuple[_Mark, ...] = ()
        try:
            self._reach()
            # New topics have no leaders for a moment.
            patiently(self._begin, clock, PATIENCE_S)
        except BaseException:
            self.close()
            raise

    def begin_of(self, partition: int, offset: int) -> int | None:
        """Return the offset at which the results of an intake record begin; None: it may be before the first mark."""
        for mark in reversed(self._marks):
            if mark.intake[partition] <= offset:
                return mark.results[partition]
        return None

    def mark(self) -> None:
        """Make a mark; skip it if the brokers do not answer."""
        try:
            with group_errors(f"read {self._intake}"):
                mark = self._mark()
        except RetriableError:
            return  # the last mark is still valid; a search begins a little further back
        self._marks = (self._marks[0], *self._marks[1:][-_MARKS:], mark)

    def read(self, wait_s: float, on_record: OnRecord) -> int:
        """Read the results that have arrived, or arrive within `wait_s` seconds.

        Returns:
            The number of records.

        Raises:
            BrokerError: the results cannot be read, permanently, or their topic was deleted.
        """
        if self._has_stalled:
            self._renew()
        count = 0
        events = consume(self._consumer, wait_s, self.topic)
        for record in events:
            partition, offset = record.partition() or 0, record.offset() or 0
            if record.error() is None:
                on_record(partition, offset, record.key(), record.value())
                count += 1
                offset += 1
            self.positions[partition] = offset
        if count:
            self._presence.note()
        else:
            self._presence.look()
        positions = {(self.topic, partition): at for partition, at in self.positions.items()}
        self._has_stalled = bool(self._watch.look(positions, is_drained=len(events) < READ_MOST))
        return count

    def _renew(self) -> None:
        """Replace a consumer that has stopped fetching; the new one goes on at the same positions."""
        before, self._consumer = self._consumer, self._clients.consumer(self._properties)
        self._assign()
        # Closing may take long, and nothing has to wait for it.
        closing = self._clients.in_background(before.close)
        self._replaced = [(before, closing), *(one for one in self._replaced if not one[1].done())]
        self._has_stalled = False

    def _assign(self) -> None:
        with group_errors(f"read {self.topic}"):
            self._consumer.assign([TopicPartition(self.topic, *position) for position in self.positions.items()])

    def clients(self) -> list[object]:
        """Return its librdkafka clients."""
        return [self._consumer, *(consumer for consumer, _ in self._replaced), *self.offsets.clients()]

    def close(self) -> None:
        """Close the clients."""
        self._consumer.close()
        self.offsets.close()

    def _reach(self) -> None:
        if self._contact.make(self._consumer.list_topics, self._consumer.poll, self.topic) is not None:
            raise UsageError(no_intake(self.topic))

    def _begin(self) -> None:
        with group_errors(f"read {self.topic}"):
            self.positions = self._ends(self.topic, self._count())
            self._marks = (self._mark(),)
        self._assign()

    def _count(self) -> range:
        found = self._consumer.list_topics(self.topic, timeout=CONNECT_WITHIN_S).topics[self.topic]
        if found.error is not None:
            raise translate_group(found.error, f"ask for {self.topic}")
        return range(len(found.partitions))

    def _mark(self) -> _Mark:
        results = dict(self.positions)
        return _Mark(results, self._ends(self._intake, results))

    def _ends(self, topic: str, partitions: Iterable[int]) -> dict[int, int]:
        """Return the last stable offsets of partitions."""
        places = [(topic, number) for number in partitions]
        return {number: end for (_, number), end in self.offsets.ends(places, committed=True).items()}


def consume(consumer: Consumer, wait_s: float, topic: str) -> list[Message]:
    """Wait for a record or an end-of-partition event, and take all others that are already there.

    Returns:
        Records, and end-of-partition events, which have an error.

    Raises:
        BrokerError: the topic cannot be read, permanently.
    """
    with group_errors(f"read {topic}"):
        first = consumer.poll(wait_s)
        events = [] if first is None else [first, *consumer.consume(READ_MOST, 0)]
    taken = []
    for event in events:
        error = event.error()
        if error is None or error.code() == KafkaError._PARTITION_EOF:
            taken.append(event)
        elif error.fatal() or error.code() in _PERMANENT:
            raise translate_group(error, f"read {topic}")
        # librdkafka recovers from all other errors by itself.
    return taken
