"""The tasks of a `Timer`: work with a delay, which can be cancelled until the timer hands it to the executor."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tarry.timer.task_list import TimerTaskEntry
    from tarry.timer.timer import Timer


class TimerTask(ABC):
    """Work that runs once, `delay_ms` after it was added to a timer.

    A task that has run or was cancelled may be added again. It is in at most one timer: adding it again, to the same or
    another timer, first removes it. Two threads must not add one task to two timers at the same time.

    Args:
        delay_ms: the delay after adding; 0 or less: due at once.
    """

    def __init__(self, delay_ms: int) -> None:
        self.delay_ms = delay_ms
        self.timer: Timer | None = None
        """The timer that it was last added to; only the timer uses this field."""
        self.entry: TimerTaskEntry | None = None
        """Its entry in that timer while it waits; only the timer uses this field, under its lock."""

    @abstractmethod
    def run(self) -> None:
        """Do the work, on the timer's executor."""

    def cancel(self) -> bool:
        """Cancel the task. Thread-safe.

        Returns:
            True: it was waiting, and will not run. False: it was not waiting: it was never added, was cancelled before,
            has run, is running, or is about to run.
        """
        timer = self.timer
        return timer is not None and timer.cancel(self)
