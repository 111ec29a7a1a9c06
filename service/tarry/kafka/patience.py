"""Trying again for a while: for what is asked at the start, when brokers may just have made a topic or be coming up."""

from collections.abc import Callable
from typing import TypeVar

from tarry.clock import Clock
from tarry.errors import RetriableError

PAUSE_S = 0.1

Answer = TypeVar("Answer")


def patiently(call: Callable[[], Answer], clock: Clock, patience_s: float) -> Answer:
    """Call until it does not fail with an error that passes.

    Args:
        call: what to try.
        clock: for the bound.
        patience_s: how long errors are taken as passing.

    Raises:
        RetriableError: it still failed when patience ended.
    """
    deadline_ms = clock.monotonic_ms() + int(patience_s * 1000)
    while True:
        try:
            return call()
        except RetriableError:
            if clock.monotonic_ms() >= deadline_ms:
                raise
            clock.sleep(PAUSE_S)
