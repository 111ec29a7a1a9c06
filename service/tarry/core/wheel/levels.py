"""The levels of one partition's overflow wheel: which bucket a message goes to, and which bucket is closed next.

A level is one log for each partition of the intake, and a bucket is a range of due times in it. Level L has buckets of
`width · size^(L-1)` milliseconds. `closed_ms` of a level is the start of its first *open* bucket. It only grows, and is
never computed from the clock, which may have stopped, stepped back, or be an hour ahead.

A message that is due before `closed_ms` of level 1 is *hot* and goes to memory. Any other message goes to the lowest
level whose next level has no open bucket for it; the last level takes all that is left, however late it is due. A
bucket is closed `lead` before its time. Then it is *drained*: read, and each message is placed again, one level lower
or in memory. An example in seconds, with width 2, size 2 and three levels, so that level 2 has buckets of 4 and level 3
of 8, at time 0:

    closed 2, 4, 8     level 1 is open from 2 to 4, level 2 from 4 to 8, level 3 from 8 on
    due 1              hot
    due 3              level 1, the bucket from 2
    due 6.6            level 2, the bucket from 4
    due 180            level 3, the bucket from 176
    at 1.5             level 1's bucket from 2 is closed: messages due from 2 to 4 are hot now
    at 2               level 2's bucket from 4 is closed, and goes to level 1's from 4 and 6
    at 4               level 3's bucket from 8 is closed, and goes to level 2's from 8 and 12

A bucket is closed only when three conditions hold. The bucket above that covers it is closed. No bucket of any level
above that begins before its end is still being drained, or its messages would be overtaken. And not too many buckets of
its own level are being drained. No message due at or after the start of a bucket fires before that bucket is drained:
this is the *gate*.
"""

from collections.abc import Collection, Sequence
from typing import NamedTuple

from tarry.core.message import NEVER_MS
from tarry.core.progress.checkpoint import Geometry

MOST_LEVELS = 4
"""The most levels. Buckets of the last level are no wider for longer delays; there are more of them instead."""

MOST_DRAINING = 8
"""The most buckets of level 1 that are drained at the same time, when draining lags; of each other level, one."""

LEAST_LEAD_MS = 500
"""The least lead of level 1, because closing and draining even a small bucket takes some round trips."""


class Bucket(NamedTuple):
    """A bucket: its level, from 1 on, and the start of its time range."""

    level: int
    start_ms: int


class Levels:
    """The levels of one partition.

    Args:
        geometry: the shape of the overflow wheel.
        closed_ms: for each level the start of its first open bucket, a multiple of its width.

    Raises:
        ValueError: `closed_ms` does not fit the geometry, or a level has open buckets for which the level above has
            some too.
    """

    def __init__(self, geometry: Geometry, closed_ms: Sequence[int]) -> None:
        self._widths = [geometry.width_of(level) for level in range(1, geometry.levels + 1)]
        self._closed = list(closed_ms)
        self._draining: dict[int, list[int]] = {level: [] for level in range(1, geometry.levels + 1)}
        """For each level the starts of the time ranges that are being drained."""
        if len(self._closed) != len(self._widths):
            raise ValueError(f"{len(self._widths)} levels need as many values of closed_ms, not {len(self._closed)}")
        for level, (closed, width) in enumerate(zip(self._closed, self._widths, strict=True), 1):
            if closed % width:
                raise ValueError(f"closed_ms of level {level} must be a multiple of its width {width}: {closed}")
            if level > 1 and self._closed[level - 2] > closed:
                raise ValueError(f"closed_ms of level {level} must not be before that of the level below: {closed}")

    @property
    def closed_ms(self) -> tuple[int, ...]:
        """For each level the start of its first open bucket."""
        return tuple(self._closed)

    @property
    def hot_below_ms(self) -> int:
        """The end of the hot window: messages that are due before it are held in memory."""
        return self._closed[0] if self._closed else NEVER_MS

    def is_draining(self, level: int) -> bool:
        """Whether a range of a level is being drained."""
        return bool(self._draining[level])

    def width_ms(self, level: int) -> int:
        """Return the width of a level's buckets."""
        return self._widths[level - 1]

    def end_ms(self, bucket: Bucket) -> int:
        """Return the end of a bucket's time range."""
        return bucket.start_ms + self._widths[bucket.level - 1]

    def is_open(self, level: int, due_ms: int) -> bool:
        """Whether a level's bucket for a due time is open."""
        return due_ms >= self._closed[level - 1]

    def bucket_for(self, due_ms: int) -> Bucket | None:
        """Return the bucket that a message goes to; None for memory."""
        if due_ms < self.hot_below_ms:
            return None
        level = 1
        while level < len(self._widths) and due_ms >= self._closed[level]:
            level += 1
        width = self._widths[level - 1]
        return Bucket(level, due_ms // width * width)

    def next_to_close(self, now_ms: int, unknown: Collection[int] = ()) -> Bucket | None:
        """Return a bucket that is to be closed now and may be; None if there is none. Higher levels come first.

        Args:
            now_ms: wall time.
            unknown: levels of which no bucket may be closed, because it is not known which records their logs hold.
        """
        for level in range(len(self._widths), 0, -1):
            bucket = Bucket(level, self._closed[level - 1])
            if level not in unknown and now_ms + self.lead_ms(level) >= bucket.start_ms and self._may_close(bucket):
                return bucket
        return None

    def close(self, bucket: Bucket) -> None:
        """Close a bucket from `next_to_close`: no message is filed to it from now on."""
        self._closed[bucket.level - 1] = self.end_ms(bucket)

    def drain(self, level: int, start_ms: int) -> None:
        """Note that a closed range of a level is to be drained."""
        self._draining[level].append(start_ms)

    def drained(self, level: int, start_ms: int) -> None:
        """Note that a range is drained: its messages are in memory, or committed one level lower."""
        self._draining[level].remove(start_ms)

    def lead_ms(self, level: int) -> int:
        """Return how long before its time a bucket of a level is closed."""
        return lead_of(level, self._widths[level - 1])

    def _may_close(self, bucket: Bucket) -> bool:
        level, start_ms = bucket
        if len(self._draining[level]) >= (MOST_DRAINING if level == 1 else 1):
            return False
        if level < len(self._widths) and self._closed[level] <= start_ms:
            return False
        end_ms = self.end_ms(bucket)
        above = range(level + 1, len(self._widths) + 1)
        return not any(begin_ms < end_ms for one in above for begin_ms in self._draining[one])


def first_closed_ms(geometry: Geometry, now_ms: int) -> tuple[int, ...]:
    """Return the first `closed_ms` of a new partition's levels."""
    widths = [geometry.width_of(level) for level in range(1, geometry.levels + 1)]
    return tuple(((now_ms + lead_of(level, width)) // width + 1) * width for level, width in enumerate(widths, 1))


def levels_for(width_ms: int, size: int, longest_ms: int) -> int:
    """Return the number of levels for the longest delay: as many as keep the last level's buckets few."""
    levels = 1
    while levels < MOST_LEVELS and 2 * size * Geometry(width_ms, size, levels).width_of(levels) < longest_ms:
        levels += 1
    return levels


def lead_of(level: int, width_ms: int) -> int:
    """Return the lead of a level.

    It is a quarter of the width at level 1, whose messages wait in memory from then on, and half of it above: the time
    to move a bucket's messages one level lower.
    """
    return min(width_ms, max(width_ms // 4, LEAST_LEAD_MS)) if level == 1 else width_ms // 2
