import gc
import random
import weakref

import pytest

from tarry.timer.task_list import TimerTaskEntry
from tarry.timer.wheel import TimingWheel


class Watched(TimerTaskEntry):
    __slots__ = ("__weakref__",)


def held(wheel: TimingWheel, *due_and_sequence: tuple[int, int]) -> list[TimerTaskEntry]:
    entries = [TimerTaskEntry(*pair) for pair in due_and_sequence]
    for entry in entries:
        assert wheel.add(entry)
    return entries


def pairs(entries: list[TimerTaskEntry]) -> list[tuple[int, int]]:
    return [(entry.due_ms, entry.sequence) for entry in entries]


@pytest.mark.parametrize(("tick_ms", "size", "start_ms"), [(0, 20, 0), (-1, 20, 0), (1, 1, 0), (1, 20, -1)])
def test_a_wheel_that_could_not_turn_is_refused(tick_ms: int, size: int, start_ms: int) -> None:
    with pytest.raises(ValueError, match="tick_ms >= 1, size >= 2, start_ms >= 0"):
        TimingWheel(tick_ms, size, start_ms)


def test_an_empty_wheel_needs_no_advance() -> None:
    wheel = TimingWheel(1, 20, 100)
    assert (len(wheel), wheel.next_due_ms, wheel.current_ms) == (0, None, 100)
    assert wheel.advance(1_000_000) == []
    assert wheel.current_ms == 1_000_000


def test_entries_due_at_the_current_time_are_left_to_the_caller() -> None:
    wheel = TimingWheel(10, 20, 105)
    assert not wheel.add(TimerTaskEntry(99))
    assert not wheel.add(TimerTaskEntry(109)), "109 floored to the tick is the current time, 100"
    assert wheel.add(TimerTaskEntry(110))
    assert len(wheel) == 1


def test_nothing_comes_before_its_due_time_floored_to_the_tick() -> None:
    wheel = TimingWheel(10, 4, 0)
    held(wheel, (1_239, 0))
    assert wheel.advance(1_229) == []
    assert pairs(wheel.advance(1_230)) == [(1_239, 0)]


def test_equal_due_times_come_by_sequence_where_kafka_turns_them_round() -> None:
    wheel = TimingWheel(1, 20, 0)
    a, t = held(wheel, (25, 0), (10, 1))
    assert a.bucket in wheel.levels[1].buckets
    assert wheel.advance(10) == [t]
    (b,) = held(wheel, (25, 2))
    assert b.bucket in wheel.levels[0].buckets, "B goes to the lower wheel before A comes down to it"
    assert wheel.advance(25) == [a, b]


def test_the_same_holds_bucket_by_bucket() -> None:
    wheel = TimingWheel(1, 20, 0)
    a, t = held(wheel, (25, 0), (10, 1))
    wheel.advance(10)
    (b,) = held(wheel, (25, 2))
    fired: list[TimerTaskEntry] = []
    while (next_due_ms := wheel.next_due_ms) is not None:
        fired += wheel.advance(next_due_ms)
    assert fired == [a, b]
    assert t.bucket is None


def test_one_jump_over_many_buckets_and_wheels_returns_all_in_order() -> None:
    wheel = TimingWheel(1, 4, 0)
    rng = random.Random(7)
    entries = held(wheel, *((rng.randrange(1, 500), sequence) for sequence in range(2_000)))
    due = wheel.advance(400)
    assert pairs(due) == sorted(pairs([entry for entry in entries if entry.due_ms <= 400]))
    assert len(wheel) == len(entries) - len(due)
    assert pairs(wheel.advance(500)) == sorted(pairs([entry for entry in entries if entry.due_ms > 400]))


def test_a_jump_does_not_mix_an_expired_slot_with_the_time_it_stands_for_next() -> None:
    # At 425 the slot of 418 in the lowest wheel is 438's, which comes down from [400, 800) in the same
    # advance.
    wheel = TimingWheel(1, 20, 0)
    (far,) = held(wheel, (438, 0))
    wheel.advance(399)
    (near,) = held(wheel, (418, 1))
    assert far.bucket in wheel.levels[2].buckets
    assert near.bucket in wheel.levels[0].buckets
    slot = near.bucket
    assert wheel.advance(425) == [near]
    assert far.bucket is slot
    assert wheel.next_due_ms == 438
    assert wheel.advance(438) == [far]


def test_within_a_coarse_tick_the_due_time_still_decides() -> None:
    wheel = TimingWheel(100, 4, 0)
    held(wheel, (180, 0), (120, 1), (150, 2))
    assert pairs(wheel.advance(100)) == [(120, 1), (150, 2), (180, 0)]


def test_within_a_coarse_tick_or_a_jump_equal_due_times_come_by_sequence() -> None:
    coarse, fine = TimingWheel(100, 4, 0), TimingWheel(1, 4, 0)
    for wheel in (coarse, fine):
        held(wheel, (150, 3), (150, 1), (120, 4), (150, 2))
        assert pairs(wheel.advance(300)) == [(120, 4), (150, 1), (150, 2), (150, 3)]


def test_time_that_goes_back_changes_nothing() -> None:
    wheel = TimingWheel(1, 20, 100)
    held(wheel, (150, 0))
    wheel.advance(140)
    assert wheel.advance(120) == []
    assert wheel.advance(-5) == []
    assert (wheel.current_ms, len(wheel)) == (140, 1)
    assert pairs(wheel.advance(150)) == [(150, 0)]


def test_a_cancelled_entry_never_comes_and_is_cancelled_once() -> None:
    wheel = TimingWheel(1, 20, 0)
    a, b, c = held(wheel, (5, 0), (5, 1), (5, 2))
    assert wheel.cancel(b)
    assert not wheel.cancel(b)
    assert not wheel.cancel(TimerTaskEntry(5))
    assert len(wheel) == 2
    assert wheel.advance(5) == [a, c]
    assert not wheel.cancel(a), "what has fired can no longer be cancelled"
    assert len(wheel) == 0


def test_a_bucket_emptied_by_cancels_causes_no_wake_up_and_its_slot_is_used_again() -> None:
    wheel = TimingWheel(1, 20, 0)
    (gone,) = held(wheel, (5, 0))
    slot = gone.bucket
    wheel.cancel(gone)
    assert list(wheel.queue) == []
    (same_time,) = held(wheel, (5, 1))
    assert same_time.bucket is slot
    wheel.cancel(same_time)
    assert wheel.advance(7) == []
    (next_turn,) = held(wheel, (25, 2))
    assert next_turn.bucket is slot
    assert wheel.next_due_ms == 25
    assert wheel.advance(24) == []
    assert wheel.advance(25) == [next_turn]


def test_an_emptied_bucket_behind_the_head_takes_entries_without_being_queued_twice() -> None:
    wheel = TimingWheel(1, 20, 0)
    first, gone = held(wheel, (3, 0), (5, 1))
    wheel.cancel(gone)
    (again,) = held(wheel, (5, 2))
    assert [bucket.expiration_ms for bucket in wheel.queue] == [3, 5]
    assert wheel.advance(5) == [first, again]


def test_adding_a_held_entry_again_moves_it_to_its_new_due_time() -> None:
    wheel = TimingWheel(1, 20, 0)
    (entry,) = held(wheel, (5, 0))
    entry.due_ms = 300
    assert wheel.add(entry)
    assert len(wheel) == 1
    assert wheel.advance(299) == []
    entry.due_ms = 250
    assert not wheel.add(entry), "moved into the past it is the caller's"
    assert (len(wheel), entry.bucket) == (0, None)


def test_a_fired_entry_can_be_added_again() -> None:
    wheel = TimingWheel(1, 20, 0)
    (entry,) = held(wheel, (5, 0))
    assert wheel.advance(5) == [entry]
    entry.due_ms = 6
    assert wheel.add(entry)
    assert wheel.advance(6) == [entry]


def test_overflow_wheels_are_made_when_needed_and_kept() -> None:
    wheel = TimingWheel(1, 20, 0)
    assert len(wheel.levels) == 1
    held(wheel, (19, 0))
    assert len(wheel.levels) == 1
    held(wheel, (20, 1))
    assert len(wheel.levels) == 2
    held(wheel, (8_000, 2))
    assert [level.tick_ms for level in wheel.levels] == [1, 20, 400, 8_000]
    wheel.advance(10_000)
    assert (len(wheel), len(wheel.levels)) == (0, 4)


def test_an_overflow_wheel_starts_at_the_trimmed_time_of_the_wheel_below() -> None:
    wheel = TimingWheel(1, 20, 1_234)
    held(wheel, (1_234 + 1_000, 0))
    assert [(level.start_ms, level.current_ms) for level in wheel.levels] == [
        (1_234, 1_234),
        (1_234, 1_220),
        (1_220, 1_200),
    ]


def test_a_wheel_that_was_idle_places_near_entries_low() -> None:
    wheel = TimingWheel(1, 20, 0)
    wheel.advance(1_000_000)
    (near,) = held(wheel, (1_000_019, 0))
    assert near.bucket in wheel.levels[0].buckets
    assert len(wheel.levels) == 1


def test_fired_and_cancelled_entries_leave_no_cycle_behind() -> None:
    wheel = TimingWheel(1, 20, 0)
    gc.collect()
    gc.disable()
    try:
        watched = []
        for sequence in range(50):
            entry = Watched(1 + sequence * 7, sequence)
            wheel.add(entry)
            watched.append(weakref.ref(entry))
            if sequence % 3 == 0:
                wheel.cancel(entry)
        del entry
        assert sum(ref() is not None for ref in watched) == len(wheel)
        wheel.advance(1_000)
        assert not any(ref() for ref in watched)
    finally:
        gc.enable()


def test_a_closed_wheel_frees_what_it_held_without_the_collector() -> None:
    gc.collect()
    gc.disable()
    try:
        wheel = TimingWheel(1, 20, 0)
        entries = [Watched(due_ms, 0) for due_ms in (5, 5, 50, 5_000)]
        for entry in entries:
            wheel.add(entry)
        watched = [weakref.ref(entry) for entry in entries]
        del entries, entry
        wheel.close()
        assert len(wheel) == 0
        assert wheel.next_due_ms is None
        assert not any(ref() for ref in watched)
        del wheel
        assert gc.collect() == 0
    finally:
        gc.enable()
