"""Defines when a process stops itself: at which step, at which occurrence of it, and by which signal."""

import os
import random
import signal
import threading
from collections.abc import Callable
from typing import Final

STRUCK: Final = "struck"
"""The last event that the process logs, with the step, so that a test knows where it died."""

LONGEST_COMMIT_S: Final = 0.004


class Fate:
    """The step at which the process stops itself.

    Args:
        step: where to stop.
        count: at which occurrence of the step, counted from `arm`.
        number: the signal.
        on_event: takes an event's name and fields, for the log.
    """

    def __init__(self, step: str, count: int, number: signal.Signals, on_event: Callable[..., None]) -> None:
        self._step = step
        self._left = count
        self._number = number
        self._on_event = on_event
        self._armed = False

    def arm(self, *_: object) -> None:
        """Begin to count."""
        self._armed = True

    def looms(self, step: str) -> bool:
        """Count a step; return whether the process must stop at it."""
        if not self._armed or step != self._step:
            return False
        self._left -= 1
        return self._left == 0

    def strike(self) -> None:
        """Send the signal to this process: it ends or, with STOP, pauses."""
        self._on_event(STRUCK, step=self._step)
        os.kill(os.getpid(), self._number)

    def strike_soon(self) -> None:
        """Send the signal from another thread while this one waits for a broker."""
        after_s = random.Random().uniform(0, LONGEST_COMMIT_S)
        threading.Timer(after_s, self.strike).start()
