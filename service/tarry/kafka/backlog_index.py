"""What waits in the levels' logs of a partition, from the index and the done records of its journal.

The index says in which stretches of a log the records of a bucket are (`core.progress.index`), so an onlooker counts
them without reading them, and reads only these stretches to list a bucket. It knows nothing about the end of each log,
which the service has not told the journal of yet: at most some thousand offsets, mostly.

    log of a level     begin ... run of A ... run of B ... index ends ... end
                               counted by records        counted by offsets

All counts are upper bounds: a run may be read, filed again or done in part.
"""

from collections.abc import Callable, Iterator
from typing import NamedTuple

from tarry.core.progress.done_set import DoneSet
from tarry.core.progress.index import FoundIndex, IndexRun, within
from tarry.core.progress.journal import Range
from tarry.core.progress.journal_state import JournalState
from tarry.core.progress.source import PARKED, Source
from tarry.core.wheel.levels import Bucket
from tarry.core.wheel.runs import clipped, joined
from tarry.kafka.backlog import Backlog, Stretch

READ_OVER = 20_000
"""The most offsets that are read over between two runs: a client takes about as long to begin at another offset."""


class DueRange(NamedTuple):
    """A range of due times in a level.

    Attributes:
        level: the level.
        from_ms: no message is due before this time.
        until_ms: all are due before this time; None if that is not known.
    """

    level: int
    from_ms: int
    until_ms: int | None


def bucket_counts(backlog: Backlog, state: JournalState) -> Iterator[tuple[DueRange, int]]:
    """Count what waits in the levels' logs, by bucket, at most.

    A range without an end is of records that the index does not tell of, or of buckets that are being brought down.

    Args:
        backlog: the partition.
        state: what its journal says.
    """
    for stretch in backlog.stretches():
        assert backlog.checkpoint is not None  # noqa: S101 - it has levels
        width_ms = backlog.checkpoint.geometry.width_of(stretch.level)
        found = indexed(stretch, state)
        buckets: dict[int, int] = {}
        others = max(stretch.end - found.end - stretch.is_settled, 0)
        for run in found.runs:
            if not run.records:
                others += run.end - run.first
            elif (run.bucket + 1) * width_ms > stretch.from_ms:
                done = state.done.get(Source(stretch.level, run.bucket))
                left = min(run.records, run.end - run.first) if done is None else _left(run, done)
                buckets[run.bucket] = buckets.get(run.bucket, 0) + left
        for bucket, count in sorted(buckets.items()):
            if count:
                yield DueRange(stretch.level, bucket * width_ms, (bucket + 1) * width_ms), count
        if others:
            yield DueRange(stretch.level, stretch.from_ms, None), others


def _left(run: IndexRun, done: DoneSet) -> int:
    """Return how many records of a run may wait: a done range may cover records of other buckets, too."""
    covered = sum(end - first for first, end in clipped(done.ranges(), run.first, run.end))
    return min(run.records, run.end - run.first - covered)


def parked_at_most(backlog: Backlog, state: JournalState) -> int:
    """Return the most messages that wait in the parked log."""
    _, end = backlog.spans.get(PARKED, (0, 0))
    told = sum(one.row.messages for one in state.parked.found.values())
    return told + max(end - max(backlog.parked_from, state.parked.reached) - (PARKED in backlog.settled), 0)


def ranges_of(stretch: Stretch, state: JournalState, wanted: Callable[[IndexRun], bool]) -> list[Range]:
    """Return the offsets of a log in which wanted records may be: ascending, the last one to the log's end.

    Args:
        stretch: what may wait in the log.
        state: what the journal says.
        wanted: tells whether records of a run are meant.
    """
    found = indexed(stretch, state)
    runs = [(run.first, run.end) for run in found.runs if wanted(run)]
    return joined([*runs, (found.end, max(found.end, stretch.end))], READ_OVER)


def bucket_offsets(backlog: Backlog, state: JournalState, bucket: Bucket) -> int:
    """Return how many offsets are read to search a bucket, at most, as far as the index tells."""
    if backlog.checkpoint is None:
        return 0
    number = bucket.start_ms // backlog.checkpoint.geometry.width_of(bucket.level)
    return sum(
        end - first
        for stretch in backlog.stretches()
        if stretch.level == bucket.level
        for first, end in ranges_of(stretch, state, lambda run: run.bucket == number or not run.records)
    )


def indexed(stretch: Stretch, state: JournalState) -> FoundIndex:
    """Return what the index tells of a stretch."""
    found = state.index.found.get(stretch.level)
    if found is None or found.end < stretch.begin:
        return FoundIndex(stretch.begin)
    end = min(found.end, stretch.end)
    return FoundIndex(max(end, stretch.begin), within(found.runs, stretch.begin, end))
