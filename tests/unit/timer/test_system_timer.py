"""The threaded timer. With a clock turned by hand where the time matters, with the machine's where threads
do."""

import random
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest

from tarry.clock import SystemClock
from tarry.timer import Reaper, SystemTimer, TimerTask
from tests.unit.timer.hand_clock import HandClock
from tests.unit.timer.threads import PATIENCE_S, Inbox, in_thread


class Note(TimerTask):
    """Writes down that it ran."""

    def __init__(self, delay_ms: int, name: object, ran: list[object]) -> None:
        super().__init__(delay_ms)
        self.name = name
        self.ran = ran

    def run(self) -> None:
        self.ran.append(self.name)


class Stamp(TimerTask):
    """Counts its runs and measures how early the earliest was."""

    def __init__(self, delay_ms: int, clock: SystemClock) -> None:
        super().__init__(delay_ms)
        self.clock = clock
        self.added_ms = 0
        self.runs = 0
        self.waited_ms = 0

    def run(self) -> None:
        self.waited_ms = self.clock.monotonic_ms() - self.added_ms
        self.runs += 1


class ReadClock(SystemClock):
    """The machine's clock, which tells that somebody has read it."""

    def __init__(self) -> None:
        self.read = threading.Event()

    def monotonic_ms(self) -> int:
        self.read.set()
        return super().monotonic_ms()


def wait_until(condition: Callable[[], bool]) -> None:
    tick = threading.Event()
    for _ in range(PATIENCE_S * 1_000):
        if condition():
            return
        tick.wait(0.001)
    raise AssertionError("it did not come to pass in time")


def test_a_task_runs_when_its_delay_has_passed_and_not_a_millisecond_before(
    timer: SystemTimer, clock: HandClock, inbox: Inbox
) -> None:
    ran: list[object] = []
    timer.add(Note(450, "a", ran))
    assert timer.size() == 1
    for clock.ms in (1_400, 1_440, 1_449):
        timer.advance_clock(0)
        inbox.run_all()
        assert ran == []
    clock.ms = 1_450
    assert timer.advance_clock(0)
    inbox.run_all()
    assert (ran, timer.size()) == (["a"], 0)
    assert not timer.advance_clock(0)


def test_tasks_come_by_due_time_and_those_of_the_same_as_they_were_added(
    timer: SystemTimer, clock: HandClock, inbox: Inbox
) -> None:
    ran: list[object] = []
    timer.add(Note(25, "A@25", ran))
    timer.add(Note(10, "T@10", ran))
    clock.ms = 1_010
    assert timer.advance_clock(0)
    timer.add(Note(15, "B@25", ran))
    clock.ms = 1_100
    assert timer.advance_clock(0)
    inbox.run_all()
    assert ran == ["T@10", "A@25", "B@25"]


@pytest.mark.parametrize("delay_ms", [0, -5])
def test_a_task_without_a_delay_goes_to_the_executor_at_once(timer: SystemTimer, inbox: Inbox, delay_ms: int) -> None:
    ran: list[object] = []
    timer.add(Note(delay_ms, "now", ran))
    assert timer.size() == 0
    inbox.run_all()
    assert ran == ["now"]


def test_a_due_time_is_rounded_up_to_the_tick(clock: HandClock, inbox: Inbox) -> None:
    timer = SystemTimer("coarse", clock, tick_ms=100, executor=inbox)
    ran: list[object] = []
    clock.ms = 1_050
    timer.add(Note(60, "at 1110", ran))
    clock.ms = 1_199
    timer.advance_clock(0)
    inbox.run_all()
    assert ran == []
    clock.ms = 1_200
    timer.advance_clock(0)
    inbox.run_all()
    assert ran == ["at 1110"]


def test_a_cancelled_task_does_not_run_and_one_that_is_handed_over_cannot_be_cancelled(
    timer: SystemTimer, clock: HandClock, inbox: Inbox
) -> None:
    ran: list[object] = []
    gone, stays = Note(5, "gone", ran), Note(5, "stays", ran)
    assert not gone.cancel(), "it has not been added yet"
    timer.add(gone)
    timer.add(stays)
    assert gone.cancel()
    assert not gone.cancel()
    assert timer.size() == 1
    clock.ms += 5
    timer.advance_clock(0)
    assert not stays.cancel(), "it is with the executor"
    inbox.run_all()
    assert ran == ["stays"]


def test_a_task_can_be_added_again_and_adding_it_twice_moves_it(
    timer: SystemTimer, clock: HandClock, inbox: Inbox
) -> None:
    ran: list[object] = []
    task = Note(5, "x", ran)
    timer.add(task)
    clock.ms += 3
    timer.add(task)
    assert timer.size() == 1
    clock.ms += 4
    timer.advance_clock(0)
    inbox.run_all()
    assert ran == []
    clock.ms += 1
    timer.advance_clock(0)
    inbox.run_all()
    timer.add(task)
    clock.ms += 5
    timer.advance_clock(0)
    inbox.run_all()
    assert ran == ["x", "x"]


def test_a_task_added_to_another_timer_leaves_the_first(timer: SystemTimer, clock: HandClock, inbox: Inbox) -> None:
    other = SystemTimer("other", clock, executor=inbox)
    task = Note(5, "x", [])
    timer.add(task)
    other.add(task)
    assert (timer.size(), other.size()) == (0, 1)
    assert not timer.cancel(task)
    assert task.cancel()
    assert other.size() == 0


def test_waiting_for_a_bucket_ends_with_the_timeout_even_where_the_clock_stands_still(
    timer: SystemTimer,
) -> None:
    timer.add(Note(1_000, "far", []))
    assert not timer.advance_clock(20)
    assert not timer.advance_clock(0)


@pytest.mark.parametrize("already_waiting", [[], [3_600_000]])
def test_an_earlier_task_wakes_a_waiting_advance(already_waiting: list[int]) -> None:
    # The waiter reads the clock with the timer's mutex held, and an add needs the mutex: so an add after that
    # read finds it asleep.
    clock = ReadClock()
    timer = SystemTimer("wake", clock)
    ran: list[object] = []
    for delay_ms in already_waiting:
        timer.add(Note(delay_ms, "late", ran))
    clock.read.clear()
    advanced: list[bool] = []
    waiter = in_thread(lambda: advanced.append(timer.advance_clock(3_600_000)))
    assert clock.read.wait(PATIENCE_S)
    timer.add(Note(30, "soon", ran))
    waiter.join(PATIENCE_S)
    timer.shutdown()
    assert (advanced, ran, timer.size()) == ([True], ["soon"], len(already_waiting))


def test_adds_run_side_by_side_and_never_with_an_advance(timer: SystemTimer, clock: HandClock, inbox: Inbox) -> None:
    timer.add(Note(5, "due", []))
    clock.ms += 5
    inbox.gate.clear()
    stuck_add = in_thread(lambda: timer.add(Note(0, "stuck in submit", [])))
    assert inbox.at_gate.wait(PATIENCE_S)

    timer.add(Note(50, "beside it", []))
    assert timer.size() == 2

    advance = in_thread(lambda: timer.advance_clock(0))
    wait_until(lambda: timer._lock._writers_waiting == 1)
    assert timer.size() == 2, "the advance has taken nothing while an add is under way"
    later_add = in_thread(lambda: timer.add(Note(60, "after the advance", [])))
    inbox.gate.set()
    for thread in (stuck_add, advance, later_add):
        thread.join(PATIENCE_S)
    assert len(inbox.calls) == 2
    assert timer.size() == 2


def test_a_task_that_fails_is_reported_and_the_next_one_runs(clock: HandClock, inbox: Inbox) -> None:
    class Fails(TimerTask):
        def run(self) -> None:
            raise ZeroDivisionError

    errors: list[tuple[TimerTask, Exception]] = []
    timer = SystemTimer("test", clock, executor=inbox, on_error=lambda task, error: errors.append((task, error)))
    ran: list[object] = []
    failing = Fails(5)
    timer.add(failing)
    timer.add(Note(5, "next", ran))
    clock.ms += 5
    timer.advance_clock(0)
    inbox.run_all()
    assert [(task, type(error)) for task, error in errors] == [(failing, ZeroDivisionError)]
    assert ran == ["next"]


def test_without_a_listener_a_failed_task_goes_to_the_hook_for_threads(
    timer: SystemTimer, inbox: Inbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Fails(TimerTask):
        def run(self) -> None:
            raise ZeroDivisionError("seen")

    seen: list[object] = []
    monkeypatch.setattr(threading, "excepthook", lambda args: seen.append(args.exc_value))
    timer.add(Fails(0))
    inbox.run_all()
    assert [str(error) for error in seen] == ["seen"]


def test_after_a_shutdown_nothing_is_taken_what_waits_stays_and_what_was_handed_over_ends() -> None:
    clock = HandClock(0)
    timer = SystemTimer("test", clock)
    ran: list[object] = []
    timer.add(Note(0, "handed over", ran))
    timer.add(Note(5, "waits", ran))
    timer.shutdown()
    assert ran == ["handed over"]
    with pytest.raises(RuntimeError, match="shut down"):
        timer.add(Note(5, "too late", ran))
    clock.ms += 10
    assert not timer.advance_clock(5)
    assert timer.size() == 1
    timer.shutdown()
    assert ran == ["handed over"]


def test_an_executor_that_was_lent_is_left_open(clock: HandClock) -> None:
    with ThreadPoolExecutor(1) as lent:
        SystemTimer("test", clock, executor=lent).shutdown()
        assert lent.submit(lambda: 7).result(PATIENCE_S) == 7


def test_a_slow_task_does_not_hold_up_the_reaper() -> None:
    release, second_runs = threading.Event(), threading.Event()

    class Slow(TimerTask):
        def run(self) -> None:
            assert release.wait(PATIENCE_S)

    class Quick(TimerTask):
        def run(self) -> None:
            second_runs.set()

    with ThreadPoolExecutor(2) as pool:
        timer = SystemTimer("test", SystemClock(), executor=pool)
        with Reaper(timer):
            timer.add(Slow(1))
            timer.add(Quick(5))
            assert second_runs.wait(PATIENCE_S)
        release.set()
        timer.shutdown()


@pytest.mark.usefixtures("hurried_threads")
@pytest.mark.parametrize("wheel_size", [4, 512])
def test_with_many_threads_each_task_that_is_not_cancelled_runs_once_and_none_early(wheel_size: int) -> None:
    clock = SystemClock()
    timer = SystemTimer("many", clock, wheel_size=wheel_size)
    everything: list[Stamp] = []
    cancelled: set[int] = set()

    def work(seed: int) -> None:
        rng = random.Random(seed)
        mine: list[Stamp] = []
        for _ in range(400):
            task = Stamp(rng.choice((0, 1, 2, 5, 20, 60, 150)), clock)
            task.added_ms = clock.monotonic_ms()
            timer.add(task)
            mine.append(task)
            if rng.random() < 0.5:
                chosen = rng.choice(mine)
                if chosen.cancel():
                    cancelled.add(id(chosen))
        everything.extend(mine)

    with Reaper(timer):
        threads = [in_thread(lambda seed=seed: work(seed)) for seed in range(6)]  # type: ignore[misc]
        for thread in threads:
            thread.join(PATIENCE_S)
        wait_until(lambda: timer.size() == 0)
    timer.shutdown()

    assert len(everything) == 6 * 400
    assert [task.runs for task in everything] == [0 if id(task) in cancelled else 1 for task in everything]
    assert all(task.waited_ms >= task.delay_ms for task in everything if task.runs)
    assert 0 < len(cancelled) < len(everything)


@pytest.mark.usefixtures("hurried_threads")
def test_of_a_cancel_and_an_advance_that_race_exactly_one_has_the_task() -> None:
    clock = HandClock(0)
    timer = SystemTimer("race", clock, wheel_size=4)
    for _ in range(60):
        ran: list[object] = []
        tasks = [Note(1 + i % 17, i, ran) for i in range(40)]
        for task in tasks:
            timer.add(task)
        called_off: list[int] = []
        start = threading.Barrier(2)

        def cancel_all(
            tasks: list[Note] = tasks, called_off: list[int] = called_off, start: threading.Barrier = start
        ) -> None:
            start.wait(PATIENCE_S)
            called_off.extend(i for i, task in enumerate(tasks) if task.cancel())

        canceller = in_thread(cancel_all)
        start.wait(PATIENCE_S)
        for _ in range(18):
            clock.ms += 1
            timer.advance_clock(0)
        canceller.join(PATIENCE_S)
        wait_until(lambda: len(ran) + len(called_off) >= len(tasks))  # noqa: B023 - called at once
        assert sorted([*called_off, *ran], key=str) == sorted(range(len(tasks)), key=str)
        assert timer.size() == 0
    timer.shutdown()


@pytest.mark.usefixtures("hurried_threads")
def test_one_task_added_by_many_threads_at_once_waits_once() -> None:
    timer = SystemTimer("same", HandClock(0), executor=Inbox())
    task = Note(50, "x", [])

    def add_often() -> None:
        for _ in range(200):
            timer.add(task)

    threads = [in_thread(add_often) for _ in range(4)]
    for thread in threads:
        thread.join(PATIENCE_S)
    assert timer.size() == 1
    assert task.cancel()
    assert timer.size() == 0
