"""What an exclusive writer writes, and what it reads back: records that say where their source stood.

Each has two headers beside the application's own:

- `tarry-position`: where the source stands behind this record, as the application put it. Nobody else compares it.
- `tarry-writer`: which writer wrote it, and in which of its writes: `<16 hex digits>/<number>`. By this, and not by the
  position, a write is known again: several records may have one position.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from confluent_kafka import Message

from tarry.client.record import to_bytes
from tarry.errors import HeaderError
from tarry.kafka.record_headers import headers_of
from tarry.units import shown

POSITION: Final = "tarry-position"
WRITER: Final = "tarry-writer"

SourceHeaders = Mapping[str, str | bytes | None] | Sequence[tuple[str, str | bytes | None]]


@dataclass(frozen=True, slots=True)
class SourceRecord:
    """A record to be written.

    Args:
        position: where the source goes on once this is written; text is sent as UTF-8.
        value: the payload; text is sent as UTF-8, None as Kafka's null.
        key: the key, likewise.
        headers: the application's own: a mapping, or pairs where a name stands more than once.
    """

    position: str | bytes
    value: str | bytes | None
    key: str | bytes | None = None
    headers: SourceHeaders = ()


@dataclass(frozen=True, slots=True)
class LastRecord:
    """The last committed record of a partition.

    Args:
        position: its `tarry-position`; None where an exclusive writer did not write it.
        offset: its place in the partition.
        writer: its `tarry-writer`; empty where an exclusive writer did not write it.
    """

    position: bytes | None
    offset: int
    writer: str = ""

    def is_same(self, other: "LastRecord") -> bool:
        """Whether the two are of one write, or, where no exclusive writer wrote them, one record."""
        return self.writer == other.writer and (self.writer != "" or self.offset == other.offset)


@dataclass(frozen=True, slots=True)
class WireRecord:
    """A record as the client library takes it."""

    position: bytes
    key: bytes | None
    value: bytes | None
    headers: list[tuple[str, str | bytes | None]]


def to_wire(record: SourceRecord, writer: str) -> WireRecord:
    """Check a record, and add what is read back.

    Raises:
        HeaderError: it cannot be sent.
    """
    position = to_bytes(record.position, "position")
    if position is None:
        raise HeaderError("position: needs text or bytes")
    own = list(record.headers.items() if isinstance(record.headers, Mapping) else record.headers)
    headers: list[tuple[str, str | bytes | None]] = []
    for name, value in own:
        if name in {POSITION, WRITER}:
            raise HeaderError(f"headers: {name} is the writer's own")
        headers.append((name, to_bytes(value, f"headers: {shown(name)}")))
    headers += [(POSITION, position), (WRITER, writer.encode())]
    return WireRecord(position, to_bytes(record.key, "key"), to_bytes(record.value, "value"), headers)


def last_record(message: Message) -> LastRecord:
    """Read back a record of the partition."""
    headers = dict(headers_of(message))
    position, writer = headers.get(POSITION), headers.get(WRITER)
    return LastRecord(
        position if isinstance(position, bytes) else None,
        message.offset() or 0,
        writer.decode(errors="replace") if isinstance(writer, bytes) else "",
    )
