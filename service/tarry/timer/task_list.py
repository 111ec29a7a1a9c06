"""A bucket of the wheel: a doubly linked ring of entries around a sentinel.

The sentinel, which holds no task, spares every link and unlink the question whether it is at an end. An entry
knows its two neighbours and the list it is in, so it can leave in O(1) from anywhere: that makes cancelling
cheap.

A list is used again and again: flushed when its time has come, it next stands for a time one turn of its
wheel later. `set_expiration` tells whether the time is a new one, and so whether the list has to be queued.

Nothing here is safe for use by several threads at once; `SystemTimer` adds that.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tarry.timer.task import TimerTask

UNQUEUED: Final = -1
"""The expiration of a list that stands for no time yet and is in no queue."""

# What the links of an entry outside any list hold. They are typed as never None, because nobody reads them
# there.
_UNLINKED: Any = None


class TimerTaskEntry:
    """What a wheel holds: one due time, and its place in a list.

    A subclass may add slots for what it carries, so that a held message is one object. Its constructor need
    not call this one: it has to set `due_ms`, `sequence` and `bucket = None`, and `task` only where a
    `SystemTimer` uses it.

    Args:
        due_ms: the millisecond at which it is due.
        sequence: its place among entries of the same due time, lowest first.
        task: what a `SystemTimer` runs; a bare wheel never looks at it.
    """

    __slots__ = ("bucket", "due_ms", "next", "prev", "sequence", "task")

    due_ms: int
    sequence: int
    task: TimerTask | None
    bucket: TimerTaskList | None
    """The list it is in, None outside."""
    prev: TimerTaskEntry
    next: TimerTaskEntry

    def __init__(self, due_ms: int, sequence: int = 0, task: TimerTask | None = None) -> None:
        self.due_ms = due_ms
        self.sequence = sequence
        self.task = task
        self.bucket = None
        self.prev = self.next = _UNLINKED

    def __repr__(self) -> str:
        return f"{type(self).__name__}(due_ms={self.due_ms}, sequence={self.sequence})"


class TimerTaskList:
    """A ring of entries whose due times lie in `[expiration_ms, expiration_ms + tick_ms)`.

    Args:
        tick_ms: how much time the list covers: the tick of its wheel, in ms.
    """

    __slots__ = ("expiration_ms", "root", "tick_ms")

    def __init__(self, tick_ms: int = 1) -> None:
        self.tick_ms = tick_ms
        self.expiration_ms = UNQUEUED
        self.root = root = TimerTaskEntry(UNQUEUED)
        root.prev = root.next = root

    def set_expiration(self, expiration_ms: int) -> bool:
        """Let the list stand for the time from `expiration_ms` on.

        Returns:
            Whether that is another time than before: then the list is in no queue and has to be put into one.
        """
        changed = self.expiration_ms != expiration_ms
        self.expiration_ms = expiration_ms
        return changed

    def append(self, entry: TimerTaskEntry) -> None:
        """Link an entry that is in no list to the end. O(1)."""
        root = self.root
        tail = root.prev
        entry.prev = tail
        entry.next = root
        entry.bucket = self
        tail.next = root.prev = entry

    def remove(self, entry: TimerTaskEntry) -> bool:
        """Unlink an entry. O(1).

        Returns:
            Whether it was in this list.
        """
        if entry.bucket is not self:
            return False
        before = entry.prev
        after = entry.next
        before.next = after
        after.prev = before
        entry.prev = entry.next = entry.bucket = _UNLINKED
        return True

    def flush(self) -> list[TimerTaskEntry]:
        """Empty the list and make it ready to stand for another time.

        Returns:
            What it held, in the order in which it came; no entry keeps a link to another, or to the list.
        """
        flushed: list[TimerTaskEntry] = []
        keep = flushed.append
        unlinked = _UNLINKED
        root = self.root
        entry = root.next
        while entry is not root:
            keep(entry)
            after = entry.next
            entry.prev = entry.next = entry.bucket = unlinked
            entry = after
        root.prev = root.next = root
        self.expiration_ms = UNQUEUED
        return flushed

    def close(self) -> None:
        """Let go of the entries and break the sentinel's ring: the list is of no use afterwards."""
        self.flush()
        self.root.prev = self.root.next = _UNLINKED

    def __bool__(self) -> bool:
        root = self.root
        return root.next is not root

    def __iter__(self) -> Iterator[TimerTaskEntry]:
        entry = self.root.next
        while entry is not self.root:
            yield entry
            entry = entry.next
