"""How many messages wait in a partition of an intake, computed from offsets and its checkpoint.

The waiting messages of a log lie between its low watermark and its end. Transaction markers lie there too, and messages
that are done already. So the number of offsets is an upper bound, and computing it costs the same for ten million
messages as for ten.

The low watermark of a level's log goes as far as the last record that the service has filed. So the marker behind that
one stays above it while the level is idle, and must not count:

    filed  filed  marker
                  low, once both are done
"""

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from tarry.core.progress.checkpoint import Checkpoint
from tarry.core.wheel.levels import Bucket
from tarry.kafka.types import Place

PARKED_SHOWN = -1
"""The level of the parked log, as commands print it, and in tables."""


class Stretch(NamedTuple):
    """The part of a level's log that may hold waiting messages.

    Attributes:
        level: the level.
        from_ms: no message in it is due before this time.
        begin: the offset below which all is done.
        end: the end of the log.
        is_settled: whether no transaction was open there.
    """

    level: int
    from_ms: int
    begin: int
    end: int
    is_settled: bool = False

    @property
    def at_most(self) -> int:
        """The most messages in it: the last offset of a log without an open transaction is a marker.

        Only transactions of the service write messages there. A record of somebody else may stand at the end without
        a marker; it is no message, and does not count then.
        """
        return max(self.end - self.begin - self.is_settled, 0)


@dataclass(frozen=True, slots=True)
class Backlog:
    """The offsets and the checkpoint of one partition.

    Attributes:
        place: the partition of the intake.
        low: where its waiting messages begin: the low watermark, or the log's start if there is none.
        end: the end of the intake.
        checkpoint: the group's; None if it has none.
        journal_end: the end of the journal.
        spans: for each level the first offset that its log holds, and its end; `PARKED` is the parked log.
        settled: the levels in whose logs no transaction was open at that end.
        parked_from: an end of the parked log from before `journal_end`: that journal may not know what is behind it.
    """

    place: Place
    low: int
    end: int
    checkpoint: Checkpoint | None = None
    journal_end: int = 0
    spans: Mapping[int, tuple[int, int]] = field(default_factory=dict)
    settled: Collection[int] = ()
    parked_from: int = 0

    @property
    def journal_begin(self) -> int:
        """The journal offset from which on its records say what is done above the low watermarks."""
        if self.checkpoint is None:
            return self.journal_end
        return self.checkpoint.reads_from

    def stretches(self, *, empty_too: bool = False) -> Iterator[Stretch]:
        """Return what may wait in the levels' logs, the lowest level first.

        Args:
            empty_too: also yield levels in which nothing waited at the survey: messages may move there.
        """
        if self.checkpoint is None:
            return
        for level, (low, done_ms) in enumerate(zip(self.checkpoint.low, self.checkpoint.done_ms, strict=True), 1):
            start, end = self.spans.get(level, (0, 0))
            if empty_too or max(start, low) < end:
                yield Stretch(level, done_ms, max(start, low), end, level in self.settled)

    def buckets_of(self, due_ms: int) -> list[Bucket]:
        """Return the buckets in which a message may lie on its way down, one of each level, the highest level first."""
        if self.checkpoint is None:
            return []
        geometry = self.checkpoint.geometry
        widths = [(level, geometry.width_of(level)) for level in range(geometry.levels, 0, -1)]
        return [Bucket(level, due_ms // width_ms * width_ms) for level, width_ms in widths]
