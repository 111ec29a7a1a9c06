"""Passes over a bucket that is larger than the memory for it: each pass returns as many messages as fit, in order.

A bucket may turn out too large while it is read whole. Then the messages read so far are offered to the first pass.

Each pass reads the whole bucket again. Of the messages after the last one of the previous pass, it keeps the first by
(due time, offset in the intake), as many as fit. The others are dropped, to be read again by the next pass. So the
order is kept, even if all messages are due in one millisecond, and memory holds no more than one pass.

    bucket 5 3 9 1 7, room for two      pass 1: 1 3      pass 2: 5 7      pass 3: 9, and it is the last
"""

from heapq import heapify, heappop, heappush

from tarry.core.message import BY_DUE, HeldMessage, OrderKey, order_key

_FromTheLast = tuple[int, int, int, HeldMessage]
"""Due time and offset in the intake, negative; then the offset in the log, which tells copies apart; the message."""


class Passes:
    """The passes over one bucket.

    Args:
        start_ms: the start of the bucket's time range.
        limit_bytes: the most memory of a pass; one message is kept even if it is larger.
    """

    __slots__ = ("_bytes", "_first_dropped", "_heap", "_kept", "_limit_bytes", "gate", "is_oversized", "is_scanning")

    def __init__(self, start_ms: int, limit_bytes: int) -> None:
        self._limit_bytes = limit_bytes
        self.gate: OrderKey = (start_ms, -1)
        """Messages before this key were returned by earlier passes."""
        self.is_scanning = True
        """Whether a pass is reading the bucket."""
        self.is_oversized = False
        """Whether one pass is not enough for the bucket."""
        self._first_dropped: OrderKey | None = None
        self._bytes = 0
        self._kept: list[HeldMessage] = []
        """What the pass has kept, while it has room for all."""
        self._heap: list[_FromTheLast] = []
        """The same, the last one first, from the moment on at which it had not."""

    @property
    def room_bytes(self) -> int:
        """The memory that the current pass may still take; 0 between passes."""
        return max(0, self._limit_bytes - self._bytes) if self.is_scanning else 0

    def begin(self, limit_bytes: int) -> None:
        """Begin the next pass."""
        self.is_scanning, self._first_dropped, self._limit_bytes = True, None, limit_bytes

    def offer(self, message: HeldMessage) -> int:
        """Keep a message if it is among the first after the previous pass.

        Returns:
            The change of the memory of kept messages, in bytes.
        """
        key = order_key(message)
        # No message after a dropped one is kept, even if it fits: it would overtake the dropped one.
        if key < self.gate or (self._first_dropped is not None and key >= self._first_dropped):
            return 0
        before = self._bytes
        self._bytes += message.size_bytes
        if not self._heap:
            self._kept.append(message)
        else:
            heappush(self._heap, _from_the_last(message))
        if self._bytes > self._limit_bytes:
            self._drop_last()
        return self._bytes - before

    def _drop_last(self) -> None:
        """Drop the last messages, until the others fit; one is kept even if it is larger.

        After an adoption several copies may have the same key. All of them are kept, or none: the next pass begins
        behind the last key that was kept.
        """
        if not self._heap:
            self._heap = [_from_the_last(message) for message in self._kept]
            self._kept = []
            heapify(self._heap)
        while self._bytes > self._limit_bytes:
            last = [heappop(self._heap)]
            while self._heap and self._heap[0][:2] == last[0][:2]:
                last.append(heappop(self._heap))
            if not self._heap:
                self._heap = last
                return
            self._bytes -= sum(one[-1].size_bytes for one in last)
            self._first_dropped = (-last[0][0], -last[0][1])
            self.is_oversized = True

    def end(self) -> tuple[list[HeldMessage], bool]:
        """End the pass: the bucket was read to its end.

        Returns:
            The kept messages, in order, and whether this pass was the last one.
        """
        messages = sorted([*self._kept, *(one[-1] for one in self._heap)], key=BY_DUE)
        self._kept, self._heap, self._bytes, self.is_scanning = [], [], 0, False
        if messages:
            self.gate = (messages[-1].due_ms, messages[-1].sequence + 1)
        return messages, self._first_dropped is None


def _from_the_last(message: HeldMessage) -> _FromTheLast:
    return -message.due_ms, -message.sequence, message.offset, message
