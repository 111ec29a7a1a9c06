"""How much memory the messages of a partition take, and what one of them is to be expected to take."""

from tarry.core.message import OVERHEAD_BYTES, HeldMessage


class Memory:
    """The memory of one partition's messages, all that are held in whatever part of its state.

    Each part adds and takes away what it takes in and lets go.
    """

    __slots__ = ("_counted", "_counted_bytes", "held_bytes", "largest_bytes")

    def __init__(self) -> None:
        self.held_bytes = 0
        self.largest_bytes = 0
        """The most that a single message has taken so far."""
        self._counted = self._counted_bytes = 0

    def count(self, message: HeldMessage) -> None:
        """A message was taken in."""
        self.held_bytes += message.size_bytes
        self.learn(message)

    def learn(self, message: HeldMessage) -> None:
        """Take note of how large a message is, whether it is held or not."""
        size = message.size_bytes
        self._counted += 1
        self._counted_bytes += size
        if size > self.largest_bytes:  # noqa: PLR1730 - max() costs a call a message
            self.largest_bytes = size

    @property
    def typical_bytes(self) -> int:
        """What a message takes on average."""
        return self._counted_bytes // self._counted if self._counted else OVERHEAD_BYTES
