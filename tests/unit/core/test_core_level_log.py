"""What is known of the log of a level: runs of buckets, strangers, gaps, and what is told to the journal."""

import pytest

from tarry.core.progress.done_set import DoneSet
from tarry.core.progress.index import FoundIndex, IndexPart, IndexRun
from tarry.core.progress.source import Source
from tarry.core.wheel.level_log import LevelLog, Strangers
from tarry.core.wheel.refiling import Refiling
from tarry.core.wheel.runs import JOIN, Runs, clipped, joined

# -- runs -------------------------------------------------------------------------------------------------------------


def runs_of(*rows: tuple[int, int, int]) -> Runs:
    runs = Runs()
    for row in rows:
        runs.add(*row)
    return runs


def test_a_run_is_joined_with_the_one_before_up_to_a_distance() -> None:
    near, far = 10 + JOIN, 10 + JOIN + 1
    assert list(runs_of((0, 10, 7), (near, near + 5, 5)).rows()) == [(0, near + 5, 12)]
    runs = runs_of((0, 10, 7), (far, far + 5, 5))
    assert list(runs.rows()) == [(0, 10, 7), (far, far + 5, 5)]
    assert (len(runs), runs.count, runs.first) == (2, 12, 0)


def test_a_run_inside_of_the_last_one_does_not_shorten_it() -> None:
    assert list(runs_of((0, 10, 4), (2, 5, 3)).rows()) == [(0, 10, 7)]


def test_what_is_below_a_cut_is_forgotten_with_its_count() -> None:
    runs = runs_of((0, 10, 10), (5_000, 5_010, 8), (9_000, 9_010, 6))
    runs.drop_below(5_004, 13)
    assert list(runs.rows()) == [(5_004, 5_010, 5), (9_000, 9_010, 6)]
    assert runs.count == 11
    runs.drop_below(9_010, 11)
    assert (list(runs), runs.count) == ([], 0)


def test_a_run_that_ends_at_the_cut_is_forgotten() -> None:
    runs = runs_of((0, 10, 10), (5_000, 5_010, 8))
    runs.drop_below(10, 10)
    assert list(runs.rows()) == [(5_000, 5_010, 8)]


def test_runs_are_merged_in_the_order_of_the_log() -> None:
    runs = runs_of((5_000, 5_010, 8))
    runs.merge(runs_of((0, 10, 10), (9_000, 9_001, 1)))
    assert list(runs.rows()) == [(0, 10, 10), (5_000, 5_010, 8), (9_000, 9_001, 1)]
    assert runs.count == 19


def test_ranges_are_clipped_to_what_is_between() -> None:
    assert list(clipped([(0, 5), (5, 8), (8, 12), (12, 20)], 5, 12)) == [(5, 8), (8, 12)]
    assert list(clipped([(0, 6), (11, 20)], 5, 12)) == [(5, 6), (11, 12)]


def test_ranges_are_joined_up_to_a_distance_and_in_any_order() -> None:
    assert joined([(20, 30), (0, 10)], 10) == [(0, 30)]
    assert joined([(21, 30), (0, 10)], 10) == [(0, 10), (21, 30)]
    assert joined([(0, 30), (5, 10)], 0) == [(0, 30)]


# -- strangers --------------------------------------------------------------------------------------------------------


def test_a_stranger_is_met_once_until_it_is_done_and_then_never() -> None:
    one = Strangers(DoneSet([(3, 4)]), 7)
    assert [one.meet(offset, 50) for offset in (3, 9, 5, 9)] == [False, True, True, False]
    assert one.first_held == 5
    one.mark([5])
    assert (one.first_held, one.meet(5, 50)) == (9, False)
    assert one.done_ranges() == [(3, 4), (5, 6)]
    one.unmark([5])
    assert (one.first_held, one.done_ranges()) == (5, [(3, 4)])


def test_the_pointer_is_from_before_the_first_stranger_that_must_be_remembered() -> None:
    one = Strangers(DoneSet(), 7)
    empty = [one.is_empty]
    one.meet(5, 50)
    one.meet(6, 60)
    empty.append(one.is_empty)
    assert one.pointer == 50
    one.mark([5, 6])
    empty.append(one.is_empty)
    one.forget(6)
    assert one.done_ranges() == [(5, 7)]
    one.forget(7)
    empty.append(one.is_empty)
    assert empty == [True, False, False, True]
    one.meet(8, 80)
    assert one.pointer == 80


# -- the log ----------------------------------------------------------------------------------------------------------


def log(end: int = 0, found: FoundIndex | None = None) -> LevelLog:
    return LevelLog(2, 0, 0, end, Strangers(DoneSet(), 0), found)


def test_one_offset_behind_a_transaction_is_its_marker_and_more_are_a_gap() -> None:
    one = log()
    one.filed(4, 0, 10, 10)
    one.filed(5, 10, 12, 2)
    one.end_transaction()
    one.filed(4, 13, 20, 7)
    one.end_transaction()
    assert (one.unknown(), one.low([])) == ([], 0)
    one.filed(4, 22, 25, 3)
    assert one.unknown() == [(20, 22)]
    assert [one.is_in_gap(offset) for offset in (19, 20, 21, 22)] == [False, True, True, False]
    one.read_unknown(21)
    assert one.unknown() == [(20, 22)]
    one.read_unknown(22)
    assert one.unknown() == []


def test_between_runs_of_one_transaction_there_is_no_marker() -> None:
    one = log()
    one.filed(4, 0, 10, 10)
    one.filed(5, 11, 12, 1)
    assert one.unknown() == [(10, 11)]


def test_the_journal_tells_of_a_range_that_is_closed_before_it_is_surveyed_without_a_count() -> None:
    one = log(20)
    one.survey(4, 3)
    assert one.survey_closed(4) == (4, 20)
    one.read_unknown(20)
    news = one.news(1)
    assert news is not None
    assert list(news.runs) == [IndexRun(4, 3, 20, 1)], "the one that was found, and whatever may be behind it"


def test_a_run_behind_a_gap_is_not_told_of_yet() -> None:
    one = log()
    one.filed(4, 0, 10, 10)
    one.end_transaction()
    one.filed(4, 15, 20, 5)
    news = one.news(1)
    assert news is not None
    assert (news.begin, news.end, list(news.runs)) == (0, 10, [IndexRun(4, 0, 10, 10)])
    one.told(news)
    assert one.news(0) is None


def test_what_a_survey_has_not_read_counts_and_keeps_the_log() -> None:
    one = log(20)
    assert (one.is_surveyed, one.not_surveyed, one.count, one.low([])) == (False, 20, 20, 0)
    one.survey(4, 3)
    one.survey(4, 9)
    one.survey(4, 9)  # read again
    one.survey(4, 20)  # filed since
    assert (one.not_surveyed, one.count, one.count_of(4), one.holds_any(4)) == (10, 12, 0, False)
    assert (one.unknown(), one.low([])) == ([(10, 20)], 3)
    one.read_unknown(19)
    assert not one.is_surveyed
    one.read_unknown(20)
    assert (one.is_surveyed, one.count, one.count_of(4), one.holds_any(4)) == (True, 2, 2, True)
    assert one.low([]) == 3
    assert (one.low([2]), one.low([7])) == (2, 3)


def test_an_index_that_reaches_beyond_the_log_counts_for_nothing() -> None:
    runs = [IndexRun(4, 2, 8, 5)]
    assert log(10, FoundIndex(10, runs)).count_of(4) == 5
    beyond = log(10, FoundIndex(11, runs))
    assert (beyond.count_of(4), beyond.not_surveyed) == (0, 10)


def test_news_are_told_once_there_are_enough() -> None:
    one = log()
    one.filed(4, 0, 10, 10)
    one.end_transaction()
    assert one.news(11) is None
    news = one.news(10)
    assert news == IndexPart(2, 0, 10, [IndexRun(4, 0, 10, 10)])
    one.told(news)
    assert one.news(0) is None
    one.filed(5, 11, 15, 4)
    assert one.news(0) == IndexPart(2, 10, 15, [IndexRun(5, 11, 15, 4)])


def test_nothing_is_told_from_a_stranger_or_a_gap_on() -> None:
    one = log()
    one.filed(4, 0, 10, 10)
    one.end_transaction()
    one.filed(4, 15, 20, 5)
    assert one.news(0) == IndexPart(2, 0, 10, [IndexRun(4, 0, 10, 10)])
    one.read_unknown(15)
    one.strangers.meet(12, 0)
    assert one.news(0) == IndexPart(2, 0, 12, [IndexRun(4, 0, 10, 10)])
    one.strangers.mark([12])
    assert one.news(0) == IndexPart(2, 0, 20, [IndexRun(4, 0, 20, 15)])


def test_what_others_hold_limits_the_cut() -> None:
    one = log()
    one.filed(4, 0, 100, 100)
    assert one.cut(60, []) == 60
    assert one.cut(60, [50]) == 50
    one.strangers.meet(40, 0)
    assert one.cut(60, [50]) == 40
    assert one.below(40) == [(0, 40)]
    one.refiled(40, {4: 40})
    assert one.count_of(4) == 60
    one.refiled(100, {4: 60})
    assert not one.holds_any(4)


# -- refiling ---------------------------------------------------------------------------------------------------------


def test_a_record_is_filed_again_once_unless_it_is_done() -> None:
    source = Source(2, 4)
    one = Refiling(2, 4_000, [(5, 10), (20, 30)], 30, 7, {source: DoneSet([(21, 22)])})
    assert [one.read(source, offset) for offset in (4, 5, 5, 21, 29, 30)] == [False, True, False, False, True, False]
    assert one.moved == {4: 3}
    done = [one.is_done]
    for offset in (5, 29):
        one.mark(source, [offset])
        done.append(one.is_done)
    assert (one.is_read, done) == (True, [False, False, True])
    assert dict(one.done_ranges()) == {source: [(5, 6), (29, 30)]}


def test_what_is_left_to_read_begins_at_the_position() -> None:
    one = Refiling(2, 4_000, [(5, 10), (20, 30)], 30, 7, {})
    assert one.left_to_read() == [(5, 10), (20, 30)]
    one.read(Source(2, 4), 7)
    assert one.left_to_read() == [(8, 10), (20, 30)]
    one.read(Source(2, 4), 9)
    assert one.left_to_read() == [(20, 30)]
    assert not one.is_read
    one.reach_end()
    assert (one.is_read, one.left_to_read()) == (True, [])


def test_only_open_buckets_are_filed_again_and_none_when_it_is_over() -> None:
    one = Refiling(2, 4_000, [(5, 10)], 10, 7, {})
    assert [one.covers(due_ms) for due_ms in (3_999, 4_000)] == [False, True]
    one.is_given_up = True
    assert not one.covers(4_000)


def test_runs_that_cannot_be_told_yet_are_joined(monkeypatch: pytest.MonkeyPatch) -> None:
    """A record of another client may never become a dead letter, if it is larger than that topic takes."""
    monkeypatch.setattr("tarry.core.wheel.level_log.MOST_UNTOLD", 10)
    one = LevelLog(1, 0, 0, 0, Strangers(DoneSet(), 0))
    assert one.strangers.meet(0, 0)
    buckets, filings = 4, 100
    for filing in range(filings):
        for bucket in range(buckets):
            first = 1 + 5 * filing + bucket
            one.filed(bucket, first, first + 1, 1)
        one.end_transaction()
    assert one.news(1) is None
    assert len(one._untold) <= 10
    one.read_unknown(1)
    assert one.news(1) is None
    one.strangers.mark([0])
    news = one.news(1)
    assert news is not None
    assert sorted(news.runs) == [
        IndexRun(bucket, 1 + bucket, 5 * filings - 3 + bucket, filings) for bucket in range(buckets)
    ]
