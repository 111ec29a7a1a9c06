"""A slot of the overflow wheel that is closed and not done: how far it is read, and how far it is done.

A closed slot is a range of its log, from the offset below which all was done to the end at the time of closing:

    begin ... low ......... position ......... end
          done    some done            unread

A slot of level 1 that is larger than the free memory is read in passes. Its size is estimated before it is read, from
the number of offsets. If its messages turn out larger, the slot is read in passes from then on. No message of the slot
fires before the slot is read to its end, so those that it has brought into the hot window can be taken back.

A slot is read long before it is done. If a target is away for longer than one turn of the ring, the slot may be closed
again before it is done. Then both turns count as one range, from the begin of the first to the end of the second.
"""

from collections.abc import Iterable

from tarry.core.message import HeldMessage, OrderKey
from tarry.core.progress.done_set import DoneSet
from tarry.core.progress.journal import Range
from tarry.core.progress.journal_pointer import JournalPointer
from tarry.core.progress.ledger import Ledger
from tarry.core.wheel.levels import Bucket
from tarry.core.wheel.passes import Passes


class ClosedSlot:
    """The range of a slot that is closed and not done.

    Args:
        bucket: the bucket for which the slot was closed last.
        begin: the first offset that is not done.
        end: the end of the slot's log when it was closed.
        pointer: the journal pointer for `begin`; it advances while the slot is read and done.
        floor_ms: no message filed to this range is due before this time.
        found_done: the offsets that a recovery found done.
    """

    __slots__ = (
        "_pointer",
        "bucket",
        "end",
        "floor_ms",
        "found_done",
        "is_begun",
        "ledger",
        "passes",
        "placed",
        "staying",
        "whole",
    )

    def __init__(self, bucket: Bucket, begin: int, end: int, pointer: int, floor_ms: int, found_done: DoneSet) -> None:
        self.bucket = bucket
        self.end = end
        self._pointer = JournalPointer(begin, pointer, found_done.end)
        self.floor_ms = floor_ms
        self.found_done = found_done
        self.ledger = Ledger(begin)
        self.is_begun = False
        """Whether reading has begun: memory has room for the whole slot, or it is read in passes."""
        self.passes: Passes | None = None
        """The passes over the slot; None if it is read whole, or when the last pass is over."""
        self.placed: set[int] = set()
        """Offsets that wait to be filed to another slot: passes must skip them until they are done."""
        self.staying: set[int] = set()
        """Offsets above level 1 that will not be moved down: a refused dead letter, or a message that is hot."""
        self.whole: list[HeldMessage] = []
        """The slot's messages in the hot window, while the slot is read whole."""

    def switch_to_passes(self) -> list[HeldMessage]:
        """Read the slot in passes from now on; the limit of the first pass is the size of what was read so far.

        Returns:
            The slot's messages in the hot window, to be taken back and offered to the pass.
        """
        whole, self.whole = self.whole, []
        self.passes = Passes(self.bucket.start_ms, sum(message.size_bytes for message in whole))
        self.passes.is_oversized = True
        return whole

    def begin_pass(self, limit_bytes: int) -> None:
        """Begin the next pass over the slot."""
        assert self.passes is not None, "there was a first pass"  # noqa: S101
        self.passes.begin(limit_bytes)
        self.placed = {offset for offset in self.placed if not self.ledger.is_done(offset)}

    def close_again(self, bucket: Bucket, end: int) -> None:
        """Close the slot for its next turn, before this one is done."""
        self.bucket, self.end = bucket, max(self.end, end)
        self.is_begun = False

    # -- the journal --------------------------------------------------------------------------------------------------

    @property
    def pointer(self) -> int:
        """The journal pointer for the low watermark: the offsets done above it were journalled at or after it."""
        return self._pointer.at(self.ledger.low)

    def note_journal_end(self, end: int) -> None:
        """Note an end of the journal that was requested earlier."""
        self._pointer.note(self.ledger.position, end)

    def sum_up(self, journal_end: int) -> None:
        """Advance the pointer: `done_ranges` was journalled again, at or after this end of the journal."""
        self._pointer.sum_up(journal_end)

    def trim(self) -> None:
        """Make the marks final, because they are committed."""
        self.ledger.trim()
        self._pointer.trim(self.ledger.low)

    # -- reading ----------------------------------------------------------------------------------------------------

    @property
    def unread(self) -> int:
        """The number of offsets below the end that were never read."""
        return self.end - self.ledger.position

    @property
    def is_read(self) -> bool:
        """Whether the slot was read to its end, and the last pass is over."""
        return self.ledger.position >= self.end and self.passes is None

    @property
    def is_done(self) -> bool:
        """Whether the slot was read and all its offsets are done."""
        return self.is_read and self.ledger.low >= self.end

    @property
    def is_moved(self) -> bool:
        """Whether the slot was read and nothing is left to be moved down."""
        return self.is_read and all(offset in self.staying for offset in self.ledger.undone())

    def done_ranges(self) -> Iterable[Range]:
        """Return the offsets done above the low watermark, read or not: ascending ranges that do not touch."""
        found = DoneSet(self.ledger.ranges(), 0)
        found.add([(max(start, self.ledger.position), end) for start, end in self.found_done.ranges()])
        return found.ranges()

    @property
    def gate(self) -> OrderKey:
        """The key from which on nothing may fire before this slot is read."""
        return (self.bucket.start_ms, -1) if self.passes is None else self.passes.gate

    def is_new(self, offset: int) -> bool:
        """Whether the record at an offset has not been read before."""
        return self.ledger.position <= offset

    def read(self, offset: int) -> bool:
        """Note that a record was read.

        Returns:
            Whether the record is to be placed: it is in the range, and not done. A record that was read before is to be
            placed only in a pass.
        """
        ledger = self.ledger
        if offset >= self.end:
            return False
        if offset < ledger.position:
            return self.passes is not None and not ledger.is_done(offset)
        if offset in self.found_done:
            ledger.reach(offset + 1)
            return False
        ledger.read(offset)
        return True

    def is_of_an_earlier_turn(self, due_ms: int) -> bool:
        """Whether a message is due before the turn began: then it was done and deleted, and has come back.

        A broker writes the start offset of a log to disk once a minute. After kill -9, records that were deleted since
        then are there again.
        """
        return due_ms < self.floor_ms

    def reach(self, position: int) -> list[HeldMessage]:
        """Note the reader's position, which may be past markers and aborted records.

        Returns:
            The messages of a pass, if it ends at this position.
        """
        self.ledger.reach(min(position, self.end))
        if position < self.end:
            return []
        self.whole = []
        messages, is_last = ([], True) if self.passes is None else self.passes.end()
        if is_last:
            self.passes = None
            self.placed.clear()
        return messages
