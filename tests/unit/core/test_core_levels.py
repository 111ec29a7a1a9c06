"""The bucket that a message goes to, and the order in which buckets are closed."""

import pytest

from tarry.core.progress.checkpoint import Geometry
from tarry.core.wheel.levels import MOST_DRAINING, NO_GATE_MS, Bucket, Levels, first_closed_ms, levels_for, slots_of

SMALL = Geometry(10, 2, 2)


def small() -> Levels:
    """The worked example of the module: buckets of 10 and of 20, six slots each, at 0."""
    return Levels(SMALL, (20, 40))


def test_the_worked_example() -> None:
    levels = small()
    assert [levels.bucket_for(due_ms) for due_ms in (15, 33, 75, 900)] == [
        None,
        Bucket(1, 30),
        Bucket(2, 60),
        Bucket(2, 120),
    ]
    assert levels.next_to_close(9) is None
    assert levels.next_to_close(10) == Bucket(1, 20)
    levels.close(Bucket(1, 20))
    assert [levels.bucket_for(due_ms) for due_ms in (29, 30)] == [None, Bucket(1, 30)]
    levels.drained(Bucket(1, 20))
    assert levels.next_to_close(20) == Bucket(2, 40)
    levels.close(Bucket(2, 40))
    assert [levels.bucket_for(due_ms) for due_ms in (40, 59)] == [Bucket(1, 40), Bucket(1, 50)]


def test_a_message_due_at_a_bucket_boundary_goes_to_the_later_bucket() -> None:
    levels = small()
    assert [levels.bucket_for(due_ms) for due_ms in (19, 20, 29, 30, 69, 70, 79, 80)] == [
        None,
        *[Bucket(1, 20)] * 2,
        Bucket(1, 30),
        Bucket(1, 60),
        *[Bucket(2, 60)] * 2,
        Bucket(2, 80),
    ]


def test_slots_go_round_and_the_last_turn_of_one_is_known() -> None:
    levels = small()
    assert [levels.slot(Bucket(1, start_ms)) for start_ms in range(20, 90, 10)] == [2, 3, 4, 5, 0, 1, 2]
    assert [levels.last_turn(1, slot).start_ms for slot in range(6)] == [0, 10, -40, -30, -20, -10]
    for slot in range(6):
        assert levels.slot(levels.last_turn(2, slot)) == slot


def test_a_bucket_waits_for_the_one_above() -> None:
    levels = small()
    levels.close(Bucket(1, 20))
    assert levels.next_to_close(1_000) == Bucket(2, 40)
    levels.close(Bucket(2, 40))
    assert levels.next_to_close(1_000) == Bucket(1, 30), "of level 1 several may be drained at a time, of others one"
    levels.close(Bucket(1, 30))
    assert levels.next_to_close(1_000) is None, "the bucket above covers it, and is not drained"
    levels.drained(Bucket(2, 40))
    assert levels.next_to_close(1_000) == Bucket(2, 60)


def test_no_more_than_a_few_buckets_are_drained_at_a_time() -> None:
    levels = Levels(Geometry(10, 20, 1), (0,))
    while (bucket := levels.next_to_close(10_000)) is not None:
        levels.close(bucket)
    assert len(levels.draining) == MOST_DRAINING


def test_a_bucket_waits_until_the_level_below_reaches_to_its_end() -> None:
    levels = small()
    closed: list[Bucket] = []
    while (bucket := levels.next_to_close(10_000)) is not None and len(closed) < 12:
        levels.close(bucket)
        levels.drained(bucket)
        closed.append(bucket)
        one, two = levels.closed_ms
        assert one <= two <= one + 50, "no hole between the levels"
    assert closed[:4] == [Bucket(2, 40), Bucket(1, 20), Bucket(2, 60), Bucket(1, 30)]


def test_without_levels_all_is_hot() -> None:
    levels = Levels(Geometry(20_000, 10, 0), ())
    assert levels.bucket_for(1 << 50) is None
    assert levels.hot_below_ms == NO_GATE_MS
    assert levels.next_to_close(1 << 50) is None


@pytest.mark.parametrize("closed_ms", [(20,), (20, 45), (25, 40), (40, 20), (20, 80)])
def test_levels_that_leave_a_hole_are_refused(closed_ms: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match="level"):
        Levels(SMALL, closed_ms)


@pytest.mark.parametrize("now_ms", [0, 1, 7, 39, 40, 1_700_000_000_000])
@pytest.mark.parametrize(
    "geometry", [Geometry(10, 2, 1), Geometry(10, 2, 3), Geometry(20_000, 10, 5), Geometry(8, 32, 4)]
)
def test_the_first_levels_leave_no_hole_and_close_nothing_at_once(geometry: Geometry, now_ms: int) -> None:
    levels = Levels(geometry, first_closed_ms(geometry, now_ms))
    assert levels.next_to_close(now_ms) is None
    assert levels.hot_below_ms > now_ms


def test_there_are_as_many_levels_as_the_longest_delay_takes() -> None:
    minute, hour, day = 60_000, 3_600_000, 86_400_000
    assert [levels_for(20_000, 10, longest) for longest in (minute, 5 * minute, hour, 8 * hour, 30 * day)] == [
        1,
        1,
        2,
        3,
        5,
    ]
    assert slots_of(Geometry(20_000, 10, 5)) == 22
    for longest in (minute, hour, 30 * day):
        geometry = Geometry(20_000, 10, levels_for(20_000, 10, longest))
        levels = Levels(geometry, first_closed_ms(geometry, 0))
        bucket = levels.bucket_for(longest)
        assert bucket is not None
        assert bucket.start_ms <= longest < levels.end_ms(bucket)
