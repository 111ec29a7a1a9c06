"""The delay before a process is restarted. Pure.

The first restart is immediate, so that a process that was killed by accident is back at once. For a process that keeps
failing the delays grow, so that its restarts do not overload the machine or the brokers.
"""

HEALTHY_MS = 60_000
"""After a life of at least this length, the next restart is immediate again."""

FIRST_MS = 1_000
"""The delay of the second restart; each one after it has twice the delay."""

LONGEST_MS = 30_000
"""The longest delay."""


class Backoff:
    """The restart delays of one process: 0, 1, 2, 4, 8, 16, 30, 30 … seconds."""

    def __init__(self) -> None:
        self._failures = 0

    def after(self, healthy_ms: int) -> int:
        """Return the delay before the next start, in milliseconds.

        Args:
            healthy_ms: how long the process lived: from its start to its last heartbeat.
        """
        if healthy_ms >= HEALTHY_MS:
            self._failures = 0
        self._failures += 1
        if self._failures == 1:
            return 0
        # The exponent is bounded, too: without that, the shifted number would grow with each failure.
        return min(FIRST_MS << min(self._failures - 2, 10), LONGEST_MS)
