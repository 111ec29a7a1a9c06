"""One look at an intake: offsets, checkpoints and journals of all its partitions, from which all counts follow.

Nothing of it grows with what waits but the number of buckets, and the index of names while a look lasts.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from tarry.config import Config
from tarry.core.progress.source import INTAKE
from tarry.core.request.reader import RequestReader
from tarry.kafka.backlog import Backlog
from tarry.kafka.backlog_index import DueRange, bucket_counts, parked_at_most
from tarry.kafka.inspector import Inspector, ParkedMessages, States
from tarry.kafka.overdue import overdue
from tarry.kafka.topics import DEAD
from tarry.kafka.types import Place
from tarry.service.app import policy_at


@dataclass(frozen=True, slots=True)
class PartitionLook:
    """What one look found of a partition.

    Attributes:
        place: the partition.
        at_most: how many messages wait, at most.
        in_memory: how many of them are in memory, or not read yet.
        parked: how many are in the parked log.
        journal_records: how many records of the journal a take-over reads.
        names: under how many names messages wait.
        late_since_ms: since when a message has been due.
        is_known: whether the group has a checkpoint of it.
        is_released: whether its last owner has given it up.
    """

    place: Place
    at_most: int
    in_memory: int
    parked: int
    journal_records: int
    names: int
    late_since_ms: int | None
    is_known: bool
    is_released: bool


@dataclass(frozen=True, slots=True)
class IntakeLook:
    """What one look found of an intake.

    Attributes:
        partitions: its partitions, by number.
        counts: what waits in the levels, by bucket.
        hot_until_ms: the end of the hot window: what is in memory is due before, or was not read yet.
        parked: the parked messages, by partition and target.
        dead_at_most: how many records its topic of dead letters holds.
    """

    partitions: Sequence[PartitionLook] = ()
    counts: Mapping[DueRange, int] = field(default_factory=dict)
    hot_until_ms: int = 0
    parked: Sequence[ParkedMessages] = ()
    dead_at_most: int = 0

    @property
    def at_most(self) -> int:
        """How many messages wait, at most."""
        return sum(one.at_most for one in self.partitions)

    @property
    def in_memory(self) -> int:
        """How many of them are in memory, or not read yet, at most."""
        return sum(one.in_memory for one in self.partitions)

    @property
    def parked_at_most(self) -> int:
        """How many of them are in the parked log, at most."""
        return sum(one.parked for one in self.partitions)

    @property
    def late_since_ms(self) -> int | None:
        """Since when a message has been due."""
        return min((one.late_since_ms for one in self.partitions if one.late_since_ms is not None), default=None)


def look_at(inspector: Inspector, settings: Config, intake: str, now_ms: int) -> IntakeLook:
    """Look at an intake.

    Raises:
        UsageError: there is no such intake.
        BrokerError: Kafka does not answer.
    """
    backlogs, states = inspector.look(intake)
    policy = policy_at(settings, intake)
    late = overdue(inspector, backlogs, states, RequestReader(policy), now_ms)
    longest_ms = policy.max_delay_ms if policy.fixed_delay_ms is None else policy.fixed_delay_ms
    counts: Counter[DueRange] = Counter()
    partitions = []
    for backlog in backlogs:
        of_partition = [(_bounded(due, backlog), size) for due, size in bucket_counts(backlog, states[backlog.place])]
        for due, count in of_partition:
            counts[due] += count
        partitions.append(_partition(backlog, states, sum(count for _, count in of_partition), late))
    return IntakeLook(
        partitions,
        counts,
        max((_hot_until_ms(one, now_ms + longest_ms) for one in backlogs), default=now_ms),
        list(inspector.parked(backlogs, states)),
        _records(inspector, intake + DEAD, len(backlogs)),
    )


def _bounded(due: DueRange, backlog: Backlog) -> DueRange:
    """Give a range without an end that of its level: what is due later is in the level above."""
    closed = () if backlog.checkpoint is None else backlog.checkpoint.closed_ms
    if due.until_ms is None and due.level < len(closed):
        return due._replace(until_ms=max(closed[due.level], due.from_ms + 1))
    return due


def _partition(backlog: Backlog, states: States, in_levels: int, late: Mapping[Place, int]) -> PartitionLook:
    state = states[backlog.place]
    in_memory = max(backlog.end - backlog.low - len(state.done[INTAKE]), 0)
    parked = parked_at_most(backlog, state)
    return PartitionLook(
        backlog.place,
        in_memory + in_levels + parked,
        in_memory,
        parked,
        max(backlog.journal_end - backlog.journal_begin, 0),
        state.names.index.count,
        late.get(backlog.place),
        backlog.checkpoint is not None,
        backlog.checkpoint is not None and backlog.checkpoint.released,
    )


def _hot_until_ms(backlog: Backlog, otherwise_ms: int) -> int:
    checkpoint = backlog.checkpoint
    return otherwise_ms if checkpoint is None or not checkpoint.closed_ms else min(checkpoint.closed_ms)


def _records(inspector: Inspector, topic: str, partitions: int) -> int:
    logs = inspector.offsets.existing([(topic, number) for number in range(partitions)])
    if not logs:
        return 0
    starts, ends = inspector.offsets.starts(logs), inspector.offsets.ends(logs, committed=False)
    return sum(ends[log] - starts[log] for log in logs)
