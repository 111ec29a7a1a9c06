"""Waiting messages, counted from offsets and a checkpoint."""

from tarry.core.progress.checkpoint import Checkpoint, DrainingSlot, EmptyingSlot, Geometry
from tarry.core.progress.source import Source
from tarry.core.wheel.levels import Bucket
from tarry.kafka.backlog import Backlog, Stretch

SMALL = Geometry(10, 2, 2)
"""Six slots a level, of 10 and of 20."""

PLACE = ("in", 0)


def backlog(spans: dict[Source, tuple[int, int]], **fields: object) -> Backlog:
    """At 0, level 1 open from 20 on, and level 2 from 40."""
    checkpoint = Checkpoint(("w",), released=False, geometry=SMALL, closed_ms=(20, 40), pointer=7, **fields)  # type: ignore[arg-type]
    return Backlog(PLACE, 3, 9, checkpoint, 99, spans)


def stretch(level: int, start_ms: int, begin: int, end: int, *, closed: bool = False) -> Stretch:
    return Stretch(Bucket(level, start_ms), start_ms + SMALL.width_of(level), begin, end, closed)


def test_an_open_bucket_is_that_of_its_slots_next_turn() -> None:
    spans = {Source(1, 2): (0, 5), Source(1, 1): (4, 6), Source(1, 3): (8, 8), Source(2, 3): (1, 2)}
    assert list(backlog(spans).stretches()) == [
        stretch(1, 70, 4, 6),
        stretch(1, 20, 0, 5),
        stretch(2, 60, 1, 2),
    ]


def test_a_closed_bucket_and_the_next_turn_of_its_slot_are_two_stretches() -> None:
    found = backlog({Source(1, 1): (2, 20)}, draining=(DrainingSlot(1, 1, 6, 10, 3),))
    assert list(found.stretches()) == [stretch(1, 10, 6, 10, closed=True), stretch(1, 70, 10, 20)]
    assert found.begins() == {Source(1, 1): 6}
    assert found.journal_begin == 3


def test_records_that_are_to_be_deleted_do_not_count_as_waiting() -> None:
    found = backlog(
        {Source(1, 1): (2, 20), Source(1, 2): (0, 4)}, emptying=(EmptyingSlot(1, 1, 12), EmptyingSlot(1, 2, 4))
    )
    assert list(found.stretches()) == [stretch(1, 70, 12, 20)]
    assert found.journal_begin == 7


def test_a_message_can_lie_in_one_bucket_a_level_and_comes_down_from_the_highest() -> None:
    assert backlog({}).buckets_of(47) == [Bucket(2, 40), Bucket(1, 40)]


def test_a_message_beyond_all_levels_is_in_the_farthest_bucket() -> None:
    assert backlog({}).buckets_of(905) == [Bucket(2, 120), Bucket(2, 900), Bucket(1, 900)]


def test_without_a_checkpoint_or_levels_there_are_no_buckets() -> None:
    unserved = Backlog(PLACE, 0, 5)
    flat = Backlog(PLACE, 0, 5, Checkpoint((), released=True, geometry=Geometry(10, 2, 0)))
    for one in (unserved, flat):
        assert one.levels is None
        assert list(one.stretches()) == []
        assert one.buckets_of(50) == []
