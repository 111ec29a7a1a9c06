"""Where the records of a bucket are in the log of its level: a few ranges of offsets, each with a number of records.

A filing transaction writes the records of a bucket next to each other, so a bucket is a *run* of offsets for each
transaction. Runs close to each other are joined: reading over the records of other buckets between them is cheaper than
to jump. So a run may hold foreign records, and markers.

    records of the bucket at 0-299, 900-1199, 9000-9299      runs 0-1200, 9000-9300
"""

from array import array
from collections.abc import Iterable, Iterator, MutableSequence

from tarry.core.progress.journal import Range

JOIN = 1_000
"""The most foreign offsets between two runs that are joined: about what is read in the time that a jump takes."""


def clipped(ranges: Iterable[Range], first: int, end: int) -> Iterator[Range]:
    """Yield the parts of ranges that are between two offsets."""
    return ((max(one[0], first), min(one[1], end)) for one in ranges if one[0] < end and one[1] > first)


def joined(ranges: Iterable[Range], most: int = JOIN) -> list[Range]:
    """Return ranges ascending, those joined between which there are at most so many offsets."""
    found: list[Range] = []
    for first, end in sorted(ranges):
        if found and first - found[-1][1] <= most:
            found[-1] = found[-1][0], max(found[-1][1], end)
        else:
            found.append((first, end))
    return found


def add_run(runs: MutableSequence[Range], first: int, end: int) -> None:
    """Add a range behind others, joined with the last one if at most `JOIN` offsets are between them."""
    if runs and first - runs[-1][1] <= JOIN:
        first = runs.pop()[0]
    runs.append((first, end))


class Runs:
    """The runs of one bucket, ascending."""

    __slots__ = ("_counts", "_ends", "_firsts", "count")

    def __init__(self) -> None:
        self._firsts = array("q")
        self._ends = array("q")
        self._counts = array("q")
        self.count = 0
        """The number of records."""

    def __iter__(self) -> Iterator[Range]:
        return zip(self._firsts, self._ends, strict=True)

    def __len__(self) -> int:
        return len(self._firsts)

    @property
    def first(self) -> int:
        """The first offset."""
        return self._firsts[0]

    def rows(self) -> Iterator[tuple[int, int, int]]:
        """Yield each run with the number of its records."""
        return zip(self._firsts, self._ends, self._counts, strict=True)

    def add(self, first: int, end: int, count: int) -> None:
        """Add a run behind all others."""
        self.count += count
        if self._ends and first - self._ends[-1] <= JOIN:
            self._ends[-1] = max(end, self._ends[-1])
            self._counts[-1] += count
        else:
            self._firsts.append(first)
            self._ends.append(end)
            self._counts.append(count)

    def drop_below(self, cut: int, count: int) -> None:
        """Forget the runs below an offset, with so many records."""
        left = self.count - count
        self._put((max(first, cut), end, many) for first, end, many in list(self.rows()) if end > cut)
        if self._counts:  # of the first run a part may be left
            self._counts[0] += left - self.count
        self.count = left

    def merge(self, others: "Runs") -> None:
        """Add other runs, before and between these."""
        self._put(sorted([*others.rows(), *self.rows()]))

    def _put(self, rows: Iterable[tuple[int, int, int]]) -> None:
        self._firsts, self._ends, self._counts, self.count = array("q"), array("q"), array("q"), 0
        for first, end, count in rows:
            self.add(first, end, count)
