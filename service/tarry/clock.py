"""The one module that reads clocks.

Wall time decides what is due, because producers and people speak wall time. Monotonic time decides budgets and
time-outs, because it never jumps. Everything else takes `now_ms` as an argument, or a `Clock`.
"""

import time
from typing import Protocol


class Clock(Protocol):
    """Where time comes from."""

    def now_ms(self) -> int:
        """Wall time: whole milliseconds since the epoch, rounded down."""
        ...

    def monotonic_ms(self) -> int:
        """Milliseconds from an unknown start that never go back."""
        ...

    def sleep(self, seconds: float) -> None:
        """Give up the processor for so long. For waits with a bound on them, never to synchronise."""
        ...


class SystemClock:
    """The machine's clocks."""

    def now_ms(self) -> int:
        """Wall time: whole milliseconds since the epoch, rounded down."""
        return time.time_ns() // 1_000_000

    def monotonic_ms(self) -> int:
        """`CLOCK_MONOTONIC` in whole milliseconds: as fine as Kafka's `hiResClockMs`."""
        return time.monotonic_ns() // 1_000_000

    def sleep(self, seconds: float) -> None:
        """Sleep."""
        time.sleep(seconds)
