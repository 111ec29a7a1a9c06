"""A delivered message: a record of a target, with what the service says of it."""

import re
from typing import NamedTuple, Self

from confluent_kafka import Message

from tarry.headers import DUE_MS, ID, SOURCE, parse_id
from tarry.kafka.record_headers import headers_of

_EPOCH_MS = re.compile(rb"[0-9]{1,15}")


class DeliveredMessage(NamedTuple):
    """A message as a reader gets it.

    Attributes:
        topic: where it was read.
        partition: of that topic.
        offset: in that partition.
        timestamp_ms: of the record, epoch milliseconds: when it was delivered.
        key: its key.
        value: its value.
        headers: all of them.
        id: its `tarry-id`, 36 characters in lower case; None where it has none that is a UUID.
        due_ms: when it was due, epoch milliseconds; None where nothing says so.
        source: `topic/partition/offset` of the intake's record; None where nothing says so.
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
        """Read a record, which must not be an error.

        A header whose name is not UTF-8 has a stand-in for it: the client library cannot give such names out.
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
