"""The messages that a partition holds in memory: one compact object for each message.

The `sequence` of a message is its offset in the intake, also when the message is read from a bucket. Due time and
sequence together give the order of delivery. The sequence is unique among the messages that a partition holds.
"""

# marshal packs headers into one object faster than the alternatives, and the packed bytes never leave the process.
from marshal import dumps as pack
from marshal import loads as unpack
from operator import attrgetter
from typing import NamedTuple

from tarry.core.expiry import NO_EXPIRY_MS
from tarry.core.progress.source import INTAKE, Source
from tarry.headers import TAKEN_OFF
from tarry.timer import TimerTaskEntry

Headers = list[tuple[str, bytes | None]]

OrderKey = tuple[int, int]
"""Due time and offset in the intake: messages fire in this order."""

NEVER_MS = 1 << 62
"""A time that is later than all due times."""

BY_DUE = attrgetter("due_ms", "sequence")
"""Sort key for messages: the order in which they fire."""

OVERHEAD_BYTES = 480
"""Memory of a held message beside its payload: the object, its id, its entries in wheel and ledger. Measured."""

STUB_KEY_BYTES = 1_024
"""The longest key that a stub carries; a longer key is left out, so that the stub stays small."""

STUB_DETAIL = 1_000
"""The number of characters of the error detail that a stub carries; the rest is cut off."""


def order_key(message: "HeldMessage") -> OrderKey:
    """Return the key of a message in the order of delivery."""
    return message.due_ms, message.sequence


class HeldMessage(TimerTaskEntry):
    """A message that waits in memory; its `sequence` is its offset in the intake.

    All headers of the original record are kept, in packed form. One bytes object takes a quarter of the memory of the
    tuples and strings. All are needed, because a message that cannot be delivered becomes a dead letter with its
    original headers.

    Args:
        due_ms: the due time.
        offset: the offset in the intake.
        key: the record's key.
        value: the record's value.
        headers: the record's headers, request headers included.
        carries: whether at least one header is delivered to the target.
        target: the topic to deliver to.
        target_partition: the requested partition, or -1.
        message_id: 36 ASCII characters.
        expires_ms: it is delivered at this time at the latest.
    """

    __slots__ = (
        "carries",
        "expires_ms",
        "id",
        "key",
        "name",
        "packed_headers",
        "target",
        "target_partition",
        "value",
    )

    name: bytes | None
    """The hash of its key and name; None for a message without a name."""
    expires_ms: int
    """It is delivered at this time at the latest; `NO_EXPIRY_MS` for a message without an expiry."""

    def __init__(  # does not call the parent's, for speed: this runs once per message, and the wheel sets the links
        self,
        due_ms: int,
        offset: int,
        key: bytes | None,
        value: bytes | None,
        headers: Headers | None,
        carries: bool,
        target: str,
        target_partition: int,
        message_id: bytes,
        expires_ms: int = NO_EXPIRY_MS,
    ) -> None:
        self.due_ms = due_ms
        self.sequence = offset
        self.bucket = None
        self.key = key
        self.value = value
        self.packed_headers = pack(headers) if headers else None
        self.carries = carries
        self.target = target
        self.target_partition = target_partition
        self.id = message_id
        self.name = None
        self.expires_ms = expires_ms

    @property
    def source(self) -> Source:
        """The log that the message was read from."""
        return INTAKE

    @property
    def offset(self) -> int:
        """The offset of the message in that log."""
        return self.sequence

    @property
    def location(self) -> tuple[Source, int]:
        """The log and the offset that the message was read from."""
        return self.source, self.offset

    @property
    def asker(self) -> bytes:
        """The id under which a sender asked for the message."""
        return self.id

    @property
    def original_key(self) -> bytes | None:
        """The key of the original record."""
        return self.key

    @property
    def original_headers(self) -> Headers:
        """All headers of the original record."""
        return unpack(self.packed_headers) if self.packed_headers else []  # noqa: S302 - packed above

    @property
    def headers(self) -> Headers:
        """The headers that are delivered to the target, in their order."""
        return [header for header in self.original_headers if header[0] not in TAKEN_OFF] if self.carries else []

    def drop_content(self) -> int:
        """Drop key, value and headers, because the message will not be delivered.

        Returns:
            The number of bytes that this frees.
        """
        before = self.size_bytes
        self.key = self.value = self.packed_headers = None
        return before - self.size_bytes

    @property
    def size_bytes(self) -> int:
        """The approximate memory that the message takes."""
        return (
            OVERHEAD_BYTES
            + (len(self.key) if self.key else 0)
            + (len(self.value) if self.value else 0)
            + (len(self.packed_headers) if self.packed_headers else 0)
        )


class FiledMessage(HeldMessage):
    """A message that waits to be filed to a bucket of the overflow wheel, or that was read from a bucket."""

    __slots__ = ("offset", "source")

    source: Source
    offset: int


class HeldCancel(FiledMessage):
    """A cancel that waits for its message. Its due time and id are those of the handle; it has no target."""

    __slots__ = ()


class HeldPurge(HeldMessage):
    """A purge: when it is due, the messages that are parked for its target become dead letters."""

    __slots__ = ()


class DeadMessage(NamedTuple):
    """A record that can never be delivered, with its original key, value and headers.

    Attributes:
        sequence: the offset in the intake; for a record that the service has not filed, its offset in the bucket.
        headers: the original headers, request headers included.
        code: an error code of the header convention.
        detail: one line for people.
        id: 36 ASCII characters: the record's own id if it is readable, else one derived from topic, partition, offset.
        due_ms: the due time, or None if it is not known.
        target: the target, or None if it is not known.
        source: the log that the record was read from.
        offset: the record's offset in that log.
        is_stub: whether value and headers are left out; the record in that log still has them.
        unfiled_source: `topic/partition/offset` of a record in a bucket that the service has not filed; else empty.
        name: the hash of the name under which the message waits; None if it does not.
        ends_schedule: whether it is an occurrence of a schedule, which ends with it.
    """

    sequence: int
    key: bytes | None
    value: bytes | None
    headers: Headers
    code: str
    detail: str
    id: bytes
    due_ms: int | None
    target: str | None
    source: Source
    offset: int
    is_stub: bool = False
    unfiled_source: bytes = b""
    name: bytes | None = None
    ends_schedule: bool = False

    def named_from(self, prefix: bytes) -> bytes:
        """Return `topic/partition/offset` as results name the record.

        Args:
            prefix: from `tarry.core.delivery.source_prefix`.
        """
        return self.unfiled_source or prefix + b"%d" % self.sequence

    @property
    def location(self) -> tuple[Source, int]:
        """The log and the offset of the record: unique, unlike the sequence of a record that was not filed by us."""
        return self.source, self.offset

    def as_stub(self) -> "DeadMessage":
        """Return the stub to write in place of a letter that is too large: a short key, no value, no headers."""
        key = self.key if len(self.key or b"") <= STUB_KEY_BYTES else None
        return self._replace(key=key, value=None, headers=[], detail=self.detail[:STUB_DETAIL], is_stub=True)

    @property
    def size_bytes(self) -> int:
        """The approximate memory that the letter takes, unpacked headers included."""
        headers = sum(OVERHEAD_BYTES // 2 + len(name) + len(value or b"") for name, value in self.headers)
        return OVERHEAD_BYTES + len(self.key or b"") + len(self.value or b"") + headers

    @classmethod
    def of(cls, message: HeldMessage, code: str, detail: str) -> "DeadMessage":
        """Return the dead letter for a message that was held and cannot be delivered."""
        return cls(
            message.sequence,
            message.original_key,
            message.value,
            message.original_headers,
            code,
            detail,
            message.asker,
            message.due_ms,
            message.target,
            message.source,
            message.offset,
            name=message.name,
            ends_schedule=message.asker != message.id,
        )
