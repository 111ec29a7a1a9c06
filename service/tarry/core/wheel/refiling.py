"""Refiling: what waits at the beginning of a level's log is filed again at its end, so that the log can be trimmed.

A log is trimmed below the first record that waits. A message that is due in a month would keep all that is behind it,
although most of that was delivered long ago. If only a small part of a log waits, the records below a *cut*, in the
middle of it, are read, filed to the same buckets again, and are done where they were:

    waits      3 . . . . . 9 . . . . | 17 . . . . 22          the cut is before 17
    refiled    . . . . . . . . . . . | 17 . . . . 22 3 9      trimmed below 17

Each record is done in the transaction that files it again, as when a bucket is drained. So a crash between two of them
loses nothing. The journal is needed from before the first of them until the checkpoint's low watermark is at the cut.

A refiling ends early if a bucket of its level is closed: the bucket's records must not be read twice. What is filed
again by then is done, and stays so.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence

from tarry.core.progress.done_set import DoneSet
from tarry.core.progress.journal import Range
from tarry.core.progress.source import Source

_NOTHING = DoneSet()


class Refiling:
    """A refiling of one level's log.

    Args:
        level: the level.
        open_ms: the start of the level's first open bucket.
        runs: where the records of open buckets are below the cut, ascending.
        cut: the offset.
        pointer: an end of the journal from before the first record was filed again.
        found_done: the offsets that are known to be done, by open bucket.
    """

    __slots__ = (
        "_found_done",
        "_held",
        "_open_ms",
        "cut",
        "done",
        "is_given_up",
        "level",
        "moved",
        "pointer",
        "position",
        "runs",
    )

    def __init__(
        self,
        level: int,
        open_ms: int,
        runs: Sequence[Range],
        cut: int,
        pointer: int,
        found_done: Mapping[Source, DoneSet],
    ) -> None:
        self.level = level
        self._open_ms = open_ms
        self.runs = runs
        self.cut = cut
        self.pointer = pointer
        self._found_done = found_done
        self.position = runs[0][0]
        """The next offset to read."""
        self._held: set[int] = set()
        """The offsets that were read and are not filed again yet."""
        self.done: dict[Source, DoneSet] = {}
        """The offsets that are filed again, by bucket."""
        self.moved: Counter[int] = Counter()
        """How many records of each bucket were below the cut."""
        self.is_given_up = False
        """Whether nothing more is to be read, because it was given up."""

    def covers(self, due_ms: int) -> bool:
        """Whether a record that is due at a time is to be filed again: its bucket is open."""
        return not self.is_given_up and due_ms >= self._open_ms

    def holds(self, offset: int) -> bool:
        """Whether an offset is between the first one to file again and the last one."""
        return self.runs[0][0] <= offset < self.runs[-1][1]

    def left_to_read(self) -> list[Range]:
        """Return the runs to read, from the position on."""
        return [(max(first, self.position), end) for first, end in self.runs if end > self.position]

    def read(self, source: Source, offset: int) -> bool:
        """Note that a record was read; return whether it is to be filed again."""
        if offset < self.position or not self.holds(offset):
            return False
        self.position = offset + 1
        self.moved[source.bucket] += 1
        if offset in self._found_done.get(source, _NOTHING):
            return False
        self._held.add(offset)
        return True

    def reach_end(self) -> None:
        """Note that all was read."""
        self.position = self.runs[-1][1]

    @property
    def is_read(self) -> bool:
        """Whether all was read."""
        return self.position >= self.runs[-1][1]

    @property
    def is_done(self) -> bool:
        """Whether all records below the cut are filed again."""
        return self.is_read and not self._held

    def mark(self, source: Source, offsets: Iterable[int]) -> None:
        """Note records that a committed transaction has filed again."""
        self.done.setdefault(source, DoneSet()).add((offset, offset + 1) for offset in offsets)
        self._held.difference_update(offsets)

    def take_in(self, source: Source, done: Iterable[Range], pointer: int) -> None:
        """Note what a recovery found done of a bucket, and from which offset of the journal on that was said."""
        self.done.setdefault(source, DoneSet()).add(done)
        self.pointer = min(self.pointer, pointer)

    def done_ranges(self) -> Iterator[tuple[Source, Iterable[Range]]]:
        """Yield for each bucket the offsets that are filed again."""
        for source, done in self.done.items():
            yield source, done.ranges()
