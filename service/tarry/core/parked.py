"""Messages that were due and wait for their target: whole in memory, and beyond a share of it by their place alone.

A queue for each target, in the order of (due time, offset in the intake). Its first part is whole; from some message
on, only due time, place and size are kept, and what is parked behind them goes there too. When the whole part has been
delivered, the next stretch of places is read again from the intake, or the buckets, and becomes the whole part:

    park     5 6 7 8                      whole 5 6 7 8
    shed     no room for more than two    whole 5 6       places 7 8
    park     9                            whole 5 6       places 7 8 9
    take     5 6                          whole           places 7 8 9
    wanted   room for two                 7 8 are to be read again
    restore  7 8                          whole 7 8       places 9

Cost: 36 bytes a place; parking and taking are O(1), shedding and restoring one copy of the target's places.
"""

from array import array
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate, takewhile

from tarry.core.message import HeldMessage
from tarry.core.source import Source

Origin = tuple[Source, int]
"""The log that a message stands in, and where in it."""

PLACE_BYTES = 36


class Wanted:
    """A stretch of places of one target that are to be read again, and what was read of it so far.

    Args:
        topic: the target.
        places: of the messages, in order.
    """

    __slots__ = ("_due_ms", "_found", "_order", "size_bytes", "spans", "topic")

    def __init__(self, topic: str, places: "_Places") -> None:
        self.topic = topic
        self.size_bytes = sum(places.sizes)
        self._order = list(places.origins())
        self._due_ms = dict(zip(self._order, places.due_ms, strict=True))
        self._found: dict[Origin, HeldMessage] = {}
        self.spans: dict[Source, tuple[int, int]] = {}
        """Where to begin to read each log, and where to end."""
        for source, offset in self._order:
            start, end = self.spans.get(source, (offset, 0))
            self.spans[source] = min(start, offset), max(end, offset + 1)

    def __len__(self) -> int:
        return len(self._order)

    def due_ms(self, source: Source, offset: int) -> int | None:
        """When the message at an offset is due; None where it is not wanted."""
        return self._due_ms.get((source, offset))

    def put(self, message: HeldMessage) -> None:
        """Take in a message that was read again."""
        self._found[message.source, message.offset] = message

    @property
    def is_complete(self) -> bool:
        """Whether all were read."""
        return len(self._found) == len(self._order)

    def messages(self) -> list[HeldMessage]:
        """All of them in their order, once it is complete."""
        return [self._found[origin] for origin in self._order]


class _Places:
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

    def first(self, many: int) -> "_Places":
        """The first of them."""
        few = _Places()
        for name in self.__slots__:
            setattr(few, name, getattr(self, name)[:many])
        return few

    def drop(self, many: int) -> None:
        """Forget the first of them."""
        for name in self.__slots__:
            del getattr(self, name)[:many]


class _Queue:
    """What is parked for one target."""

    __slots__ = ("places", "whole", "whole_bytes")

    def __init__(self) -> None:
        self.whole: deque[HeldMessage] = deque()
        self.whole_bytes = 0
        self.places = _Places()

    def __len__(self) -> int:
        return len(self.whole) + len(self.places)

    @property
    def first(self) -> tuple[int, int] | None:
        """Due time and sequence of what comes next."""
        if self.whole:
            return _place(self.whole[0])
        return self.places.at(0) if self.places else None

    def put(self, message: HeldMessage) -> int:
        """Put a message where it is due, which is the end but for a clock that stepped back; the memory it frees."""
        at = len(self.places)
        while at and self.places.at(at - 1) > _place(message):
            at -= 1
        if at or (self.places and not self.whole):
            self.places.insert(at, [message])
            return message.size_bytes - PLACE_BYTES
        at = len(self.whole)
        while at and _place(self.whole[at - 1]) > _place(message):
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


def _place(message: HeldMessage) -> tuple[int, int]:
    return message.due_ms, message.sequence


class Parked:
    """What is parked of one partition."""

    def __init__(self) -> None:
        self._queues: dict[str, _Queue] = {}

    def __len__(self) -> int:
        return sum(map(len, self._queues.values()))

    def __contains__(self, topic: str) -> bool:
        return topic in self._queues

    def by_target(self) -> dict[str, int]:
        """How many messages are parked for each target that has any."""
        return {topic: len(queue) for topic, queue in self._queues.items()}

    @property
    def whole_bytes(self) -> int:
        """How much memory the whole ones take."""
        return sum(queue.whole_bytes for queue in self._queues.values())

    def park(self, message: HeldMessage) -> int:
        """Put a message behind all others for its target; after a step back of the clock, where it is due.

        Returns:
            How much memory that frees: where the last of them is kept by its place, so is this one.
        """
        queue = self._queues.get(message.target)
        if queue is None:
            queue = self._queues[message.target] = _Queue()
        return queue.put(message)

    def park_in_front(self, topic: str, messages: Iterable[HeldMessage]) -> int:
        """Put messages of a target that were taken back where they were, which is in front; they come in order.

        Returns:
            How much memory that frees, as `park` does.
        """
        back = list(messages)
        if not back:
            return 0
        queue = self._queues.setdefault(topic, _Queue())
        if (first := queue.first) is not None and first < _place(back[-1]):
            return sum(map(queue.put, back))  # the clock stepped back, and others were due meanwhile
        queue.whole.extendleft(reversed(back))
        queue.whole_bytes += sum(message.size_bytes for message in back)
        return 0

    def take(self, topic: str, limit: int, now_ms: int) -> list[HeldMessage]:
        """Take up to `limit` of a target's whole messages, in order; none that is not due by the time given."""
        taken: list[HeldMessage] = []
        queue = self._queues.get(topic)
        while queue is not None and queue.whole and len(taken) < limit and queue.whole[0].due_ms <= now_ms:
            message = queue.whole.popleft()
            queue.whole_bytes -= message.size_bytes
            taken.append(message)
        self._tidy(topic)
        return taken

    def shed(self, limit_bytes: int) -> int:
        """Keep no more whole messages than fit into so many bytes.

        Returns:
            How much memory that frees.
        """
        freed = 0
        while (excess := self.whole_bytes - limit_bytes) > 0:
            freed += max(self._queues.values(), key=lambda queue: queue.whole_bytes).shed(excess)
        return freed

    def wanted(self, topic: str, limit_bytes: int) -> Wanted | None:
        """What is to be read again for a target that has no whole message left: as many as fit, at least one.

        Returns:
            None where there are whole ones, or no places.
        """
        queue = self._queues.get(topic)
        if queue is None or queue.whole or not queue.places:
            return None
        many = max(1, sum(1 for _ in takewhile(lambda total: total <= limit_bytes, accumulate(queue.places.sizes))))
        return Wanted(topic, queue.places.first(many))

    def restore(self, wanted: Wanted) -> int:
        """Put back messages that were read again, all that were wanted; nothing where they are no longer next.

        Returns:
            How much memory they take.
        """
        queue = self._queues.get(wanted.topic)
        many = len(wanted)
        messages = wanted.messages()
        if queue is None or queue.places.sequences[:many] != array("q", [message.sequence for message in messages]):
            return 0
        queue.places.drop(many)
        queue.whole.extend(messages)
        size = sum(message.size_bytes for message in messages)
        queue.whole_bytes += size
        return size - many * PLACE_BYTES

    def _tidy(self, topic: str) -> None:
        queue = self._queues.get(topic)
        if queue is not None and not len(queue):
            del self._queues[topic]
