"""A bucket of the wheel: a doubly linked ring of entries around a sentinel.

Because of the sentinel, which holds no task, linking and unlinking need no special case at the ends. An entry knows its
two neighbours and its list, so it can be removed in O(1) from any position: that makes cancelling cheap.

A list is reused: after it is flushed, it gets an expiration at least one turn of its wheel later. `set_expiration`
tells whether the expiration is a new one, i.e. whether the list must be queued.

Nothing here is thread-safe; `SystemTimer` adds the locks.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tarry.native import mypyc_attr

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tarry.timer.task import TimerTask

UNQUEUED: Final = -1
"""The expiration of a list that has none and is in no queue."""


@mypyc_attr(allow_interpreted_subclasses=True)
class TimerTaskEntry:
    """An entry of a wheel: a due time and a position in a list.

    A subclass may add slots for its data, so that a held message is a single object. Its constructor need not call this
    one, but must set `due_ms`, `sequence` and `bucket = None`; it must set `task` only for a `SystemTimer`.

    Args:
        due_ms: the due time, in ms.
        sequence: its order among entries of the same due time, lowest first.
        task: the task that a `SystemTimer` runs; a wheel never uses it.
    """

    __slots__ = ("bucket", "due_ms", "next", "prev", "sequence", "task")

    due_ms: int
    sequence: int
    task: TimerTask | None
    bucket: TimerTaskList | None
    """The list that it is in; None: it is in no list."""
    prev: TimerTaskEntry
    next: TimerTaskEntry

    def __init__(self, due_ms: int, sequence: int = 0, task: TimerTask | None = None) -> None:
        self.due_ms = due_ms
        self.sequence = sequence
        self.task = task
        self.bucket = None

    def __repr__(self) -> str:
        return f"{type(self).__name__}(due_ms={self.due_ms}, sequence={self.sequence})"


NOWHERE: Final = TimerTaskEntry(UNQUEUED)
"""The neighbour of an entry that was removed from its list: such an entry keeps no other entry in memory.

An entry rather than None, because the links are then never None, and reading one needs no check.
"""


class TimerTaskList:
    """A ring of entries whose due times lie in `[expiration_ms, expiration_ms + tick_ms)`.

    Args:
        tick_ms: the time span of the list: the tick of its wheel, in ms.
    """

    __slots__ = ("expiration_ms", "root", "tick_ms")

    def __init__(self, tick_ms: int = 1) -> None:
        self.tick_ms = tick_ms
        self.expiration_ms = UNQUEUED
        self.root = root = TimerTaskEntry(UNQUEUED)
        root.prev = root.next = root

    def set_expiration(self, expiration_ms: int) -> bool:
        """Set the start of the list's time span.

        Returns:
            Whether it has changed; then the list is in no queue, and the caller must queue it.
        """
        changed = self.expiration_ms != expiration_ms
        self.expiration_ms = expiration_ms
        return changed

    def append(self, entry: TimerTaskEntry) -> None:
        """Append an entry that is in no list. O(1)."""
        root = self.root
        tail = root.prev
        entry.prev = tail
        entry.next = root
        entry.bucket = self
        tail.next = root.prev = entry

    def remove(self, entry: TimerTaskEntry) -> bool:
        """Remove an entry. O(1).

        Returns:
            Whether it was in this list.
        """
        if entry.bucket is not self:
            return False
        before = entry.prev
        after = entry.next
        before.next = after
        after.prev = before
        entry.prev = entry.next = NOWHERE
        entry.bucket = None
        return True

    def flush(self) -> list[TimerTaskEntry]:
        """Empty the list, and make it ready for another expiration.

        Returns:
            Its entries in the order of arrival; they keep no links to each other or to the list.
        """
        flushed: list[TimerTaskEntry] = []
        keep = flushed.append
        nowhere = NOWHERE
        root = self.root
        entry = root.next
        while entry is not root:
            keep(entry)
            after = entry.next
            entry.prev = entry.next = nowhere
            entry.bucket = None
            entry = after
        root.prev = root.next = root
        self.expiration_ms = UNQUEUED
        return flushed

    def close(self) -> None:
        """Drop the entries and break the sentinel's ring; the list is unusable afterwards."""
        self.flush()
        self.root.prev = self.root.next = NOWHERE

    def __bool__(self) -> bool:
        root = self.root
        return root.next is not root

    def __iter__(self) -> Iterator[TimerTaskEntry]:
        entry = self.root.next
        while entry is not self.root:
            yield entry
            entry = entry.next
