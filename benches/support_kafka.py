"""Topics and messages for both contenders of a benchmark, and the progress of a topic.

Every measurement has new topics, so that nothing is left over from the one before. The progress of a topic is its last
stable offset, up to which a read_committed reader can read. A request for it takes hardly any CPU time, whereas a
reader of 100,000 messages a second would compete with the contenders for the two cores.
"""

import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

from confluent_kafka import Consumer, IsolationLevel, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._listoffsets import OffsetSpec
from confluent_kafka.cimpl import NewTopic

from tarry.devbroker import EmbeddedBroker

KEYS: Final = [b"key-%04d" % number for number in range(1_000)]
VALUE: Final = bytes(range(32, 96)) * 4  # 256 bytes
PARTITIONS: Final = 4
MARK: Final = "bench-mark"
_LATEST: Final[OffsetSpec] = OffsetSpec.latest()  # type: ignore[no-untyped-call]


def large_broker(properties: Mapping[str, str] = MappingProxyType({})) -> EmbeddedBroker:
    """Start a broker with the memory and the optimizing JIT compiler that a measurement needs."""
    return EmbeddedBroker(properties=properties, jvm_options=("-Xms1g", "-Xmx1g"))


@dataclass(frozen=True, slots=True)
class Topics:
    """The names of one measurement's topics, and its consumer group."""

    name: str

    @property
    def intake(self) -> str:
        """The topic to which the benchmark produces."""
        return f"{self.name}.intake"

    @property
    def target(self) -> str:
        """The topic to which messages are delivered."""
        return f"{self.name}.target"

    @property
    def results(self) -> str:
        """The topic of the result records."""
        return f"{self.name}.intake.results"


class AwayTopics(Topics):
    """The same, with a target of which the measurement decides when it is there."""

    @property
    def target(self) -> str:
        """The topic to which messages are delivered."""
        return f"{self.name}.away"


def create_topics(bootstrap: str, names: Iterable[str], partitions: int = PARTITIONS) -> None:
    """Make topics, and wait until the broker has them."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    made = admin.create_topics([NewTopic(name, partitions, 1) for name in names])
    for future in made.values():
        future.result(timeout=30)


def delete_topics(bootstrap: str, prefix: str) -> None:
    """Remove every topic of a measurement, so that the broker's disk and page cache serve the next."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    names = [name for name in admin.list_topics(timeout=30).topics if name.startswith(prefix)]
    if names:
        for future in admin.delete_topics(names).values():
            future.result(timeout=30)


def load_producer(bootstrap: str) -> Producer:
    """Return a producer with the settings of docs/headers.md: acks=all, idempotence, Java's murmur2 partitioner."""
    return Producer(
        {
            "bootstrap.servers": bootstrap,
            "enable.idempotence": True,
            "partitioner": "murmur2_random",
            "linger.ms": 5,
            "batch.size": 1_048_576,
            "queue.buffering.max.messages": 500_000,
            "delivery.report.only.error": True,
        }
    )


def produce(producer: Producer, topics: Topics, number: int, when: tuple[str, str], mark: str | None = None) -> None:
    """Queue one message: a value of 256 B, a key, and headers for target, time and id.

    Args:
        producer: where to queue it; waits for room if its queue is full.
        topics: of this measurement.
        number: which message; id and key come from it.
        when: the header that says when it is due, such as `("tarry-delay-ms", "1000")`.
        mark: the message's kind, for its readers, written to the header `MARK`.
    """
    headers: list[tuple[str, str | bytes | None]] = [
        ("tarry-target", topics.target),
        when,
        ("tarry-id", f"{number:08x}-0000-4000-8000-000000000000"),
    ]
    if mark is not None:
        headers.append((MARK, mark))
    while True:
        try:
            producer.produce(topics.intake, VALUE, KEYS[number % 1_000], headers=headers)
        except BufferError:
            producer.poll(0.01)
        else:
            return


def preload(bootstrap: str, topics: Topics, due_ms: Iterable[int]) -> float:
    """Write a message to the intake for each due time; return how many seconds that took."""
    started = time.monotonic()
    producer = load_producer(bootstrap)
    for number, due in enumerate(due_ms):
        produce(producer, topics, number, ("tarry-deliver-at", str(due)))
    producer.flush()
    return time.monotonic() - started


class Progress:
    """The progress of a topic for read_committed readers, with one request for all its partitions."""

    def __init__(self, bootstrap: str, topic: str, partitions: int = PARTITIONS) -> None:
        self._admin = AdminClient({"bootstrap.servers": bootstrap})
        self._settled: int | None = None
        self._latest = {TopicPartition(topic, number): _LATEST for number in range(partitions)}
        self._wait_for_leaders(topic)

    def _wait_for_leaders(self, topic: str) -> None:
        """Wait until the new topic's leaders answer: other brokers know a new topic earlier than its leaders do."""
        ends = time.monotonic() + 30
        while True:
            try:
                self._admin.list_topics(topic, timeout=30)
                self.stable()
            except KafkaException:
                if time.monotonic() > ends:
                    raise
                time.sleep(0.05)
            else:
                return

    def stable(self) -> int:
        """The sum of last stable offsets; transaction markers count."""
        found = self._admin.list_offsets(self._latest, isolation_level=IsolationLevel.READ_COMMITTED)
        return sum(future.result(timeout=30).offset for future in found.values())

    def settled(
        self, quiet_s: float, deadline_s: float, every_s: float = 0.005, since: int | None = None
    ) -> list[tuple[int, int]]:
        """Watch until the offsets have grown and then stayed equal for `quiet_s`, or until `deadline_s` has passed.

        Args:
            quiet_s: how long the offsets must stay equal.
            deadline_s: how long to watch at most.
            every_s: the pause between two requests.
            since: the sum of stable offsets at the begin, if they may have grown already.

        Returns:
            Pairs of wall time in milliseconds and the sum of stable offsets then, one for each change.
        """
        start = self.stable() if since is None else since
        seen = [(time.time_ns() // 1_000_000, start)]
        ends = time.monotonic() + deadline_s
        moved = time.monotonic()
        while time.monotonic() < ends:
            stable = self.stable()
            if stable != seen[-1][1]:
                moved = time.monotonic()
                seen.append((time.time_ns() // 1_000_000, stable))
            elif len(seen) > 1 and time.monotonic() - moved > quiet_s:
                break
            time.sleep(every_s)
        self._settled = seen[-1][1]
        return seen

    def check_settled(self) -> None:
        """Check, after the contender has ended, that `settled` has not mistaken a pause for the end."""
        if self._settled is not None and self.stable() != self._settled:
            raise SystemExit("more messages came after the measurement had ended")


def stamps(bootstrap: str, topic: str, partitions: int = PARTITIONS) -> list[int]:
    """Return the timestamps of all records that a read_committed reader gets, ascending, in epoch milliseconds.

    Only this counts messages. A difference of offsets also counts transaction markers, and there are many of them if
    transactions are small, as at low rates.
    """
    reader = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "bench.stamps",
            "isolation.level": "read_committed",
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
            "enable.partition.eof": True,
        }
    )
    reader.assign([TopicPartition(topic, number, 0) for number in range(partitions)])
    found: list[int] = []
    at_end = 0
    while at_end < partitions:
        for message in reader.consume(10_000, 1.0):
            if message.error() is None:
                found.append(message.timestamp()[1])
            else:
                at_end += 1
    reader.close()
    return sorted(found)
