"""The configuration of one process of the service, as plain values."""

from collections.abc import Mapping
from dataclasses import dataclass

from tarry.core.batch import UNBOUNDED
from tarry.core.progress.checkpoint import Geometry
from tarry.core.request.reader import RequestReader
from tarry.core.wheel.overflow import USUAL, Upkeep
from tarry.core.window.parked import PARK_AFTER_MS
from tarry.kafka.settings import BATCH_BYTES, Cluster

NAMES_LIMIT = 1_000_000
"""The most names in each partition, by default."""

OPEN_AFTER_MS = 60_000
"""From what age on a transaction that is open in a log is reported: by default, those of Java's clients end before."""


@dataclass(frozen=True, slots=True)
class IntakePlan:
    """The configuration of one intake.

    Attributes:
        reader: turns its records into requests.
        fixed_delay: whether it has a fixed delay, which keeps the order of its log.
        geometry: the shape of its overflow wheel.
        keep_ms: the least age, by its timestamp, at which a done record is deleted from the intake.
        names_limit: the most names under which messages wait, in each partition.
    """

    reader: RequestReader
    fixed_delay: bool
    geometry: Geometry
    keep_ms: int
    names_limit: int = NAMES_LIMIT

    @property
    def most_occurrences(self) -> int:
        """The most next records of schedules in a transaction: an intake with small batches takes one at a time."""
        room_bytes = self.reader.policy.schedule_bytes
        return 1 if room_bytes is not None and room_bytes < BATCH_BYTES else UNBOUNDED


def producers_of(name: str) -> tuple[str, str, str, str]:
    """Return the transactional ids of a process: for firing, filing, parked messages, and dead letters."""
    return f"{name}-fire", f"{name}-file", f"{name}-park", f"{name}-dead"


def earlier_ids(transactional_id: str) -> list[str]:
    """Return the ids that a firing producer had before it was renamed to this one (`Transactor.rename`)."""
    name, _, number = transactional_id.rpartition("-")
    if not (name.endswith("-fire") and number.isdecimal()):
        return []
    return [name, *(f"{name}-{earlier}" for earlier in range(2, int(number)))]


@dataclass(frozen=True, slots=True)
class Plan:
    """The configuration of one process.

    Attributes:
        cluster: the Kafka cluster.
        group: the consumer group.
        member: librdkafka properties of the group consumer.
        name: the first part of this process's transactional ids; unique among running processes.
        intakes: by topic.
        tick_ms: the tick of the timing wheel in memory.
        wheel_size: the number of its buckets.
        memory_budget_bytes: the memory for held messages.
        interval_ms: the least time from the start of one firing transaction to the next.
        most: the most messages in one transaction.
        most_to_file: when more messages than this wait to be filed, those that are due far in the future are passed
            over; when several times as many wait, intakes and buckets are not read.
        upkeep: how often the levels' logs are looked after.
        sum_up_after: how many journal records a take-over may have to read before a summary is written.
        park_after_ms: how long a message that waits for its target stays in memory, before it is filed to the parked
            log.
        idle_wait_ms: the longest that the loop waits for a record while it has nothing else to do: so long may news of
            the group wait, and a signal.
        obeys_pauses: whether it reads which targets are paused.
        figures_every_ms: how often it publishes figures while something happens; 0: never.
        open_after_ms: from what age on it reports a transaction that is open in a log that it reads; 0: it looks for
            none.
    """

    cluster: Cluster
    group: str
    member: dict[str, object]
    name: str
    intakes: Mapping[str, IntakePlan]
    tick_ms: int
    wheel_size: int
    memory_budget_bytes: int
    interval_ms: int
    most: int
    most_to_file: int = 10_000
    upkeep: Upkeep = USUAL
    sum_up_after: int = 10_000
    park_after_ms: int = PARK_AFTER_MS
    idle_wait_ms: int = 100
    obeys_pauses: bool = True
    figures_every_ms: int = 0
    open_after_ms: int = OPEN_AFTER_MS
