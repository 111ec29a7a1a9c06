"""The index in the journal: what a take-over knows of the levels' logs without reading them."""

import zlib
from array import array
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tarry.core.batch import FiledRun
from tarry.core.partition_progress import Progress
from tarry.core.progress.checkpoint import Checkpoint, Geometry, decode_checkpoint
from tarry.core.progress.done_set import DoneSet
from tarry.core.progress.index import IndexPart, IndexRecords, IndexRun, decode_parts, encode_parts
from tarry.core.progress.intake import IntakeProgress
from tarry.core.progress.journal import IndexEntry, decode_entry, encode_index
from tarry.core.progress.recovered import Buckets, Recovered
from tarry.core.progress.source import Source
from tarry.core.wheel.closed_range import ClosedRange
from tarry.core.wheel.overflow import OverflowWheel, ToRead, Upkeep
from tarry.core.window.parked_log import ParkedLog
from tests.support.naming import no_names

WIDE = Geometry(1_000, 4, 2)
"""Buckets of 1 s and of 4 s."""
LOTS = 10**9

NUMBERS = st.integers(0, 2**62)
PARTS = st.lists(
    st.builds(IndexPart, NUMBERS, NUMBERS, NUMBERS, st.lists(st.builds(IndexRun, NUMBERS, NUMBERS, NUMBERS, NUMBERS))),
    max_size=3,
)


def part(begin: int, end: int, *runs: tuple[int, int, int], level: int = 1) -> IndexPart:
    return IndexPart(level, begin, end, [IndexRun(bucket, first, last, last - first) for bucket, first, last in runs])


def found(low: int, *records: Sequence[IndexPart] | None) -> tuple[int, list[IndexRun]]:
    """Take records of the index; return up to where the log of level 1 is known, and its runs."""
    index = IndexRecords((low, 0))
    for record in records:
        index.take(record)
    return index.found[1].end, index.found[1].runs


def wheel(
    index: IndexRecords | None = None,
    ends: tuple[int, int] = (0, 0),
    closed_ms: tuple[int, ...] = (4_000, 8_000),
    done_ms: tuple[int, ...] | None = None,
    low: tuple[int, ...] = (0, 0),
) -> OverflowWheel:
    base = Checkpoint(("w",), False, WIDE, closed_ms, done_ms or closed_ms, low)
    spans = {level: (0, end) for level, end in enumerate(ends, 1)}
    return OverflowWheel(base, Buckets(spans, {}, 50, index.found if index else {}))


def after_crash(one: OverflowWheel, ends: tuple[int, int], *records: Sequence[IndexPart]) -> OverflowWheel:
    """Take over with the committed checkpoint of a wheel, and what it told the journal."""
    index = IndexRecords(one.low)
    for record in records:
        index.take(record)
    return wheel(index, ends, one.levels.closed_ms, one.done_ms, one.low)


# -- the form ---------------------------------------------------------------------------------------------------------


@given(PARTS)
def test_what_is_written_is_read(parts: list[IndexPart]) -> None:
    assert decode_parts(encode_parts(parts)) == tuple(parts)
    assert decode_entry(encode_index(parts)) == IndexEntry(tuple(parts))


@given(PARTS.filter(bool), st.data())
def test_a_damaged_record_is_unreadable_and_no_error(parts: list[IndexPart], data: st.DataObject) -> None:
    record = encode_index(parts)
    at = data.draw(st.integers(1, len(record) - 1))
    damaged = record[:at] + bytes([record[at] ^ data.draw(st.integers(1, 255))]) + record[at + 1 :]
    for spoilt in (record[:at], damaged):
        assert decode_entry(spoilt) in (IndexEntry(None), IndexEntry(tuple(parts)))


def test_a_record_of_a_later_version_is_unreadable_and_no_error() -> None:
    assert decode_entry(b"I\x02whatever") == IndexEntry(None)


@pytest.mark.parametrize("numbers", [(1, 0, 9, 1), (1, 0, 9), (1, 0, 9, -1)])
def test_numbers_that_do_not_fit_together_are_an_error(numbers: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match="truncated"):
        decode_parts(zlib.compress(array("q", numbers).tobytes()))


# -- what the records say together ------------------------------------------------------------------------------------


def test_each_record_adds_to_the_one_before() -> None:
    assert found(0, [part(0, 10, (4, 0, 10))], [part(10, 25, (5, 11, 25))]) == (
        25,
        [IndexRun(4, 0, 10, 10), IndexRun(5, 11, 25, 14)],
    )


def test_behind_a_missing_or_damaged_record_nothing_counts_until_another_one_covers_the_gap() -> None:
    first, third = [part(0, 10, (4, 0, 10))], [part(20, 30, (4, 20, 30))]
    assert found(0, first, third) == found(0, first, None, third) == (10, [IndexRun(4, 0, 10, 10)])
    assert found(0, first, third, [part(30, 40, (4, 30, 40))])[0] == 10
    assert found(0, first, third, [part(5, 40, (4, 12, 40))]) == (40, [IndexRun(4, 0, 5, 5), IndexRun(4, 12, 40, 28)])
    assert found(0, first, third, [part(0, 40, (4, 0, 40))]) == (40, [IndexRun(4, 0, 40, 40)])


def test_a_record_that_begins_earlier_replaces_what_is_known_from_there_on() -> None:
    """The next owner did not find the second record, and told of its records again, in larger runs."""
    again = [part(10, 40, (4, 12, 40))]
    assert found(0, [part(0, 10, (4, 0, 10))], [part(10, 30, (4, 12, 20), (5, 20, 30))], again) == (
        40,
        [IndexRun(4, 0, 10, 10), IndexRun(4, 12, 40, 28)],
    )
    assert found(0, [part(0, 30, (4, 0, 30))], again) == (40, [IndexRun(4, 0, 10, 10), IndexRun(4, 12, 40, 28)])


def test_a_record_that_was_overtaken_by_one_of_more_changes_nothing() -> None:
    assert found(0, [part(0, 40, (4, 0, 40))], [part(0, 10, (4, 0, 10))], [part(10, 30, (5, 10, 30))]) == (
        40,
        [IndexRun(4, 0, 40, 40)],
    )


def test_a_record_from_below_the_low_watermark_is_whole() -> None:
    assert found(20, [part(10, 30, (4, 10, 30))]) == (30, [IndexRun(4, 10, 30, 20)])
    assert found(20, [part(21, 30, (4, 21, 30))]) == (20, [])


def test_a_level_of_an_earlier_configuration_is_left_out() -> None:
    index = IndexRecords((0,))
    index.take([part(0, 9, (1, 0, 9), level=2)])
    assert set(index.found) == {1}


# -- the wheel --------------------------------------------------------------------------------------------------------


def test_a_take_over_reads_nothing_that_the_journal_tells_of() -> None:
    one = wheel()
    one.filed([FiledRun(Source(1, 4), 0, 3, 3), FiledRun(Source(2, 2), 0, 5, 5)])
    one.filed([FiledRun(Source(1, 5), 4, 6, 2)])
    told = one.news()
    one.told(told)
    assert one.news() == []
    next_one = after_crash(one, (6, 5), told)
    assert list(next_one.to_read(LOTS, 1)) == []
    assert next_one.in_buckets == {1: 5, 2: 5}
    assert next_one.close(LOTS, 4_300)
    [to_read] = next_one.to_read(LOTS, 1)
    assert to_read.runs == [(0, 3)]


def test_it_reads_only_what_the_journal_does_not_tell_of() -> None:
    one = wheel()
    one.filed([FiledRun(Source(1, 4), 0, 3, 3)])
    told = one.news()
    one.filed([FiledRun(Source(1, 4), 4, 6, 2)])
    assert list(after_crash(one, (7, 0), told).to_read(LOTS, 1)) == [ToRead(1, None, [(3, 7)])]


def test_news_that_were_not_committed_are_told_again() -> None:
    one = wheel()
    one.filed([FiledRun(Source(1, 4), 0, 3, 3)])
    assert one.news() == one.news() == [part(0, 3, (4, 0, 3))]


def test_news_come_together_until_they_are_many_enough() -> None:
    one = wheel()
    one.filed([FiledRun(Source(1, 4), 0, 3, 3)])
    assert one.news(4) == []
    one.filed([FiledRun(Source(1, 4), 4, 6, 2)])
    assert one.news(4) == [IndexPart(1, 0, 6, [IndexRun(4, 0, 6, 5)])]


def test_what_is_closed_and_not_done_is_part_of_the_whole_index() -> None:
    one = wheel()
    one.filed([FiledRun(Source(1, 4), 0, 3, 3), FiledRun(Source(1, 6), 3, 5, 2)])
    assert one.close(LOTS, 4_300)
    whole = one.whole_index()
    assert whole is not None
    next_one = after_crash(one, (5, 0), whole)
    [to_read] = next_one.to_read(LOTS, 1)
    assert (to_read.range is not None, to_read.runs) == (True, [(0, 3)])
    assert next_one.in_buckets[1] == 5


def test_what_a_survey_finds_of_a_closed_range_is_told_too() -> None:
    """Otherwise the next take-over would know the log to its end, and read nothing of that range."""
    one = wheel(ends=(4, 0), done_ms=(3_000, 8_000))
    reading = list(one.to_read(LOTS, 1))
    for offset, due_ms in enumerate((3_500, 4_500, 3_600, 4_600)):
        closed = next((of.range for of in reading if isinstance(of.range, ClosedRange)), None)
        assert closed is not None
        if closed.covers(due_ms):
            assert closed.read(one.source_of(1, due_ms), offset)
        else:
            assert one.survey(1, offset, due_ms)
    for to_read in reading:
        one.reach_end(to_read)
    [next_read] = after_crash(one, (4, 0), one.news()).to_read(LOTS, 1)
    assert (next_read.range is not None, next_read.runs) == (True, [(0, 4)])


def test_nothing_is_told_of_a_log_that_is_not_known() -> None:
    one = wheel(ends=(4, 0))
    one.filed([FiledRun(Source(1, 4), 5, 6, 1)])
    assert (one.news(), one.whole_index()[0]) == ([], part(0, 0))


def test_nothing_is_told_of_a_log_with_a_gap_until_that_is_read() -> None:
    one = wheel()
    one.filed([FiledRun(Source(1, 4), 0, 2, 2)])
    one.filed([FiledRun(Source(1, 4), 6, 7, 1)])
    told = part(0, 2, (4, 0, 2))
    assert (one.news(), one.whole_index()[0]) == ([told], told)
    one.told([told])
    assert one.news() == []
    [gap] = one.to_read(LOTS, 1)
    one.reach_end(gap)
    assert one.news() == [part(2, 7, (4, 6, 7))]


def test_nothing_is_told_of_a_log_with_a_record_of_somebody_else_until_that_is_a_dead_letter() -> None:
    """A take-over that does not read the record would not find it."""
    one = wheel()
    one.filed([FiledRun(Source(1, 4), 1, 2, 1)])
    assert one.meet(1, 0)
    [gap] = one.to_read(LOTS, 1)
    one.reach_end(gap)
    assert one.news() == []
    one.mark(Source(1, 0), [0])
    assert one.news() == [part(0, 2, (4, 1, 2))]


def test_a_log_that_ends_before_what_the_journal_tells_of_is_read_as_a_whole() -> None:
    one = wheel()
    one.filed([FiledRun(Source(1, 4), 0, 30, 30)])
    assert list(after_crash(one, (20, 0), one.news()).to_read(LOTS, 1)) == [ToRead(1, None, [(0, 20)])]


# -- when the whole index is written ----------------------------------------------------------------------------------


def progress_after_filing(journal_end: int, index_after: int = 10) -> Progress:
    """The progress of a partition that has filed to one bucket, when that end of its journal is known."""
    one = wheel()
    one.upkeep = Upkeep(index_after=index_after)
    one.filed([FiledRun(Source(1, 4), 0, 3, 3)])
    base = Checkpoint(("w",), False, WIDE, (4_000, 8_000))
    intake = IntakeProgress(Recovered(0, base, DoneSet(), 0), keeps_order=False)
    found = Progress(base, intake, one, ParkedLog({}, (0, 0), 0, 0), no_names())
    found.note_journal_end(journal_end)
    return found


def test_the_whole_index_moves_its_pointer_to_the_end_of_the_journal_that_was_known() -> None:
    state = progress_after_filing(journal_end=9)
    news = state.settle_checkpoint(released=False, sums_up=False)
    assert decode_checkpoint(news.metadata).index_pointer == 0, "what the take-over read from"
    state.note_journal_end(10)
    whole = state.settle_checkpoint(released=False, sums_up=False)
    assert (decode_checkpoint(whole.metadata).index_pointer, len(whole.before)) == (10, 1)
    state.note_journal_end(15)
    assert decode_checkpoint(state.settle({}).metadata).index_pointer == 0, "that transaction aborted"
    state.settle_checkpoint(released=False, sums_up=False)
    state.confirm()
    state.note_journal_end(20)
    after = state.settle_checkpoint(released=False, sums_up=False)
    assert (decode_checkpoint(after.metadata).index_pointer, after.before) == (15, ())
    assert state.reads_from == min(15, decode_checkpoint(after.metadata).reads_from)


def test_a_partition_that_is_released_tells_the_news_alone() -> None:
    state = progress_after_filing(journal_end=500)
    rest = state.settle_checkpoint(released=True, sums_up=False)
    assert [decode_entry(record) for record in rest.before] == [IndexEntry((part(0, 3, (4, 0, 3)),))]
    assert decode_checkpoint(rest.metadata).index_pointer == 0


def test_what_is_told_is_read_by_the_next_take_over_also_before_the_first_whole_index() -> None:
    """The other pointers move on: without one of its own, the index of what waits would stay behind them."""
    state = progress_after_filing(journal_end=50, index_after=100)
    checkpoint = decode_checkpoint(state.settle_checkpoint(released=False, sums_up=False).metadata)
    assert (checkpoint.wheel_pointer, checkpoint.reads_from) == (50, 0)
