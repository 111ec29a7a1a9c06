"""The bucket that a message goes to, and the order in which buckets are closed."""

import pytest

from tarry.core.message import NEVER_MS
from tarry.core.progress.checkpoint import Geometry
from tarry.core.wheel.levels import (
    MOST_DRAINING,
    MOST_LEVELS,
    Bucket,
    Levels,
    first_closed_ms,
    levels_for,
)

SMALL = Geometry(10, 2, 3)


def small() -> Levels:
    """The worked example of the module: buckets of 10, 20 and 40, at 0."""
    return Levels(SMALL, (10, 20, 40))


def close(levels: Levels, bucket: Bucket) -> None:
    """Close a bucket that holds messages."""
    levels.close(bucket)
    levels.drain(*bucket)


def drained(levels: Levels, bucket: Bucket) -> None:
    levels.drained(*bucket)


def test_the_worked_example() -> None:
    levels = Levels(Geometry(2_000, 2, 3), (2_000, 4_000, 8_000))
    assert [levels.bucket_for(due_ms) for due_ms in (1_000, 3_000, 6_600, 180_000)] == [
        None,
        Bucket(1, 2_000),
        Bucket(2, 4_000),
        Bucket(3, 176_000),
    ]
    assert levels.next_to_close(1_499) is None
    assert levels.next_to_close(1_500) == Bucket(1, 2_000)
    levels.close(Bucket(1, 2_000))
    assert [levels.bucket_for(due_ms) for due_ms in (3_999, 4_000)] == [None, Bucket(2, 4_000)]
    assert levels.next_to_close(2_000) == Bucket(2, 4_000)
    levels.close(Bucket(2, 4_000))
    assert [levels.bucket_for(due_ms) for due_ms in (4_000, 7_999)] == [Bucket(1, 4_000), Bucket(1, 6_000)]
    assert levels.next_to_close(4_000) == Bucket(3, 8_000)


def test_a_message_due_at_a_bucket_boundary_goes_to_the_later_bucket() -> None:
    levels = small()
    assert [levels.bucket_for(due_ms) for due_ms in (9, 10, 19, 20, 39, 40, 79, 80)] == [
        None,
        *[Bucket(1, 10)] * 2,
        *[Bucket(2, 20)] * 2,
        *[Bucket(3, 40)] * 2,
        Bucket(3, 80),
    ]


def test_a_bucket_waits_until_the_one_above_is_closed() -> None:
    levels = Levels(SMALL, (20, 20, 40))
    assert levels.next_to_close(20) == Bucket(3, 40), "or level 2 would have messages that belong to level 1"
    assert Levels(SMALL, (40, 40, 40)).next_to_close(39) == Bucket(3, 40)


def test_a_bucket_waits_while_one_of_any_level_above_is_drained_that_begins_before_its_end() -> None:
    levels = small()
    close(levels, Bucket(3, 40))
    assert levels.next_to_close(1_000) == Bucket(2, 20), "it ends where that one begins"
    close(levels, Bucket(2, 20))
    assert levels.next_to_close(1_000) == Bucket(1, 10)
    close(levels, Bucket(1, 10))
    assert levels.next_to_close(1_000) is None, "level 2 is drained from 20 on"
    drained(levels, Bucket(2, 20))
    assert levels.next_to_close(1_000) == Bucket(1, 20), "before level 2's from 40, because of level 3's from 40"
    levels.close(Bucket(1, 20))
    levels.close(Bucket(1, 30))
    assert levels.next_to_close(1_000) is None, "level 3 is drained from 40 on"
    drained(levels, Bucket(3, 40))
    assert levels.next_to_close(1_000) == Bucket(3, 80)


def test_of_level_1_several_are_drained_at_a_time_and_of_each_other_level_one() -> None:
    levels = Levels(Geometry(10, 20, 1), (0,))
    many = 0
    while (bucket := levels.next_to_close(10_000)) is not None:
        close(levels, bucket)
        many += 1
    assert many == MOST_DRAINING
    levels = Levels(Geometry(10, 20, 2), (0, 0))
    close(levels, Bucket(2, 0))
    assert levels.next_to_close(10_000) is None


def test_what_a_take_over_found_closed_is_drained_as_one_range() -> None:
    levels = Levels(SMALL, (80, 80, 80))
    levels.drain(1, 20)
    levels.drain(2, 40)
    assert levels.is_draining(1)
    assert levels.next_to_close(80) == Bucket(3, 80)
    levels.close(Bucket(3, 80))
    assert levels.next_to_close(80) is None, "of level 2 one range is drained"
    levels.drained(2, 40)
    assert levels.next_to_close(80) == Bucket(2, 80)


def test_closed_times_rise_from_level_to_level_whatever_is_closed() -> None:
    levels = small()
    closed: list[Bucket] = []
    while (bucket := levels.next_to_close(10_000)) is not None and len(closed) < 30:
        levels.close(bucket)
        closed.append(bucket)
        one, two, three = levels.closed_ms
        assert one <= two <= three
    assert closed[:2] == [Bucket(3, 40), Bucket(3, 80)], "the highest level first"


def test_without_levels_all_is_hot() -> None:
    levels = Levels(Geometry(20_000, 10, 0), ())
    assert levels.bucket_for(1 << 50) is None
    assert levels.hot_below_ms == NEVER_MS
    assert levels.next_to_close(1 << 50) is None


@pytest.mark.parametrize("closed_ms", [(20, 40), (20, 45, 80), (25, 40, 80), (40, 20, 80), (20, 80, 40)])
def test_levels_that_do_not_fit_are_refused(closed_ms: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match="level"):
        Levels(SMALL, closed_ms)


@pytest.mark.parametrize("now_ms", [0, 1, 7, 39, 40, 1_700_000_000_000])
@pytest.mark.parametrize(
    "geometry", [Geometry(10, 2, 1), Geometry(10, 2, 3), Geometry(20_000, 16, 4), Geometry(8, 32, 4)]
)
def test_the_first_levels_close_nothing_at_once(geometry: Geometry, now_ms: int) -> None:
    levels = Levels(geometry, first_closed_ms(geometry, now_ms))
    assert levels.next_to_close(now_ms) is None
    assert levels.hot_below_ms > now_ms


def test_there_are_as_many_levels_as_keep_the_buckets_of_the_last_one_few() -> None:
    minute, hour, day = 60_000, 3_600_000, 86_400_000
    longest = (minute, 5 * minute, 12 * minute, hour, 8 * hour, 30 * day, 3_650 * day)
    # Buckets of 20 s, 320 s, 85 min, 22.8 h; twice 16 of them reach 640 s, 2.8 h, 45.5 h, 30.3 days.
    assert [levels_for(20_000, 16, one) for one in longest] == [1, 1, 2, 2, 3, 4, MOST_LEVELS]
    # The last level takes what is later than that, too.
    levels = Levels(Geometry(20_000, 16, 4), first_closed_ms(Geometry(20_000, 16, 4), 0))
    bucket = levels.bucket_for(3_650 * day)
    assert bucket is not None
    assert (bucket.level, bucket.start_ms <= 3_650 * day < levels.end_ms(bucket)) == (4, True)
