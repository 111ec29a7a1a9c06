"""What is done of a partition, of its intake and of its slots; and what a commit says of it.

mark      what a transaction completes counts as done, tentatively
settle    low watermark, checkpoint and journal record that it commits
trim      it committed: done for good
unmark    it aborted
"""

from dataclasses import replace

from tarry.core.batch import Settlement
from tarry.core.checkpoint import Checkpoint
from tarry.core.intake import Intake
from tarry.core.journal import encode_copy, encode_done
from tarry.core.overflow import Overflow
from tarry.core.source import INTAKE, Offsets


class Progress:
    """How far one partition is done.

    Args:
        base: the checkpoint of its take-over.
        intake: how far the intake is done.
        overflow: how far the slots are done.
    """

    __slots__ = ("_base", "_intake", "_is_noted", "_overflow")

    def __init__(self, base: Checkpoint, intake: Intake, overflow: Overflow) -> None:
        self._base = base
        self._intake = intake
        self._overflow = overflow
        self._is_noted = overflow.done.noted()

    @property
    def pointer(self) -> int:
        """Where a recovery would begin to read the journal: of the intake, and of what is closed."""
        own, of_buckets = self._intake.pointer_at(self._intake.low), self._overflow.pointer
        return own if of_buckets is None else min(own, of_buckets)

    def note_journal_end(self, end: int) -> None:
        """Note an end of the journal that was asked for earlier, for the recovery pointers."""
        self._intake.note_journal_end(end)
        self._overflow.note_journal_end(end)

    def settle(self, offsets: Offsets) -> Settlement:
        """Mark what a transaction completes, and say what it commits."""
        self.mark(offsets)
        low = self._intake.low
        self._is_noted = self._overflow.done.noted()
        return Settlement(low, self._checkpoint(low).encode(), encode_done(offsets))

    def rest(self, *, released: bool) -> Settlement:
        """What is committed where nothing fires; the journal's record is a copy of the checkpoint."""
        low = self._intake.low
        self._is_noted = self._overflow.done.noted()
        text = replace(self._checkpoint(low), released=released).encode()
        return Settlement(low, text, encode_copy(low, text))

    def confirm(self) -> None:
        """The checkpoint of the last settlement is committed."""
        self._is_noted()

    def _checkpoint(self, low: int) -> Checkpoint:
        draining, emptying = self._overflow.entries()
        return replace(
            self._base,
            closed_ms=self._overflow.levels.closed_ms,
            draining=draining,
            emptying=emptying,
            pointer=self._intake.pointer_at(low),
            due_below_ms=self._intake.due_below_ms(low),
        )

    def mark(self, offsets: Offsets) -> None:
        """Count offsets as done, tentatively."""
        for source, of in offsets.items():
            if source == INTAKE:
                self._intake.ledger.mark(of)
            else:
                self._overflow.mark(source, of)

    def unmark(self, offsets: Offsets) -> None:
        """Take marks back."""
        for source, of in offsets.items():
            if source == INTAKE:
                self._intake.ledger.unmark(of)
            else:
                self._overflow.unmark(source, of)

    def trim(self) -> None:
        """All marks are committed."""
        self._intake.trim()
        self._overflow.trim()
