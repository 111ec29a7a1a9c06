"""What a recovery found done above a watermark: ranges of offsets, merged, asked in rising order."""

from bisect import bisect_right
from collections.abc import Iterable

from tarry.core.journal import Range


class DoneSet:
    """A set of offsets in merged ranges.

    Args:
        ranges: in any order, overlapping or not.
        low: offsets below are left out.
    """

    __slots__ = ("_ends", "_starts")

    def __init__(self, ranges: Iterable[Range], low: int) -> None:
        self._starts: list[int] = []
        self._ends: list[int] = []
        for start, end in sorted(ranges):
            if end <= low:
                continue
            first = max(start, low)
            if self._ends and first <= self._ends[-1]:
                self._ends[-1] = max(self._ends[-1], end)
            else:
                self._starts.append(first)
                self._ends.append(end)

    def __contains__(self, offset: int) -> bool:
        at = bisect_right(self._starts, offset) - 1
        return at >= 0 and offset < self._ends[at]

    def __len__(self) -> int:
        return sum(self._ends) - sum(self._starts)

    def ranges(self) -> list[Range]:
        """The merged ranges, in rising order."""
        return list(zip(self._starts, self._ends, strict=True))

    @property
    def end(self) -> int:
        """One above the highest offset in it; 0 where it is empty."""
        return self._ends[-1] if self._ends else 0
