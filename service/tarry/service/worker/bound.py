"""How many bytes of messages a transaction takes: fewer after one that was not through in time, then more again.

Under a quota, or with slow disks, a transaction with more than can be written within the client library's time-out
would be tried for ever. What a topic of ours refuses as a batch, because its limit was lowered, is written as smaller
ones by the same rule.

    tried       bound   took
    32 MB       32 MB   5 s, and timed out
    16 MB       16 MB   5 s, and timed out
     8 MB        8 MB   3 s
     9 MB        9 MB   … an eighth more each time, until that is too much
"""

MOST_BYTES = 32 * 1024 * 1024
"""So many bytes are seldom ready at once; where they are, more at a time is no faster."""

GROWTH = 8
"""After a transaction as large as allowed the next may be larger by one part in so many."""


class Bound:
    """The bound of one producer's transactions, or of those for one target."""

    __slots__ = ("bytes",)

    def __init__(self) -> None:
        self.bytes = MOST_BYTES
        """Of the next transaction: no more than so many, but for its first message."""

    @property
    def is_shrunk(self) -> bool:
        """Whether it is smaller than it may become."""
        return self.bytes < MOST_BYTES

    def shrink(self, tried_bytes: int) -> None:
        """A transaction of so many bytes was too much: half as much, down to one message."""
        self.bytes = max(1, min(self.bytes, tried_bytes) // 2)

    def grow(self, done_bytes: int) -> None:
        """A transaction of so many bytes is committed: what was far below the bound says nothing of it."""
        if self.is_shrunk and done_bytes >= self.bytes // 2:
            reached = max(self.bytes, done_bytes)
            self.bytes = min(MOST_BYTES, reached + max(1, reached // GROWTH))
