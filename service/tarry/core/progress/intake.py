"""How far a partition of the intake is read and done, and how far the replay of a take-over is.

Records above the low watermark that the take-over found done are skipped when they are read again. The **replay** ends
at the end that the intake had when the take-over began. No message may fire before that, or it could overtake a message
that is not read yet.
"""

from typing import TYPE_CHECKING

from tarry.core.progress.journal_pointer import JournalPointer
from tarry.core.progress.ledger import Ledger
from tarry.core.progress.log_order import LogOrder
from tarry.core.progress.recovered import Recovered

if TYPE_CHECKING:
    from tarry.core.progress.done_set import DoneSet

ABOVE_ALL_OFFSETS = 1 << 62
"""Larger than all offsets."""


class IntakeProgress:
    """The progress of one partition of the intake.

    Args:
        recovered: what the take-over found.
        keeps_order: whether the intake has a fixed delay: then no record is due before a record with a lower offset.
    """

    __slots__ = ("_pointer", "_replay_end", "found_done", "ledger", "order")

    def __init__(self, recovered: Recovered, *, keeps_order: bool) -> None:
        self.ledger = Ledger(recovered.low)
        """Which offsets are done."""
        self.order = LogOrder(recovered.checkpoint.due_below_ms) if keeps_order else None
        """The due times, if the intake has a fixed delay."""
        self.found_done: DoneSet | None = recovered.done if len(recovered.done) else None
        """The offsets that the take-over found done; None if there are none, and after the replay."""
        self._pointer = JournalPointer(recovered.low, recovered.checkpoint.pointer, recovered.done.end)
        # The end that a new leader reports may be below offsets that were read, and delivered, before.
        self._replay_end: int | None = max(recovered.replay_end, recovered.done.end)
        self.reach(recovered.low)

    @property
    def position(self) -> int:
        """The next offset to read."""
        return self.ledger.position

    @property
    def low(self) -> int:
        """The low watermark."""
        return self.ledger.low

    @property
    def is_replaying(self) -> bool:
        """Whether the replay has not reached its end."""
        return self._replay_end is not None

    @property
    def known_below(self) -> int:
        """The offset below which all is read: in a replay the position, later above all offsets.

        After the replay, this log holds no unread record that could come before a record of a bucket: the bucket's
        records were read here before they were filed.
        """
        return ABOVE_ALL_OFFSETS if self._replay_end is None else self.ledger.position

    def reach(self, position: int) -> None:
        """Note the reader's position: offsets below it that were not taken in are transaction markers."""
        self.ledger.reach(position)
        if self._replay_end is not None and self.ledger.position >= self._replay_end:
            self._replay_end = None
            self.found_done = None

    def note_journal_end(self, end: int) -> None:
        """Note an end of the journal that was requested earlier, for the journal pointer."""
        self._pointer.note(self.ledger.position, end)

    def sum_up(self, journal_end: int) -> None:
        """Advance the pointer: all done offsets were journalled again, at or after this end of the journal."""
        self._pointer.sum_up(journal_end)

    def pointer_at(self, low: int) -> int:
        """Return the journal pointer for a low watermark."""
        return self._pointer.at(low)

    def due_below_ms(self, low: int) -> int | None:
        """Return the due time of the record just below a low watermark; None without a fixed delay."""
        return self.order.below(low) if self.order is not None else None

    def holds_up(self, offset: int) -> bool:
        """Whether the message at an offset must not be filed yet, because a recovery could break the order.

        That is so while a record before it is not done and has a timestamp that was ahead, or follows one that
        had: a recovery computes a new, later due time for it, and would put it after the filed message.
        """
        if self.order is None or (ahead := self.order.first_ahead(self.low)) is None:
            return False
        return self.ledger.first_undone(ahead) < offset

    @property
    def order_bytes(self) -> int:
        """The memory of the due times of a fixed delay."""
        return self.order.size_bytes if self.order is not None else 0

    def make_final(self) -> None:
        """Forget all below the low watermark: the marks are committed."""
        self.ledger.make_final()
        low = self.ledger.low
        self._pointer.drop_below(low)
        if self.order is not None:
            self.order.drop_below(low)
