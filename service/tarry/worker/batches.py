"""What one transaction takes: a batch from each partition that has something for it."""

from collections.abc import Callable, Iterable, Sequence

from tarry.core.batch import Batch
from tarry.core.partition import PartitionState

MOST_TO_FILE = 40_000
"""Where more waits to be filed, nothing more is read."""

Batches = list[tuple[PartitionState, Batch]]
"""Each with the partition that it was taken from."""


def take_batches(states: Sequence[PartitionState], most: int, take: Callable[[PartitionState, int], Batch]) -> Batches:
    """Take messages for one transaction.

    Args:
        states: the partitions, in the order in which they are asked.
        most: messages of the transaction.
        take: takes up to so many messages from a partition.

    Returns:
        The batches that are not empty.
    """
    batches: Batches = []
    room = most
    for state in states:
        if room > 0 and (batch := take(state, room)):
            batches.append((state, batch))
            room -= len(batch)
    return batches


def targets_of(batches: Batches) -> set[str]:
    """The topics that messages of the batches are for."""
    return {message.target for _, batch in batches for message in batch.due}


def is_behind(states: Iterable[PartitionState]) -> bool:
    """Whether so much waits to be filed that no more is to be read: bounded memory, for a backlog that is read."""
    return sum(state.to_file for state in states) > MOST_TO_FILE
