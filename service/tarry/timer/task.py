"""What a `Timer` runs: work with a delay, which can be called off until it is handed over."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tarry.timer.task_list import TimerTaskEntry
    from tarry.timer.timer import Timer


class TimerTask(ABC):
    """Work to be run once, `delay_ms` after it was added to a timer.

    A task that has run, or was cancelled, may be added again. It is in at most one timer: adding it once
    more, there or to another timer, first takes it out; two threads must not add one task to two timers at
    the same moment.

    Args:
        delay_ms: from the moment of adding; 0 or less is due at once.
    """

    def __init__(self, delay_ms: int) -> None:
        self.delay_ms = delay_ms
        self.timer: Timer | None = None
        """The timer it was last added to. The timer's own business."""
        self.entry: TimerTaskEntry | None = None
        """Its place in that timer while it waits there. Only the timer looks at it, under its own lock."""

    @abstractmethod
    def run(self) -> None:
        """Do the work, on the timer's executor."""

    def cancel(self) -> bool:
        """Call it off. Safe from any thread.

        Returns:
            True: it was waiting, and will not run. False: it was not waiting; it was never added, or was
            cancelled before, or it runs, or has run, or is about to.
        """
        timer = self.timer
        return timer is not None and timer.cancel(self)
