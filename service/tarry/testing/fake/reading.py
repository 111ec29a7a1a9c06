"""The reading side of a consumer: its positions in assigned partitions, and the records at them."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from confluent_kafka import OFFSET_BEGINNING, OFFSET_END, KafkaError, Message

from tarry.kafka.types import Place
from tarry.testing.fake.log import PartitionLog, Record, StoredHeaders, until_nul
from tarry.testing.fake.topics import Topics

Event = Any
"""A record or an error, as a message of the client library."""


@dataclass(slots=True)
class Cursor:
    """A consumer's position in one partition.

    Attributes:
        next: the next offset; before it is known, one of librdkafka's numbers for the ends.
        told_end: the last end that the consumer has returned as an event.
        broken: whether the position was outside of the log, so that the partition is not read any more.
        consumed: the offset after the last returned record; None before the first record.
    """

    next: int
    told_end: int = -1
    broken: bool = False
    consumed: int | None = None


class AssignedPartitions:
    """The assigned partitions.

    Args:
        topics: the topics of the cluster.
        committed: whether to read only committed records.
        tell_ends: whether the consumer returns an event at the end of a partition.
        reset: `auto.offset.reset`.
    """

    def __init__(self, topics: Topics, *, committed: bool, tell_ends: bool, reset: str) -> None:
        self._topics = topics
        self._committed = committed
        self._tell_ends = tell_ends
        self._reset = reset
        self._looked_at = -1
        """The counter of changes when there was last nothing to read."""
        self._late: list[Event] = []
        """Events of partitions that are no longer read."""
        self.cursors: dict[Place, Cursor] = {}
        self.paused: set[Place] = set()
        """The paused partitions. A partition stays paused if it is assigned again."""

    def look_again(self) -> None:
        """Check the logs again, because the assignment or the paused partitions have changed."""
        self._looked_at = -1

    def has_something(self) -> bool:
        """Return whether there is a record or an event to return."""
        changes = self._topics.changes.count
        if self._looked_at == changes:
            return False
        found = bool(self._late) or any(self._has(place, cursor) for place, cursor in self.cursors.items())
        self._looked_at = -1 if found else changes
        return found

    def drop(self, place: Place) -> None:
        """Stop reading a partition. If its position was outside of the log, a later poll still returns that error."""
        cursor = self.cursors.pop(place, None)
        if cursor is None or (log := self._log(place, cursor)) is None or self._reset != "error":
            return
        if not log.start <= cursor.next <= log.end:
            self._late += self._fall_off(place, cursor, log)

    def take(self, most: int) -> list[Event]:
        """Return records and events, partition by partition. A partition that was read goes to the end of the order."""
        found, self._late = self._late, []
        for place in list(self.cursors):
            if len(found) >= most:
                break
            cursor = self.cursors[place]
            if self._has(place, cursor):
                found += self._take(place, cursor, most - len(found))
                del self.cursors[place]
                self.cursors[place] = cursor
        return found

    def waited_ms(self, found: Iterable[Event]) -> int:
        """Return how long the fetch of these events took."""
        return max((self._topics.of(topic).fetch_ms for topic in {event.topic() for event in found}), default=0)

    def _log(self, place: Place, cursor: Cursor) -> PartitionLog | None:
        log = self._topics.find(place)
        if log is None or place in self.paused or cursor.broken or self._topics.is_away(place):
            return None
        if cursor.next < 0:
            cursor.next = self._resolve(log, cursor.next)
        return log

    def _resolve(self, log: PartitionLog, wanted: int) -> int:
        if wanted == OFFSET_BEGINNING:
            return log.start
        if wanted == OFFSET_END or self._reset in {"largest", "latest", "end"}:
            return self._end(log)
        return log.start

    def _end(self, log: PartitionLog) -> int:
        return log.stable_end if self._committed else log.end

    def _has(self, place: Place, cursor: Cursor) -> bool:
        log = self._log(place, cursor)
        if log is None:
            return False
        if not log.start <= cursor.next <= log.end or cursor.next < self._end(log):
            return True
        return self._tell_ends and cursor.next == self._end(log) and cursor.told_end < cursor.next

    def _take(self, place: Place, cursor: Cursor, most: int) -> list[Event]:
        log = self._log(place, cursor)
        assert log is not None  # noqa: S101 - `_has` has just found it
        if not log.start <= cursor.next <= log.end:
            return self._fall_off(place, cursor, log)
        records, cursor.next = log.read(cursor.next, most, committed=self._committed)
        if records:
            cursor.consumed = records[-1].offset + 1
            stamped = self._topics.of(place[0]).stamps
            return [_message(place, record, 2 if stamped else 1) for record in records]
        if self._tell_ends and cursor.next == self._end(log) and cursor.told_end < cursor.next:
            cursor.told_end = cursor.next
            return [_event(place, cursor.next, KafkaError(KafkaError._PARTITION_EOF))]
        return []

    def _fall_off(self, place: Place, cursor: Cursor, log: PartitionLog) -> list[Event]:
        if self._reset == "error":
            cursor.broken = True
            text = f"fetch failed due to requested offset not available on the broker (offset {cursor.next})"
            return [_event(place, cursor.next, KafkaError(KafkaError._AUTO_OFFSET_RESET, text))]
        cursor.next = self._resolve(log, -1001)
        return []


class _Unreadable(Message):
    """A record with a header whose name is not UTF-8, as the client library returns it.

    The first call of `headers` raises an error, whose cause has the first such name. Later calls return pairs in which
    the name is a null pointer; code must not touch it. Here such a pair has only its value.
    """

    raw: StoredHeaders
    refused = False

    def headers(self) -> Any:
        if not self.refused:
            self.refused = True
            try:
                _ = [name.decode() for name, _ in self.raw if isinstance(name, bytes)]
            except UnicodeDecodeError as error:
                raise SystemError("headers returned a result with an exception set") from error
        return [(value,) if isinstance(name, bytes) else (name, value) for name, value in self.raw]


def _message(place: Place, record: Record, stamp: int) -> Event:
    headers: Any = None if record.headers is None else [(until_nul(name), value) for name, value in record.headers]
    is_readable = all(isinstance(name, str) for name, _ in headers or ())
    message = (Message if is_readable else _Unreadable)(
        topic=place[0],
        partition=place[1],
        offset=record.offset,
        key=record.key,
        value=record.value,
        headers=headers if is_readable else None,
        timestamp=(stamp, record.timestamp_ms),
    )
    if isinstance(message, _Unreadable):
        message.raw = headers
    return message


def _event(place: Place, offset: int, error: KafkaError) -> Event:
    return Message(topic=place[0], partition=place[1], offset=offset, error=error)
