"""What one process of the service does, as plain values."""

from collections.abc import Mapping
from dataclasses import dataclass

from tarry.core.progress.checkpoint import Geometry
from tarry.core.request.reader import RequestReader
from tarry.kafka.settings import Cluster


@dataclass(frozen=True, slots=True)
class IntakePlan:
    """One intake, as the loop needs it.

    Attributes:
        reader: decides what its records ask for.
        fixed_delay: whether the order of its log is kept.
        geometry: of its overflow wheel.
        keep_ms: how long done records stay.
    """

    reader: RequestReader
    fixed_delay: bool
    geometry: Geometry
    keep_ms: int


def producers_of(name: str) -> tuple[str, str, str, str]:
    """The transactional ids of a process: what fires, files, was parked, and dead letters."""
    return f"{name}-fire", f"{name}-file", f"{name}-park", f"{name}-dead"


@dataclass(frozen=True, slots=True)
class Plan:
    """What one process does.

    Attributes:
        cluster: where.
        group: the consumer group.
        member: librdkafka's properties of the group consumer.
        name: the first part of this process's transactional ids; unique among processes that run.
        intakes: by topic.
        tick_ms: of the hot wheel.
        wheel_size: of the hot wheel.
        memory_budget_bytes: for messages held.
        interval_ms: the least time from the start of one transaction to the next.
        most: messages a transaction.
        sum_up_after: records of a journal that a take-over may have to read before they are summed up.
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
    sum_up_after: int = 10_000
