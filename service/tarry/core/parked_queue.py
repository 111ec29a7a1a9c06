"""What is parked for one target: messages that are whole in memory, and behind them places of others.

A place is due time, offset in the intake, the log that the message stands in and where, and its size: what is needed to
read it again in its turn.
"""

from array import array
from collections import deque
from collections.abc import Iterator, Sequence

from tarry.core.message import HeldMessage
from tarry.core.source import Source

Origin = tuple[Source, int]
"""The log that a message stands in, and where in it."""

PLACE_BYTES = 36


class Places:
    """Of messages in order: when each is due, its place among equals, the log that it stands in and where, its size."""

    __slots__ = ("due_ms", "levels", "offsets", "sequences", "sizes", "slots")

    def __init__(self) -> None:
        self.due_ms = array("q")
        self.sequences = array("q")
        self.levels = array("h")
        self.slots = array("h")
        self.offsets = array("q")
        self.sizes = array("q")

    def __len__(self) -> int:
        return len(self.offsets)

    def at(self, index: int) -> tuple[int, int]:
        """Due time and sequence."""
        return self.due_ms[index], self.sequences[index]

    def origins(self) -> Iterator[Origin]:
        """The log of each, and its offset there."""
        return zip(map(Source, self.levels, self.slots), self.offsets, strict=True)

    def insert(self, at: int, messages: Sequence[HeldMessage]) -> None:
        """Put the places of messages where they belong."""
        self.due_ms[at:at] = array("q", [message.due_ms for message in messages])
        self.sequences[at:at] = array("q", [message.sequence for message in messages])
        self.levels[at:at] = array("h", [message.source.level for message in messages])
        self.slots[at:at] = array("h", [message.source.slot for message in messages])
        self.offsets[at:at] = array("q", [message.offset for message in messages])
        self.sizes[at:at] = array("q", [message.size_bytes for message in messages])

    def first(self, many: int) -> "Places":
        """The first of them."""
        few = Places()
        for name in self.__slots__:
            setattr(few, name, getattr(self, name)[:many])
        return few

    def drop(self, many: int) -> None:
        """Forget the first of them."""
        for name in self.__slots__:
            del getattr(self, name)[:many]


class ParkedQueue:
    """What is parked for one target."""

    __slots__ = ("places", "whole", "whole_bytes")

    def __init__(self) -> None:
        self.whole: deque[HeldMessage] = deque()
        self.whole_bytes = 0
        self.places = Places()

    def __len__(self) -> int:
        return len(self.whole) + len(self.places)

    @property
    def first(self) -> tuple[int, int] | None:
        """Due time and sequence of what comes next."""
        if self.whole:
            return place_of(self.whole[0])
        return self.places.at(0) if self.places else None

    def put(self, message: HeldMessage) -> int:
        """Put a message where it is due, which is the end but for a clock that stepped back; the memory it frees."""
        at = len(self.places)
        while at and self.places.at(at - 1) > place_of(message):
            at -= 1
        if at or (self.places and not self.whole):
            self.places.insert(at, [message])
            return message.size_bytes - PLACE_BYTES
        at = len(self.whole)
        while at and place_of(self.whole[at - 1]) > place_of(message):
            at -= 1
        self.whole.insert(at, message)
        self.whole_bytes += message.size_bytes
        return 0

    def shed(self, at_least_bytes: int) -> int:
        """Keep the places of the last whole messages; how much memory that frees."""
        gone: list[HeldMessage] = []
        freed = 0
        while self.whole and freed < at_least_bytes:
            message = self.whole.pop()
            gone.append(message)
            self.whole_bytes -= message.size_bytes
            freed += message.size_bytes - PLACE_BYTES
        gone.reverse()
        self.places.insert(0, gone)
        return freed


def place_of(message: HeldMessage) -> tuple[int, int]:
    """Due time and sequence."""
    return message.due_ms, message.sequence
