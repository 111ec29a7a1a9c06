"""The parked messages of one target: whole messages, and behind them the places of others."""

from collections import deque
from collections.abc import Callable, Iterable

from tarry.core.message import HeldMessage, OrderKey
from tarry.core.wheel.places import ParkedPlaces


class ParkedQueue:
    """The parked messages of one target.

    Args:
        let_go: called with messages of which only the places are kept from now on.
    """

    __slots__ = ("_let_go", "places", "whole", "whole_bytes")

    def __init__(self, let_go: Callable[[Iterable[HeldMessage]], None]) -> None:
        self._let_go = let_go
        self.whole: deque[HeldMessage] = deque()
        self.whole_bytes = 0
        self.places = ParkedPlaces()

    def __len__(self) -> int:
        return len(self.whole) + len(self.places)

    @property
    def first(self) -> OrderKey | None:
        """Due time and sequence of the next message; None if the queue is empty."""
        if self.whole:
            return key_of(self.whole[0])
        return self.places.first

    def put(self, message: HeldMessage) -> int:
        """Insert a message in due order: at the end, except after the clock stepped back.

        Returns:
            The number of bytes that this frees: more than 0 if only the place is kept.
        """
        first = self.places.first
        if first is not None and (not self.whole or first <= key_of(message)):
            before = self.places.size_bytes
            self.places.put(message)
            self._let_go((message,))
            return message.size_bytes + before - self.places.size_bytes
        at = len(self.whole)
        while at and key_of(self.whole[at - 1]) > key_of(message):
            at -= 1
        self.whole.insert(at, message)
        self.whole_bytes += message.size_bytes
        return 0

    def shed(self, at_least_bytes: int) -> int:
        """Keep only the places of the last whole messages, to free memory.

        Args:
            at_least_bytes: the size of the messages to replace, at least, if there are that many.

        Returns:
            The number of bytes that this frees, less the memory of the places.
        """
        gone: list[HeldMessage] = []
        before, freed = self.places.size_bytes, 0
        while self.whole and freed < at_least_bytes:
            message = self.whole.pop()
            gone.append(message)
            self.whole_bytes -= message.size_bytes
            freed += message.size_bytes
        gone.reverse()
        self.places.put_first(gone)
        self._let_go(gone)
        return freed + before - self.places.size_bytes


def key_of(message: HeldMessage) -> OrderKey:
    """Return the key by which the queue is ordered."""
    return message.due_ms, message.sequence
