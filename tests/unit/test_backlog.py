"""Waiting messages, counted from offsets and a checkpoint."""

from dataclasses import replace

from tarry.core.progress.checkpoint import Checkpoint, Geometry
from tarry.core.wheel.levels import Bucket
from tarry.kafka.backlog import Backlog, Stretch

SMALL = Geometry(10, 2, 2)
PLACE = ("in", 0)


def backlog(spans: dict[int, tuple[int, int]], **fields: object) -> Backlog:
    """At 0, level 1 open from 20 on, and level 2 from 40."""
    checkpoint = Checkpoint(
        ("w",),
        released=False,
        geometry=SMALL,
        closed_ms=(20, 40),
        pointer=7,
        wheel_pointer=9,
        **fields,  # type: ignore[arg-type]
    )
    return Backlog(PLACE, 3, 9, checkpoint, 99, spans)


def test_each_level_may_hold_what_its_log_holds_from_its_first_bucket_that_is_not_done() -> None:
    found = backlog({2: (1, 2), 1: (0, 5)}, done_ms=(10, 40), low=(0, 0))
    assert list(found.stretches()) == [Stretch(1, 10, 0, 5), Stretch(2, 40, 1, 2)]


def test_records_that_are_done_and_not_deleted_yet_do_not_count_as_waiting() -> None:
    found = backlog({1: (2, 20), 2: (0, 4)}, done_ms=(20, 40), low=(12, 4))
    assert list(found.stretches()) == [Stretch(1, 20, 12, 20)]


def test_the_marker_at_the_end_of_a_levels_log_is_no_message_unless_a_transaction_is_open_there() -> None:
    lows = backlog({1: (2, 20), 2: (0, 5)}, done_ms=(20, 40), low=(12, 4))
    assert [one.at_most for one in lows.stretches()] == [8, 1]
    assert [one.at_most for one in replace(lows, settled={1, 2}).stretches()] == [7, 0]
    nothing = replace(lows, spans={1: (12, 12)}, settled={1, 2})
    assert [one.at_most for one in nothing.stretches(empty_too=True)] == [0, 0]


def test_the_journal_is_read_from_the_lower_pointer() -> None:
    assert backlog({}).journal_begin == 7


def test_a_message_can_lie_in_one_bucket_a_level_and_comes_down_from_the_highest() -> None:
    assert backlog({}).buckets_of(47) == [Bucket(2, 40), Bucket(1, 40)]
    assert backlog({}).buckets_of(905) == [Bucket(2, 900), Bucket(1, 900)]


def test_without_a_checkpoint_or_levels_there_are_no_buckets() -> None:
    unserved = Backlog(PLACE, 0, 5)
    flat = Backlog(PLACE, 0, 5, Checkpoint((), released=True, geometry=Geometry(10, 2, 0)))
    for one in (unserved, flat):
        assert list(one.stretches()) == []
        assert one.buckets_of(50) == []
