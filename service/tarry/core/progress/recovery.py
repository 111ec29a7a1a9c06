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
    """Return whether a copy that comes after another one in the journal replaces it.

    When an intake is adopted, the low watermark goes back; the pointer never does. The order in the journal alone does
    not decide: a first checkpoint (`birth`) may be written late, by a process that began before the partition had any
    owner.
    """
    return other is None or (copy[1].pointer, copy[0]) >= (other[1].pointer, other[0])


class Recovery:
    """The recovery of one partition.

    Args:
        low: the low watermark: the committed offset, or that of the last copy.
        checkpoint: the checkpoint that goes with it.
        writer: the transactional ids of the process that takes over.

    Attributes:
        low: the low watermark.
        checkpoint: the same checkpoint in the name of that process, to be committed before it touches the partition.
        journal: what the journal says. It takes the records from `checkpoint.reads_from` on.
    """

    __slots__ = ("checkpoint", "journal", "low")

    def __init__(self, low: int, checkpoint: Checkpoint, writer: tuple[str, ...]) -> None:
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
            not self.checkpoint.origin.knows_all_of(origin),
        )
