"""The rules by which a take-over puts a partition's state together from what it reads.

The take-over asks the brokers and reads the logs; here is decided what the records mean:

- which copy of a checkpoint in the journal replaces a committed offset that is missing
- what the new owner's first checkpoint says
- from which offset on the journal must be read

What its records say together is in `journal_state`.
"""

from collections.abc import Mapping
from dataclasses import replace

from tarry.core.progress.checkpoint import Checkpoint
from tarry.core.progress.journal_state import JournalState
from tarry.core.progress.origin import Origin
from tarry.core.progress.recovered import Buckets, Recovered
from tarry.core.progress.source import INTAKE

Kept = tuple[int, Checkpoint]
"""A low watermark, and the checkpoint that goes with it."""


def is_later(copy: Kept, other: Kept | None) -> bool:
    """Return whether a copy is of the same checkpoint as another one, or of a later one.

    Of two copies in the journal the second one counts then. The order in the journal alone does not decide: a first
    checkpoint (`birth`) may be written late, by a process that began before the partition had any owner. When an intake
    is adopted, the low watermark goes back; the pointer never does.
    """
    if other is None:
        return True
    at, before = _progress(copy), _progress(other)
    if at == before and copy[1].geometry == other[1].geometry:
        # What is delivered from the levels, while nothing comes to the intake.
        return _progress_of_levels(copy[1]) >= _progress_of_levels(other[1])
    return at >= before


def replaces(copy: Kept, known: Kept) -> bool:
    """Return whether the last copy in a journal is of a later checkpoint than the one that a group's coordinator tells.

    If they differ in nothing but the shape of the overflow wheel, it is: an owner writes a copy before it does anything
    in another shape. So if the coordinator is right nevertheless, nothing was done since that copy.
    """
    if _progress(copy) == _progress(known) and copy[1].geometry != known[1].geometry:
        return True
    return not is_later(known, copy)


def _progress(one: Kept) -> tuple[int, ...]:
    """Return what never decreases from one checkpoint of a partition to the next, the most significant number first."""
    low, checkpoint = one
    return checkpoint.pointer, low, bool(checkpoint.writer)


def _progress_of_levels(checkpoint: Checkpoint) -> tuple[int, ...]:
    """Return the same of the levels, as long as their shape stays the same."""
    return checkpoint.reads_from, *checkpoint.closed_ms, *checkpoint.done_ms, *checkpoint.low


class Recovery:
    """The recovery of one partition.

    Args:
        low: the low watermark: the committed offset, or that of the last copy.
        checkpoint: the checkpoint that goes with it.
        writer: the transactional ids of the process that takes over.
        is_reshaped: whether the checkpoint was brought into another shape of the overflow wheel.

    Attributes:
        low: the low watermark.
        checkpoint: the same checkpoint in the name of that process, to be committed before it touches the partition.
        journal: what the journal says. It takes the records from `checkpoint.reads_from` on.
    """

    __slots__ = ("_is_reshaped", "checkpoint", "journal", "low")

    def __init__(self, low: int, checkpoint: Checkpoint, writer: tuple[str, ...], *, is_reshaped: bool = False) -> None:
        self._is_reshaped = is_reshaped
        self.low = low
        self.checkpoint = replace(checkpoint, writer=writer, released=False)
        self.journal = JournalState(low, checkpoint.low)

    def recovered(
        self,
        replay_end: int,
        spans: Mapping[int, tuple[int, int]],
        journal_end: int,
        origin: Origin,
        partitions: int = 0,
    ) -> Recovered:
        """Return the partition's state, when the journal was read to its end.

        Args:
            replay_end: the intake's end when the take-over began.
            spans: for each level the first offset that its log holds, and its end; `PARKED` is the parked log.
            journal_end: the journal's end after the checkpoint was signed.
            origin: the present cluster and topic ids.
            partitions: how many partitions the intake has; 0 if that is not known.
        """
        of_buckets = {source: done for source, done in self.journal.done.items() if source != INTAKE}
        return Recovered(
            self.low,
            # Not earlier: if the committed offset had all ids, a later take-over would assume that a copy has them.
            replace(self.checkpoint, origin=origin),
            self.journal.done[INTAKE],
            replay_end,
            Buckets(spans, of_buckets, journal_end, self.journal.index.found),
            self.journal.parked.found,
            self.journal.names,
            partitions,
            self._is_reshaped or not self.checkpoint.origin.knows_all_of(origin),
        )
