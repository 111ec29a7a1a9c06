"""Searches results that were written before a caller began to wait and are no longer remembered.

One pass over the partitions serves all searches that are queued at that time. It reads from the first offset at which
one of their results can be up to the follower's position; the follower sees all later results. A search that has only a
time makes two passes: first from the due time on, where the result most likely is; then from the beginning, for
messages that were cancelled or became dead letters before they were due.
"""

from collections import defaultdict, deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from confluent_kafka import OFFSET_BEGINNING, Consumer, TopicPartition

from tarry.client.outcome.follower import LOOK_WITHIN_S, QUEUE_KBYTES, consume
from tarry.client.outcome.waiting import AwaitedOutcome
from tarry.errors import RetriableError
from tarry.kafka.errors import group_errors
from tarry.kafka.settings import Cluster

if TYPE_CHECKING:
    from tarry.client.outcome.result import OutcomeKey

_READ_S = 0.02
"""How long one read may block the follower if no record arrives, in seconds."""


@dataclass(slots=True)
class Search:
    """A search for the results of one waiting operation.

    Attributes:
        operation: the waiting operation.
        offset: where to begin; None: by time.
        times_ms: the record timestamps at which to begin, one for each pass; 0: at the first record.
        end: the offset at which to end; None: the follower's position.
    """

    operation: AwaitedOutcome
    offset: int | None = None
    times_ms: list[int] = field(default_factory=list)
    end: int | None = None

    @property
    def partition(self) -> int:
        """The partition of the results."""
        return self.operation.wanted.handle.partition


class LookingBack:
    """Searches the older results of a topic. Any thread may call `ask`; only the follower's thread calls the rest.

    Args:
        cluster: the Kafka cluster.
        topic: the results topic.
    """

    def __init__(self, cluster: Cluster, topic: str) -> None:
        self._cluster = cluster
        self._topic = topic
        self._asked: deque[Search] = deque()
        self._running: list[Search] = []
        self._starts: dict[int, int] = {}
        self._ends: dict[int, int] = {}
        self._by_key: dict[OutcomeKey, list[AwaitedOutcome]] = {}
        self._consumer: Consumer | None = None

    @property
    def is_busy(self) -> bool:
        """Whether searches are queued or running."""
        return bool(self._asked or self._running)

    def ask(self, search: Search) -> None:
        """Queue a search."""
        self._asked.append(search)

    def step(self, positions: dict[int, int]) -> None:
        """Do a part of the work: read some records, or begin a pass.

        Args:
            positions: the follower's position in each partition.

        Raises:
            BrokerError: the results cannot be read.
        """
        if self._running:
            self._read()
        elif self._asked:
            self._begin(positions)

    def clients(self) -> list[object]:
        """Return its consumer, if it exists."""
        return [] if self._consumer is None else [self._consumer]

    def close(self) -> None:
        """Close the consumer."""
        if self._consumer is not None:
            self._consumer.close()

    def _begin(self, positions: dict[int, int]) -> None:
        taken = [self._asked.popleft() for _ in range(len(self._asked))]
        running = [search for search in taken if not search.operation.is_settled]
        consumer = self._open()
        try:
            starts = self._find_starts(consumer, running, positions)
        except RetriableError:
            self._asked.extendleft(reversed(running))
            return
        ends: dict[int, int] = defaultdict(int)
        for search in running:
            partition = search.partition
            end = positions[partition] if search.end is None else search.end
            ends[partition] = max(ends[partition], end)
            for key in search.operation.wanted.result_keys():
                self._by_key.setdefault(key, []).append(search.operation)
        self._running, self._starts = running, starts
        self._ends = {partition: end for partition, end in ends.items() if starts[partition] < end}
        with group_errors(f"read {self._topic}"):
            consumer.assign([TopicPartition(self._topic, partition, starts[partition]) for partition in self._ends])
        if not self._ends:
            self._end_pass()

    def _find_starts(self, consumer: Consumer, searches: list[Search], positions: dict[int, int]) -> dict[int, int]:
        """Return, for each partition, the first offset at which one of the results can be."""
        starts: dict[int, int] = {}
        times_ms: dict[int, int] = {}
        for search in searches:
            partition = search.partition
            starts.setdefault(partition, positions[partition])
            if search.offset is not None:
                starts[partition] = min(starts[partition], search.offset)
            else:
                times_ms[partition] = min(times_ms.get(partition, search.times_ms[0]), search.times_ms[0])
        asked = []
        for partition, time_ms in times_ms.items():
            if time_ms:
                asked.append(TopicPartition(self._topic, partition, time_ms))
            else:
                starts[partition] = OFFSET_BEGINNING
        if asked:
            with group_errors(f"read {self._topic}"):
                found = consumer.offsets_for_times(asked, timeout=LOOK_WITHIN_S)
            for place in found:
                if place.offset >= 0:  # otherwise there is no record of that time or later
                    starts[place.partition] = min(starts[place.partition], place.offset)
        return starts

    def _read(self) -> None:
        assert self._consumer is not None  # noqa: S101 - a pass has begun
        for record in consume(self._consumer, _READ_S, self._topic):
            partition, offset = record.partition() or 0, record.offset() or 0
            if record.error() is None:
                for operation in self._by_key.get((partition, record.key() or b""), ()):
                    operation.offer(record.value())
                offset += 1
            if offset >= self._ends.get(partition, offset + 1):
                del self._ends[partition]
        if not self._ends:
            self._end_pass()

    def _end_pass(self) -> None:
        """Unassign the partitions, and queue the second pass of searches that have one."""
        if self._consumer is not None:
            with group_errors(f"read {self._topic}"):
                self._consumer.unassign()
        for search in self._running:
            if len(search.times_ms) > 1 and not search.operation.is_settled:
                start = self._starts[search.partition]
                self._asked.append(Search(search.operation, None, search.times_ms[1:], start))
        self._running = []
        self._by_key = {}

    def _open(self) -> Consumer:
        if self._consumer is None:
            # If retention deletes records meanwhile, the search continues with the remaining ones.
            properties = {**self._cluster.reader(QUEUE_KBYTES), "auto.offset.reset": "earliest"}
            self._consumer = self._cluster.clients.consumer(properties)
        return self._consumer
