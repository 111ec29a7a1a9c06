"""More is done than a log holds: which log, in one line; and an end is believed only when it lasts."""

import pytest

from tarry.core.progress.checkpoint import Checkpoint, Geometry
from tarry.core.progress.done_set import DoneSet
from tarry.core.progress.index import IndexPart
from tarry.core.progress.journal import DoneEntry, IndexEntry, LostEnd, ParkedEntry, ParkedRow
from tarry.core.progress.recovery import Recovery
from tarry.core.progress.source import INTAKE, PARKED, Source
from tarry.errors import RetriableError, UsageError
from tarry.kafka.refusals import SURE_AFTER_MS, Shortfalls, end_lost, intake_cut, journal_cut, shortfall
from tarry.testing import ManualClock

PLACE, OTHER = ("in", 3), ("in", 4)
BUCKET = Source(1, 2)
PLAIN = Checkpoint((), True, Geometry(20_000, 10, 1), (20_000,))
DONE_BELOW_9 = Checkpoint((), True, PLAIN.geometry, (20_000,), (20_000,), (9,))
NOTHING = DoneSet()
LINE = "in/3 ends at 9, and in/3 knows of records up to 10: records are lost"


def said(
    checkpoint: Checkpoint,
    *,
    low: int = 0,
    done: DoneSet = NOTHING,
    of_bucket: DoneSet = NOTHING,
    level: int = 9,
    parked: int = 0,
    told: int = 0,
) -> str:
    recovery = Recovery(low, checkpoint, ())
    recovery.journal.take(DoneEntry({INTAKE: done.ranges(), BUCKET: of_bucket.ranges()}))
    recovery.journal.take(ParkedEntry([ParkedRow(1, 3, parked, "out")] if parked else []))
    recovery.journal.take(IndexEntry((IndexPart(1, 0, told, []),)))
    return shortfall(PLACE, recovery, 9, {1: (0, level), PARKED: (0, 5)}) or ""


def test_a_log_that_ends_at_its_done_offsets_is_accepted() -> None:
    assert said(PLAIN, low=9) == said(PLAIN, done=DoneSet([(3, 9)])) == said(DONE_BELOW_9) == ""
    assert said(PLAIN, of_bucket=DoneSet([(0, 9)])) == ""


def test_a_watermark_or_a_done_offset_beyond_the_intakes_end_is_refused() -> None:
    assert said(PLAIN, low=10).startswith(LINE)
    assert said(PLAIN, low=4, done=DoneSet([(8, 10)], 4)).startswith(LINE)


def test_a_parked_log_that_ends_before_what_is_parked_there_is_refused() -> None:
    assert said(PLAIN, parked=2) == ""
    assert said(PLAIN, parked=3).startswith("in.parked/3 ends at 5, and in/3 knows of records up to 6")


def test_a_level_that_ends_before_what_the_checkpoint_says_is_refused() -> None:
    assert said(DONE_BELOW_9, level=8).startswith("in.wheel-1/3 ends at 8, and in/3 knows of records up to 9")


def test_a_level_that_ends_before_what_the_journal_says_is_refused() -> None:
    assert said(PLAIN, of_bucket=DoneSet([(3, 7)]), level=6).startswith("in.wheel-1/3 ends at 6")


def test_a_level_that_ends_before_what_the_index_says_is_refused() -> None:
    assert said(DONE_BELOW_9, told=9) == ""
    assert said(DONE_BELOW_9, told=11).startswith("in.wheel-1/3 ends at 9, and in/3 knows of records up to 11")


def test_a_journal_must_hold_where_a_recovery_begins_and_an_intake_what_is_not_done() -> None:
    assert [journal_cut(PLACE, 3, 9, begin) is None for begin in (2, 3, 9, 10)] == [False, True, True, False]
    assert [intake_cut(PLACE, 3, low) is None for low in (2, 3, 9)] == [False, True, True]


def test_an_end_is_believed_when_it_lasts_and_forgotten_when_it_does_not() -> None:
    clock = ManualClock()
    shortfalls = Shortfalls(clock)
    with pytest.raises(RetriableError, match="too soon"):
        shortfalls.check({PLACE: "too soon", OTHER: None})
    clock.advance(SURE_AFTER_MS - 1)
    shortfalls.check({PLACE: None, OTHER: None})
    with pytest.raises(RetriableError):
        shortfalls.check({PLACE: "too soon"})
    clock.advance(SURE_AFTER_MS)
    with pytest.raises(UsageError, match="too soon"):
        shortfalls.check({PLACE: "too soon"})


@pytest.mark.parametrize(("level", "log"), [(2, "in.wheel-2/3"), (PARKED, "in.parked/3")])
def test_a_log_that_was_found_to_have_lost_its_end_is_named_with_both_offsets(level: int, log: str) -> None:
    line = end_lost(PLACE, LostEnd(level, 95, 100))
    assert line.startswith(f"{log} went on at 95, although offsets up to 100 were written")
    assert "tarry serve --adopt" in line
