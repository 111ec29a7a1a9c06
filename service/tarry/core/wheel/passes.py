"""A bucket that is larger than the memory there is for it: its messages in order, as many at a time as fit.

A bucket that turns out larger while it is read whole goes on so: what was read of it is offered to the first pass.

Each pass goes over the whole bucket again and keeps the first messages, by (due time, offset in the intake), of those
behind the last one of the pass before. What does not fit is let go, to be read again by the next pass. So the order
holds, also where all are due in one millisecond, and memory holds no more than one pass.

    bucket 5 3 9 1 7, room for two      pass 1: 1 3      pass 2: 5 7      pass 3: 9, and it is the last
"""

from heapq import heappop, heappush

from tarry.core.message import HeldMessage, OrderKey


class Passes:
    """The passes over one bucket.

    Args:
        start_ms: where the bucket's time begins.
        limit_bytes: how much memory a pass may take; one message is taken in any case.
    """

    __slots__ = ("_bytes", "_kept", "_let_go", "_limit_bytes", "gate", "is_oversized", "is_scanning")

    def __init__(self, start_ms: int, limit_bytes: int) -> None:
        self._limit_bytes = limit_bytes
        self.gate: OrderKey = (start_ms, -1)
        """What stands before it has been handed out."""
        self.is_scanning = True
        self.is_oversized = False
        """Whether one pass was too few, or will be."""
        self._let_go: OrderKey | None = None
        self._bytes = 0
        self._kept: list[tuple[int, int, HeldMessage]] = []

    @property
    def room_bytes(self) -> int:
        """What the pass that is going on may still take."""
        return max(0, self._limit_bytes - self._bytes) if self.is_scanning else 0

    def begin(self, limit_bytes: int) -> None:
        """Begin the next pass."""
        self.is_scanning, self._let_go, self._limit_bytes = True, None, limit_bytes

    def offer(self, message: HeldMessage) -> int:
        """Keep a message if it is among the first behind the last pass.

        Returns:
            By how many bytes what is kept has grown, or shrunk.
        """
        key = (message.due_ms, message.sequence)
        # Behind one that was let go none is kept, though a small one might fit.
        if key < self.gate or (self._let_go is not None and key > self._let_go):
            return 0
        before = self._bytes
        heappush(self._kept, (-message.due_ms, -message.sequence, message))
        self._bytes += message.size_bytes
        while self._bytes > self._limit_bytes and len(self._kept) > 1:
            due_ms, sequence, last = heappop(self._kept)
            self._bytes -= last.size_bytes
            self._let_go = (-due_ms, -sequence)
            self.is_oversized = True
        return self._bytes - before

    def end(self) -> tuple[list[HeldMessage], bool]:
        """The bucket was read to its end.

        Returns:
            What the pass has kept, and whether it was the last one.
        """
        messages = [message for _, _, message in sorted(self._kept, key=lambda kept: (-kept[0], -kept[1]))]
        self._kept, self._bytes, self.is_scanning = [], 0, False
        if messages:
            self.gate = (messages[-1].due_ms, messages[-1].sequence + 1)
        return messages, self._let_go is None
