"""The only module that reads clocks.

Wall time decides what is due, because producers and users give wall times. Monotonic time decides time budgets and
time-outs, because it never jumps. All other modules take `now_ms` or a `Clock` as an argument.
"""

import time
from typing import Protocol


class Clock(Protocol):
    """A source of time."""

    def now_ms(self) -> int:
        """Return the wall time: whole milliseconds since the epoch, rounded down."""
        ...

    def monotonic_ms(self) -> int:
        """Return milliseconds since an arbitrary origin; they never decrease."""
        ...

    def sleep(self, seconds: float) -> None:
        """Sleep. Only for bounded waits, never to synchronise threads."""
        ...


class SystemClock:
    """The machine's clocks."""

    def now_ms(self) -> int:
        """Return the wall time: whole milliseconds since the epoch, rounded down."""
        return time.time_ns() // 1_000_000

    def monotonic_ms(self) -> int:
        """Return `CLOCK_MONOTONIC` in whole milliseconds, the resolution of Kafka's `hiResClockMs`."""
        return time.monotonic_ns() // 1_000_000

    def sleep(self, seconds: float) -> None:
        """Sleep."""
        time.sleep(seconds)
