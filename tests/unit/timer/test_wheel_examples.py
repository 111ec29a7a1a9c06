"""The worked examples that come with Kafka's wheel: tick 1 ms and 20 buckets a wheel, unless said
otherwise."""

import pytest

from tarry.timer.task_list import TimerTaskEntry
from tarry.timer.wheel import TimingWheel, WheelLevel


def place(wheel: TimingWheel, entry: TimerTaskEntry) -> tuple[int, int, int]:
    """Level (from 1), slot and expiration of the bucket an entry is in."""
    for number, level in enumerate(wheel.levels, 1):
        for slot, bucket in enumerate(level.buckets):
            if entry.bucket is bucket:
                return number, slot, bucket.expiration_ms
    raise AssertionError(f"{entry} is in no bucket of the wheel")


def add(wheel: TimingWheel, due_ms: int) -> TimerTaskEntry:
    entry = TimerTaskEntry(due_ms)
    assert wheel.add(entry)
    return entry


def stops(wheel: TimingWheel) -> list[int]:
    """The times at which the wheel has to be advanced until it is empty."""
    times = []
    while (next_due_ms := wheel.next_due_ms) is not None:
        times.append(next_due_ms)
        wheel.advance(next_due_ms)
    return times


def test_2_8_and_19_ms_with_the_slot_of_an_expired_bucket_used_again() -> None:
    wheel = TimingWheel(1, 20, 0)
    one, two = add(wheel, 1), add(wheel, 2)
    assert place(wheel, two) == (1, 2, 2)
    slot_1 = one.bucket
    assert wheel.advance(1) == [one]
    assert wheel.advance(2) == [two]

    in_8_ms, in_19_ms = add(wheel, 2 + 8), add(wheel, 2 + 19)
    assert place(wheel, in_8_ms) == (1, 10, 10)
    assert place(wheel, in_19_ms) == (1, 1, 21)
    assert in_19_ms.bucket is slot_1
    assert len(wheel.levels) == 1
    assert wheel.advance(10) == [in_8_ms]
    assert wheel.advance(20) == []
    assert wheel.advance(21) == [in_19_ms]


def test_350_ms_goes_to_slot_17_of_the_second_wheel() -> None:
    wheel = TimingWheel(1, 20, 0)
    entry = add(wheel, 350)
    assert [(level.tick_ms, level.interval_ms) for level in wheel.levels] == [(1, 20), (20, 400)]
    assert place(wheel, entry) == (2, 17, 340)
    assert stops(wheel) == [340, 350]


def test_446_450_455_and_473_ms_share_slot_1_of_the_third_wheel() -> None:
    wheel = TimingWheel(1, 20, 0)
    entries = [add(wheel, due_ms) for due_ms in (450, 446, 455, 473)]
    assert wheel.levels[2].interval_ms == 8_000
    assert [place(wheel, entry) for entry in entries] == [(3, 1, 400)] * 4
    assert wheel.next_due_ms == 400

    assert wheel.advance(400) == []
    assert [place(wheel, entry)[::2] for entry in entries] == [(2, 440), (2, 440), (2, 440), (2, 460)]
    assert stops(wheel) == [440, 446, 450, 455, 460, 473]


def test_450_ms_goes_down_to_40_60_and_to_10_11_before_it_fires() -> None:
    wheel = TimingWheel(1, 20, 0)
    entry = add(wheel, 450)
    # The text counts what is left: 50 ms at 400, so the bucket [40, 60) from there; 10 ms at 440, so [10,
    # 11).
    assert wheel.advance(399) == []
    assert place(wheel, entry) == (3, 1, 400)
    assert wheel.advance(400) == []
    assert place(wheel, entry) == (2, 2, 400 + 40)
    assert wheel.advance(439) == []
    assert place(wheel, entry) == (2, 2, 440)
    assert wheel.advance(440) == []
    assert place(wheel, entry) == (1, 10, 440 + 10)
    assert wheel.advance(449) == []
    assert wheel.advance(450) == [entry]


def test_with_a_tick_of_20_a_wheel_started_at_123_stands_at_120() -> None:
    level = WheelLevel(20, 20, 123)
    assert (level.start_ms, level.current_ms, level.end_ms) == (123, 120, 520)
    assert TimingWheel(20, 20, 123).current_ms == 120


def test_237_ms_goes_to_220_240() -> None:
    wheel = TimingWheel(1, 20, 0)
    entry = add(wheel, 237)
    assert place(wheel, entry) == (2, 11, 220)
    assert entry.bucket is not None
    assert entry.bucket.tick_ms == 20


@pytest.mark.parametrize(
    ("size", "delay_ms", "levels"),
    [(20, 30_000, 4), (20, 159_999, 4), (20, 160_000, 5)],
)
def test_four_wheels_of_20_reach_160_seconds(size: int, delay_ms: int, levels: int) -> None:
    wheel = TimingWheel(1, size, 0)
    add(wheel, delay_ms)
    assert len(wheel.levels) == levels


def test_the_table_of_u_1_and_n_3() -> None:
    c = 81  # a multiple of 9, so that all three wheels begin together
    wheel = TimingWheel(1, 3, c)
    far = add(wheel, c + 26)
    assert place(wheel, far) == (3, 2, c + 18)

    def table() -> list[list[tuple[int, int]]]:
        """First and last millisecond of the buckets of each level, from the current one on."""
        return [
            [
                (begin, begin + level.tick_ms - 1)
                for begin in range(level.current_ms, level.current_ms + level.interval_ms, level.tick_ms)
            ]
            for level in wheel.levels
        ]

    third = [(c, c + 8), (c + 9, c + 17), (c + 18, c + 26)]
    assert table() == [
        [(c, c), (c + 1, c + 1), (c + 2, c + 2)],
        [(c, c + 2), (c + 3, c + 5), (c + 6, c + 8)],
        third,
    ]
    wheel.advance(c + 1)
    assert table() == [
        [(c + 1, c + 1), (c + 2, c + 2), (c + 3, c + 3)],
        [(c, c + 2), (c + 3, c + 5), (c + 6, c + 8)],
        third,
    ]
    # Misprinted in Kafka's own comment: here as [c+18, c+18], at c + 3 as [c+8, c+11]. The third wheel stands
    # still.
    wheel.advance(c + 2)
    assert table() == [
        [(c + 2, c + 2), (c + 3, c + 3), (c + 4, c + 4)],
        [(c, c + 2), (c + 3, c + 5), (c + 6, c + 8)],
        third,
    ]
    wheel.advance(c + 3)
    assert table() == [
        [(c + 3, c + 3), (c + 4, c + 4), (c + 5, c + 5)],
        [(c + 3, c + 5), (c + 6, c + 8), (c + 9, c + 11)],
        third,
    ]
    assert place(wheel, far) == (3, 2, c + 18)


def test_every_due_time_of_the_u_1_n_3_table_lands_in_its_bucket() -> None:
    c = 81
    for due_ms in range(c + 1, c + 27):
        wheel = TimingWheel(1, 3, c)
        level, _, expiration_ms = place(wheel, add(wheel, due_ms))
        assert level == (1 if due_ms < c + 3 else 2 if due_ms < c + 9 else 3)
        width_ms = 3 ** (level - 1)
        assert expiration_ms == due_ms // width_ms * width_ms > c, "a wheel's first bucket is the wheel's below"


def test_200_then_840_ms_take_two_stops_and_no_empty_tick() -> None:
    wheel = TimingWheel(1, 1_024, 0)
    add(wheel, 840)
    add(wheel, 200)
    assert stops(wheel) == [200, 840]


def test_200_then_840_ms_take_one_stop_more_where_840_comes_down_a_wheel() -> None:
    wheel = TimingWheel(1, 20, 0)
    add(wheel, 840)
    add(wheel, 200)
    assert stops(wheel) == [200, 800, 840]


def test_1_ms_beside_100_days_takes_five_wheels_and_a_stop_a_wheel() -> None:
    wheel = TimingWheel(1, 100, 0)
    days_100_ms = 100 * 86_400_000
    soon, late = add(wheel, 1), add(wheel, days_100_ms - 1)
    assert len(wheel.levels) == 5
    assert place(wheel, soon) == (1, 1, 1)
    assert place(wheel, late)[0] == 5
    assert wheel.advance(1) == [soon]
    times = stops(wheel)
    assert times[-1] == days_100_ms - 1
    assert len(times) == 5
    assert late.bucket is None
