"""The hierarchical timing wheel: O(1) to add, O(1) to cancel, no thread and no clock.

A wheel is a ring of buckets. With a tick `u` and a size `n` the bucket of a due time `d` is `d // u % n`. The ring
covers the `n * u` ms from the current time on; a bucket whose time has passed is reused for the time one turn later. An
entry that is due later goes to an overflow wheel whose tick is `n * u`, created when first needed and then kept. When a
bucket of an overflow wheel expires (at its *beginning*), its entries are placed again: some are due, the others go down
to a finer wheel. An entry moves down at most once a level, and there are few levels: with a tick of 1 ms and 512
buckets, a minute takes two levels and a hundred days take four.

For u = 1, n = 3 and the time c (a multiple of 9) the buckets begin at the times in the left half of the table. At c + 3
the first wheel has made one turn and the second has advanced by one bucket; the third has not moved:

    level   at c                          at c + 3
    1       c      c + 1   c + 2          c + 3   c + 4   c + 5
    2       c      c + 3   c + 6          c + 3   c + 6   c + 9
    3       c      c + 9   c + 18         c       c + 9   c + 18

The first bucket of an overflow wheel is always empty: the wheel below covers its time. This wastes one bucket a level,
and saves a special case.

Two things differ from Kafka's wheel. First, entries with equal due times keep the order of `sequence`; in Kafka's
wheel an entry that comes down from an overflow wheel lands after one that was added to the lower wheel later. Second,
the current time advances to the given time, not only to the last emptied bucket, so that after an idle time entries
that are due soon go to the lowest wheel.

Sources: Varghese and Lauck, *Hashed and Hierarchical Timing Wheels* (SOSP 1987); Kafka's purgatory.
"""

from __future__ import annotations

from operator import attrgetter
from typing import TYPE_CHECKING, Final

from tarry.timer.delay_queue import DelayQueue
from tarry.timer.task_list import UNQUEUED, TimerTaskEntry, TimerTaskList

if TYPE_CHECKING:
    from collections.abc import Sequence

DEFAULT_SIZE: Final = 512
"""The number of buckets of a wheel; `benches/bench_wheel.py --sizes` shows why."""

_by_sequence = attrgetter("sequence")
_by_due_time = attrgetter("due_ms")


class WheelLevel:
    """One wheel of the hierarchy.

    Args:
        tick_ms: the time span of one bucket; except for the lowest wheel, the span of the whole wheel below.
        size: the number of buckets.
        start_ms: the initial current time, which is rounded down to the tick: the current time of the wheel below.
    """

    __slots__ = ("buckets", "current_ms", "end_ms", "interval_ms", "start_ms", "tick_ms")

    def __init__(self, tick_ms: int, size: int, start_ms: int) -> None:
        self.tick_ms = tick_ms
        self.interval_ms = tick_ms * size
        self.start_ms = start_ms
        self.current_ms = start_ms - start_ms % tick_ms
        self.end_ms = self.current_ms + self.interval_ms
        self.buckets: Sequence[TimerTaskList] = [TimerTaskList(tick_ms) for _ in range(size)]

    def advance(self, now_ms: int) -> bool:
        """Advance to `now_ms`, rounded down to the tick; return whether the wheel moved."""
        if now_ms < self.current_ms + self.tick_ms:
            return False
        self.current_ms = now_ms - now_ms % self.tick_ms
        self.end_ms = self.current_ms + self.interval_ms
        return True


class TimingWheel:
    """Holds entries until they are due; the caller passes the time.

    Due times are rounded down to the tick: an entry is due from `due_ms - due_ms % tick_ms` on. A caller that must not
    be early rounds up before it adds.

    Args:
        tick_ms: the tick of the lowest wheel, at least 1.
        size: the number of buckets of each wheel, at least 2.
        start_ms: the initial current time, not negative.

    Raises:
        ValueError: an argument is out of range.
    """

    __slots__ = ("_due_below_ms", "_held", "levels", "queue", "size", "tick_ms")

    def __init__(self, tick_ms: int = 1, size: int = DEFAULT_SIZE, start_ms: int = 0) -> None:
        if tick_ms < 1 or size < 2 or start_ms < 0:
            raise ValueError(f"must have tick_ms >= 1, size >= 2, start_ms >= 0: {tick_ms}, {size}, {start_ms}")
        self.tick_ms = tick_ms
        self.size = size
        self.levels = [WheelLevel(tick_ms, size, start_ms)]
        self.queue = DelayQueue()
        self._due_below_ms = self.current_ms + tick_ms
        self._held = 0

    @property
    def current_ms(self) -> int:
        """The current time, rounded down to the tick."""
        return self.levels[0].current_ms

    @property
    def next_due_ms(self) -> int | None:
        """When to advance next; None: the wheel is empty.

        This is the earliest expiration of a bucket. It is at or before the earliest due time, so an advance to it may
        return nothing and only move entries down.
        """
        bucket = self.queue.peek()
        return None if bucket is None else bucket.expiration_ms

    def __len__(self) -> int:
        return self._held

    def add(self, entry: TimerTaskEntry) -> bool:
        """Hold an entry until it is due. O(levels).

        An entry that this wheel already holds is moved to its new due time.

        Returns:
            False: it is due at the current time; it is not held, and the caller fires it.
        """
        if entry.bucket is not None:
            self.cancel(entry)
        due_ms = entry.due_ms
        if due_ms < self._due_below_ms:
            return False
        for level in self.levels:
            if due_ms < level.end_ms:
                break
        else:
            level = self._overflow_to(due_ms)
        virtual_id = due_ms // level.tick_ms
        bucket = level.buckets[virtual_id % self.size]
        bucket.append(entry)
        # A bucket in the queue already has this expiration: expired buckets are flushed before time advances.
        if bucket.expiration_ms == UNQUEUED and bucket.set_expiration(virtual_id * level.tick_ms):
            self.queue.offer(bucket)
        self._held += 1
        return True

    def cancel(self, entry: TimerTaskEntry) -> bool:
        """Remove an entry of this wheel. O(1).

        Returns:
            Whether it was held; False: it was never added, or has fired, or was cancelled before.
        """
        bucket = entry.bucket
        if bucket is None:
            return False
        bucket.remove(entry)
        self._held -= 1
        return True

    def advance(self, now_ms: int) -> list[TimerTaskEntry]:
        """Advance the time to `now_ms`, from bucket to bucket. A time in the past changes nothing.

        Returns:
            The entries that have become due, by due time and sequence. They are no longer held.
        """
        if now_ms < self._due_below_ms:
            return []
        # 1. Empty every expired bucket before time advances: afterwards its place in the ring covers another time.
        expired = []
        while (bucket := self.queue.poll(now_ms)) is not None:
            end_ms = bucket.expiration_ms + bucket.tick_ms
            expired.append((end_ms, bucket.tick_ms, bucket.flush()))
        # 2. Advance the wheels; if one does not move, neither do those above it.
        for level in self.levels:
            if not level.advance(now_ms):
                break
        self._due_below_ms = due_below_ms = self.current_ms + self.tick_ms
        # 3. Entries that are not due yet go down to a finer wheel.
        due: list[TimerTaskEntry] = []
        in_order = True
        for end_ms, tick_ms, entries in expired:
            self._held -= len(entries)
            if end_ms > due_below_ms:
                in_order = False
                due += [entry for entry in entries if not self.add(entry)]
                continue
            if tick_ms == 1:
                entries.sort(key=_by_sequence)
            else:
                in_order = False
            due += entries
        # 4. Buckets arrive in the order of time. If each held a single due time and was sorted, `due` is in order.
        if not in_order:
            due.sort(key=_by_sequence)
            due.sort(key=_by_due_time)
        return due

    def close(self) -> None:
        """Free all entries at once, without the garbage collector; the wheel is unusable afterwards.

        The lists and their sentinels are reference cycles: with the collector off, a dropped wheel would stay in memory
        with all its entries.
        """
        for level in self.levels:
            for bucket in level.buckets:
                bucket.close()
            level.buckets = ()
        self.queue = DelayQueue()
        self._held = 0

    def _overflow_to(self, due_ms: int) -> WheelLevel:
        """Add overflow wheels until one covers `due_ms`."""
        top = self.levels[-1]
        while due_ms >= top.end_ms:
            top = WheelLevel(top.interval_ms, self.size, top.current_ms)
            self.levels.append(top)
        return top
