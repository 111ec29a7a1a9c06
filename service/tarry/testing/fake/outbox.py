"""The queue of a producer: records that wait to be sent, and reports that wait to be served."""

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
    """A record on its way.

    Attributes:
        topic: where to.
        partition: which; -1 until it can be chosen.
        draft: the record.
        report: is told of its delivery.
        since_ms: monotonic: when it was queued.
        stranded: whether it was under way behind a record that was refused: the brokers do not take it either.
    """

    topic: str
    partition: int
    draft: Draft
    report: Report | None
    since_ms: int
    stranded: bool = False
    stamp_ms: int | None = None
    """The log's own time, where it stamps."""

    @property
    def place(self) -> Place:
        """Where to."""
        return self.topic, self.partition


class Outbox:
    """What a producer was given.

    Args:
        most: records.
        most_bytes: of keys and values.
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
        """How many records have failed since somebody set this to 0."""

    def __len__(self) -> int:
        return len(self._waiting) + len(self._reports)

    @property
    def waiting(self) -> list[Queued]:
        """What is not sent, in order."""
        return list(self._waiting)

    def has_room_for(self, draft: Draft) -> bool:
        """Whether one more may be queued; what is delivered but not reported takes room as well."""
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
        """These are delivered, or failed; their reports wait to be served.

        Args:
            records: which.
            error: why they failed; None: they did not.
            first_offset: of the first.
            stamp_ms: the log's own time, where it stamps.
        """
        gone = set(map(id, records))
        self.failures += len(records) if error is not None else 0
        self._waiting = [record for record in self._waiting if id(record) not in gone]
        for record in records:
            record.stamp_ms = stamp_ms
        self._reports.extend((record, error, first_offset + at) for at, record in enumerate(records))

    def serve(self) -> int:
        """Call the reports that wait.

        Returns:
            How many records they were about, reported or not.
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
