"""What one transaction takes: a batch from each partition that has something for it."""

from collections.abc import Callable, Iterable, Sequence, Sized
from typing import TypeVar

from tarry.core.batch import Batch
from tarry.core.partition import PartitionState

MOST_TO_FILE = 10_000
"""Where more waits to be filed, nothing more is read."""

MOST_ALONE = 500
"""Messages of a transaction that sends each in a batch of its own: some thousands a second are the most that can be."""

Batches = list[tuple[PartitionState, Batch]]
"""Each with the partition that it was taken from."""


_Taken = TypeVar("_Taken", bound=Sized)


def take_batches(
    states: Sequence[PartitionState], most: int, take: Callable[[PartitionState, int], _Taken]
) -> list[tuple[PartitionState, _Taken]]:
    """Take messages for one transaction.

    Args:
        states: the partitions, in the order in which they are asked.
        most: messages of the transaction.
        take: takes up to so many messages from a partition.

    Returns:
        The batches that are not empty.
    """
    batches: list[tuple[PartitionState, _Taken]] = []
    room = most
    for state in states:
        if room > 0 and (batch := take(state, room)):
            batches.append((state, batch))
            room -= len(batch)
    return batches


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
    return sum(state.placing.to_file for state in states) > times * MOST_TO_FILE
