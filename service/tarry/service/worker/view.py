"""The present state of a process's partitions, for the health report."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from tarry.core.partition import PartitionState
from tarry.kafka.types import Place
from tarry.service.worker.aside import Aside


@dataclass(frozen=True, slots=True)
class View:
    """The present state of the loop.

    Attributes:
        joined: whether the group has assigned us partitions, or an empty assignment.
        waiting: how many partitions wait to be taken over.
        states: the partitions that are taken over.
        aside: the partitions that cannot be served now.
        standby: the partitions that stand by.
    """

    joined: bool
    waiting: int
    states: Mapping[Place, PartitionState]
    aside: Aside
    standby: Collection[Place] = ()

    @property
    def not_firing(self) -> int:
        """How many of our partitions do not fire yet; those that are set aside do not count."""
        return self.waiting + sum(state.is_gated for state in self.states.values())
