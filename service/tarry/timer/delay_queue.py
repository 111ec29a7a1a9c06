"""The queue of buckets by expiration: it lets time advance from bucket to bucket, without empty ticks.

It is a heap of buckets, not of tasks. A bucket is added once each time it gets a new expiration, however many tasks it
holds. So the logarithm is over a few hundred buckets, and all tasks of a bucket share the cost. Between a bucket at
200 ms and the next one at 840 ms a ticking wheel would check 639 empty buckets; here only the head is checked.

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
    """Buckets ordered by expiration, those of the same expiration in the order of arrival.

    A bucket that was emptied by cancels stays until it reaches the head: removing it earlier would cost more than it
    saves.
    """

    __slots__ = ("_heap", "_offered")

    def __init__(self) -> None:
        self._heap: list[tuple[int, int, TimerTaskList]] = []
        self._offered = count()

    def offer(self, bucket: TimerTaskList) -> None:
        """Add a bucket whose expiration has just been set; it must not be in the queue already. O(log buckets)."""
        heappush(self._heap, (bucket.expiration_ms, next(self._offered), bucket))

    def peek(self) -> TimerTaskList | None:
        """Return the earliest non-empty bucket without removing it; None: all are empty."""
        heap = self._heap
        while heap:
            bucket = heap[0][2]
            if bucket:
                return bucket
            heappop(heap)
            bucket.set_expiration(UNQUEUED)
        return None

    def poll(self, now_ms: int) -> TimerTaskList | None:
        """Remove and return the earliest non-empty bucket if it has expired at `now_ms`; otherwise return None."""
        bucket = self.peek()
        if bucket is None or bucket.expiration_ms > now_ms:
            return None
        heappop(self._heap)
        return bucket

    def __iter__(self) -> Iterator[TimerTaskList]:
        """Iterate over the non-empty buckets, in the order in which `poll` would return them."""
        for _, _, bucket in sorted(self._heap):
            if bucket:
                yield bucket
