"""Parked messages, which are due and wait for their target: first in memory, and if that takes long, in the parked log.

Each target has a queue in the order of delivery. What was parked for `PARK_AFTER_MS`, or does not fit its share of
memory, is filed to the parked log (`parked_log`), the head of the queue first. What is parked later waits in memory
behind it. When the target is back, the log is read a part at a time:

    park     5 6 7 8                      first -       in the log -       rest 5 6 7 8
    file     5 6                          first -       in the log 5 6     rest 7 8
    restore  5                            first 5       in the log 6       rest 7 8
    take     5                            first -       in the log 6       rest 7 8

While a transaction tries to deliver messages of a target, none of it are filed: if it aborted, they would come back
behind those. And while some are filed, none that are parked behind them are delivered.

A **purge** makes dead letters of the messages that are before it in the order of delivery. They are taken like those
that are delivered, but the target need not be back for that. While dead letters wait to be written, no more are taken.
"""

from collections import deque
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from operator import attrgetter
from typing import TYPE_CHECKING

from tarry.core.batch import UNBOUNDED, Batch, Resolution
from tarry.core.message import FiledMessage, Headers, HeldMessage, HeldPurge, OrderKey, order_key
from tarry.core.progress.source import PARKED, Source
from tarry.core.request.occurrence import Occurrence
from tarry.core.wheel.filed import read_filed, target_of
from tarry.core.wheel.runs import add_run
from tarry.core.window.memory import Memory
from tarry.core.window.names import Names
from tarry.core.window.parked_log import ParkedLog, TargetLog
from tarry.headers import ErrorCode, Outcome

if TYPE_CHECKING:
    from tarry.core.progress.journal import Range

PARK_AFTER_MS = 30_000
"""A parked message stays in memory for this long after its due time, if there is room."""

FILINGS = 3
"""How often messages that were parked for that long are filed, in the same time."""


class WantedMessages:
    """The next messages of one target to be read from the parked log, and those that were read so far.

    Args:
        log: the messages of the target.
        start: the first offset to read.
        end: one above the last one.
        limit_bytes: the most memory; the first message may take more.
        vague: other targets of which this reading finds out where their messages are.
    """

    __slots__ = ("_limit_bytes", "_log", "_met", "_vague", "end", "messages", "position", "size_bytes", "start")

    def __init__(self, log: TargetLog, start: int, end: int, limit_bytes: int, vague: Mapping[str, TargetLog]) -> None:
        self._log = log
        self._limit_bytes = limit_bytes
        self._vague = vague
        self._met: dict[str, list[Range]] = {topic: [] for topic in vague}
        """Where messages of those targets are, by target."""
        self.start = self.position = start
        self.end = end
        self.messages: list[FiledMessage] = []
        self.size_bytes = 0

    @property
    def topic(self) -> str:
        """The target."""
        return self._log.target

    def is_of(self, log: TargetLog) -> bool:
        """Whether these are the next messages of a target."""
        return self._log is log and self.start == log.position

    @property
    def is_complete(self) -> bool:
        """Whether all were read, or as many as memory has room for."""
        return self.position >= self.end or (bool(self.messages) and self.size_bytes >= self._limit_bytes)

    def accept(self, offset: int, key: bytes | None, value: bytes | None, headers: Headers | None) -> None:
        """Take in a record of the parked log, unless it is of another target, or done, or all that is wanted was read.

        Raises:
            ValueError: a later version of tarry has filed the record.
        """
        if self.is_complete or not self.position <= offset < self.end:
            return
        self.position = offset + 1
        topic = target_of(headers) or ""
        if topic == self._log.target:
            if self._log.is_wanted(offset):
                message = read_filed(self._log.source, offset, key, value, headers)
                self.messages.append(message)
                self.size_bytes += message.size_bytes
        elif topic in self._vague and offset not in self._vague[topic].found_done:
            # Also what is held: the target may leave it before this reading ends.
            add_run(self._met[topic], offset, offset + 1)

    def tell_others(self) -> None:
        """Let the other targets know where their messages are in what was read."""
        for topic, log in self._vague.items():
            log.learn(self.start, self.position, self._met[topic])

    def reach(self, position: int) -> None:
        """Note the reader's position: offsets below it that were not taken in hold nothing.

        What is read behind the message with which it was complete was not taken in for lack of memory.
        """
        if not self.is_complete:
            self.position = min(max(position, self.position), self.end)


class Parked:
    """The parked messages of one partition.

    Args:
        memory: the partition's memory.
        let_go: called with messages that are not held any more, because they are in the parked log.
        log: the parked log.
        names: knows which messages are superseded, or must not be tried yet.
    """

    __slots__ = (
        "_filed_ms",
        "_let_go",
        "_memory",
        "_names",
        "_queues",
        "limit_bytes",
        "log",
        "most_occurrences",
        "park_after_ms",
    )

    def __init__(
        self, memory: Memory, let_go: Callable[[Iterable[HeldMessage]], None], log: ParkedLog, names: Names
    ) -> None:
        self._memory = memory
        self._names = names
        self._let_go = let_go
        self.log = log
        self.limit_bytes = UNBOUNDED
        """The share of memory: more than this is filed at once."""
        self.most_occurrences = UNBOUNDED
        """The most occurrences of schedules in a batch of `take`."""
        self.park_after_ms = PARK_AFTER_MS
        """How long after its due time a message stays in memory, if there is room."""
        self._filed_ms = 0
        """When messages that were parked for long were last filed."""
        self._queues: dict[str, _Queue] = {one.target: _Queue() for one in log}

    def __len__(self) -> int:
        """The number of messages and purges in memory."""
        return sum(len(queue.first) + len(queue.rest) + len(queue.purges) for queue in self._queues.values())

    def __bool__(self) -> bool:
        """Whether a target has parked messages, in memory or in the log."""
        return bool(self._queues)

    def __contains__(self, topic: str) -> bool:
        """Whether a target has parked messages, in memory or in the log."""
        return topic in self._queues

    @property
    def targets(self) -> Iterable[str]:
        """The targets that have parked messages."""
        return self._queues

    def by_target(self) -> dict[str, int]:
        """Return the number of parked messages, in memory and in the log, for each target that has any."""
        return {
            topic: len(queue.first) + len(queue.rest) + self.log.unread(topic) for topic, queue in self._queues.items()
        }

    def park(self, message: HeldMessage) -> None:
        """Park a message after all others of its target; after a step back of the clock, in due order."""
        queue = self._queues.get(message.target)
        if queue is None:
            queue = self._queues[message.target] = _Queue()
        queue.put(message)

    def park_from(self, batch: Batch, topics: Container[str]) -> None:
        """Move a batch's messages for some targets to the end of these targets' queues."""
        due = []
        for message in batch.due:
            if message.target in topics:
                self.park(message)
            else:
                due.append(message)
        batch.due = due

    # -- delivering ---------------------------------------------------------------------------------------------------

    def take(self, topic: str, limit: int, now_ms: int, limit_bytes: int = UNBOUNDED) -> Batch:
        """Take messages of a target, in order; an empty batch if the next ones are in the log (see `wanted`).

        They are tried until `park_again` or `end_try`.

        Args:
            topic: the target.
            limit: the most messages to take.
            now_ms: wall time; no message is taken that is due later.
            limit_bytes: the most bytes to take; the first message is taken even if it is larger.
        """
        queue = self._queues.get(topic)
        if queue is None:
            return Batch()
        has_more = self._has_more(topic, queue)
        occurrences = self.most_occurrences
        batch = Batch(queue.take(limit, limit_bytes, (now_ms + 1, 0), self._names, occurrences, has_more=has_more))
        queue.is_tried = bool(batch)
        self._tidy(topic)
        return batch

    def _has_more(self, topic: str, queue: "_Queue") -> bool:
        """Whether the log has messages that are not in memory, or will have."""
        return queue.is_filed or self.log.unread(topic) > 0

    def park_again(self, topic: str, batch: Batch) -> None:
        """Put a batch back at the head of its target's queue: its transaction aborted."""
        batch.reinstate()
        queue = self._queues[topic]
        queue.is_tried = False
        queue.put_back(batch.due)
        queue.purges.extendleft(resolution.message for resolution in batch.resolutions)
        self._tidy(topic)

    def purge(self, purge: HeldPurge) -> bool:
        """Let a purge take the messages of its target that are before it; return False if nothing is parked for it."""
        queue = self._queues.get(purge.target)
        if queue is None:
            return False
        queue.purges.append(purge)
        return True

    @property
    def purged(self) -> list[str]:
        """The targets of the purges that are not done."""
        return [topic for topic, queue in self._queues.items() if queue.purges]

    def take_purged(self, topic: str, limit: int, limit_bytes: int = UNBOUNDED, *, may_be_done: bool = True) -> Batch:
        """Take messages of a target that a purge makes dead letters of, or the purge when all before it are done.

        The batch is empty if the next messages are in the log (see `wanted`). It is tried like one of `take`.

        Args:
            topic: the target.
            limit: the most messages to take.
            limit_bytes: the most bytes to take; the first message is taken even if it is larger.
            may_be_done: whether the purge may be done; if not, only messages are taken.
        """
        queue = self._queues.get(topic)
        if queue is None or not queue.purges:
            return Batch()
        purge, has_more = queue.purges[0], self._has_more(topic, queue)
        batch = Batch(queue.take(limit, limit_bytes, order_key(purge), self._names, UNBOUNDED, has_more=has_more))
        why = f"purged by the record at offset {purge.sequence} of the intake's partition"
        batch.give_up({message.sequence: (ErrorCode.PURGED, why) for message in batch.due})
        if not batch and may_be_done and queue.is_past(order_key(purge), has_more=has_more):
            batch.resolutions.append(Resolution(Outcome.PURGED, queue.purges.popleft()))
        queue.is_tried = bool(batch)
        return batch

    def end_try(self) -> None:
        """Note that the transaction with messages from `take` is over; there is one at a time."""
        for topic in [topic for topic, queue in self._queues.items() if queue.is_tried]:
            self._queues[topic].is_tried = False
            self._tidy(topic)

    def wanted(self, topic: str, limit_bytes: int) -> WantedMessages | None:
        """Return what to read from the log for a target: as much as fits into `limit_bytes`, at least one message.

        Returns:
            None if the target still has messages that come first, or no unread ones in the log: what is behind those
            may be trimmed at any time.
        """
        queue, log = self._queues.get(topic), self.log.of(topic)
        if queue is None or queue.first or queue.is_tried or log is None or not log.unread:
            return None
        if (run := log.next_run()) is None:
            return None
        return WantedMessages(log, *run, limit_bytes, self.log.vague(topic))

    def leave(self, topic: str) -> None:
        """Drop the messages of a target that were read from the log: it is still away, and they are there."""
        queue, log = self._queues.get(topic), self.log.of(topic)
        if queue is None or log is None or not queue.first or queue.is_tried or queue.purges:
            return
        log.leave([message.offset for message in queue.first])
        self._memory.held_bytes -= queue.first_bytes
        queue.first.clear()
        queue.first_bytes = 0

    def restore(self, wanted: WantedMessages) -> int:
        """Take in messages that were read from the log. Does nothing if they are no longer the next ones.

        Returns:
            How many messages the log should hold, and does not: it was read to its end. Negative if it holds more.
        """
        queue, log = self._queues.get(wanted.topic), self.log.of(wanted.topic)
        if queue is None or log is None or not wanted.is_of(log):
            return 0
        wanted.tell_others()
        for message in wanted.messages:
            log.read(message.offset)
        log.reach(wanted.position)
        queue.first.extend(wanted.messages)
        queue.first_bytes += wanted.size_bytes
        self._memory.held_bytes += wanted.size_bytes
        missing = log.write_off()
        self.log.tidy(log)
        self._tidy(wanted.topic)
        return missing

    # -- filing -------------------------------------------------------------------------------------------------------

    def has_to_file(self, now_ms: int) -> bool:
        """Whether messages are to be filed to the log now."""
        if not self._queues:
            return False
        is_excess = self._excess_bytes > 0
        if not is_excess and not self._is_time(now_ms):
            return False
        return any(
            (is_excess or queue.is_due_by(now_ms - self.park_after_ms)) and queue.may_be_filed
            for queue in self._queues.values()
        )

    def _is_time(self, now_ms: int) -> bool:
        return not self._filed_ms <= now_ms < self._filed_ms + self.park_after_ms // FILINGS

    @property
    def read_bytes(self) -> int:
        """The memory of the messages that were read from the log."""
        return sum(queue.first_bytes for queue in self._queues.values())

    @property
    def _excess_bytes(self) -> int:
        return sum(queue.rest_bytes for queue in self._queues.values()) - self.limit_bytes

    def take_to_file(self, limit: int, now_ms: int, limit_bytes: int = UNBOUNDED) -> list[tuple[HeldMessage, Source]]:
        """Take messages to file to the log, with the source of each target, those of a target next to each other.

        Args:
            limit: the most messages to take.
            now_ms: wall time.
            limit_bytes: the most bytes to take; the first message is taken even if it is larger.
        """
        taken: list[tuple[HeldMessage, Source]] = []
        excess_bytes, is_time, is_all = self._excess_bytes, self._is_time(now_ms), True
        queues = sorted(self._queues.items(), key=lambda one: one[1].rest_bytes, reverse=True)
        for topic, queue in queues if limit > 0 else ():
            source: Source | None = None
            if not queue.may_be_filed:
                continue
            while queue.rest and (excess_bytes > 0 or (is_time and queue.is_due_by(now_ms - self.park_after_ms))):
                size = queue.rest[0].size_bytes
                if self._names.is_superseded(queue.rest[0]):
                    excess_bytes -= size
                    self._names.drop(queue.pop(queue.rest))
                    continue
                if not self._names.is_admitted(queue.rest[0]):
                    break
                if taken and (len(taken) >= limit or size > limit_bytes):
                    is_all = False
                    break
                source = source or self.log.source_of(topic)
                queue.is_filed = True
                taken.append((queue.pop(queue.rest), source))
                excess_bytes -= size
                limit_bytes -= size
            self._tidy(topic)
        if taken and is_time and is_all:
            self._filed_ms = now_ms
        return taken

    def filed(self, messages: Sequence[HeldMessage]) -> None:
        """Note that messages from `take_to_file` are in the log. Call this after `log.filed`."""
        self._let_go(messages)
        for topic in {message.target for message in messages}:
            self._queues[topic].is_filed = False

    def put_back_filed(self, messages: Iterable[HeldMessage], refused: Container[int]) -> None:
        """Put messages back that were to be filed, in order: the transaction aborted.

        Args:
            messages: from `take_to_file`.
            refused: the offsets in the intake of those that the parked log's topic refuses: they become dead letters.
        """
        self._filed_ms = 0
        back: dict[str, list[HeldMessage]] = {}
        for message in messages:
            of_topic = back.setdefault(message.target, [])
            if message.sequence not in refused:
                of_topic.append(message)
        for topic, of_topic in back.items():
            queue = self._queues[topic]
            queue.is_filed = False
            queue.put_back(of_topic)
            self._tidy(topic)

    def _tidy(self, topic: str) -> None:
        queue = self._queues.get(topic)
        if queue is not None and queue.is_empty and not self.log.unread(topic):
            del self._queues[topic]


class _Queue:
    """The parked messages of one target that are in memory."""

    __slots__ = ("first", "first_bytes", "is_filed", "is_tried", "purges", "rest", "rest_bytes")

    def __init__(self) -> None:
        self.first: deque[HeldMessage] = deque()
        """The messages that were read from the log."""
        self.first_bytes = 0
        self.rest: deque[HeldMessage] = deque()
        """The messages behind those in the log."""
        self.rest_bytes = 0
        self.purges: deque[HeldMessage] = deque()
        """The purges that are not done, in order."""
        self.is_tried = False
        """Whether a transaction tries to deliver some messages."""
        self.is_filed = False
        """Whether a transaction files some messages."""

    @property
    def is_empty(self) -> bool:
        return not (self.first or self.rest or self.purges or self.is_tried or self.is_filed)

    def next_ones(self, *, has_more: bool) -> deque[HeldMessage]:
        """Return those of the messages in memory whose first one is the next to deliver; empty if it is not in memory.

        Args:
            has_more: whether the log has messages that are not in memory.
        """
        first, rest = self.first, self.rest
        if not first:
            return first if has_more else rest
        # A message that came late may be due before those in the log.
        return rest if rest and order_key(rest[0]) < order_key(first[0]) else first

    def take(
        self, limit: int, limit_bytes: int, before: OrderKey, names: Names, occurrences: int, *, has_more: bool
    ) -> list[HeldMessage]:
        """Take messages in order: at most `limit`, before a key, and the first one even if it is above the bytes.

        Of occurrences of schedules, at most `occurrences` are taken. Superseded messages are dropped, and none is taken
        whose decision is not committed.
        """
        taken: list[HeldMessage] = []
        while len(taken) < limit and (messages := self.next_ones(has_more=has_more)):
            message = messages[0]
            if names.is_superseded(message):
                names.drop(self.pop(messages))
                continue
            limit_bytes -= message.size_bytes
            if order_key(message) >= before or (limit_bytes < 0 and taken) or not names.is_admitted(message):
                break
            if isinstance(message, Occurrence):
                if not occurrences:
                    break
                occurrences -= 1
            taken.append(self.pop(messages))
        return taken

    def pop(self, messages: deque[HeldMessage]) -> HeldMessage:
        """Remove the first message of `first` or of `rest`, and return it."""
        message = messages.popleft()
        if messages is self.first:
            self.first_bytes -= message.size_bytes
        else:
            self.rest_bytes -= message.size_bytes
        return message

    def is_past(self, key: OrderKey, *, has_more: bool) -> bool:
        """Whether no message is before a key; there may be one that must not be tried yet.

        Args:
            key: the key.
            has_more: whether the log has messages that are not in memory.
        """
        messages = self.next_ones(has_more=has_more)
        return order_key(messages[0]) >= key if messages else not has_more

    @property
    def may_be_filed(self) -> bool:
        """Whether messages may be filed now."""
        return bool(self.rest) and not (self.is_tried or self.is_filed)

    def is_due_by(self, at_ms: int) -> bool:
        """Whether the next message was due at or before a time."""
        return bool(self.rest) and self.rest[0].due_ms <= at_ms

    def put(self, message: HeldMessage) -> None:
        """Park a message behind all others; after the clock stepped back, in due order."""
        rest, at = self.rest, len(self.rest)
        while at and order_key(rest[at - 1]) > order_key(message):
            at -= 1
        rest.insert(at, message)
        self.rest_bytes += message.size_bytes

    def put_back(self, messages: list[HeldMessage]) -> None:
        """Put messages back at the head, in order."""
        # In the order of the log, which is another one where a message came late.
        of_log = sorted((message for message in messages if message.source.level == PARKED), key=_offset)
        others = [message for message in messages if message.source.level != PARKED]
        self.first.extendleft(reversed(of_log))
        self.first_bytes += sum(message.size_bytes for message in of_log)
        if self.rest and others and order_key(self.rest[0]) < order_key(others[-1]):
            # The clock stepped back, and messages with earlier due times were parked meanwhile.
            for message in others:
                self.put(message)
        else:
            self.rest.extendleft(reversed(others))
            self.rest_bytes += sum(message.size_bytes for message in others)


_offset = attrgetter("offset")
