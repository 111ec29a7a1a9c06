"""The levels of one partition's overflow wheel: which bucket a message goes to, and which bucket is closed next.

Level L has buckets of `width · size^(L-1)` milliseconds, each a partition of a topic. There are `2 · size + 2` slots,
which buckets use in turn. `closed_ms` of a level is the start of its first *open* bucket. It only grows, and is never
computed from the clock, which may have stopped, stepped back, or be an hour ahead.

A message that is due before `closed_ms` of level 1 is *hot* and goes to memory. Any other message goes to the lowest
level that has an open bucket for it. A bucket is closed `lead` before its time. Then it is *drained*: read to its end,
and each message is placed again, one level lower or in memory. An example with width 10, size 2 (6 slots) and two
levels, so level 2 has buckets of 20, at time 0:

    closed 20, 40      level 1 is open from 20 to 70, level 2 from 40 to 140
    due 15             hot
    due 33             level 1, the bucket from 30
    due 75             level 2, the bucket from 60
    due 900            beyond all levels: the last open bucket of the last level, to be placed again from there
    at 10              level 1's bucket from 20 is closed: messages due from 20 to 30 are hot now
    at 20              level 2's bucket from 40 is closed, and goes to level 1's from 40 and 50

A bucket is closed only when three conditions hold. The bucket above that covers it is drained, or its messages would be
overtaken. The level below has open buckets up to its end. And not too many buckets of its own level are being drained.
No message due at or after the start of a bucket fires before that bucket is drained: this is the *gate*.
"""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from tarry.core.progress.checkpoint import Geometry

MOST_DRAINING = 8
"""The most buckets of level 1 that are drained at the same time, when draining lags; of each other level, one."""

NO_GATE_MS = 1 << 62
"""The gate if there is no overflow wheel: later than all due times."""

LEAST_LEAD_MS = 500
"""The least lead of level 1, because closing and draining even a small bucket takes some round trips."""


class Bucket(NamedTuple):
    """A bucket in one turn of the ring: its level, from 1 on, and the start of its time range."""

    level: int
    start_ms: int


class Levels:
    """The levels of one partition.

    Args:
        geometry: the shape of the overflow wheel.
        closed_ms: for each level the start of its first open bucket, a multiple of its width.
        draining: buckets that are closed and not drained.

    Raises:
        ValueError: `closed_ms` does not fit the geometry, or leaves a hole between two levels.
    """

    def __init__(self, geometry: Geometry, closed_ms: Sequence[int], draining: Iterable[Bucket] = ()) -> None:
        self.slots = slots_of(geometry)
        self._widths = [geometry.width_of(level) for level in range(1, geometry.levels + 1)]
        self._closed = list(closed_ms)
        self._draining = set(draining)
        if len(self._closed) != len(self._widths):
            raise ValueError(f"{len(self._widths)} levels need as many values of closed_ms, not {len(self._closed)}")
        for level, (closed, width) in enumerate(zip(self._closed, self._widths, strict=True), 1):
            if closed % width:
                raise ValueError(f"closed_ms of level {level} must be a multiple of its width {width}: {closed}")
            if level > 1 and not self._closed[level - 2] <= closed <= self._reach(level - 1):
                raise ValueError(
                    f"closed_ms of level {level} must be within the open part of the level below: {closed}"
                )

    @property
    def closed_ms(self) -> tuple[int, ...]:
        """For each level the start of its first open bucket."""
        return tuple(self._closed)

    @property
    def hot_below_ms(self) -> int:
        """The end of the hot window: messages that are due before it are held in memory."""
        return self._closed[0] if self._closed else NO_GATE_MS

    @property
    def draining(self) -> list[Bucket]:
        """The buckets that are closed and not drained, the lowest level first."""
        return sorted(self._draining)

    def slot(self, bucket: Bucket) -> int:
        """Return the slot that a bucket uses."""
        return bucket.start_ms // self._widths[bucket.level - 1] % self.slots

    def end_ms(self, bucket: Bucket) -> int:
        """Return the end of a bucket's time range."""
        return bucket.start_ms + self._widths[bucket.level - 1]

    def last_turn(self, level: int, slot: int) -> Bucket:
        """Return the bucket for which a slot was closed last."""
        width = self._widths[level - 1]
        last = self._closed[level - 1] // width - 1
        return Bucket(level, (last - (last - slot) % self.slots) * width)

    def bucket_for(self, due_ms: int) -> Bucket | None:
        """Return the bucket that a message goes to; None for memory."""
        if due_ms < self.hot_below_ms:
            return None
        for level, width in enumerate(self._widths, 1):
            if due_ms < self._reach(level):
                return Bucket(level, due_ms // width * width)
        return Bucket(len(self._widths), self._reach(len(self._widths)) - self._widths[-1])

    def next_to_close(self, now_ms: int) -> Bucket | None:
        """Return a bucket that is to be closed now and may be; None if there is none. Higher levels come first."""
        for level in range(len(self._widths), 0, -1):
            bucket = Bucket(level, self._closed[level - 1])
            if now_ms + self._lead(level) >= bucket.start_ms and self._may_close(bucket):
                return bucket
        return None

    def close(self, bucket: Bucket) -> None:
        """Close a bucket from `next_to_close`: no message is filed to it from now on, and it is to be drained."""
        self._closed[bucket.level - 1] = self.end_ms(bucket)
        self._draining.add(bucket)

    def drained(self, bucket: Bucket) -> None:
        """Note that a bucket is drained: its messages are in memory, or committed one level lower."""
        self._draining.remove(bucket)

    def _may_close(self, bucket: Bucket) -> bool:
        level, start_ms = bucket
        width = self._widths[level - 1]
        beside = [one for one in self._draining if one.level == level]
        # A slot is not used for its next turn while a bucket in it is not drained.
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
        """Return the end of a level's last open bucket: the next slot is the one of the bucket closed last."""
        return self._closed[level - 1] + (self.slots - 1) * self._widths[level - 1]

    def _lead(self, level: int) -> int:
        return _lead_ms(level, self._widths[level - 1])


def slots_of(geometry: Geometry) -> int:
    """Return the number of slots that each level has for one partition of the intake.

    There are more than `2 · size`, because a bucket of the level above is moved down during the time that one such
    bucket covers. Meanwhile, the level below holds messages due before the end of that bucket, and also messages due
    after it.
    """
    return 2 * geometry.size + 2


def first_closed_ms(geometry: Geometry, now_ms: int) -> tuple[int, ...]:
    """Return the first `closed_ms` of a new partition's levels."""
    widths = [geometry.width_of(level) for level in range(1, geometry.levels + 1)]
    return tuple(((now_ms + _lead_ms(level, width)) // width + 1) * width for level, width in enumerate(widths, 1))


def levels_for(width_ms: int, size: int, longest_ms: int) -> int:
    """Return the number of levels that are needed for the longest delay."""
    levels = 1
    while not _reaches(Geometry(width_ms, size, levels), longest_ms):
        levels += 1
    return levels


def _lead_ms(level: int, width_ms: int) -> int:
    return min(width_ms, max(width_ms // 4, LEAST_LEAD_MS)) if level == 1 else width_ms


def _reaches(geometry: Geometry, longest_ms: int) -> bool:
    # Two buckets less than are open: the first may be nearly over, and one more may be closed late.
    return (slots_of(geometry) - 3) * geometry.width_of(geometry.levels) >= longest_ms
