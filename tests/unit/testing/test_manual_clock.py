"""A clock that stands still until a test advances it."""

from functools import partial

from tarry.testing import ManualClock


def test_time_passes_only_when_the_test_advances_it() -> None:
    clock = ManualClock(1_000)
    assert clock.now_ms() == clock.now_ms() == 1_000


def test_both_times_advance_together() -> None:
    clock = ManualClock(1_000)
    before_ms = clock.monotonic_ms()
    clock.advance(25)
    assert (clock.now_ms(), clock.monotonic_ms() - before_ms) == (1_025, 25)


def test_sleep_takes_whole_milliseconds_and_never_less_than_asked() -> None:
    clock = ManualClock(0)
    clock.sleep(0.0015)
    assert clock.now_ms() == 2
    clock.sleep(0.1)
    assert clock.now_ms() == 102


def test_a_jump_moves_wall_time_alone_either_way() -> None:
    clock = ManualClock(1_000)
    before_ms = clock.monotonic_ms()
    clock.jump(500)
    assert clock.now_ms() == 1_500
    clock.jump(-900)
    assert (clock.now_ms(), clock.monotonic_ms()) == (600, before_ms)


def test_scheduled_calls_run_at_their_times_and_in_order() -> None:
    clock = ManualClock()
    start_ms = clock.monotonic_ms()
    seen: list[tuple[str, int]] = []

    def note(name: str) -> None:
        seen.append((name, clock.monotonic_ms() - start_ms))

    for name, after_ms in (("late", 30), ("early", 10), ("first of two", 20), ("second of two", 20)):
        clock.call_at(start_ms + after_ms, partial(note, name))
    clock.advance(25)
    assert seen == [("early", 10), ("first of two", 20), ("second of two", 20)]
    clock.advance(5)
    assert seen[-1] == ("late", 30)


def test_a_scheduled_call_may_advance_time_and_schedule_more() -> None:
    clock = ManualClock()
    start_ms = clock.monotonic_ms()
    seen: list[int] = []

    def linger() -> None:
        clock.call_at(clock.monotonic_ms() + 5, lambda: seen.append(clock.monotonic_ms() - start_ms))
        clock.advance(50)

    clock.call_at(start_ms + 10, linger)
    clock.advance(20)
    assert seen == [15]
    assert clock.monotonic_ms() - start_ms == 60


def test_waiting_for_something_ends_where_it_comes_true() -> None:
    clock = ManualClock()
    start_ms = clock.monotonic_ms()
    done: list[bool] = []
    clock.call_at(start_ms + 10, lambda: done.append(True))
    clock.call_at(start_ms + 20, lambda: done.append(False))
    assert clock.advance_until(lambda: bool(done), start_ms + 100)
    assert (clock.monotonic_ms() - start_ms, done) == (10, [True])


def test_waiting_in_vain_ends_at_its_bound() -> None:
    clock = ManualClock()
    start_ms = clock.monotonic_ms()
    assert not clock.advance_until(lambda: False, start_ms + 100)
    assert clock.monotonic_ms() - start_ms == 100
