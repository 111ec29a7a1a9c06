"""Where the records of each bucket are, which bucket is closed when, what waits, and what a checkpoint says of it."""

import pytest

from tarry.core.batch import FiledRun
from tarry.core.progress.checkpoint import Checkpoint, Geometry, decode_checkpoint
from tarry.core.progress.done_set import DoneSet
from tarry.core.progress.recovered import Buckets
from tarry.core.progress.source import INTAKE, PARKED, Source
from tarry.core.wheel.closed_range import ClosedRange, Span
from tarry.core.wheel.overflow import STRANGE, OverflowWheel, ToRead, Upkeep
from tarry.core.wheel.runs import JOIN, Runs

WIDE = Geometry(1_000, 4, 2)
"""Buckets of 1 s and of 4 s."""
LOTS = 10**9


def wheel(
    spans: dict[int, tuple[int, int]] | None = None,
    done: dict[Source, DoneSet] | None = None,
    *,
    closed_ms: tuple[int, int] = (4_000, 8_000),
    done_ms: tuple[int, int] | None = None,
    low: tuple[int, int] = (0, 0),
) -> OverflowWheel:
    checkpoint = Checkpoint(("w",), False, WIDE, closed_ms, done_ms or closed_ms, low, wheel_pointer=3)
    return OverflowWheel(checkpoint, Buckets(spans or {}, done or {}, 50))


def file(one: OverflowWheel, *runs: FiledRun) -> None:
    """Note the runs of one transaction."""
    one.filed(runs)


def read(one: OverflowWheel, level: int, records: dict[int, int]) -> None:
    """Read what is to be read of a level, in a log with these records: due times by offset."""
    reading = [to_read for to_read in one.to_read(LOTS, 1) if to_read.level == level]
    offsets = sorted({at for to_read in reading for run in to_read.runs for at in range(*run)})
    for offset in offsets:
        if (due_ms := records.get(offset)) is None:
            continue
        found = next((of.range for of in reading if of.range is not None and of.range.covers(due_ms)), None)
        if found is None:
            one.survey(level, offset, due_ms)
        else:
            found.read(one.source_of(level, due_ms), offset)
    for to_read in reading:
        one.reach_end(to_read)


def waiting(one: OverflowWheel) -> dict[Source, int]:
    """How many offsets of closed ranges wait, by the first bucket of the range."""
    found = {}
    for level in (1, 2):
        for closed in one._closed[level]:
            found[one.source_of(level, closed.span.start_ms)] = len(list(closed.ledger.undone()))
    return found


# -- runs -------------------------------------------------------------------------------------------------------------


def test_runs_are_joined_where_reading_over_is_cheaper_than_to_jump() -> None:
    runs = Runs()
    runs.add(0, 300, 300)
    runs.add(300 + JOIN, 1_400, 100)
    runs.add(1_400 + JOIN + 1, 2_500, 99)
    assert (list(runs), runs.count, runs.first) == ([(0, 1_400), (2_401, 2_500)], 499, 0)


def test_runs_that_a_survey_found_come_before_those_that_were_filed_meanwhile() -> None:
    filed, found = Runs(), Runs()
    filed.add(5_000, 5_010, 10)
    found.add(0, 1, 1)
    found.add(4_500, 4_501, 1)
    filed.merge(found)
    assert (list(filed), filed.count) == ([(0, 1), (4_500, 5_010)], 12)
    filed.merge(Runs())
    assert filed.count == 12


# -- filing and closing ---------------------------------------------------------------------------------------------


def test_a_message_has_the_bucket_of_its_due_time_and_a_hot_one_has_none() -> None:
    one = wheel()
    assert [one.bucket_for(due_ms) for due_ms in (4_000, 7_999, 8_000)] == [Source(1, 4), Source(1, 7), Source(2, 2)]
    with pytest.raises(ValueError, match="hot"):
        one.bucket_for(3_999)


def test_a_bucket_is_closed_with_the_runs_that_were_filed_and_without_asking_for_its_end() -> None:
    one = wheel()
    file(one, FiledRun(Source(1, 4), 0, 3, 3))
    file(one, FiledRun(Source(1, 5), 3, 5, 2))
    file(one, FiledRun(Source(1, 4), 6, 8, 2))
    assert one.close(LOTS, 3_500)
    [to_read] = one.to_read(LOTS, 1)
    assert (to_read.level, to_read.runs) == (1, [(0, 8)])
    assert isinstance(to_read.range, ClosedRange)
    assert (to_read.range.count, to_read.range.unread) == (5, 5)
    assert one.in_buckets == {1: 7, 2: 0}


def test_an_empty_bucket_is_closed_and_drained_at_once() -> None:
    one = wheel()
    assert one.close(LOTS, 4_600)
    assert one.levels.closed_ms == (6_000, 8_000)
    assert one.done_ms == (6_000, 8_000)
    assert list(one.to_read(LOTS, 1)) == []


def test_no_bucket_of_a_level_is_closed_before_its_log_is_known() -> None:
    one = wheel({1: (0, 4)})
    assert not one.close(LOTS, 5_000)
    [survey] = one.to_read(LOTS, 1)
    assert survey == ToRead(1, None, [(0, 4)])
    read(one, 1, {0: 4_100, 1: 5_100, 2: 3_900})  # the last one is of a bucket that is done
    assert one.close(LOTS, 3_500)
    [to_read] = one.to_read(LOTS, 1)
    assert to_read.runs == [(0, 1)]
    assert one.low == (0, 0)


def test_a_gap_of_more_than_a_marker_between_two_transactions_is_read() -> None:
    one = wheel()
    file(one, FiledRun(Source(1, 4), 0, 3, 3))
    file(one, FiledRun(Source(1, 4), 4, 6, 2))
    assert list(one.to_read(LOTS, 1)) == []
    file(one, FiledRun(Source(1, 5), 9, 10, 1))
    assert list(one.to_read(LOTS, 1)) == [ToRead(1, None, [(6, 9)])]
    assert one.close(LOTS, 3_500), "the log is known all the same"
    read(one, 1, dict.fromkeys(range(6), 4_100))
    assert list(one.to_read(LOTS, 1)) == []


def test_the_lower_levels_are_closed_while_a_higher_one_is_not_known_yet() -> None:
    one = wheel({2: (0, 9)}, closed_ms=(4_000, 16_000))
    assert one.close(LOTS, 15_600)
    assert one.levels.closed_ms == (16_000, 16_000), "up to where level 2 is closed, and not beyond"
    read(one, 2, {0: 16_500})
    assert one.close(LOTS, 15_600)
    assert one.levels.closed_ms == (16_000, 20_000)


def test_one_record_between_two_runs_is_read_where_no_marker_can_be() -> None:
    one = wheel({1: (0, 0)})
    file(one, FiledRun(Source(1, 4), 1, 3, 2), FiledRun(Source(1, 5), 4, 6, 2))
    assert list(one.to_read(LOTS, 1)) == [ToRead(1, None, [(0, 1), (3, 4)])]
    file(one, FiledRun(Source(1, 4), 7, 8, 1))
    assert list(one.to_read(LOTS, 1)) == [ToRead(1, None, [(0, 1), (3, 4)])], "a marker is at 6"


def test_a_filed_record_in_a_gap_is_none_that_the_index_knows() -> None:
    one = wheel({1: (0, 2)})
    file(one, FiledRun(Source(1, 4), 5, 6, 1))
    assert [one.survey(1, offset, 4_100) for offset in range(6)] == [True, True, False, False, False, True]


def test_memory_has_room_for_one_bucket_after_the_other() -> None:
    one = wheel()
    for number in (4, 5):
        file(one, FiledRun(Source(1, number), number * 100 - 400, number * 100 - 300, 100))
    assert one.close(50, 10_000)
    assert one.levels.closed_ms[0] == 5_000, "one is closed however large it is"
    [to_read] = one.to_read(50, 1)
    assert isinstance(to_read.range, ClosedRange)
    assert to_read.range.passes is not None
    assert one.reserved_bytes == to_read.range.passes.room_bytes > 0
    assert not one.can_be_left


def test_what_is_closed_and_not_read_yet_takes_its_room_before_the_next_bucket_is_closed() -> None:
    one = wheel()
    for number in (4, 5):
        file(one, FiledRun(Source(1, number), number * 100 - 400, number * 100 - 300, 100))
    assert one.close(150, 3_500)
    assert one.can_be_left, "it is not read in passes"
    assert not one.close(150, 4_500)
    read(one, 1, dict.fromkeys(range(100), 4_100))
    assert one.close(150, 4_500)


def test_the_gate_is_where_what_is_not_read_begins() -> None:
    one = wheel()
    file(one, FiledRun(Source(1, 4), 0, 2, 2))
    one.close(LOTS, 3_500)
    assert one.gate == (4_000, -1)
    read(one, 1, {0: 4_100, 1: 4_200})
    assert one.gate == (5_000, -1)


def test_below_a_bucket_that_is_being_moved_nothing_is_closed() -> None:
    one = wheel(closed_ms=(8_000, 8_000))
    file(one, FiledRun(Source(2, 2), 0, 2, 2))
    file(one, FiledRun(Source(1, 8), 0, 1, 1))
    assert one.close(LOTS, 7_600)
    assert one.levels.closed_ms == (8_000, 12_000)
    read(one, 2, {0: 8_100, 1: 9_100})
    one.mark(Source(2, 2), [0])
    one.make_final()
    assert not one.close(LOTS, 7_600)
    one.stay(Source(2, 2), 1)  # a refused dead letter
    assert one.close(LOTS, 7_600)


@pytest.mark.parametrize("source", [INTAKE, Source(PARKED, 3), Source(1, 4), Source(2, STRANGE)])
def test_a_dead_letter_that_is_refused_elsewhere_concerns_no_bucket_that_is_moved(source: Source) -> None:
    one = wheel()
    before = (one.low, one.done_ms, waiting(one))
    one.stay(source, 7)
    assert (one.low, one.done_ms, waiting(one)) == before


# -- what is done ----------------------------------------------------------------------------------------------------


def closed_and_read() -> OverflowWheel:
    """Buckets 4 and 5 of level 1, one record after the other in turn; the log ends at 6."""
    one = wheel()
    for offset in range(6):
        file(one, FiledRun(Source(1, 4 + offset % 2), offset, offset + 1, 1))
    one.note_journal_end(60)
    one.close(LOTS, 4_500)
    read(one, 1, {offset: 4_000 + offset % 2 * 1_000 for offset in range(6)})
    return one


def test_a_bucket_behind_one_that_is_not_done_is_remembered_until_that_is_done() -> None:
    one = closed_and_read()
    one.mark(Source(1, 5), [1, 3, 5])
    one.mark(Source(1, 4), [0])
    one.make_final()
    assert waiting(one) == {Source(1, 4): 2, Source(1, 5): 0}
    assert (one.done_ms[0], one.low[0], one.pointer) == (4_000, 2, 60)
    assert {source: list(ranges) for source, ranges in one.done_ranges()} == {
        Source(1, 4): [(0, 2), (3, 4)],
        Source(1, 5): [(1, 6)],
    }
    one.mark(Source(1, 4), [2, 4])
    one.make_final()
    assert waiting(one) == {}
    assert (one.done_ms[0], one.low[0], list(one.done_ranges())) == (6_000, 6, [])


@pytest.mark.parametrize("order", [(5, 6, 7, 8), (8, 7, 6, 5), (5, 7, 6, 8), (6, 8, 7, 5)])
def test_neighbours_behind_one_that_is_not_done_are_remembered_as_one(order: tuple[int, ...]) -> None:
    """A record that cannot become a dead letter may keep its bucket for weeks."""
    one = wheel()
    for number in range(4, 10):
        file(one, FiledRun(Source(1, number), 10 * number, 10 * number + 2, 2))
    one.note_journal_end(60)
    for number in range(4, 10):
        one.close(LOTS, 1_000 * number)
        read(one, 1, {10 * of + at: 1_000 * of for of in range(4, 10) for at in (0, 1)})
    for number in order:
        one.mark(Source(1, number), [10 * number, 10 * number + 1])
        one.make_final()
    assert waiting(one) == {Source(1, 4): 2, Source(1, 5): 0, Source(1, 9): 2}
    assert {source: list(ranges) for source, ranges in one.done_ranges()} == {
        Source(1, number): [(10 * number, 10 * number + 2)] for number in order
    }
    assert (one.done_ms[0], one.low[0], one.pointer) == (4_000, 40, 60)
    one.mark(Source(1, 4), [40, 41])
    one.make_final()
    assert (one.done_ms[0], one.low[0], list(one.done_ranges())) == (9_000, 90, [])


def test_a_bucket_that_an_old_copy_calls_open_and_that_was_drained_is_remembered_while_one_before_it_is_not() -> None:
    """The index leaves it out. A later take-over may meet its records once more."""
    one = wheel({1: (0, 4)}, {Source(1, 5): DoneSet([(2, 4)])})
    read(one, 1, {0: 4_000, 1: 4_000})
    one.close(LOTS, 4_500)
    read(one, 1, {0: 4_000, 1: 4_000})
    assert one.levels.closed_ms[0] == 6_000
    assert dict(one.done_ranges()) == {Source(1, 5): [(2, 4)]}
    assert one.pointer == 3
    one.mark(Source(1, 4), [0, 1])
    one.make_final()
    assert (one.done_ms[0], list(one.done_ranges()), one.pointer) == (6_000, [], 50)


def test_an_aborted_transaction_leaves_what_it_completed() -> None:
    one = closed_and_read()
    one.mark(Source(1, 4), [0, 2])
    one.unmark(Source(1, 4), [0, 2])
    one.make_final()
    assert (waiting(one)[Source(1, 4)], one.low[0]) == (3, 0)


def test_a_log_is_trimmed_below_what_a_committed_checkpoint_says() -> None:
    one = closed_and_read()
    assert (one.to_trim(), one.is_low_uncommitted) == ({}, False)
    one.mark(Source(1, 4), [0])
    lows = one.low
    assert (one.to_trim(), one.is_low_uncommitted) == ({}, True)
    one.note(lows)
    assert (one.to_trim(), one.is_low_uncommitted, one.untrimmed) == ({1: 1}, False, 1)
    one.trimmed(1, 1)
    assert (one.to_trim(), one.untrimmed) == ({}, 0)


def test_a_bucket_that_is_done_keeps_no_log_while_one_that_is_due_earlier_waits_behind_it() -> None:
    one = wheel()
    file(one, FiledRun(Source(1, 5), 0, 2, 2))
    file(one, FiledRun(Source(1, 4), 3, 5, 2))  # between them the marker of a transaction
    one.close(LOTS, 4_500)
    read(one, 1, {0: 5_100, 1: 5_100, 3: 4_100, 4: 4_100})
    one.mark(Source(1, 5), [0, 1])
    one.make_final()
    assert one.low[0] == 3


def test_nothing_is_filed_again_while_a_closed_bucket_keeps_the_same_part_of_the_log() -> None:
    one = wheel({1: (1_000, 1_000)}, low=(1_000, 0))
    one.upkeep = Upkeep(refile_from=100)
    far = FiledRun(Source(1, 9), 1_000, 1_001, 1)
    file(one, far, FiledRun(Source(1, 4), 1_001, 1_002, 1), FiledRun(Source(1, 5), 1_002, 1_400, 398))
    one.close(LOTS, 4_500)
    read(one, 1, {1_001: 4_100, **dict.fromkeys(range(1_002, 1_400), 5_100)})
    one.mark(Source(1, 5), range(1_002, 1_400))
    one.make_final()
    one.note(one.low)
    assert not one.is_refiling, "it would free one offset"
    one.mark(Source(1, 4), [1_001])
    one.make_final()
    one.note(one.low)
    assert one.refiling is not None
    assert (one.refiling.runs, one.refiling.cut) == ([(1_000, 1_001)], 1_200)


def test_what_an_open_bucket_holds_keeps_the_log_and_so_does_what_is_not_known_yet() -> None:
    one = wheel({1: (7, 20)}, low=(9, 0))
    assert one.low[0] == 9
    file(one, FiledRun(Source(1, 6), 20, 21, 1))
    read(one, 1, {12: 5_500})
    assert one.low[0] == 12
    one.close(LOTS, 4_600)
    read(one, 1, {12: 5_500})
    one.mark(Source(1, 5), [12])
    one.make_final()
    assert one.low[0] == 20


def test_a_strange_record_below_the_committed_watermark_is_a_dead_letter_already() -> None:
    one = wheel({1: (0, 9)})
    assert one.meet(1, 3)
    one.mark(Source(1, STRANGE), [3])
    one.note((5, 0))
    assert (one.meet(1, 3), one.meet(1, 6)) == (False, True)


def test_pointers_move_when_all_that_is_done_is_written_again() -> None:
    one = closed_and_read()
    assert one.pointer == 60
    one.sum_up(80)
    assert one.pointer == 80


# -- recovery --------------------------------------------------------------------------------------------------------


def test_what_a_take_over_finds_closed_is_one_range_and_only_what_the_journal_names_with_its_bucket_is_done() -> None:
    done = {Source(1, 4): DoneSet([(0, 4)]), Source(1, 2): DoneSet([(0, 9)])}
    one = wheel({1: (0, 6)}, done, closed_ms=(6_000, 8_000), done_ms=(4_000, 8_000))
    assert [one.is_recovering] == [True]
    [survey, found] = one.to_read(LOTS, 1)
    assert (survey.range, found.runs) == (None, [(0, 6)])
    assert isinstance(found.range, ClosedRange)
    assert found.range.span == Span(1, 4_000, 6_000)
    records = {0: 4_000, 1: 5_000, 2: 4_100, 3: 5_100, 4: 6_100, 5: 4_200}
    read(one, 1, records)
    assert list(found.range.ledger.undone()) == [1, 3, 5], "the ranges of bucket 4 cover offsets of bucket 5"
    assert not one.is_recovering
    assert one.pointer == 3, "where this recovery began to read"
    assert one.in_buckets[1] == 1


def test_what_is_done_is_told_between_the_first_and_the_last_record_of_each_bucket() -> None:
    one = wheel({1: (0, 100)}, closed_ms=(8_000, 8_000), done_ms=(4_000, 8_000))
    # Four buckets one behind the other in the log, and of the first and the last each second record is done.
    records = {offset: 4_000 + offset // 25 * 1_000 for offset in range(100)}
    read(one, 1, records)
    one.mark(Source(1, 4), range(1, 25, 2))
    one.mark(Source(1, 5), range(25, 50))
    one.mark(Source(1, 7), range(76, 100, 2))
    told = {source: list(ranges) for source, ranges in one.done_ranges()}
    assert told == {
        Source(1, 4): [(offset, offset + 1) for offset in range(1, 25, 2)],
        Source(1, 5): [(25, 50)],
        Source(1, 7): [(offset, offset + 1) for offset in range(76, 100, 2)],
    }
    one.mark(Source(1, 4), range(0, 25, 2))
    one.mark(Source(1, 7), range(75, 100, 2))
    told = {source: list(ranges) for source, ranges in one.done_ranges()}
    assert told == {Source(1, 4): [(0, 25)], Source(1, 5): [(25, 50)], Source(1, 7): [(75, 100)]}


def test_what_a_recovery_found_done_of_a_range_without_records_does_not_keep_the_journal() -> None:
    done = {Source(1, 4): DoneSet([(3, 10)])}
    one = wheel({1: (10, 10)}, done, closed_ms=(6_000, 8_000), done_ms=(4_000, 8_000), low=(10, 0))
    assert (one.pointer, one.is_recovering, list(one.done_ranges())) == (50, False, [])
    ahead = wheel({1: (10, 20)}, {Source(1, 6): DoneSet([(3, 10)])}, low=(10, 0))
    assert ahead.pointer == 50, "what it names is deleted"


def test_a_bucket_that_an_old_copy_calls_open_may_have_been_drained_in_part() -> None:
    one = wheel({1: (0, 10)}, {Source(1, 4): DoneSet([(3, 10)])})
    read(one, 1, dict.fromkeys(range(10), 4_100))
    assert one.pointer == 3
    one.close(LOTS, 3_500)
    read(one, 1, dict.fromkeys(range(10), 4_100))
    assert waiting(one) == {Source(1, 4): 3}
    assert one.pointer == 3, "the records that name them are as old as that"
    one.mark(Source(1, 4), [0, 1, 2])
    one.make_final()
    assert (one.done_ms[0], one.low[0]) == (5_000, 10)


def test_a_checkpoint_of_what_is_done_brings_the_rest_back() -> None:
    one = closed_and_read()
    one.mark(Source(1, 5), [1])
    one.mark(Source(1, 4), [0])
    one.make_final()
    text = Checkpoint(("w",), False, WIDE, one.levels.closed_ms, one.done_ms, one.low, one.pointer).encode()
    journal = {source: DoneSet(ranges) for source, ranges in one.done_ranges()}
    again = OverflowWheel(decode_checkpoint(text), Buckets({1: (0, 6), 2: (0, 0)}, journal, 90))
    read(again, 1, {offset: 4_000 + offset % 2 * 1_000 for offset in range(6)})
    assert waiting(again) == {Source(1, 4): 4}


# -- records that the service has not filed ---------------------------------------------------------------------------


def test_a_record_that_was_not_filed_is_met_once_and_keeps_the_log_until_it_is_done() -> None:
    one = wheel({1: (0, 4)})
    strange = Source(1, STRANGE)
    assert [one.meet(1, 2), one.meet(1, 2)] == [True, False]
    read(one, 1, {})
    assert one.low[0] == 2
    one.mark(strange, [2])
    assert (one.low[0], dict(one.done_ranges())) == (4, {strange: [(2, 3)]})
    one.unmark(strange, [2])
    assert one.low[0] == 2
    one.mark(strange, [2])
    assert one.pointer == 50
    one.note(one.low)
    assert (dict(one.done_ranges()), one.meet(1, 9)) == ({}, True)


def test_one_that_a_recovery_found_done_is_not_met_again() -> None:
    one = wheel({1: (0, 4)}, {Source(1, STRANGE): DoneSet([(2, 3)])})
    assert [one.meet(1, offset) for offset in (2, 3)] == [False, True]
    assert one.pointer == 3


def test_without_levels_there_is_nothing() -> None:
    flat = OverflowWheel(Checkpoint((), True, Geometry(1_000, 4, 0)), Buckets())
    assert (flat.has_levels, flat.low, flat.done_ms, flat.pointer, flat.in_buckets) == (False, (), (), 0, {})
    assert not flat.close(LOTS, 10**9)


def test_messages_of_buckets_count_by_the_instant_at_which_their_bucket_ends() -> None:
    one = wheel({1: (0, 0), 2: (0, 9)})
    file(one, FiledRun(Source(1, 4), 0, 3, 3), FiledRun(Source(1, 7), 3, 5, 2))
    assert one.due_by([4_999, 5_000, 8_000, 99_000]) == [0, 3, 5, 5, 14]
    read(one, 2, dict.fromkeys(range(9), 20000))
    file(one, FiledRun(Source(2, 3), 10, 14, 4))
    assert one.due_by([4_999, 5_000, 8_000, 99_000]) == [0, 3, 5, 18, 18]
    assert one.due_by([15_999, 16_000, 24_000]) == [5, 9, 18, 18]
    assert one.close(LOTS, 3_500)
    assert one.due_by([4_999, 5_000]) == [0, 3, 18]
    assert sum(one.in_buckets.values()) == 18
