"""What one transaction takes: a batch from each partition that has something for it."""

from collections.abc import Callable, Iterable, Sequence, Sized
from typing import Protocol, TypeVar

from tarry.core.batch import Batch
from tarry.core.partition import PartitionState

MOST_TO_FILE = 10_000
"""Where more waits to be filed, and may be, nothing more is read."""

MOST_ALONE = 500
"""Messages of a transaction that sends each in a batch of its own: some thousands a second are the most that can be."""

Batches = list[tuple[PartitionState, Batch]]
"""Each with the partition that it was taken from."""


class Taken(Sized, Protocol):
    """What was taken from a partition."""

    @property
    def size_bytes(self) -> int:
        """About how much a transaction has to write for it."""
        ...


_Taken = TypeVar("_Taken", bound=Taken)


def take_batches(
    states: Sequence[PartitionState],
    most: int,
    most_bytes: int,
    take: Callable[[PartitionState, int, int], _Taken],
) -> list[tuple[PartitionState, _Taken]]:
    """Take messages for one transaction.

    Args:
        states: the partitions, in the order in which they are asked.
        most: messages of the transaction.
        most_bytes: of it, but for the first message of each partition that is asked.
        take: takes up to so many messages, and so many bytes, from a partition.

    Returns:
        The batches that are not empty.
    """
    batches: list[tuple[PartitionState, _Taken]] = []
    for state in states:
        if most > 0 and most_bytes > 0 and (batch := take(state, most, most_bytes)):
            batches.append((state, batch))
            most -= len(batch)
            most_bytes -= batch.size_bytes
    return batches


def size_of(batches: Iterable[tuple[PartitionState, Taken]]) -> int:
    """About how many bytes a transaction has to write for all of them."""
    return sum(batch.size_bytes for _, batch in batches)


def rotated(states: Sequence[PartitionState], turns: int) -> list[PartitionState]:
    """Another one comes first each time: a herd in one partition must not starve the others."""
    first = turns % len(states)
    return [*states[first:], *states[:first]]


def targets_of(batches: Batches) -> set[str]:
    """The topics that messages of the batches are for."""
    return {message.target for _, batch in batches for message in batch.due}


def is_behind(states: Iterable[PartitionState], times: int = 1) -> bool:
    """Whether so much waits to be filed that no more is to be read: bounded memory, for a backlog that is read.

    Args:
        states: all that share the filing.
        times: how much longer this reader may go on than others.
    """
    return sum(state.placing.to_file - state.placing.held_up for state in states) > times * MOST_TO_FILE
