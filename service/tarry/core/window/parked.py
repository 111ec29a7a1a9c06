"""Parked messages, which are due and wait for their target: held whole, or, beyond a share of memory, as places only.

Each target has a queue in the order of (due time, offset in the intake). The first messages of a queue are whole. From
some message on, the queue keeps only places: due time, log, offset and size. A message that is parked after a place is
kept as a place, too. When the whole messages have been delivered, the next places are read again from the intake or
from buckets, and become the whole messages:

    park     5 6 7 8                      whole 5 6 7 8
    shed     no room for more than two    whole 5 6       places 7 8
    park     9                            whole 5 6       places 7 8 9
    take     5 6                          whole           places 7 8 9
    wanted   room for two                 7 8 are to be read again
    restore  7 8                          whole 7 8       places 9

Cost: a few bytes per place (`places`). Parking and taking are O(1); a message that is shed and restored is packed once
and unpacked once.
"""

from collections import deque
from collections.abc import Callable, Container, Iterable, Sequence
from itertools import islice

from tarry.core.batch import UNBOUNDED, Batch
from tarry.core.message import HeldMessage, OrderKey
from tarry.core.wheel.places import ParkedPlace, ParkedPlaces
from tarry.core.window.memory import Memory


class WantedPlaces:
    """The next places of one target, to be read again, and the messages read so far.

    Args:
        topic: the target.
        places: the places of the messages, in order.
    """

    __slots__ = ("_found", "_places", "size_bytes", "spans", "topic")

    def __init__(self, topic: str, places: Sequence[ParkedPlace]) -> None:
        self.topic = topic
        self.size_bytes = sum(place.size_bytes for place in places)
        self._places = {(place.source.level, place.offset): place for place in places}
        self._found: dict[tuple[int, int], HeldMessage] = {}
        self.spans: dict[int, tuple[int, int]] = {}
        """For the log of each level, 0 for the intake, the first offset to read, and the end."""
        for level, offset in self._places:
            start, end = self.spans.get(level, (offset, 0))
            self.spans[level] = min(start, offset), max(end, offset + 1)

    def __len__(self) -> int:
        return len(self._places)

    def place(self, level: int, offset: int) -> ParkedPlace | None:
        """Return the place of the message at an offset of a level's log; None if it is not wanted."""
        return self._places.get((level, offset))

    def put(self, message: HeldMessage) -> None:
        """Add a message that was read again."""
        self._found[message.source.level, message.offset] = message

    @property
    def is_complete(self) -> bool:
        """Whether all messages were read."""
        return len(self._found) == len(self._places)

    def messages(self) -> list[HeldMessage]:
        """Return all messages in order. Requires `is_complete`."""
        return [self._found[place] for place in self._places]


class Parked:
    """The parked messages of one partition.

    Args:
        memory: the partition's memory; a message takes less once only its place is kept.
        let_go: called with messages of which only the places are kept from now on.
    """

    def __init__(self, memory: Memory, let_go: Callable[[Iterable[HeldMessage]], None]) -> None:
        self._memory = memory
        self._let_go = let_go
        self._queues: dict[str, _ParkedQueue] = {}

    def __len__(self) -> int:
        return sum(map(len, self._queues.values()))

    def __contains__(self, topic: str) -> bool:
        return topic in self._queues

    def by_target(self) -> dict[str, int]:
        """Return the number of parked messages for each target that has any."""
        return {topic: len(queue) for topic, queue in self._queues.items()}

    @property
    def whole_bytes(self) -> int:
        """The memory of the whole messages."""
        return sum(queue.whole_bytes for queue in self._queues.values())

    def park(self, message: HeldMessage) -> None:
        """Park a message after all others of its target; after a step back of the clock, in due order.

        If only the place of the last message is kept, only the place of this one is kept.
        """
        queue = self._queues.get(message.target)
        if queue is None:
            queue = self._queues[message.target] = _ParkedQueue(self._let_go)
        self._memory.held_bytes -= queue.put(message)

    def park_from(self, batch: Batch, topics: Container[str]) -> None:
        """Move a batch's messages for some targets to the end of these targets' queues."""
        due = []
        for message in batch.due:
            if message.target in topics:
                self.park(message)
            else:
                due.append(message)
        batch.due = due

    def park_again(self, topic: str, batch: Batch) -> None:
        """Put a batch back at the head of its target's queue: its transaction aborted."""
        batch.reinstate()
        back = batch.due
        if not back:
            return
        queue = self._queues.setdefault(topic, _ParkedQueue(self._let_go))
        if (first := queue.first) is not None and first < _key_of(back[-1]):
            # The clock stepped back, and messages with earlier due times were parked meanwhile.
            self._memory.held_bytes -= sum(map(queue.put, back))
            return
        queue.whole.extendleft(reversed(back))
        queue.whole_bytes += sum(message.size_bytes for message in back)

    def take(self, topic: str, limit: int, now_ms: int, limit_bytes: int = UNBOUNDED) -> Batch:
        """Take whole messages of a target, in order; an empty batch if only places are left (see `wanted`).

        Args:
            topic: the target.
            limit: the most messages to take.
            now_ms: wall time; no message is taken that is due later.
            limit_bytes: the most bytes to take; the first message is taken even if it is larger.
        """
        taken: list[HeldMessage] = []
        queue = self._queues.get(topic)
        while queue is not None and queue.whole and len(taken) < limit and queue.whole[0].due_ms <= now_ms:
            size = queue.whole[0].size_bytes
            limit_bytes -= size
            if limit_bytes < 0 and taken:
                break
            taken.append(queue.whole.popleft())
            queue.whole_bytes -= size
        self._tidy(topic)
        return Batch(taken)

    def shed(self, limit_bytes: int) -> None:
        """Hold whole messages of at most `limit_bytes`; keep only the places of the others."""
        while (excess := self.whole_bytes - limit_bytes) > 0:
            largest = max(self._queues.values(), key=lambda queue: queue.whole_bytes)
            self._memory.held_bytes -= largest.shed(excess)

    def wanted(self, topic: str, limit_bytes: int) -> WantedPlaces | None:
        """Return the places to read again for a target: as many as fit into `limit_bytes`, at least one.

        Returns:
            None if the target still has whole messages, or has no places.
        """
        queue = self._queues.get(topic)
        if queue is None or queue.whole or not queue.places:
            return None
        return WantedPlaces(topic, queue.places.upto(limit_bytes))

    def restore(self, wanted: WantedPlaces) -> None:
        """Replace places by the messages that were read again, all that were wanted.

        Does nothing if these places are no longer the next ones.
        """
        queue = self._queues.get(wanted.topic)
        messages = wanted.messages()
        if queue is None:
            return
        next_ones = [place.sequence for place in islice(queue.places, len(messages))]
        if next_ones != [message.sequence for message in messages]:
            return
        before = queue.places.size_bytes
        queue.places.drop(len(messages))
        queue.whole.extend(messages)
        size = sum(message.size_bytes for message in messages)
        queue.whole_bytes += size
        self._memory.held_bytes += size + queue.places.size_bytes - before

    def _tidy(self, topic: str) -> None:
        queue = self._queues.get(topic)
        if queue is not None and not len(queue):
            del self._queues[topic]


class _ParkedQueue:
    """The parked messages of one target: whole messages, and after them the places of others.

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
            return _key_of(self.whole[0])
        return self.places.first

    def put(self, message: HeldMessage) -> int:
        """Insert a message in due order: at the end, except after the clock stepped back.

        Returns:
            The number of bytes that this frees: more than 0 if only the place is kept.
        """
        first = self.places.first
        if first is not None and (not self.whole or first <= _key_of(message)):
            before = self.places.size_bytes
            self.places.put(message)
            self._let_go((message,))
            return message.size_bytes + before - self.places.size_bytes
        at = len(self.whole)
        while at and _key_of(self.whole[at - 1]) > _key_of(message):
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


def _key_of(message: HeldMessage) -> OrderKey:
    """Return the key by which the queue is ordered."""
    return message.due_ms, message.sequence
