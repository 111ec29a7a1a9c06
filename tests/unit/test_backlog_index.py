"""Waiting messages, counted by bucket from the index and the done records of a journal."""

from collections.abc import Callable
from dataclasses import replace

from tarry.core.progress.checkpoint import Checkpoint, Geometry
from tarry.core.progress.index import IndexPart, IndexRun
from tarry.core.progress.journal import DoneEntry, IndexEntry, ParkedEntry, ParkedRow
from tarry.core.progress.journal_state import JournalState
from tarry.core.progress.source import PARKED, Source
from tarry.kafka.backlog import Backlog, Stretch
from tarry.kafka.backlog_index import READ_OVER, DueRange, bucket_counts, parked_at_most, ranges_of

SMALL = Geometry(10, 2, 2)
LOW = (100, 0)
CHECKPOINT = Checkpoint(("w",), released=False, geometry=SMALL, closed_ms=(20, 40), done_ms=(20, 40), low=LOW)
"""At 0: buckets of 10 ms at level 1, open from 20 on, and of 20 ms at level 2, open from 40 on."""


def backlog(end: int, settled: tuple[int, ...] = ()) -> Backlog:
    return Backlog(("in", 0), 3, 9, CHECKPOINT, 99, {1: (0, end), 2: (0, 0)}, settled)


def state(
    *runs: tuple[int, int, int, int], end: int, done: dict[Source, list[tuple[int, int]]] | None = None
) -> JournalState:
    """The journal tells of level 1, from its low watermark to an offset."""
    made = JournalState(3, LOW)
    made.take(IndexEntry((IndexPart(1, 100, end, [IndexRun(*run) for run in runs]),)))
    made.take(DoneEntry(done or {}))
    return made


def test_without_an_index_a_level_counts_by_its_offsets() -> None:
    assert list(bucket_counts(backlog(150), JournalState())) == [(DueRange(1, 20, None), 50)]
    assert list(bucket_counts(backlog(150, (1,)), JournalState())) == [(DueRange(1, 20, None), 49)]


def test_each_bucket_counts_by_its_records_and_what_the_index_does_not_tell_of_by_offsets() -> None:
    found = state((2, 100, 110, 10), (3, 110, 140, 12), (2, 141, 144, 3), end=150)
    assert list(bucket_counts(backlog(150), found)) == [(DueRange(1, 20, 30), 13), (DueRange(1, 30, 40), 12)]
    assert list(bucket_counts(backlog(155, (1,)), found))[2:] == [(DueRange(1, 20, None), 4)]


def test_what_is_done_does_not_count_but_a_done_range_may_cover_records_of_other_buckets() -> None:
    runs = (2, 100, 110, 10), (3, 110, 140, 12)
    some = state(*runs, end=150, done={Source(1, 2): [(100, 104)], Source(1, 3): [(110, 120)]})
    assert [count for _, count in bucket_counts(backlog(150), some)] == [6, 12]
    more = state(
        *runs, end=150, done={Source(1, 2): [(100, 110)], Source(1, 3): [(110, 135)], Source(2, 3): [(0, 999)]}
    )
    assert [count for _, count in bucket_counts(backlog(150), more)] == [5]


def test_a_bucket_that_is_done_does_not_count_and_one_that_was_closed_counts_by_offsets() -> None:
    found = state((1, 100, 110, 10), (2, 110, 130, 0), end=150)
    assert list(bucket_counts(backlog(150), found)) == [(DueRange(1, 20, None), 20)]


def test_below_the_low_watermark_and_behind_the_end_of_the_log_nothing_counts() -> None:
    later = replace(backlog(130), checkpoint=replace(CHECKPOINT, low=(105, 0)))
    found = state((2, 100, 110, 10), (3, 120, 140, 20), end=150)
    assert [count for _, count in bucket_counts(later, found)] == [5, 10]


def meant(bucket: int) -> Callable[[IndexRun], bool]:
    """The runs of a bucket, and those that are closed."""
    return lambda run: not run.records or run.bucket == bucket


def test_a_bucket_is_listed_from_its_runs_and_from_what_the_index_does_not_tell_of() -> None:
    far = READ_OVER * 4
    found = state((2, 100, 110, 10), (3, 200, 210, 10), (3, far, far + 9, 9), (2, far - 5, far, 0), end=3 * far)
    stretch = Stretch(1, 20, 100, 3 * far + 7)
    tail = (3 * far, 3 * far + 7)
    assert ranges_of(stretch, found, meant(2)) == [(100, 110), (far - 5, far), tail]
    assert ranges_of(stretch, found, meant(3)) == [(200, 210), (far - 5, far + 9), tail]
    assert ranges_of(stretch, JournalState(), meant(3)) == [(100, 3 * far + 7)]
    assert ranges_of(stretch._replace(end=far), found, meant(4)) == [(far - 5, far)]


def test_parked_messages_count_by_the_journal_and_what_was_parked_since_by_offsets() -> None:
    found = JournalState()
    found.take(ParkedEntry([ParkedRow(7, 0, 40, "orders")], is_whole=True))
    found.take(DoneEntry({Source(PARKED, 7): [(0, 10)]}))
    there = replace(backlog(100), spans={PARKED: (0, 60)}, settled=(PARKED,), parked_from=50)
    assert parked_at_most(there, found) == 30 + 60 - 50 - 1
    assert parked_at_most(backlog(100), JournalState()) == 0
