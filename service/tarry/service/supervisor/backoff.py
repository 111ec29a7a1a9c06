"""How long to wait before a process is started anew: pure.

The first restart is immediate: a process that was killed by accident should be back before anybody notices. One that
keeps dying is given longer and longer, so that it does not take the machine, or the brokers, with it.
"""

HEALTHY_MS = 60_000
"""Whoever was well for so long begins at no delay again."""

FIRST_MS = 1_000
LONGEST_MS = 30_000


class Backoff:
    """The delays of one process: 0, 1, 2, 4, 8, 16, 30, 30 … seconds."""

    def __init__(self) -> None:
        self._failures = 0

    def after(self, healthy_ms: int) -> int:
        """The delay after a life that ended.

        Args:
            healthy_ms: from its start to its last sign of life.

        Returns:
            Milliseconds to wait.
        """
        if healthy_ms >= HEALTHY_MS:
            self._failures = 0
        self._failures += 1
        if self._failures == 1:
            return 0
        # The exponent has a bound of its own: there is no need for numbers of a thousand digits.
        return min(FIRST_MS << min(self._failures - 2, 10), LONGEST_MS)
