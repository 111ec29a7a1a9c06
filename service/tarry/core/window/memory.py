"""The memory of a partition's messages, and their average size."""

from tarry.core.message import OVERHEAD_BYTES, HeldMessage


class Memory:
    """The memory of all messages that one partition holds, in any part of its state.

    Each part adds the messages that it takes in, and subtracts those that it drops.
    """

    __slots__ = ("_counted", "_counted_bytes", "held_bytes", "largest_bytes")

    def __init__(self) -> None:
        self.held_bytes = 0
        self.largest_bytes = 0
        """The size of the largest message so far."""
        self._counted = self._counted_bytes = 0

    def count(self, message: HeldMessage) -> None:
        """Count a message that is held from now on."""
        self.held_bytes += self.learn(message)

    def learn(self, message: HeldMessage) -> int:
        """Include a message in average and maximum, whether it is held or not; return its size in bytes."""
        size = message.size_bytes
        self._counted += 1
        self._counted_bytes += size
        if size > self.largest_bytes:  # noqa: PLR1730 - max() costs a call per message
            self.largest_bytes = size
        return size

    @property
    def typical_bytes(self) -> int:
        """The average size of a message."""
        return self._counted_bytes // self._counted if self._counted else OVERHEAD_BYTES
