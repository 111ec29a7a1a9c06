"""The state of a partition as a take-over finds it, in its committed offset, its journal, and its levels."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from tarry.core.progress.checkpoint import Checkpoint
from tarry.core.progress.done_set import DoneSet
from tarry.core.progress.index import FoundIndex
from tarry.core.progress.name_records import NameRecords
from tarry.core.progress.parked_records import FoundParked
from tarry.core.progress.source import Source


@dataclass(frozen=True, slots=True)
class Buckets:
    """The buckets of a partition as a take-over found them.

    Attributes:
        spans: for each level the first offset that its log holds, and its end; `PARKED` is the parked log.
        done: for each bucket the offsets that the journal says are done.
        journal_end: the journal's end after the checkpoint was signed.
        index: where the records of each level are, as far as that is known.
    """

    spans: Mapping[int, tuple[int, int]] = field(default_factory=dict)
    done: Mapping[Source, DoneSet] = field(default_factory=dict)
    journal_end: int = 0
    index: Mapping[int, FoundIndex] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Recovered:
    """The state of a partition as a take-over found it, before the intake is read.

    Attributes:
        low: the committed offset, which is the low watermark.
        checkpoint: the committed checkpoint, already in the name of this process.
        done: the offsets above `low` that the journal says are done.
        replay_end: the intake's end when the take-over began.
        buckets: what was found about the overflow wheel.
        parked: what the journal says of the parked log: the targets that have messages there, by number.
        names: what the journal says of names.
        partitions: how many partitions the intake has; 0 if that is not known.
        is_uncopied: whether the journal may have no copy with the checkpoint's full origin. Then a copy must be written
            before anything else.
    """

    low: int
    checkpoint: Checkpoint
    done: DoneSet
    replay_end: int
    buckets: Buckets = field(default_factory=Buckets)
    parked: Mapping[int, FoundParked] = field(default_factory=dict)
    names: NameRecords = field(default_factory=NameRecords)
    partitions: int = 0
    is_uncopied: bool = False
