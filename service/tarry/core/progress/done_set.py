"""The offsets that a recovery found done above a watermark, as ranges that are merged when they are added.

A journal of hours names most offsets of the log, in nearly ascending order. After merging, there are as many ranges as
there are gaps between them, at 16 bytes each.
"""

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Mapping

from tarry.core.progress.journal import Range
from tarry.core.progress.source import Source


def add_done(done: dict[Source, "DoneSet"], found: Mapping[Source, Iterable[Range]]) -> None:
    """Add the ranges of a done record of the journal to the sets, by log."""
    for source, ranges in found.items():
        if source not in done:
            done[source] = DoneSet()
        done[source].add(ranges)


class DoneSet:
    """A set of offsets, stored as merged ranges.

    Args:
        ranges: in any order, overlapping or not.
        low: offsets below it are left out.
    """

    __slots__ = ("_ends", "_low", "_starts")

    def __init__(self, ranges: Iterable[Range] = (), low: int = 0) -> None:
        self._low = low
        self._starts = array("q")
        self._ends = array("q")
        self.add(ranges)

    def add(self, ranges: Iterable[Range]) -> None:
        """Add ranges, in any order, overlapping or not."""
        starts, ends, low = self._starts, self._ends, self._low
        for start, end in ranges:
            first = max(start, low)
            if first >= end:
                continue
            if not ends or first > ends[-1]:
                starts.append(first)
                ends.append(end)
                continue
            if first >= starts[-1]:
                ends[-1] = max(end, ends[-1])
                continue
            # Merge the new range with all ranges that it overlaps or touches.
            left, right = bisect_left(ends, first), bisect_right(starts, end)
            one = (min(first, starts[left]), max(end, ends[right - 1])) if left < right else (first, end)
            starts[left:right], ends[left:right] = array("q", one[:1]), array("q", one[1:])

    def __contains__(self, offset: int) -> bool:
        at = bisect_right(self._starts, offset) - 1
        return at >= 0 and offset < self._ends[at]

    def __len__(self) -> int:
        return sum(self._ends) - sum(self._starts)

    def ranges(self) -> list[Range]:
        """Return the merged ranges, ascending."""
        return list(zip(self._starts, self._ends, strict=True))

    @property
    def end(self) -> int:
        """One above the highest offset; 0 if the set is empty."""
        return self._ends[-1] if self._ends else 0
