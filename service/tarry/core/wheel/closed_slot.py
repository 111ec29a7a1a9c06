"""A slot of the overflow wheel that is closed and not done: how far it is read, and how far it is done.

It is a stretch of its log, from where it was done last to the end that it had when it was closed:

    begin ... low ......... position ......... end
          done    some done            unread

A slot of level 1 that is larger than memory is read in passes. Whether it is, is estimated by the number of its offsets
before it is read; where its messages turn out larger, it goes by passes from then on: nothing of it fires before it is
read, so all that it has brought into the hot window can be taken back.

A slot is read long before it is done, and may come round again meanwhile, where a target is away for longer than the
ring lasts: then the two turns are one stretch, with the first one's begin and the second one's end.
"""

from collections.abc import Iterable

from tarry.core.message import HeldMessage, OrderKey
from tarry.core.progress.done_set import DoneSet
from tarry.core.progress.journal import Range
from tarry.core.progress.ledger import Ledger
from tarry.core.wheel.levels import Bucket
from tarry.core.wheel.passes import Passes


class ClosedSlot:
    """A stretch of a slot that is closed and not done.

    Args:
        bucket: for which it was closed last.
        begin: the first offset that is not done.
        end: when it was closed.
        pointer: all that is done of it was journalled at or after.
        floor_ms: nothing that is due before it was filed to this turn.
        found_done: what a recovery found done of it.
    """

    __slots__ = (
        "bucket",
        "end",
        "floor_ms",
        "found_done",
        "is_begun",
        "ledger",
        "passes",
        "placed",
        "pointer",
        "staying",
        "whole",
    )

    def __init__(self, bucket: Bucket, begin: int, end: int, pointer: int, floor_ms: int, found_done: DoneSet) -> None:
        self.bucket = bucket
        self.end = end
        self.pointer = pointer
        self.floor_ms = floor_ms
        self.found_done = found_done
        self.ledger = Ledger(begin)
        self.is_begun = False
        """Whether its reading has begun: memory has room for it, or it goes by passes."""
        self.passes: Passes | None = None
        self.placed: set[int] = set()
        """Offsets that need no pass any more, and that passes meet again until they are done: they went to be filed."""
        self.staying: set[int] = set()
        """Offsets of a level above the first that nothing moves down: what is left as a dead letter, or is hot."""
        self.whole: list[HeldMessage] = []
        """What the hot window holds of it while it is read whole."""

    def go_by_passes(self) -> list[HeldMessage]:
        """It turned out too large to be read whole: the first pass takes as much as was read of it so far.

        Returns:
            What the hot window holds of it, to be taken back and offered to the pass.
        """
        whole, self.whole = self.whole, []
        self.passes = Passes(self.bucket.start_ms, sum(message.size_bytes for message in whole))
        self.passes.is_oversized = True
        return whole

    def begin_pass(self, limit_bytes: int) -> None:
        """Go over it once more."""
        assert self.passes is not None, "there was a first pass"  # noqa: S101
        self.passes.begin(limit_bytes)
        self.placed = {offset for offset in self.placed if not self.ledger.is_done(offset)}

    def close_again(self, bucket: Bucket, end: int) -> None:
        """It has come round, and is closed for its next turn."""
        self.bucket, self.end = bucket, max(self.end, end)
        self.is_begun = False

    # -- reading ----------------------------------------------------------------------------------------------------

    @property
    def unread(self) -> int:
        """How many offsets lie before its end that were never read."""
        return self.end - self.ledger.position

    @property
    def is_read(self) -> bool:
        """Whether it was read to its end, by the last pass where there are any."""
        return self.ledger.position >= self.end and self.passes is None

    @property
    def is_done(self) -> bool:
        """Whether nothing of it is to be done any more."""
        return self.is_read and self.ledger.low >= self.end

    @property
    def is_moved(self) -> bool:
        """Whether it is read, and nothing of it is to be moved down any more."""
        return self.is_read and all(offset in self.staying for offset in self.ledger.undone())

    def done_ranges(self) -> Iterable[Range]:
        """What is done above the low watermark, read or not: ranges in rising order that do not touch."""
        found = DoneSet(self.ledger.ranges(), 0)
        found.add((max(start, self.ledger.position), end) for start, end in self.found_done.ranges())
        return found.ranges()

    @property
    def gate(self) -> OrderKey:
        """What stands at it or behind it must not fire before this is read."""
        return (self.bucket.start_ms, -1) if self.passes is None else self.passes.gate

    def is_new(self, offset: int) -> bool:
        """Whether a record has not been read before."""
        return self.ledger.position <= offset

    def read(self, offset: int) -> bool:
        """Take note of a record that was read; whether it lies within the stretch, and is to be placed.

        One that was read before is, if it is not done: in a pass.
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
        """Whether a message is due before its turn began: then it was done, and deleted.

        A broker notes the start of a log on disk once a minute: after kill -9 it has again what was deleted since.
        """
        return due_ms < self.floor_ms

    def reach(self, position: int) -> list[HeldMessage]:
        """Take note of the reader's position, past markers and aborted records.

        Returns:
            What a pass that ends with it hands out.
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
