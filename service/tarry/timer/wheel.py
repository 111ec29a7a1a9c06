"""The hierarchical timing wheel: O(1) to add, O(1) to cancel, no thread and no clock.

A wheel is a ring of buckets. With a tick `u` and a size `n` the bucket of a due time `d` is `d // u % n`: the
ring stands for the `n * u` ms from the current time on, and a bucket whose time has passed stands for a time
one turn later. What is due beyond that goes to an overflow wheel whose tick is `n * u`, made when first
needed and kept. When a bucket of an overflow wheel expires (at its *beginning*), its entries are placed anew:
some are due, the others go down to a finer wheel. An entry moves down at most once a level, and levels are
few: with 1 ms and 512, a minute takes two levels and a hundred days four.

For u = 1, n = 3 and the time c (a multiple of 9) the wheels' buckets begin as in the first table; at c + 3
the first wheel has turned once and the second by one bucket, while the third stands still:

    level   at c                          at c + 3
    1       c      c + 1   c + 2          c + 3   c + 4   c + 5
    2       c      c + 3   c + 6          c + 3   c + 6   c + 9
    3       c      c + 9   c + 18         c       c + 9   c + 18

The first bucket of an overflow wheel is always empty: the wheel below covers its time. This wastes a bucket a
level and saves every question about it.

Two things differ from Kafka's wheel. Among equal due times the order of `sequence` is kept: in Kafka's an
entry that comes down from an overflow wheel lands behind one that was added to the lower wheel later. And the
current time goes to the time given, not only to the last bucket emptied, so a wheel that has been idle places
near entries low.

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
"""Buckets a wheel: `benches/bench_wheel.py --sizes` shows why."""

_by_sequence = attrgetter("sequence")
_by_due_time = attrgetter("due_ms")


class WheelLevel:
    """One wheel of the hierarchy.

    Args:
        tick_ms: what one bucket covers; the whole wheel below it, but for the lowest.
        size: how many buckets there are.
        start_ms: the current time of the wheel below when this one is made; trimmed to the tick it is the
            first current time.
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
        """Turn to `now_ms`, trimmed to the tick; whether that moved the wheel."""
        if now_ms < self.current_ms + self.tick_ms:
            return False
        self.current_ms = now_ms - now_ms % self.tick_ms
        self.end_ms = self.current_ms + self.interval_ms
        return True


class TimingWheel:
    """Holds entries until they are due; the caller says what time it is.

    Due times are floored to the tick: an entry is due from `due_ms - due_ms % tick_ms` on. Who may not be
    early rounds up before adding.

    Args:
        tick_ms: the grain of the lowest wheel, at least 1.
        size: buckets a wheel, at least 2.
        start_ms: the current time to begin with, not negative.

    Raises:
        ValueError: one of these is out of its bounds.
    """

    __slots__ = ("_due_below_ms", "_held", "levels", "queue", "size", "tick_ms")

    def __init__(self, tick_ms: int = 1, size: int = DEFAULT_SIZE, start_ms: int = 0) -> None:
        if tick_ms < 1 or size < 2 or start_ms < 0:
            raise ValueError(f"not tick_ms >= 1, size >= 2, start_ms >= 0: {tick_ms}, {size}, {start_ms}")
        self.tick_ms = tick_ms
        self.size = size
        self.levels = [WheelLevel(tick_ms, size, start_ms)]
        self.queue = DelayQueue()
        self._due_below_ms = self.current_ms + tick_ms
        self._held = 0

    @property
    def current_ms(self) -> int:
        """The current time, trimmed to the tick."""
        return self.levels[0].current_ms

    @property
    def next_due_ms(self) -> int | None:
        """When to advance next, None when empty.

        The earliest expiration of a bucket: at or before the earliest due time, so that advancing then may
        return nothing and only move entries down.
        """
        bucket = self.queue.peek()
        return None if bucket is None else bucket.expiration_ms

    def __len__(self) -> int:
        return self._held

    def add(self, entry: TimerTaskEntry) -> bool:
        """Hold an entry until it is due. O(levels).

        One that this wheel already holds is moved to the due time that it has now.

        Returns:
            False where it is due at the current time: then it is not held, and the caller fires it.
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
        # A bucket in the queue already stands for this very time: expired ones are flushed before time moves.
        if bucket.expiration_ms == UNQUEUED and bucket.set_expiration(virtual_id * level.tick_ms):
            self.queue.offer(bucket)
        self._held += 1
        return True

    def cancel(self, entry: TimerTaskEntry) -> bool:
        """Take out an entry of this wheel. O(1).

        Returns:
            Whether it was held: False for one never added, fired or cancelled before.
        """
        bucket = entry.bucket
        if bucket is None:
            return False
        bucket.remove(entry)
        self._held -= 1
        return True

    def advance(self, now_ms: int) -> list[TimerTaskEntry]:
        """Move time to `now_ms`, from bucket to bucket. A time in the past changes nothing.

        Returns:
            What has become due, by due time and sequence. These entries are no longer held.
        """
        if now_ms < self._due_below_ms:
            return []
        # 1. Empty every expired bucket before time moves: afterwards its slot stands for another time.
        expired = []
        while (bucket := self.queue.poll(now_ms)) is not None:
            end_ms = bucket.expiration_ms + bucket.tick_ms
            expired.append((end_ms, bucket.tick_ms, bucket.flush()))
        # 2. Turn the wheels; one that does not move leaves those above it where they are.
        for level in self.levels:
            if not level.advance(now_ms):
                break
        self._due_below_ms = due_below_ms = self.current_ms + self.tick_ms
        # 3. What is not due yet goes down to a finer wheel.
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
        # 4. Buckets come by time: one due time each, and sorted, they are in order already.
        if not in_order:
            due.sort(key=_by_sequence)
            due.sort(key=_by_due_time)
        return due

    def close(self) -> None:
        """Let go of everything, at once and without the garbage collector; afterwards the wheel is of no use.

        Lists are rings, and so are their sentinels: with the collector off, a wheel that is only dropped
        would stay in memory with all it holds.
        """
        for level in self.levels:
            for bucket in level.buckets:
                bucket.close()
            level.buckets = ()
        self.queue = DelayQueue()
        self._held = 0

    def _overflow_to(self, due_ms: int) -> WheelLevel:
        """Make overflow wheels until one reaches `due_ms`."""
        top = self.levels[-1]
        while due_ms >= top.end_ms:
            top = WheelLevel(top.interval_ms, self.size, top.current_ms)
            self.levels.append(top)
        return top
