"""The records of an exclusive writer, which hold the position of their source.

Each has two headers besides the application's own:

- `tarry-position`: the position of the source after this record, in the application's own form. The writer never
  compares it.
- `tarry-writer`: identifies the writer and the write: `<16 hex digits>/<number>`. A write is recognised by this header,
  not by the position, because several records may have the same position.
"""

from dataclasses import dataclass
from typing import Final

from confluent_kafka import Message

from tarry.client.receipt import MessageHeaders
from tarry.client.record import to_bytes, to_headers
from tarry.errors import HeaderError
from tarry.kafka.record_headers import headers_of
from tarry.kafka.transaction import ProducedHeaders

POSITION: Final = "tarry-position"
WRITER: Final = "tarry-writer"


@dataclass(frozen=True, slots=True)
class SourceRecord:
    """A record to write.

    Args:
        position: where the source continues after this record; text is sent as UTF-8.
        value: the payload; text is sent as UTF-8, None as Kafka's null.
        key: encoded like `value`.
        headers: the application's own headers: a mapping, or pairs if a name occurs more than once.
    """

    position: str | bytes
    value: str | bytes | None
    key: str | bytes | None = None
    headers: MessageHeaders = ()


@dataclass(frozen=True, slots=True)
class LastRecord:
    """The last committed record of a partition.

    Args:
        position: its `tarry-position`; None if no exclusive writer wrote it.
        offset: its offset in the partition.
        writer: its `tarry-writer`; empty if no exclusive writer wrote it.
    """

    position: bytes | None
    offset: int
    writer: str = ""

    def is_same(self, other: "LastRecord") -> bool:
        """Return whether both are from one write; for records of other producers, whether they are the same record."""
        return self.writer == other.writer and (self.writer != "" or self.offset == other.offset)


@dataclass(frozen=True, slots=True)
class WireRecord:
    """A record in the form that the producer takes."""

    position: bytes
    key: bytes | None
    value: bytes | None
    headers: ProducedHeaders


def to_wire(record: SourceRecord, writer: str) -> WireRecord:
    """Check a record, and add the writer's two headers.

    Raises:
        HeaderError: it cannot be sent.
    """
    position = to_bytes(record.position, "position")
    if position is None:
        raise HeaderError("position: must be text or bytes")
    own = to_headers(record.headers)
    for name, _ in own:
        if name in {POSITION, WRITER}:
            raise HeaderError(f"headers: {name} is reserved for the writer")
    headers: ProducedHeaders = [*own, (POSITION, position), (WRITER, writer.encode())]
    return WireRecord(position, to_bytes(record.key, "key"), to_bytes(record.value, "value"), headers)


def last_record(message: Message) -> LastRecord:
    """Convert a record of the partition."""
    headers = dict(headers_of(message))
    position, writer = headers.get(POSITION), headers.get(WRITER)
    return LastRecord(
        position if isinstance(position, bytes) else None,
        message.offset() or 0,
        writer.decode(errors="replace") if isinstance(writer, bytes) else "",
    )
