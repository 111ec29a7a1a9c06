"""What is done of a partition, of its intake and of its slots; and what a commit says of it.

mark      what a transaction completes counts as done, tentatively
settle    low watermark, checkpoint and journal record that it commits
trim      it committed: done for good
unmark    it aborted
"""

from dataclasses import replace

from tarry.core.batch import Settlement
from tarry.core.progress.checkpoint import Checkpoint
from tarry.core.progress.intake import IntakeProgress
from tarry.core.progress.journal import encode_copy, encode_done, encode_ranges
from tarry.core.progress.origin import Origin
from tarry.core.progress.source import INTAKE, Offsets
from tarry.core.wheel.overflow import Overflow

RANGES_A_RECORD = 10_000

MOST_BYTES = 1 << 20
"""Of a summary: with more, a recovery reads the journal from where it did."""


class Progress:
    """How far one partition is done.

    Args:
        base: the checkpoint of its take-over.
        intake: how far the intake is done.
        overflow: how far the slots are done.
    """

    __slots__ = ("_base", "_intake", "_is_noted", "_journal_end", "_overflow", "_summed_up_at")

    def __init__(self, base: Checkpoint, intake: IntakeProgress, overflow: Overflow) -> None:
        self._base = base
        self._intake = intake
        self._overflow = overflow
        self._is_noted = overflow.done.noted()
        self._journal_end = 0
        self._summed_up_at: int | None = None
        """The pointer of the last settlement, if it sums up."""

    @property
    def behind(self) -> int:
        """How many records of the journal a recovery would read, as far as its end is known."""
        return max(0, self._journal_end - self.pointer)

    @property
    def origin(self) -> Origin:
        """What the offsets of its checkpoint are of."""
        return self._base.origin

    @property
    def pointer(self) -> int:
        """Where a recovery would begin to read the journal: of the intake, and of what is closed."""
        own, of_buckets = self._intake.pointer_at(self._intake.low), self._overflow.pointer
        return own if of_buckets is None else min(own, of_buckets)

    def note_journal_end(self, end: int) -> None:
        """Note an end of the journal that was asked for earlier, for the recovery pointers."""
        self._journal_end = max(self._journal_end, end)
        self._intake.note_journal_end(end)
        self._overflow.note_journal_end(end)

    def settle(self, offsets: Offsets) -> Settlement:
        """Mark what a transaction completes, and say what it commits."""
        self.mark(offsets)
        low = self._intake.low
        self._summed_up_at = None
        self._is_noted = self._overflow.done.noted()
        return Settlement(low, self._checkpoint(low).encode(), encode_done(offsets))

    def rest(self, *, released: bool, sums_up: bool) -> Settlement:
        """What is committed where nothing fires; the journal's record is a copy of the checkpoint.

        Args:
            released: whether the partition is given up with it.
            sums_up: whether to say again what is done above the watermarks, so that a recovery needs nothing of the
                journal that stands before its end as last known. For when no transaction is open.
        """
        low = self._intake.low
        summary = self._summary() if sums_up else None
        self._summed_up_at = self._journal_end if summary is not None else None
        self._is_noted = self._overflow.done.noted()
        text = replace(self._checkpoint(low), released=released).encode()
        return Settlement(low, text, encode_copy(low, text), summary or ())

    def sign(self, writer: tuple[str, ...]) -> None:
        """From now on the process writes under these transactional ids."""
        self._base = replace(self._base, writer=writer)

    def confirm(self) -> None:
        """The checkpoint of the last settlement is committed."""
        self._is_noted()
        if self._summed_up_at is not None:
            self._intake.sum_up(self._summed_up_at)
            self._overflow.sum_up(self._summed_up_at)
            self._summed_up_at = None

    def _summary(self) -> tuple[bytes, ...] | None:
        """Records of the journal, none where nothing is done above the watermarks; None where they are too large."""
        ranges = {INTAKE: self._intake.ledger.ranges(), **self._overflow.done_ranges()}
        records: list[bytes] = []
        size = 0
        for record in encode_ranges(ranges, RANGES_A_RECORD):
            size += len(record)
            if size > MOST_BYTES:
                return None
            records.append(record)
        return tuple(records)

    def _checkpoint(self, low: int) -> Checkpoint:
        draining, emptying = self._overflow.entries()
        pointer, summed_up_at = self._intake.pointer_at(low), self._summed_up_at
        if summed_up_at is not None:
            pointer = max(pointer, summed_up_at)
            draining = tuple(replace(one, pointer=max(one.pointer, summed_up_at)) for one in draining)
        return replace(
            self._base,
            closed_ms=self._overflow.levels.closed_ms,
            draining=draining,
            emptying=emptying,
            pointer=pointer,
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
