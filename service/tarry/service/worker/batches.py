"""Selecting the messages of one transaction: a batch from each partition that has any."""

from collections.abc import Callable, Iterable, Sequence, Sized
from typing import Protocol, TypeVar

from tarry.core.batch import Batch
from tarry.core.partition import PartitionState

MOST_TO_FILE = 10_000
"""When more messages than this wait to be filed, and may be filed now, reading pauses."""

MOST_ALONE = 500
"""The most messages in a transaction that sends each in a batch of its own: the rate is some thousands a second."""

Batches = list[tuple[PartitionState, Batch]]
"""Each batch with the partition that it was taken from."""


class Taken(Sized, Protocol):
    """The messages that were taken from a partition."""

    @property
    def size_bytes(self) -> int:
        """About how many bytes a transaction has to write for it."""
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
        states: the partitions, in the order in which messages are taken from them.
        most: the most messages in the transaction.
        most_bytes: the most bytes in it; the first message of a partition may exceed what is left of this bound.
        take: takes at most this many messages, and this many bytes, from a partition.

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
    """Return about how many bytes a transaction has to write for all of them."""
    return sum(batch.size_bytes for _, batch in batches)


def rotated(states: Sequence[PartitionState], turns: int) -> list[PartitionState]:
    """Return the partitions with another one first each turn: a busy partition must not starve the others."""
    first = turns % len(states)
    return [*states[first:], *states[:first]]


def targets_of(batches: Batches) -> set[str]:
    """Return the target topics of the batches."""
    return {message.target for _, batch in batches for message in batch.due}


def is_behind(states: Iterable[PartitionState], times: int = 1) -> bool:
    """Return whether too many messages wait to be filed, so that reading must pause: this bounds memory.

    Args:
        states: all partitions whose messages are filed by the same producer.
        times: this reader pauses at this multiple of `MOST_TO_FILE`.
    """
    return sum(state.placing.to_file - state.placing.held_up for state in states) > times * MOST_TO_FILE
