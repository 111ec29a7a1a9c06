"""Due times that follow the order of a log, and the one that a recovery must know.

With a fixed delay no record is due before the one in front of it. Log-append time can step back when a partition's
leader moves, so due times are held up to the highest so far; and a recovery, which begins in the middle of the log,
must know the due time of the record just below its begin.
"""

from collections import deque


class LogOrder:
    """The due times of a partition with a fixed delay.

    Args:
        below_ms: the due time of the record below the first, if there is any.
    """

    __slots__ = ("_below_ms", "_held", "_last_ms")

    def __init__(self, below_ms: int | None) -> None:
        self._below_ms = below_ms
        self._last_ms = below_ms or 0
        self._held: deque[tuple[int, int]] = deque()

    def next(self, offset: int, due_ms: int) -> int:
        """The due time of the next record: its own, or that of the one in front of it."""
        self._last_ms = max(due_ms, self._last_ms)
        self._held.append((offset, self._last_ms))
        return self._last_ms

    def below(self, low: int) -> int | None:
        """The due time of the last record below an offset; None where there was none yet."""
        held = self._held
        below_ms = self._below_ms
        for offset, due_ms in held:
            if offset >= low:
                break
            below_ms = due_ms
        return below_ms

    def trim(self, low: int) -> None:
        """Forget what is below an offset that is committed."""
        held = self._held
        while held and held[0][0] < low:
            self._below_ms = held.popleft()[1]
