"""Retrying for a while: for requests at the start, when brokers may be starting or have just created a topic."""

from collections.abc import Callable
from typing import TypeVar

from tarry.clock import Clock
from tarry.errors import RetriableError

PAUSE_S = 0.1

Answer = TypeVar("Answer")


def patiently(call: Callable[[], Answer], clock: Clock, patience_s: float) -> Answer:
    """Call until there is no `RetriableError`, and return the answer.

    Args:
        call: the call to try.
        clock: monotonic time, and sleep.
        patience_s: how long to retry.

    Raises:
        RetriableError: the call still failed after that time.
    """
    deadline_ms = clock.monotonic_ms() + int(patience_s * 1000)
    while True:
        try:
            return call()
        except RetriableError:
            if clock.monotonic_ms() >= deadline_ms:
                raise
            clock.sleep(PAUSE_S)
