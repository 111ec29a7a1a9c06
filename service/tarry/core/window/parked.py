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

Cost: a few bytes a place (`places`); parking and taking are O(1), and what is shed and restored is packed and unpacked
once each.
"""

from collections.abc import Callable, Container, Iterable, Sequence
from itertools import islice

from tarry.core.batch import UNBOUNDED, Batch
from tarry.core.message import HeldMessage
from tarry.core.progress.source import Source
from tarry.core.wheel.places import ParkedPlace
from tarry.core.window.memory import Memory
from tarry.core.window.parked_queue import ParkedQueue, key_of


class Wanted:
    """A stretch of places of one target that are to be read again, and what was read of it so far.

    Args:
        topic: the target.
        places: of the messages, in order.
    """

    __slots__ = ("_due_ms", "_found", "_order", "size_bytes", "spans", "topic")

    def __init__(self, topic: str, places: Sequence[ParkedPlace]) -> None:
        self.topic = topic
        self.size_bytes = sum(place.size_bytes for place in places)
        self._due_ms = {(place.source, place.offset): place.due_ms for place in places}
        self._found: dict[tuple[Source, int], HeldMessage] = {}
        self.spans: dict[Source, tuple[int, int]] = {}
        """Where to begin to read each log, and where to end."""
        for source, offset in self._due_ms:
            start, end = self.spans.get(source, (offset, 0))
            self.spans[source] = min(start, offset), max(end, offset + 1)

    def __len__(self) -> int:
        return len(self._due_ms)

    def due_ms(self, source: Source, offset: int) -> int | None:
        """When the message at an offset is due; None where it is not wanted."""
        return self._due_ms.get((source, offset))

    def put(self, message: HeldMessage) -> None:
        """Take in a message that was read again."""
        self._found[message.source, message.offset] = message

    @property
    def is_complete(self) -> bool:
        """Whether all were read."""
        return len(self._found) == len(self._due_ms)

    def messages(self) -> list[HeldMessage]:
        """All of them in their order, once it is complete."""
        return [self._found[origin] for origin in self._due_ms]


class Parked:
    """What is parked of one partition.

    Args:
        memory: of the partition, of which a message takes less once only its place is kept.
        let_go: is told of messages of which only the places are kept from now on.
    """

    def __init__(self, memory: Memory, let_go: Callable[[Iterable[HeldMessage]], None]) -> None:
        self._memory = memory
        self._let_go = let_go
        self._queues: dict[str, ParkedQueue] = {}

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

    def park(self, message: HeldMessage) -> None:
        """Put a message behind all others for its target; after a step back of the clock, where it is due.

        Where the last of them is kept by its place, so is this one.
        """
        queue = self._queues.get(message.target)
        if queue is None:
            queue = self._queues[message.target] = ParkedQueue(self._let_go)
        self._memory.held_bytes -= queue.put(message)

    def park_from(self, batch: Batch, topics: Container[str]) -> None:
        """Park messages of a batch after all, behind those that are parked for the same targets already."""
        due = []
        for message in batch.due:
            if message.target in topics:
                self.park(message)
            else:
                due.append(message)
        batch.due = due

    def park_again(self, topic: str, batch: Batch) -> None:
        """Its transaction aborted: put a batch that was taken back in front of what is parked for its target."""
        batch.reinstate()
        back = batch.due
        if not back:
            return
        queue = self._queues.setdefault(topic, ParkedQueue(self._let_go))
        if (first := queue.first) is not None and first < key_of(back[-1]):
            # The clock stepped back, and others were due meanwhile.
            self._memory.held_bytes -= sum(map(queue.put, back))
            return
        queue.whole.extendleft(reversed(back))
        queue.whole_bytes += sum(message.size_bytes for message in back)

    def take(self, topic: str, limit: int, now_ms: int, limit_bytes: int = UNBOUNDED) -> Batch:
        """Take up to `limit` of a target's whole messages, in order; none that is not due by the time given.

        Of bytes no more than `limit_bytes`, but for the first message.

        Where only places are left, nothing: `wanted` says what to read again.
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
        """Keep no more whole messages than fit into so many bytes; of the others only their places."""
        while (excess := self.whole_bytes - limit_bytes) > 0:
            largest = max(self._queues.values(), key=lambda queue: queue.whole_bytes)
            self._memory.held_bytes -= largest.shed(excess)

    def wanted(self, topic: str, limit_bytes: int) -> Wanted | None:
        """What is to be read again for a target that has no whole message left: as many as fit, at least one.

        Returns:
            None where there are whole ones, or no places.
        """
        queue = self._queues.get(topic)
        if queue is None or queue.whole or not queue.places:
            return None
        return Wanted(topic, queue.places.upto(limit_bytes))

    def restore(self, wanted: Wanted) -> None:
        """Put back messages that were read again, all that were wanted; nothing where they are no longer next."""
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
