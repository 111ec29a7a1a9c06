"""What a take-over finds of a partition: in its committed offset, its journal, and its slots of the overflow wheel."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from tarry.core.progress.checkpoint import Checkpoint
from tarry.core.progress.done_set import DoneSet
from tarry.core.progress.source import Source


@dataclass(frozen=True, slots=True)
class Buckets:
    """What a take-over found in a partition's slots.

    Attributes:
        spans: for each slot the first offset that its log holds, and its end.
        done: what the journal says is done of each.
        journal_end: the journal's end when the take-over began.
    """

    spans: Mapping[Source, tuple[int, int]] = field(default_factory=dict)
    done: Mapping[Source, DoneSet] = field(default_factory=dict)
    journal_end: int = 0


@dataclass(frozen=True, slots=True)
class Recovered:
    """What a take-over read before the first record of the intake.

    Attributes:
        low: the committed offset, which is the low watermark.
        checkpoint: committed with it, and already in the name of this process.
        done: what the journal says is done above `low`.
        replay_end: the intake's end when the take-over began.
        buckets: what was found of its overflow wheel.
        is_uncopied: whether perhaps no copy of it names all that its offsets are of: one comes before all else.
    """

    low: int
    checkpoint: Checkpoint
    done: DoneSet
    replay_end: int
    buckets: Buckets = field(default_factory=Buckets)
    is_uncopied: bool = False
