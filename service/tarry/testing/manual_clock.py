"""A clock that stands still until it is told how far to go."""

import heapq
from collections.abc import Callable

UPTIME_MS = 3_600_000
"""What monotonic time begins at: never near 0, as on a machine that has been up for a while."""


class ManualClock:
    """Wall and monotonic time in one hand; runs what was scheduled for the time that passes.

    Args:
        now_ms: wall time at the start.
    """

    def __init__(self, now_ms: int = 1_700_000_000_000) -> None:
        self._monotonic_ms = UPTIME_MS
        self._ahead_ms = now_ms - UPTIME_MS
        self._calls: list[tuple[int, int, Callable[[], None]]] = []
        self._scheduled = 0

    def now_ms(self) -> int:
        """Wall time: milliseconds since the epoch."""
        return self._monotonic_ms + self._ahead_ms

    def monotonic_ms(self) -> int:
        """Milliseconds that never go back."""
        return self._monotonic_ms

    def sleep(self, seconds: float) -> None:
        """Advance by so long, rounded up to whole milliseconds."""
        self.advance(-int(-seconds * 1000 // 1))

    def advance(self, ms: int) -> None:
        """Let time pass, and run what was scheduled for it, in order of its time.

        What is run may itself let time pass.
        """
        ends_ms = self._monotonic_ms + ms
        while self._calls and self._calls[0][0] <= ends_ms:
            self._run_next()
        self._monotonic_ms = max(self._monotonic_ms, ends_ms)

    def advance_until(self, condition: Callable[[], bool], ends_ms: int) -> bool:
        """Let time pass from one scheduled call to the next, until something holds.

        Args:
            condition: asked before each step.
            ends_ms: monotonic; time goes no further.

        Returns:
            Whether it came to hold.
        """
        while not (holds := condition()) and self._calls and self._calls[0][0] <= ends_ms:
            self._run_next()
        if not holds:
            self._monotonic_ms = max(self._monotonic_ms, ends_ms)
        return holds

    def jump(self, ms: int) -> None:
        """Set wall time forward, or back if negative; monotonic time goes on as if nothing happened."""
        self._ahead_ms += ms

    def call_at(self, monotonic_ms: int, call: Callable[[], None]) -> None:
        """Have something run when monotonic time gets there; what is scheduled for one time runs in that order."""
        self._scheduled += 1
        heapq.heappush(self._calls, (monotonic_ms, self._scheduled, call))

    def _run_next(self) -> None:
        at_ms, _, call = heapq.heappop(self._calls)
        self._monotonic_ms = max(self._monotonic_ms, at_ms)
        call()
