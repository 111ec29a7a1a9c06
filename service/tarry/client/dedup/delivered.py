"""A delivered message: a record of a target topic, with the service's headers parsed."""

import re
from typing import NamedTuple, Self

from confluent_kafka import Message

from tarry.headers import DUE_MS, ID, SOURCE, parse_id
from tarry.kafka.record_headers import headers_of

_EPOCH_MS = re.compile(rb"[0-9]{1,15}")


class DeliveredMessage(NamedTuple):
    """A message as a reader gets it.

    Attributes:
        topic: the target topic.
        partition: the partition in the target topic.
        offset: the offset in that partition.
        timestamp_ms: the record's timestamp, epoch milliseconds: when it was delivered.
        key: the key.
        value: the value.
        headers: all headers.
        id: the `tarry-id`, 36 characters in lower case; None: there is none, or it is not a UUID.
        due_ms: the due time (`tarry-due-ms`), epoch milliseconds; None: the header is missing or malformed.
        source: `topic/partition/offset` of the intake's record (`tarry-source`); None: the header is missing.
    """

    topic: str
    partition: int
    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: list[tuple[str, bytes | None]]
    id: str | None
    due_ms: int | None
    source: str | None

    @classmethod
    def of(cls, record: Message) -> Self:
        """Convert a record, which must not be an error event.

        A header whose name is not UTF-8 gets a substitute name: the client library cannot return such names.
        """
        topic, partition, offset = record.topic() or "", record.partition() or 0, record.offset() or 0
        headers = headers_of(record)
        ours = dict(headers)
        id_ = parse_id(ours.get(ID))
        due_ms, source = ours.get(DUE_MS), ours.get(SOURCE)
        return cls(
            topic,
            partition,
            offset,
            record.timestamp()[1],
            record.key(),
            record.value(),
            headers,
            id_.decode() if id_ is not None else None,
            int(due_ms) if due_ms is not None and _EPOCH_MS.fullmatch(due_ms) else None,
            source.decode(errors="replace") if source is not None else None,
        )
