"""What a consumer reads: positions in assigned partitions, and what there is to be had at them."""

from dataclasses import dataclass
from typing import Any

from confluent_kafka import OFFSET_BEGINNING, OFFSET_END, KafkaError, Message

from tarry.kafka.place import Place
from tarry.testing.fake.log import PartitionLog, Record
from tarry.testing.fake.topics import Topics

Event = Any
"""A record or an error, as a message of the client library."""


@dataclass(slots=True)
class Cursor:
    """Where a consumer is in one partition.

    Attributes:
        next: the offset that comes next; librdkafka's numbers for the ends until it is known.
        told_end: the last end that was told.
        broken: whether it fell off the log, and is read no more.
        consumed: the offset behind the last record handed out; None before the first.
    """

    next: int
    told_end: int = -1
    broken: bool = False
    consumed: int | None = None


class Reading:
    """The assigned partitions.

    Args:
        topics: of the cluster.
        committed: whether only committed records are wanted.
        tell_ends: whether reaching an end is an event.
        reset: `auto.offset.reset`.
    """

    def __init__(self, topics: Topics, *, committed: bool, tell_ends: bool, reset: str) -> None:
        self._topics = topics
        self._committed = committed
        self._tell_ends = tell_ends
        self._reset = reset
        self._looked_at = -1
        """How many changes there had been when there was nothing to be had."""
        self.cursors: dict[Place, Cursor] = {}
        self.paused: set[Place] = set()
        """Of these nothing is wanted now; what is paused stays so when it is assigned anew."""

    def look_again(self) -> None:
        """Something else is wanted than before."""
        self._looked_at = -1

    def has_something(self) -> bool:
        """Whether there is anything to be had."""
        changes = self._topics.changes.count
        if self._looked_at == changes:
            return False
        found = any(self._has(place, cursor) for place, cursor in self.cursors.items())
        self._looked_at = -1 if found else changes
        return found

    def take(self, most: int) -> list[Event]:
        """Hand out what is there, partition by partition; whoever came first comes last next time."""
        found: list[Event] = []
        for place in list(self.cursors):
            if len(found) >= most:
                break
            cursor = self.cursors[place]
            if self._has(place, cursor):
                found += self._take(place, cursor, most - len(found))
                del self.cursors[place]
                self.cursors[place] = cursor
        return found

    def _log(self, place: Place, cursor: Cursor) -> PartitionLog | None:
        log = self._topics.find(place)
        if log is None or place in self.paused or cursor.broken or self._topics.of(place[0]).away:
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
        assert log is not None  # noqa: S101 - it was there a moment ago
        if not log.start <= cursor.next <= log.end:
            return self._fall_off(place, cursor, log)
        records, cursor.next = log.read(cursor.next, most, committed=self._committed)
        if records:
            cursor.consumed = records[-1].offset + 1
            stamped = self._topics.of(place[0]).config["message.timestamp.type"] == "LogAppendTime"
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


def _message(place: Place, record: Record, stamp: int) -> Event:
    return Message(
        topic=place[0],
        partition=place[1],
        offset=record.offset,
        key=record.key,
        value=record.value,
        headers=None if record.headers is None else list(record.headers),
        timestamp=(stamp, record.timestamp_ms),
    )


def _event(place: Place, offset: int, error: KafkaError) -> Event:
    return Message(topic=place[0], partition=place[1], offset=offset, error=error)
