"""How far a partition of the intake is read, and how far it is done; and how far the replay of a take-over has come.

What a take-over found done above the low watermark is passed over as it is read again. The **replay** ends where the
intake ended when the take-over began: no earlier may anything fire, or it could overtake what is not read yet.
"""

from typing import TYPE_CHECKING

from tarry.core.progress.ledger import Ledger
from tarry.core.progress.log_order import LogOrder
from tarry.core.progress.pointer import JournalPointer
from tarry.core.progress.recovered import Recovered

if TYPE_CHECKING:
    from tarry.core.progress.done_set import DoneSet

ABOVE_ALL_OFFSETS = 1 << 62
"""Above all offsets."""


class IntakeProgress:
    """One partition of the intake.

    Args:
        recovered: where to begin.
        keeps_order: whether the intake has a fixed delay: no record is due before the one in front of it.
    """

    __slots__ = ("_pointer", "_replay_end", "found_done", "ledger", "order")

    def __init__(self, recovered: Recovered, *, keeps_order: bool) -> None:
        self.ledger = Ledger(recovered.low)
        """Which of its offsets are done."""
        self.order = LogOrder(recovered.checkpoint.due_below_ms) if keeps_order else None
        """The due times of a fixed delay."""
        self.found_done: DoneSet | None = recovered.done if len(recovered.done) else None
        """What the take-over found done, until the replay is through."""
        self._pointer = JournalPointer(recovered.low, recovered.checkpoint.pointer, recovered.done.end)
        # An end asked of a new leader may lag behind what was read, and delivered, before.
        self._replay_end: int | None = max(recovered.replay_end, recovered.done.end)
        self.reach(recovered.low)

    @property
    def position(self) -> int:
        """The next offset to be read."""
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
        """Below which offset nothing is unread: in a replay its position, else all that buckets hold was read here."""
        return ABOVE_ALL_OFFSETS if self._replay_end is None else self.ledger.position

    def reach(self, position: int) -> None:
        """Take note of the reader's position: what lies below it and was not handed in are markers."""
        self.ledger.reach(position)
        if self._replay_end is not None and self.ledger.position >= self._replay_end:
            self._replay_end = None
            self.found_done = None

    def note_journal_end(self, end: int) -> None:
        """Note an end of the journal that was asked for earlier, for the recovery pointer."""
        self._pointer.note(self.ledger.position, end)

    def sum_up(self, journal_end: int) -> None:
        """What is done above the low watermark is said again, at or behind an end of the journal."""
        self._pointer.sum_up(journal_end)

    def pointer_at(self, low: int) -> int:
        """The journal pointer that goes with a low watermark."""
        return self._pointer.at(low)

    def due_below_ms(self, low: int) -> int | None:
        """With a fixed delay the due time of the record just below a low watermark."""
        return self.order.below(low) if self.order is not None else None

    def holds_up(self, offset: int) -> bool:
        """Whether what stands at an offset must not be filed yet: a recovery would put something in front behind it.

        That is what is not done of a stamp that was ahead, and of what follows it: its due time is computed anew.
        """
        if self.order is None or (ahead := self.order.first_ahead(self.low)) is None:
            return False
        return self.ledger.first_undone(ahead) < offset

    @property
    def order_bytes(self) -> int:
        """What the due times of a fixed delay take."""
        return self.order.size_bytes if self.order is not None else 0

    def trim(self) -> None:
        """The marks are committed: forget what is below the low watermark."""
        self.ledger.trim()
        low = self.ledger.low
        self._pointer.trim(low)
        if self.order is not None:
            self.order.trim(low)
