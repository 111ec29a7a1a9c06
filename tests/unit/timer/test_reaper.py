import threading

import pytest

from tarry.clock import SystemClock
from tarry.timer import Reaper, SystemTimer, TimerTask

PATIENCE_S = 20


class Ring(TimerTask):
    """Tells that it ran, and in which thread."""

    def __init__(self, delay_ms: int) -> None:
        super().__init__(delay_ms)
        self.rang = threading.Event()
        self.thread = ""

    def run(self) -> None:
        self.thread = threading.current_thread().name
        self.rang.set()


def test_the_reaper_runs_tasks_apart_from_itself() -> None:
    timer = SystemTimer("fetch", SystemClock())
    task = Ring(5)
    with Reaper(timer):
        assert "expired operation reaper" in [thread.name for thread in threading.enumerate()]
        timer.add(task)
        assert task.rang.wait(PATIENCE_S)
    timer.shutdown()
    assert task.thread.startswith("executor-fetch")


def test_after_its_shutdown_the_thread_is_gone_and_tasks_wait() -> None:
    timer = SystemTimer("fetch", SystemClock())
    reaper = Reaper(timer, work_timeout_ms=10)
    reaper.start()
    assert reaper.is_alive()
    reaper.shutdown()
    assert not reaper.is_alive()
    reaper.shutdown()
    task = Ring(1)
    timer.add(task)
    assert not task.rang.wait(0.02)
    assert timer.size() == 1
    timer.shutdown()


def test_a_reaper_that_was_never_started_can_be_shut_down() -> None:
    timer = SystemTimer("fetch", SystemClock())
    Reaper(timer).shutdown()
    timer.shutdown()


def test_a_reaper_starts_once() -> None:
    timer = SystemTimer("fetch", SystemClock())
    with Reaper(timer, work_timeout_ms=10) as reaper, pytest.raises(RuntimeError):
        reaper.start()
    timer.shutdown()
