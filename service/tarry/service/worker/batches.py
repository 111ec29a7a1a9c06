"""Selecting the messages of one transaction: from which partitions, in which order, and how many.

A transaction takes a bounded number of bytes: fewer after one that timed out, then more again. Under a quota, or with
slow disks, the brokers may be unable to write a large transaction within the client library's time-out; without this
bound, it would be tried without end. The same rule applies when one of the service's own topics refuses a batch because
its limit was lowered: the next batches are smaller.

    tried       bound   took
    32 MB       32 MB   5 s, and timed out
    16 MB       16 MB   5 s, and timed out
     8 MB        8 MB   3 s
     9 MB        9 MB   … an eighth more each time, until that is too much

It is also smaller after a transaction that a named record could not wait for.
"""

from collections.abc import Callable, Iterable, Sequence, Sized
from typing import Protocol, TypeVar

from tarry.core.batch import Batch
from tarry.core.partition import PartitionState

MOST_BYTES = 32 * 1024 * 1024
"""The largest bound, in bytes: more is seldom ready at once, and larger transactions are no faster."""

GROWTH = 8
"""After a transaction that used at least half its bound, the bound grows by one part in `GROWTH`."""

MOST_ALONE = 500
"""The most messages in a transaction that sends each in a batch of its own: the rate is some thousands a second."""

Batches = list[tuple[PartitionState, Batch]]
"""Each batch with the partition that it was taken from."""


class TakenMessages(Sized, Protocol):
    """The messages that were taken from a partition."""

    @property
    def size_bytes(self) -> int:
        """About how many bytes a transaction has to write for it."""
        ...


_Taken = TypeVar("_Taken", bound=TakenMessages)


class Bound:
    """The bound of one producer's transactions, or of those for one target."""

    __slots__ = ("bytes", "has_given_way")

    def __init__(self) -> None:
        self.bytes = MOST_BYTES
        """The most bytes in the next transaction; its first message may exceed it."""
        self.has_given_way = False
        """Whether the last transaction was aborted because a named record waited for it."""

    @property
    def is_shrunk(self) -> bool:
        """Whether it is below `MOST_BYTES`."""
        return self.bytes < MOST_BYTES

    def shrink(self, tried_bytes: int) -> None:
        """Halve the bound after a transaction of `tried_bytes` failed, down to one message a transaction."""
        self.bytes = max(1, min(self.bytes, tried_bytes) // 2)
        self.has_given_way = False

    def give_way(self, tried_bytes: int) -> None:
        """Halve the bound after a transaction of `tried_bytes` was aborted because a named record waited for it."""
        self.shrink(tried_bytes)
        self.has_given_way = True

    def grow(self, done_bytes: int) -> None:
        """Grow the bound after a transaction of `done_bytes` committed; one below half the bound proves nothing."""
        self.has_given_way = False
        if self.is_shrunk and done_bytes >= self.bytes // 2:
            reached = max(self.bytes, done_bytes)
            self.bytes = min(MOST_BYTES, reached + max(1, reached // GROWTH))


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


def size_of(batches: Iterable[tuple[PartitionState, TakenMessages]]) -> int:
    """Return about how many bytes a transaction has to write for all of them."""
    return sum(batch.size_bytes for _, batch in batches)


def rotated(states: Sequence[PartitionState], turns: int) -> list[PartitionState]:
    """Return the partitions with another one first each turn: a busy partition must not starve the others."""
    first = turns % len(states)
    return [*states[first:], *states[:first]]
