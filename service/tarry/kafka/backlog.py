"""What waits in a partition of an intake, as far as offsets and its checkpoint tell.

Between where a log is done and where it ends lies at most what waits: markers of transactions stand there too, and
messages that are done out of their turn. So it is an upper bound, and as quick to be had with ten million as with ten.

    the intake    from the low watermark: what is in memory, or not read yet
    a slot        from what is emptied, or done: the bucket that is closed and not done, if there is one, up to the
                  end that it was closed with; and behind that, the bucket that the slot is for in the next turn
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from tarry.core.progress.checkpoint import Checkpoint
from tarry.core.progress.source import Source
from tarry.core.wheel.levels import Bucket, Levels
from tarry.kafka.types import Place


class Stretch(NamedTuple):
    """A bucket's part of its slot.

    Attributes:
        bucket: which.
        until_ms: where its time ends.
        begin: all below is done.
        end: of its records.
        is_closed: whether it is being drained: those of level 1 are in memory, or soon will be.
    """

    bucket: Bucket
    until_ms: int
    begin: int
    end: int
    is_closed: bool


@dataclass(frozen=True, slots=True)
class Backlog:
    """What waits in one partition.

    Attributes:
        place: the partition of the intake.
        low: where what waits in the intake begins: the low watermark, or the log's start where there is none.
        end: where the intake ends.
        checkpoint: the group's; None where it has none.
        journal_end: where the journal ends.
        spans: for each slot the first offset that its log holds, and its end.
    """

    place: Place
    low: int
    end: int
    checkpoint: Checkpoint | None = None
    journal_end: int = 0
    spans: Mapping[Source, tuple[int, int]] = field(default_factory=dict)

    @property
    def levels(self) -> Levels | None:
        """The levels of its overflow wheel; None where there is none, or nobody has served it yet."""
        checkpoint = self.checkpoint
        if checkpoint is None or not checkpoint.closed_ms:
            return None
        return Levels(checkpoint.geometry, checkpoint.closed_ms)

    @property
    def journal_begin(self) -> int:
        """From where on the journal tells what is done above the watermarks."""
        if self.checkpoint is None:
            return self.journal_end
        return self.checkpoint.reads_from

    def begins(self) -> dict[Source, int]:
        """For each slot where what waits in it may begin: all below is done."""
        begins = {source: start for source, (start, _) in self.spans.items()}
        if self.checkpoint is not None:
            below = {Source(one.level, one.slot): one.end for one in self.checkpoint.emptying}
            below |= {Source(one.level, one.slot): one.done_below for one in self.checkpoint.draining}
            for source, at in below.items():
                begins[source] = max(begins.get(source, 0), at)
        return begins

    def stretches(self) -> Iterator[Stretch]:
        """The buckets that may hold something, the lowest level first."""
        levels, checkpoint = self.levels, self.checkpoint
        if levels is None or checkpoint is None:
            return
        closed_ends = {Source(one.level, one.slot): one.end for one in checkpoint.draining}
        begins = self.begins()
        for source, (_, end) in sorted(self.spans.items()):
            begin = begins[source]
            last = levels.last_turn(*source)
            closed_end = min(closed_ends.get(source, 0), end)
            if begin < closed_end:
                yield Stretch(last, levels.end_ms(last), begin, closed_end, is_closed=True)
            begin = max(begin, closed_end)
            if begin < end:
                turn_ms = levels.slots * checkpoint.geometry.width_of(source.level)
                bucket = Bucket(source.level, last.start_ms + turn_ms)
                yield Stretch(bucket, levels.end_ms(bucket), begin, end, is_closed=False)

    def buckets_of(self, due_ms: int) -> list[Bucket]:
        """The buckets in which a message may lie, one a level, the highest first: the way that it comes down."""
        levels, checkpoint = self.levels, self.checkpoint
        if levels is None or checkpoint is None:
            return []
        found = []
        for level in range(checkpoint.geometry.levels, 0, -1):
            width_ms = checkpoint.geometry.width_of(level)
            found.append(Bucket(level, due_ms // width_ms * width_ms))
        farthest = levels.bucket_for(due_ms)
        return found if farthest is None or farthest in found else [farthest, *found]
