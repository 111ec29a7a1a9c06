"""Messages that were due and wait for their target: whole in memory, and beyond a share of it by their place alone.

A queue for each target, in the order of (due time, offset). Its first part is whole; from some message on,
only due time, offset and size are kept, and what is parked behind them goes there too. When the whole part has been
delivered, the next stretch of places is read again from the intake and becomes the whole part:

    park     5 6 7 8                      whole 5 6 7 8
    shed     no room for more than two    whole 5 6       places 7 8
    park     9                            whole 5 6       places 7 8 9
    take     5 6                          whole           places 7 8 9
    wanted   room for two                 7 8 are to be read again
    restore  7 8                          whole 7 8       places 9

Cost: 24 bytes a place; parking and taking are O(1), shedding and restoring one copy of the target's places.
"""

from array import array
from collections import deque
from collections.abc import Iterable, Sequence
from itertools import accumulate, takewhile

from tarry.core.message import HeldMessage

PLACE_BYTES = 24


class Wanted:
    """A stretch of places of one target that are to be read again, and what was read of it so far.

    Args:
        topic: the target.
        due_ms: of each message, in order.
        offsets: of each in the intake.
        size_bytes: what they will take.
    """

    __slots__ = ("_due_ms", "_found", "_offsets", "end", "size_bytes", "start", "topic")

    def __init__(self, topic: str, due_ms: Sequence[int], offsets: Sequence[int], size_bytes: int) -> None:
        self.topic = topic
        self.size_bytes = size_bytes
        self._offsets = offsets
        self._due_ms = dict(zip(offsets, due_ms, strict=True))
        self._found: dict[int, HeldMessage] = {}
        self.start = min(offsets)
        """Where in the intake to begin to read."""
        self.end = max(offsets) + 1
        """Where to end."""

    def __len__(self) -> int:
        return len(self._offsets)

    def due_ms(self, offset: int) -> int | None:
        """When the message at an offset is due; None where it is not wanted."""
        return self._due_ms.get(offset)

    def put(self, message: HeldMessage) -> None:
        """Take in a message that was read again."""
        self._found[message.sequence] = message

    @property
    def is_complete(self) -> bool:
        """Whether all were read."""
        return len(self._found) == len(self._offsets)

    def messages(self) -> list[HeldMessage]:
        """All of them in their order, once it is complete."""
        return [self._found[offset] for offset in self._offsets]


class _Queue:
    """What is parked for one target."""

    __slots__ = ("due_ms", "offsets", "sizes", "whole", "whole_bytes")

    def __init__(self) -> None:
        self.whole: deque[HeldMessage] = deque()
        self.whole_bytes = 0
        self.due_ms = array("q")
        self.offsets = array("q")
        self.sizes = array("q")

    def __len__(self) -> int:
        return len(self.whole) + len(self.offsets)

    @property
    def first(self) -> tuple[int, int] | None:
        """Due time and offset of what comes next."""
        if self.whole:
            return _place(self.whole[0])
        return (self.due_ms[0], self.offsets[0]) if self.offsets else None

    def put(self, message: HeldMessage) -> int:
        """Put a message where it is due, which is the end but for a clock that stepped back; the memory it frees."""
        at = len(self.offsets)
        while at and (self.due_ms[at - 1], self.offsets[at - 1]) > (message.due_ms, message.sequence):
            at -= 1
        if at or (self.offsets and not self.whole):
            self.due_ms.insert(at, message.due_ms)
            self.offsets.insert(at, message.sequence)
            self.sizes.insert(at, message.size_bytes)
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
        self.due_ms[:0] = array("q", [message.due_ms for message in gone])
        self.offsets[:0] = array("q", [message.sequence for message in gone])
        self.sizes[:0] = array("q", [message.size_bytes for message in gone])
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
        if queue is None or queue.whole or not queue.offsets:
            return None
        many = max(1, sum(1 for _ in takewhile(lambda total: total <= limit_bytes, accumulate(queue.sizes))))
        return Wanted(topic, queue.due_ms[:many], queue.offsets[:many], sum(queue.sizes[:many]))

    def restore(self, wanted: Wanted) -> int:
        """Put back messages that were read again, all that were wanted; nothing where they are no longer next.

        Returns:
            How much memory they take.
        """
        queue = self._queues.get(wanted.topic)
        many = len(wanted)
        messages = wanted.messages()
        if queue is None or queue.offsets[:many] != array("q", [message.sequence for message in messages]):
            return 0
        del queue.due_ms[:many], queue.offsets[:many], queue.sizes[:many]
        queue.whole.extend(messages)
        size = sum(message.size_bytes for message in messages)
        queue.whole_bytes += size
        return size - many * PLACE_BYTES

    def _tidy(self, topic: str) -> None:
        queue = self._queues.get(topic)
        if queue is not None and not len(queue):
            del self._queues[topic]
