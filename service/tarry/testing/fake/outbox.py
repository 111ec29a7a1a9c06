"""The queue of a producer: records that are not sent yet, and delivery reports that are not served yet."""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from confluent_kafka import KafkaError, Message

from tarry.kafka.types import Place
from tarry.testing.fake.log import Draft

Report = Callable[[KafkaError | None, Any], None]
"""A delivery report: the error, and the record."""


@dataclass(slots=True, eq=False)
class Queued:
    """A queued record.

    Attributes:
        topic: its topic.
        partition: its partition; -1 until it can be chosen.
        draft: the record.
        report: the callback for its delivery report.
        since_ms: the monotonic time when it was queued.
        stranded: whether it was in flight after a refused record, so that the brokers refuse it as well.
    """

    topic: str
    partition: int
    draft: Draft
    report: Report | None
    since_ms: int
    stranded: bool = False
    stamp_ms: int | None = None
    """The log-append time, if the topic uses it."""

    @property
    def place(self) -> Place:
        """Its topic and partition."""
        return self.topic, self.partition


class Outbox:
    """The queue of one producer.

    Args:
        most: the largest number of records in the queue.
        most_bytes: the largest total size of the records.
        errors_only: whether only failures are reported.
    """

    def __init__(self, most: int, most_bytes: int, *, errors_only: bool) -> None:
        self._most = most
        self._most_bytes = most_bytes
        self._errors_only = errors_only
        self._waiting: list[Queued] = []
        self._reports: deque[tuple[Queued, KafkaError | None, int]] = deque()
        self._bytes = 0
        self.failures = 0
        """The number of records that have failed since the producer last set this to 0."""

    def __len__(self) -> int:
        return len(self._waiting) + len(self._reports)

    @property
    def waiting(self) -> list[Queued]:
        """The records that are not sent, in order."""
        return list(self._waiting)

    def has_room_for(self, draft: Draft) -> bool:
        """Return whether the queue has room for a record. Records without a served report count, too."""
        return len(self) < self._most and self._bytes + draft.size <= self._most_bytes

    def put(self, record: Queued) -> None:
        """Queue a record."""
        self._waiting.append(record)
        self._bytes += record.draft.size

    def settle(
        self,
        records: list[Queued],
        error: KafkaError | None,
        first_offset: int = -1001,
        stamp_ms: int | None = None,
    ) -> None:
        """Mark records as delivered or failed, and queue their delivery reports.

        Args:
            records: the records.
            error: the reason of the failure; None: they are delivered.
            first_offset: the offset of the first record.
            stamp_ms: the log-append time, if the topic uses it.
        """
        gone = set(map(id, records))
        self.failures += len(records) if error is not None else 0
        self._waiting = [record for record in self._waiting if id(record) not in gone]
        for record in records:
            record.stamp_ms = stamp_ms
        self._reports.extend((record, error, first_offset + at) for at, record in enumerate(records))

    def serve(self) -> int:
        """Call the callbacks of all queued delivery reports.

        Returns:
            The number of records with a report, including reports without a callback.
        """
        served = 0
        while self._reports:
            record, error, offset = self._reports.popleft()
            self._bytes -= record.draft.size
            served += 1
            if record.report is not None and not (error is None and self._errors_only):
                record.report(error, _message(record, error, offset))
        return served


def _message(record: Queued, error: KafkaError | None, offset: int) -> Any:
    draft = record.draft
    given: dict[str, Any] = {} if error is None else {"error": error}
    return Message(
        topic=record.topic,
        partition=record.partition,
        offset=offset,
        key=draft.key,
        value=draft.value,
        timestamp=(1, draft.timestamp_ms) if record.stamp_ms is None else (2, record.stamp_ms),
        **given,
    )
