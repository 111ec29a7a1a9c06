"""How many messages wait in a partition of an intake, computed from offsets and its checkpoint.

The waiting messages of a log lie between its low watermark and its end. Transaction markers lie there too, and messages
that are done already. So the number of offsets is an upper bound, and computing it costs the same for ten million
messages as for ten.

    the intake    from the low watermark: messages that are in memory, or not read yet
    a slot        from the offset below which it is emptied or done: first the closed bucket that is not done, if there
                  is one, up to the end that it was closed with; after it, the slot's bucket of the next turn
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from tarry.core.progress.checkpoint import Checkpoint
from tarry.core.progress.source import Source
from tarry.core.wheel.levels import Bucket, Levels
from tarry.kafka.types import Place


class Stretch(NamedTuple):
    """The part of a slot that belongs to one bucket.

    Attributes:
        bucket: the bucket.
        until_ms: the end of the bucket's time.
        begin: the offset below which all is done.
        end: the end of its records.
        is_closed: whether it is being drained; then messages of level 1 are in memory, or soon will be.
    """

    bucket: Bucket
    until_ms: int
    begin: int
    end: int
    is_closed: bool


@dataclass(frozen=True, slots=True)
class Backlog:
    """The offsets and the checkpoint of one partition.

    Attributes:
        place: the partition of the intake.
        low: where its waiting messages begin: the low watermark, or the log's start if there is none.
        end: the end of the intake.
        checkpoint: the group's; None if it has none.
        journal_end: the end of the journal.
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
        """The levels of its overflow wheel; None if there is none, or no process has served the partition yet."""
        checkpoint = self.checkpoint
        if checkpoint is None or not checkpoint.closed_ms:
            return None
        return Levels(checkpoint.geometry, checkpoint.closed_ms)

    @property
    def journal_begin(self) -> int:
        """The journal offset from which on its records say what is done above the low watermarks."""
        if self.checkpoint is None:
            return self.journal_end
        return self.checkpoint.reads_from

    def begins(self) -> dict[Source, int]:
        """Return for each slot the offset below which all is done."""
        begins = {source: start for source, (start, _) in self.spans.items()}
        if self.checkpoint is not None:
            below = {Source(one.level, one.slot): one.end for one in self.checkpoint.emptying}
            below |= {Source(one.level, one.slot): one.done_below for one in self.checkpoint.draining}
            for source, at in below.items():
                begins[source] = max(begins.get(source, 0), at)
        return begins

    def stretches(self) -> Iterator[Stretch]:
        """Return the buckets that may hold messages, the lowest level first."""
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
        """Return the buckets in which a message may lie on its way down, the highest level first.

        There is one for each level. The bucket to which the message would be filed now comes first, if it is not one
        of these.
        """
        levels, checkpoint = self.levels, self.checkpoint
        if levels is None or checkpoint is None:
            return []
        found = []
        for level in range(checkpoint.geometry.levels, 0, -1):
            width_ms = checkpoint.geometry.width_of(level)
            found.append(Bucket(level, due_ms // width_ms * width_ms))
        farthest = levels.bucket_for(due_ms)
        return found if farthest is None or farthest in found else [farthest, *found]
