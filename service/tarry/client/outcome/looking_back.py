"""Searches results that were written before a caller began to wait and are no longer remembered.

One pass over the partitions serves all searches that are queued at that time. It reads from the first offset at which
one of their results can be up to the follower's position; the follower sees all later results. A search that has only a
time makes two passes: first from the due time on, where the result most likely is; then from the beginning, for
messages that were cancelled or became dead letters before they were due.
"""

from collections import defaultdict, deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from tarry.client.outcome.follower import QUEUE_KBYTES, READ_MOST
from tarry.client.outcome.waiting import AwaitedOutcome
from tarry.clock import Clock
from tarry.errors import RetriableError
from tarry.kafka.offsets import Offsets
from tarry.kafka.reader import Reader
from tarry.kafka.settings import Cluster
from tarry.kafka.stall import StallWatch
from tarry.kafka.trim_tolerant_reader import forgiving

if TYPE_CHECKING:
    from tarry.client.outcome.result import OutcomeKey
    from tarry.kafka.types import Place

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
        offsets: asks the brokers about offsets.
        clock: monotonic time.
    """

    def __init__(self, cluster: Cluster, topic: str, offsets: Offsets, clock: Clock) -> None:
        # If retention deletes records meanwhile, the search continues with the remaining ones.
        self._cluster = forgiving(cluster)
        self._topic = topic
        self._offsets = offsets
        self._clock = clock
        self._asked: deque[Search] = deque()
        self._running: list[Search] = []
        self._starts: dict[int, int] = {}
        self._ends: dict[int, int] = {}
        self._by_key: dict[OutcomeKey, list[AwaitedOutcome]] = {}
        self._reader: Reader | None = None

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
        """Return the librdkafka clients of its reader, if it exists."""
        return [] if self._reader is None else self._reader.clients()

    def close(self) -> None:
        """Close the reader."""
        if self._reader is not None:
            self._reader.close()

    def _begin(self, positions: dict[int, int]) -> None:
        taken = [self._asked.popleft() for _ in range(len(self._asked))]
        running = [search for search in taken if not search.operation.is_settled]
        try:
            starts = self._find_starts(running, positions)
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
        if self._ends:
            self._open().open({(self._topic, partition): starts[partition] for partition in self._ends})
        else:
            self._end_pass()

    def _find_starts(self, searches: list[Search], positions: dict[int, int]) -> dict[int, int]:
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
        found: dict[Place, int] = {}
        if wholly := [(self._topic, partition) for partition, time_ms in times_ms.items() if not time_ms]:
            found |= self._offsets.starts(wholly)
        if since := {(self._topic, partition): time_ms for partition, time_ms in times_ms.items() if time_ms}:
            found |= self._offsets.since(since)
        for (_, partition), offset in found.items():
            if offset >= 0:  # otherwise there is no record of that time or later
                starts[partition] = min(starts[partition], offset)
        return starts

    def _read(self) -> None:
        assert self._reader is not None  # noqa: S101 - a pass has begun
        records, reached = self._reader.read_first(READ_MOST, _READ_S)
        progress = {partition: offset for (_, partition), offset in reached.items()}
        for record in records:
            partition, offset = record.partition() or 0, record.offset() or 0
            for operation in self._by_key.get((partition, record.key() or b""), ()):
                operation.offer(record.value())
            progress[partition] = max(offset + 1, progress.get(partition, 0))
        for partition, offset in progress.items():
            if offset >= self._ends.get(partition, offset + 1):
                del self._ends[partition]
                self._reader.shut([(self._topic, partition)])
        if not self._ends:
            self._end_pass()

    def _end_pass(self) -> None:
        """Queue the second pass of searches that have one."""
        for search in self._running:
            if len(search.times_ms) > 1 and not search.operation.is_settled:
                start = self._starts[search.partition]
                self._asked.append(Search(search.operation, None, search.times_ms[1:], start))
        self._running = []
        self._by_key = {}

    def _open(self) -> Reader:
        if self._reader is None:
            watch = StallWatch(self._offsets, self._clock)
            self._reader = Reader(self._cluster, _ignore, QUEUE_KBYTES, watch, is_denial_final=True)
        return self._reader


def _ignore(_text: str) -> None:
    """Take note of nothing: the client library recovers by itself."""
