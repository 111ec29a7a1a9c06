"""The queue of buckets, by expiration: what lets time go from bucket to bucket with no empty ticks.

A heap of buckets, not of tasks: a bucket is put in once each time it comes to stand for a new time, however
many tasks it gets, so the logarithm is over some hundred buckets and is shared by all tasks of one. Between a
bucket at 200 ms and the next at 840 ms a wheel that ticked would look at 639 empty buckets; here it looks at
the head.

Pure, unlike Java's class of the same name: it never waits and reads no clock.
"""

from __future__ import annotations

from heapq import heappop, heappush
from itertools import count
from typing import TYPE_CHECKING

from tarry.timer.task_list import UNQUEUED

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tarry.timer.task_list import TimerTaskList


class DelayQueue:
    """Buckets by expiration, those of the same expiration as they came.

    A bucket that cancels have emptied stays until it comes to the head: finding it sooner would cost more
    than it holds.
    """

    __slots__ = ("_heap", "_offered")

    def __init__(self) -> None:
        self._heap: list[tuple[int, int, TimerTaskList]] = []
        self._offered = count()

    def offer(self, bucket: TimerTaskList) -> None:
        """Put in a bucket whose expiration has just been set; it must not be in already. O(log buckets)."""
        heappush(self._heap, (bucket.expiration_ms, next(self._offered), bucket))

    def peek(self) -> TimerTaskList | None:
        """The earliest bucket that holds anything, left where it is. None: no bucket does."""
        heap = self._heap
        while heap:
            bucket = heap[0][2]
            if bucket:
                return bucket
            heappop(heap)
            bucket.set_expiration(UNQUEUED)
        return None

    def poll(self, now_ms: int) -> TimerTaskList | None:
        """Take out the earliest bucket that holds anything, where it has expired at `now_ms`; else None."""
        bucket = self.peek()
        if bucket is None or bucket.expiration_ms > now_ms:
            return None
        heappop(self._heap)
        return bucket

    def __iter__(self) -> Iterator[TimerTaskList]:
        """The buckets in the order in which they would be polled, leaving out empty ones."""
        return (bucket for _, _, bucket in sorted(self._heap) if bucket)
