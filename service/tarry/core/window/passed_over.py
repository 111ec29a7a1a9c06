"""Messages of the intake that are passed over: read, due far in the future, and read again later to be filed.

Filing takes longer than reading. If the service stopped reading while messages wait to be filed, a burst for next month
would delay a message that is due in two seconds and stands behind it. So, while too many messages wait, a message that
is due far in the future is passed over: it is not held, and only its offset is noted. A second reader reads it again
when it can be filed. Until then it is not done: it holds back the low watermark, and a take-over reads it anyway.

No message that is due at or after the earliest of those passed over may fire before that one is read again: this is a
part of the gate. So the earliest due time is known, for each block of offsets.

Cost: one byte for each offset from the first that is passed over to the last.
"""

from collections import deque

from tarry.core.message import NEVER_MS, OrderKey

BLOCK = 4_096
"""The number of offsets for which one earliest due time is kept."""


class PassedOver:
    """The messages of one partition that are passed over."""

    __slots__ = ("_base", "_blocks", "_flags", "_many", "first_due_ms", "read_ms")

    def __init__(self) -> None:
        self._base = 0
        """The offset of the first flag."""
        self._flags = bytearray()
        """For each offset whether its message is passed over and not read again."""
        self._many = 0
        self._blocks: deque[tuple[int, int]] = deque()
        """Number and earliest due time of each block of offsets."""
        self.first_due_ms = NEVER_MS
        """No message that is passed over is due before this time."""
        self.read_ms = 0
        """The latest time at which one of the messages was read first."""

    def __len__(self) -> int:
        return self._many

    @property
    def span(self) -> int:
        """The number of offsets from the next one to read again to the last."""
        return len(self._flags)

    @property
    def position(self) -> int:
        """The next offset to read again."""
        return self._base

    @property
    def end(self) -> int:
        """One above the last offset that is passed over."""
        return self._base + len(self._flags)

    @property
    def gate(self) -> OrderKey:
        """The key from which on no message may fire."""
        return self.first_due_ms, -1

    def add(self, offset: int, due_ms: int, now_ms: int) -> None:
        """Pass over a message.

        Args:
            offset: its offset in the intake, above all earlier ones.
            due_ms: its due time.
            now_ms: the time at which its request was judged.
        """
        if not self._flags:
            self._base = offset
        self._flags.extend(bytes(offset - self.end))
        self._flags.append(1)
        self._many += 1
        self.read_ms = max(self.read_ms, now_ms)
        block = offset // BLOCK
        if self._blocks and self._blocks[-1][0] == block:
            due_ms = min(due_ms, self._blocks.pop()[1])
        self._blocks.append((block, due_ms))
        self.first_due_ms = min(self.first_due_ms, due_ms)

    def __contains__(self, offset: int) -> bool:
        at = offset - self._base
        return 0 <= at < len(self._flags) and self._flags[at] == 1

    def take(self, offset: int) -> None:
        """Note that the message at an offset is read again: it is held from now on."""
        self._flags[offset - self._base] = 0
        self._many -= 1

    def reach(self, position: int) -> int:
        """Note that the second reader is at this position.

        Returns:
            How many messages below it were not read again, because the log does not hold them any more.
        """
        passed = self._flags[: max(0, position - self._base)]
        missing = passed.count(1)
        self._many -= missing
        del self._flags[: len(passed)]
        self._base += len(passed)
        if not self._flags:
            self._blocks.clear()
        while self._blocks and (self._blocks[0][0] + 1) * BLOCK <= self._base:
            self._blocks.popleft()
        self.first_due_ms = min((due_ms for _, due_ms in self._blocks), default=NEVER_MS)
        return missing
