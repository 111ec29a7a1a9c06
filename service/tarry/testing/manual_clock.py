"""A clock that stands still until a test advances it."""

import heapq
from collections.abc import Callable

UPTIME_MS = 3_600_000
"""The first value of monotonic time. It is far from 0, as on a machine that has been up for a while."""


class ManualClock:
    """Wall time and monotonic time, both under a test's control. It also runs calls that are scheduled for a time.

    Args:
        now_ms: wall time at the start, in milliseconds since the epoch.
    """

    def __init__(self, now_ms: int = 1_700_000_000_000) -> None:
        self._monotonic_ms = UPTIME_MS
        self._ahead_ms = now_ms - UPTIME_MS
        self._calls: list[tuple[int, int, Callable[[], None]]] = []
        self._scheduled = 0

    def now_ms(self) -> int:
        """Return wall time in milliseconds since the epoch."""
        return self._monotonic_ms + self._ahead_ms

    def monotonic_ms(self) -> int:
        """Return monotonic time in milliseconds; it never goes back."""
        return self._monotonic_ms

    def sleep(self, seconds: float) -> None:
        """Advance by `seconds`, rounded up to whole milliseconds."""
        self.advance(-int(-seconds * 1000 // 1))

    def advance(self, ms: int) -> None:
        """Advance both times by `ms`, and run the calls that are scheduled for that time, in order of their times.

        A call may itself advance the clock.
        """
        ends_ms = self._monotonic_ms + ms
        while self._calls and self._calls[0][0] <= ends_ms:
            self._run_next()
        self._monotonic_ms = max(self._monotonic_ms, ends_ms)

    def advance_until(self, condition: Callable[[], bool], ends_ms: int) -> bool:
        """Advance from one scheduled call to the next, until a condition holds.

        Args:
            condition: checked before each step.
            ends_ms: the last monotonic time to advance to.

        Returns:
            Whether the condition holds.
        """
        while not (holds := condition()) and self._calls and self._calls[0][0] <= ends_ms:
            self._run_next()
        if not holds:
            self._monotonic_ms = max(self._monotonic_ms, ends_ms)
        return holds

    def jump(self, ms: int) -> None:
        """Move wall time forward by `ms`, or back if `ms` is negative. Monotonic time does not change."""
        self._ahead_ms += ms

    def call_at(self, monotonic_ms: int, call: Callable[[], None]) -> None:
        """Schedule a call for a monotonic time. Calls for the same time run in the order of their scheduling."""
        self._scheduled += 1
        heapq.heappush(self._calls, (monotonic_ms, self._scheduled, call))

    def _run_next(self) -> None:
        at_ms, _, call = heapq.heappop(self._calls)
        self._monotonic_ms = max(self._monotonic_ms, at_ms)
        call()
