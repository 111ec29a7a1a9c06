"""The levels of one partition's overflow wheel: which bucket a message goes to, and which bucket is closed next.

Level L has buckets of `width · size^(L-1)` milliseconds, each a partition of a topic. There are `2 · size + 2` slots,
used over and over as time goes round. `closed_ms` of a level is the start of its first *open* bucket: it only grows,
and is never computed from the clock, which may have stood still, or stepped back, or be an hour further on.

A message that is due before level 1's `closed_ms` is *hot* and goes to memory. Any other goes to the lowest level with
an open bucket for it. A bucket is closed `lead` before its time, and *drained*: read to its end, each message placed
anew, one level lower or in memory. width 10, size 2 (6 slots), level 2 with buckets of 20, at 0:

    closed 20, 40      level 1 is open from 20 to 70, level 2 from 40 to 140
    due 15             hot
    due 33             level 1, the bucket from 30
    due 75             level 2, the bucket from 60
    due 900            beyond all of it: the last open bucket of the last level, to be placed anew from there
    at 10              level 1's bucket from 20 is closed: what is due from 20 to 30 is hot now
    at 20              level 2's bucket from 40 is closed, and goes to level 1's from 40 and 50

Closing waits for three things: that the one above, which covers it, is drained, or messages would be overtaken; that
the level below reaches to its end; and that not many on its own level are being drained. And nothing of a bucket's
range fires before it is drained itself: that is the *gate*.
"""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from tarry.core.progress.checkpoint import Geometry

MOST_DRAINING = 8
"""Buckets of level 1 that are drained at a time, where it lags behind: of each level above only one is."""

NO_GATE_MS = 1 << 62
"""The gate where there is no overflow wheel."""

LEAST_LEAD_MS = 500
"""Closing and draining even a small bucket takes some round trips."""


class Bucket(NamedTuple):
    """A bucket in one turn of the ring: a level, from 1 on, and where its time begins."""

    level: int
    start_ms: int


class Levels:
    """The levels of one partition.

    Args:
        geometry: their shape.
        closed_ms: for each level the start of its first open bucket, a multiple of its width.
        draining: buckets that are closed and not drained.

    Raises:
        ValueError: `closed_ms` is of another shape, or leaves a hole between two levels.
    """

    def __init__(self, geometry: Geometry, closed_ms: Sequence[int], draining: Iterable[Bucket] = ()) -> None:
        self.slots = slots_of(geometry)
        self._widths = [geometry.width_of(level) for level in range(1, geometry.levels + 1)]
        self._closed = list(closed_ms)
        self._draining = set(draining)
        if len(self._closed) != len(self._widths):
            raise ValueError(f"{len(self._closed)} levels are closed, and there are {len(self._widths)}")
        for level, (closed, width) in enumerate(zip(self._closed, self._widths, strict=True), 1):
            if closed % width:
                raise ValueError(f"level {level} is closed below {closed}, and its buckets take {width} each")
            if level > 1 and not self._closed[level - 2] <= closed <= self._reach(level - 1):
                raise ValueError(f"level {level} is open from {closed} on, which level {level - 1} does not lead to")

    @property
    def closed_ms(self) -> tuple[int, ...]:
        """For each level the start of its first open bucket."""
        return tuple(self._closed)

    @property
    def hot_below_ms(self) -> int:
        """What is due before it is held in memory."""
        return self._closed[0] if self._closed else NO_GATE_MS

    @property
    def draining(self) -> list[Bucket]:
        """The buckets that are closed and not drained, the lowest level first."""
        return sorted(self._draining)

    def slot(self, bucket: Bucket) -> int:
        """Which of its level's partitions a bucket is."""
        return bucket.start_ms // self._widths[bucket.level - 1] % self.slots

    def end_ms(self, bucket: Bucket) -> int:
        """Where a bucket's time ends."""
        return bucket.start_ms + self._widths[bucket.level - 1]

    def last_turn(self, level: int, slot: int) -> Bucket:
        """The bucket for which a slot was closed last: that of the newest turn that is not open."""
        width = self._widths[level - 1]
        last = self._closed[level - 1] // width - 1
        return Bucket(level, (last - (last - slot) % self.slots) * width)

    def bucket_for(self, due_ms: int) -> Bucket | None:
        """Where a message goes: None for memory."""
        if due_ms < self.hot_below_ms:
            return None
        for level, width in enumerate(self._widths, 1):
            if due_ms < self._reach(level):
                return Bucket(level, due_ms // width * width)
        return Bucket(len(self._widths), self._reach(len(self._widths)) - self._widths[-1])

    def next_to_close(self, now_ms: int) -> Bucket | None:
        """A bucket whose time to be closed has come, and that waits for no other; the highest level comes first."""
        for level in range(len(self._widths), 0, -1):
            bucket = Bucket(level, self._closed[level - 1])
            if now_ms + self._lead(level) >= bucket.start_ms and self._may_close(bucket):
                return bucket
        return None

    def close(self, bucket: Bucket) -> None:
        """Close a bucket, from `next_to_close`: from now on nothing is put there, and it is to be drained."""
        self._closed[bucket.level - 1] = self.end_ms(bucket)
        self._draining.add(bucket)

    def drained(self, bucket: Bucket) -> None:
        """All that was in a bucket is in memory, or lies one level lower for good."""
        self._draining.remove(bucket)

    def _may_close(self, bucket: Bucket) -> bool:
        level, start_ms = bucket
        width = self._widths[level - 1]
        beside = [one for one in self._draining if one.level == level]
        # The slot of one that is not drained yet may not come round again.
        if len(beside) >= (MOST_DRAINING if level == 1 else 1) or any(
            self.slot(one) == self.slot(bucket) for one in beside
        ):
            return False
        if level > 1 and start_ms + width > self._reach(level - 1):
            return False
        if level == len(self._widths):
            return True
        above = Bucket(level + 1, start_ms // self._widths[level] * self._widths[level])
        return self._closed[level] > start_ms and above not in self._draining

    def _reach(self, level: int) -> int:
        """Where the last open bucket of a level ends: the slot behind it is that of the bucket closed last."""
        return self._closed[level - 1] + (self.slots - 1) * self._widths[level - 1]

    def _lead(self, level: int) -> int:
        return _lead_ms(level, self._widths[level - 1])


def slots_of(geometry: Geometry) -> int:
    """How many partitions of a level's topic belong to one of the intake.

    Twice the buckets that make one of the next level: so that a bucket can be moved down over its whole width, while
    the level below still takes in what is due behind it.
    """
    return 2 * geometry.size + 2


def first_closed_ms(geometry: Geometry, now_ms: int) -> tuple[int, ...]:
    """Where the levels of a partition are open that never had any before."""
    widths = [geometry.width_of(level) for level in range(1, geometry.levels + 1)]
    return tuple(((now_ms + _lead_ms(level, width)) // width + 1) * width for level, width in enumerate(widths, 1))


def levels_for(width_ms: int, size: int, longest_ms: int) -> int:
    """How many levels reach as far ahead as a delay may be."""
    levels = 1
    while not _reaches(Geometry(width_ms, size, levels), longest_ms):
        levels += 1
    return levels


def _lead_ms(level: int, width_ms: int) -> int:
    return min(width_ms, max(width_ms // 4, LEAST_LEAD_MS)) if level == 1 else width_ms


def _reaches(geometry: Geometry, longest_ms: int) -> bool:
    # Of the open buckets the first may be nearly over, and one more may be late to be closed.
    return (slots_of(geometry) - 3) * geometry.width_of(geometry.levels) >= longest_ms
