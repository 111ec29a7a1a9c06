"""How many bytes of messages a transaction takes: fewer after one that timed out, then more again.

Under a quota, or with slow disks, the brokers may be unable to write a large transaction within the client library's
time-out; without this bound, it would be tried without end. The same rule applies when one of the service's own topics
refuses a batch because its limit was lowered: the next batches are smaller.

    tried       bound   took
    32 MB       32 MB   5 s, and timed out
    16 MB       16 MB   5 s, and timed out
     8 MB        8 MB   3 s
     9 MB        9 MB   … an eighth more each time, until that is too much
"""

MOST_BYTES = 32 * 1024 * 1024
"""The largest bound, in bytes: more is seldom ready at once, and larger transactions are no faster."""

GROWTH = 8
"""After a transaction that used at least half its bound, the bound grows by one part in `GROWTH`."""


class Bound:
    """The bound of one producer's transactions, or of those for one target."""

    __slots__ = ("bytes",)

    def __init__(self) -> None:
        self.bytes = MOST_BYTES
        """The most bytes in the next transaction; its first message may exceed it."""

    @property
    def is_shrunk(self) -> bool:
        """Whether it is below `MOST_BYTES`."""
        return self.bytes < MOST_BYTES

    def shrink(self, tried_bytes: int) -> None:
        """Halve the bound after a transaction of `tried_bytes` failed, down to one message a transaction."""
        self.bytes = max(1, min(self.bytes, tried_bytes) // 2)

    def grow(self, done_bytes: int) -> None:
        """Grow the bound after a transaction of `done_bytes` committed; one below half the bound proves nothing."""
        if self.is_shrunk and done_bytes >= self.bytes // 2:
            reached = max(self.bytes, done_bytes)
            self.bytes = min(MOST_BYTES, reached + max(1, reached // GROWTH))
