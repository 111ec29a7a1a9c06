"""How far a partition is done, in the intake, in its buckets and in its parked log, and what a commit writes about it.

What waits under each name is tracked by `core.window.names`; here its journal pointer is committed with the others.

mark         mark the offsets that a transaction completes as done, tentatively
settle       mark them, and return the low watermark, the checkpoint and the journal record to commit
make_final   the transaction committed: the marks are final
unmark       the transaction aborted: the marks are removed
"""

from collections.abc import Iterable
from dataclasses import replace
from itertools import chain
from typing import TYPE_CHECKING

from tarry.core.batch import Settlement
from tarry.core.progress.checkpoint import Checkpoint, Obeyed
from tarry.core.progress.index import index_records
from tarry.core.progress.intake import IntakeProgress
from tarry.core.progress.journal import encode_copy, encode_done, encode_index, encode_parked, encode_ranges
from tarry.core.progress.origin import Origin
from tarry.core.progress.source import INTAKE, PARKED, Offsets
from tarry.core.wheel.overflow import OverflowWheel
from tarry.core.window.names import Names
from tarry.core.window.parked_log import ParkedLog

if TYPE_CHECKING:
    from tarry.core.progress.index import IndexPart

RANGES_A_RECORD = 10_000
"""The most ranges in one record of a summary."""

MOST_BYTES = 1 << 20
"""The largest size of a summary. A larger one is not written, and the journal pointers do not advance."""

INDEX_AFTER_PART = 10
"""A whole index is written after at least one journal record for this many of its runs."""


class Progress:
    """How far one partition is done.

    Args:
        base: the checkpoint of the take-over.
        intake: the progress of the intake.
        overflow: the progress of the buckets.
        parked: the progress of the parked log.
        names: the names.
    """

    __slots__ = (
        "_base",
        "_filing_from",
        "_index_pointer",
        "_indexed_at",
        "_intake",
        "_journal_end",
        "_names",
        "_overflow",
        "_parked",
        "_settled",
        "_summed_up_at",
        "_telling",
        "obeyed",
        "reads_from",
    )

    def __init__(
        self, base: Checkpoint, intake: IntakeProgress, overflow: OverflowWheel, parked: ParkedLog, names: Names
    ) -> None:
        self._base = base
        self._names = names
        self._intake = intake
        self._overflow = overflow
        self._parked = parked
        self._settled = base
        """The checkpoint of the last settlement."""
        self.reads_from = base.reads_from
        """The journal offset from which a recovery reads with the committed checkpoint."""
        self.obeyed = base.obeyed
        """How far the committed checkpoint says that pauses are obeyed."""
        self._journal_end = 0
        self._summed_up_at: int | None = None
        """The journal end from which a recovery reads after the last settlement, if that has a summary; else None."""
        self._index_pointer: int | None = None
        """The journal offset from which a recovery reads for the index of the levels' logs; None without levels."""
        if overflow.has_levels:
            # All that the take-over knows of the index, it has read from there on.
            self._index_pointer = base.reads_from if base.index_pointer is None else base.index_pointer
        self._indexed_at: int | None = None
        """The same after the last settlement, if that has a whole index; else None."""
        self._filing_from: int | None = None
        """An end of the journal from before the records of the open transaction that files messages; None: no such."""
        self._telling: list[IndexPart] = []
        """What the last settlement tells the journal of the levels' logs."""

    @property
    def behind(self) -> int:
        """How many offsets of the journal a summary would save a recovery: from `pointer` to the last known end."""
        return max(0, self._journal_end - self.pointer)

    @property
    def origin(self) -> Origin:
        """The cluster and the topics that the offsets of the checkpoint belong to."""
        return self._base.origin

    @property
    def pointer(self) -> int:
        """The journal offset from which a recovery would read what a summary has: of intake, levels and parked log."""
        pointers = [self._intake.pointer_at(self._intake.low)]
        if self._overflow.has_levels:
            pointers.append(self._overflow.pointer)
        if (parked := self._parked.pointer) is not None:
            pointers.append(parked)
        return min(pointers)

    def note_journal_end(self, end: int) -> None:
        """Note an end of the journal that was requested earlier, for the journal pointers."""
        self._journal_end = max(self._journal_end, end)
        self._intake.note_journal_end(end)
        self._overflow.note_journal_end(end)
        self._parked.note_journal_end(end)
        self._names.note_journal_end(end)

    def begin_filing(self) -> None:
        """Note that a transaction that files messages is open; `end_filing` follows. Its records are in the journal."""
        self._filing_from = self._journal_end

    def end_filing(self) -> None:
        """Note that it is over."""
        self._filing_from = None

    def settle(self, offsets: Offsets, of_names: Iterable[bytes] = ()) -> Settlement:
        """Mark the offsets that a transaction completes, and return what it must commit.

        Args:
            offsets: the offsets, by source.
            of_names: the journal's records about names.
        """
        self.mark(offsets)
        return Settlement(*self.plain_checkpoint(released=False), encode_done(offsets), tuple(of_names))

    def plain_checkpoint(self, *, released: bool) -> tuple[int, str]:
        """Return the low watermark and the checkpoint to commit without a copy, a summary or an index in the journal.

        Args:
            released: whether this commit releases the partition.
        """
        low = self._intake.low
        self._summed_up_at = self._indexed_at = None
        self._telling = []
        return low, replace(self._checkpoint(low), released=released).encode()

    def settle_checkpoint(self, *, released: bool, sums_up: bool) -> Settlement:
        """Return what to commit without a batch; the journal record is a copy of the checkpoint.

        Args:
            released: whether this commit releases the partition.
            sums_up: whether to write a summary, so that a recovery does not need the journal before its last known end.
                Allowed only while no transaction of the partition is open.
        """
        low = self._intake.low
        summary = self._summary() if sums_up else None
        self._summed_up_at = self._journal_end if summary is not None else None
        index = self._index(released=released)
        text = replace(self._checkpoint(low), released=released).encode()
        return Settlement(
            low, text, encode_copy(low, text), (*(summary or ()), *index, *self._names.settle_checkpoint(low))
        )

    def sign(self, writer: tuple[str, ...]) -> None:
        """Put these transactional ids into the checkpoint."""
        self._base = replace(self._base, writer=writer)

    def obey(self, obeyed: Obeyed) -> bool:
        """Put into the checkpoint how far pauses are obeyed; return whether the committed one does not say so yet."""
        if obeyed != self._base.obeyed:
            self._base = replace(self._base, obeyed=obeyed)
        return obeyed != self.obeyed

    def confirm(self) -> None:
        """Note that the checkpoint of the last settlement is committed."""
        self._overflow.note(self._settled.low)
        self._parked.note()
        self._overflow.told(self._telling)
        self._telling = []
        self._index_pointer = self._settled.index_pointer
        self.reads_from = self._settled.reads_from
        self.obeyed = self._settled.obeyed
        if self._summed_up_at is not None:
            self._intake.sum_up(self._summed_up_at)
            self._overflow.sum_up(self._summed_up_at)
            self._parked.sum_up(self._summed_up_at)
            self._summed_up_at = None

    def _summary(self) -> tuple[bytes, ...] | None:
        """Return the records of a summary, empty if nothing is done above the watermarks; None if it is too large."""
        ranges = chain(
            [(INTAKE, self._intake.ledger.ranges())], self._overflow.done_ranges(), self._parked.done_ranges()
        )
        parked = [encode_parked(entry) for entry in self._parked.summary()]
        if parked:
            parked.append(encode_index([self._parked.reach()]))
        records: list[bytes] = []
        size = 0
        for record in chain(parked, encode_ranges(ranges, RANGES_A_RECORD)):
            size += len(record)
            if size > MOST_BYTES:
                return None
            records.append(record)
        return tuple(records)

    def _index(self, *, released: bool) -> list[bytes]:
        """Return the records that tell where records are in the levels' logs: the whole index, or the news."""
        whole, pointer = None, self._index_pointer
        if pointer is not None and not released:
            behind = self._journal_end - pointer
            if behind >= max(self._overflow.upkeep.index_after, self._overflow.run_count // INDEX_AFTER_PART):
                whole = self._overflow.whole_index()
        self._telling = self._overflow.news() if whole is None else whole
        if whole is None:
            self._indexed_at = None
            return [encode_index(parts) for parts in index_records(self._telling)]
        # What an open filing says of how far logs reach is needed until the next whole index says it.
        self._indexed_at = self._journal_end if self._filing_from is None else self._filing_from
        return [encode_index(parts) for parts in index_records([*whole, *self._overflow.reaches()])]

    def _checkpoint(self, low: int) -> Checkpoint:
        pointer, wheel_pointer = self._intake.pointer_at(low), self._overflow.pointer
        parked_pointer = self._parked.pointer
        if self._summed_up_at is not None:
            pointer, wheel_pointer = max(pointer, self._summed_up_at), max(wheel_pointer, self._summed_up_at)
            parked_pointer = None if parked_pointer is None else max(parked_pointer, self._summed_up_at)
        self._settled = replace(
            self._base,
            closed_ms=self._overflow.levels.closed_ms,
            done_ms=self._overflow.done_ms,
            low=self._overflow.low,
            wheel_pointer=wheel_pointer,
            pointer=pointer,
            parked_pointer=parked_pointer,
            names_pointer=self._names.pointer,
            index_pointer=self._index_pointer if self._indexed_at is None else self._indexed_at,
            due_below_ms=self._intake.due_below_ms(low),
        )
        return self._settled

    def mark(self, offsets: Offsets) -> None:
        """Mark offsets as done, tentatively."""
        for source, of in offsets.items():
            if source == INTAKE:
                self._intake.ledger.mark(of)
            elif source.level == PARKED:
                self._parked.mark(source, of)
            else:
                self._overflow.mark(source, of)

    def unmark(self, offsets: Offsets) -> None:
        """Remove marks: their transaction aborted."""
        for source, of in offsets.items():
            if source == INTAKE:
                self._intake.ledger.unmark(of)
            elif source.level == PARKED:
                self._parked.unmark(source, of)
            else:
                self._overflow.unmark(source, of)

    def make_final(self) -> None:
        """Make all marks final, because they are committed."""
        self._intake.make_final()
        self._overflow.make_final()
        self._parked.make_final()
        self._parked.note()
