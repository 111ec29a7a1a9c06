"""A range of due times whose buckets are closed and not done: how far its records are read, and how far they are done.

Mostly it is one bucket. After a take-over it is all that a level had closed and not done: which buckets hold records is
known only when the log is read. The offsets are those of the level's log:

    first ... low ......... position ......... end
          done    some done            unread

Between them are the records of other buckets, which count as done here: a range only ever speaks of its own buckets.

A range of level 1 that is larger than the free memory is read in passes. If its messages turn out larger than typical
ones, the range is read in passes from then on. No message of the range fires before the range is read to its end, so
those that it has brought into the hot window can be taken back.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from tarry.core.message import HeldMessage, OrderKey
from tarry.core.progress.done_set import DoneSet
from tarry.core.progress.journal import Range
from tarry.core.progress.ledger import Ledger
from tarry.core.progress.source import Source
from tarry.core.wheel.passes import Passes
from tarry.core.wheel.runs import clipped

_NOTHING = DoneSet()


class Span(NamedTuple):
    """A range of due times of a level."""

    level: int
    start_ms: int
    end_ms: int


class ClosedRange:
    """A range of due times that is closed and not done.

    Args:
        span: the level and the due times.
        runs: where its records are, ascending; there may be foreign ones between them.
        count: how many records it has; None if that is not known.
        pointer: an end of the journal from before any of its records was done.
        found_done: for each of its buckets, the offsets that a recovery found done.
    """

    __slots__ = (
        "_dropped",
        "_met",
        "count",
        "end",
        "found_done",
        "is_begun",
        "is_drained",
        "is_retired",
        "ledger",
        "passes",
        "pointer",
        "read_count",
        "runs",
        "span",
        "staying",
        "whole",
    )

    def __init__(
        self,
        span: Span,
        runs: Sequence[Range],
        count: int | None,
        pointer: int,
        found_done: Mapping[Source, DoneSet],
    ) -> None:
        self.span = span
        self.runs = runs
        self.count = count
        self.end = runs[-1][1]
        self.pointer = pointer
        self.found_done = found_done
        self.ledger = Ledger(runs[0][0])
        self.read_count = 0
        """How many of its records were read."""
        self.is_begun = False
        """Whether reading has begun: memory has room for the whole range, or it is read in passes."""
        self.is_drained = False
        """Whether nothing more is to be drained: its messages are in memory, or one level lower, committed."""
        self.passes: Passes | None = None
        """The passes over the range; None if it is read whole, or when the last pass is over."""
        self.staying: set[int] = set()
        """Offsets above level 1 that will not be moved down: a refused dead letter, or a message that is hot."""
        self.whole: list[HeldMessage] = []
        """The range's messages in the hot window, while the range is read whole."""
        self._met: dict[Source, list[int]] = {}
        """For each bucket of which records were met, the offsets from the first one to the last one."""
        self._dropped: set[int] = set()
        """Offsets of superseded messages that were met, and wait to be done."""
        self.is_retired = False
        """Whether all is done, and only that is remembered."""

    def covers(self, due_ms: int) -> bool:
        """Whether a record that is due at a time belongs to the range."""
        return self.span.start_ms <= due_ms < self.span.end_ms

    def holds(self, offset: int) -> bool:
        """Whether an offset is between the range's first one and its end."""
        return self.runs[0][0] <= offset < self.end

    # -- reading ----------------------------------------------------------------------------------------------------

    @property
    def unread(self) -> int:
        """The number of records that were never read, at most."""
        if self.count is not None:
            return self.count - self.read_count
        position = self.ledger.position
        return sum(end - max(first, position) for first, end in self.runs if end > position)

    @property
    def is_read(self) -> bool:
        """Whether the range was read to its end, and the last pass is over."""
        return self.ledger.position >= self.end and self.passes is None

    @property
    def is_done(self) -> bool:
        """Whether the range was read and all its records are done."""
        return self.is_read and self.ledger.low >= self.end

    @property
    def is_moved(self) -> bool:
        """Whether the range was read and nothing is left to be moved down."""
        return self.is_read and all(offset in self.staying for offset in self.ledger.undone())

    @property
    def gate(self) -> OrderKey:
        """The key from which on nothing may fire before this range is read."""
        return (self.span.start_ms, -1) if self.passes is None else self.passes.gate

    def left_to_read(self) -> list[Range]:
        """Return the runs to read: from the position on, or in a pass from the first offset that is not done."""
        begin = self.ledger.position if self.passes is None else self.ledger.low
        return [(max(first, begin), end) for first, end in self.runs if end > begin]

    def is_first_read(self, offset: int) -> bool:
        """Whether the record at an offset has not been read before."""
        return self.ledger.position <= offset

    def read(self, source: Source, offset: int) -> bool:
        """Note that a record was read.

        Args:
            source: its bucket, one of this range's.
            offset: its offset.

        Returns:
            Whether the record is to be placed: it is in the range, and not done. A record that was read before is to be
            placed only in a pass.
        """
        ledger = self.ledger
        if not self.holds(offset):
            return False
        if offset < ledger.position:
            return self.passes is not None and not ledger.is_done(offset)
        self.read_count += 1
        met = self._met.get(source)
        if met is None:
            self._met[source] = [offset, offset + 1]
        else:
            met[1] = offset + 1
        if self.found_done and offset in self.found_done.get(source, _NOTHING):
            ledger.reach(offset + 1)
            return False
        ledger.read(offset)
        return True

    def reach_end(self) -> list[HeldMessage]:
        """Note that the range was read to its end.

        Returns:
            The messages of a pass, if there is one.
        """
        self.ledger.reach(self.end)
        self.count = self.read_count
        self.whole = []
        messages, is_last = ([], True) if self.passes is None else self.passes.end()
        if is_last:
            self.passes = None
        return messages

    def drop(self, offset: int) -> bool:
        """Note that the message at an offset is superseded; return whether it was not noted in an earlier pass."""
        if offset in self._dropped:
            return False
        self._dropped.add(offset)
        return True

    # -- passes -----------------------------------------------------------------------------------------------------

    def switch_to_passes(self) -> list[HeldMessage]:
        """Read the range in passes from now on; the limit of the first pass is the size of what was read so far.

        Returns:
            The range's messages in the hot window, to be taken back and offered to the pass.
        """
        whole, self.whole = self.whole, []
        self.passes = Passes(self.span.start_ms, sum(message.size_bytes for message in whole))
        self.passes.is_oversized = True
        return whole

    def begin_pass(self, limit_bytes: int) -> None:
        """Begin the next pass over the range."""
        assert self.passes is not None, "there was a first pass"  # noqa: S101
        self.passes.begin(limit_bytes)

    # -- the journal --------------------------------------------------------------------------------------------------

    @property
    def low(self) -> int:
        """The first offset that is not done; the end if all are."""
        return self.ledger.low

    def retire(self) -> None:
        """Forget what is not needed once all is done: only what is done must still be told."""
        self.is_retired = True
        self.ledger = Ledger(self.end)
        self.staying.clear()
        self._dropped.clear()
        # Also what the journal said of records that are in no run: a survey meets them again if the index is lost.
        for source, done in self.found_done.items():
            ranges = [*done.ranges(), tuple(self._met.get(source, done.ranges()[0]))]
            self._met[source] = [min(first for first, _ in ranges), max(end for _, end in ranges)]
        self.found_done = {}

    def absorb(self, following: "ClosedRange") -> None:
        """Make one range of this one and a later one. Both are retired."""
        self.span = self.span._replace(end_ms=following.span.end_ms)
        self.pointer = min(self.pointer, following.pointer)
        self._met.update(following._met)  # noqa: SLF001 (one of its own kind)

    def done_ranges(self) -> Iterator[tuple[Source, Iterable[Range]]]:
        """Yield for each bucket the offsets that are done: ascending ranges, with foreign offsets between."""
        if self.is_retired:
            yield from ((source, [(first, end)]) for source, (first, end) in self._met.items())
            return
        begin = self.runs[0][0]
        read = [(begin, self.ledger.low), *self.ledger.ranges()]
        for source in dict.fromkeys([*self._met, *self.found_done]):
            # A summary names what is done for each bucket, so it names nothing outside of the bucket's own records.
            first, last = self._met.get(source, (begin, begin))
            done = DoneSet(clipped(read, first, last))
            # All that the journal said, also of what is in no run: the index leaves out what is done. If the index is
            # lost then, a survey meets it again.
            if source in self.found_done:
                done.add(self.found_done[source].ranges())
            if ranges := done.ranges():
                yield source, ranges
