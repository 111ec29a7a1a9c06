"""What a partition holds in memory: one compact object a message.

A message's `sequence` is its offset in the intake, wherever it is read from: with the due time it gives the order, and
it is unique among what a partition holds.
"""

# marshal is the quickest way to one object and back, and what it packs never leaves the process.
from marshal import dumps as pack
from marshal import loads as unpack
from operator import attrgetter
from typing import NamedTuple

from tarry.core.progress.source import INTAKE, Source
from tarry.headers import TAKEN_OFF
from tarry.timer import TimerTaskEntry

Headers = list[tuple[str, bytes | None]]

OrderKey = tuple[int, int]
"""Due time and offset in the intake: the order in which messages fire."""

BY_DUE = attrgetter("due_ms", "sequence")
"""Sorts messages into the order in which they fire."""

OVERHEAD_BYTES = 480
"""What a held message costs beside its payload: the object, its id, its place in wheel and ledger. Measured."""

STUB_KEY_BYTES = 1_024
"""A longer key is left out of a stub."""

STUB_DETAIL = 1_000
"""So many characters of the reason are in a stub."""


class HeldMessage(TimerTaskEntry):
    """A message that waits in the hot wheel; its `sequence` is its offset in the intake.

    The headers it came with are kept in packed form, all of them: one bytes object is a quarter of the memory of
    their tuples and strings, and a message that turns out undeliverable when it fires goes to the dead letters as it
    came.

    Args:
        due_ms: when it is due.
        offset: in the intake.
        key: as it came.
        value: as it came.
        headers: as they came, request headers included.
        carries: whether any of them travel on.
        target: the topic to deliver to.
        target_partition: the partition asked for, or -1.
        message_id: 36 ASCII characters.
    """

    __slots__ = ("carries", "id", "key", "packed_headers", "target", "target_partition", "value")

    def __init__(  # not the parent's: this runs once a message, and the links are set by the wheel
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

    @property
    def source(self) -> Source:
        """The log that it was read from."""
        return INTAKE

    @property
    def offset(self) -> int:
        """Where in that log it stands."""
        return self.sequence

    @property
    def location(self) -> tuple[Source, int]:
        """Where it stands."""
        return self.source, self.offset

    @property
    def original_key(self) -> bytes | None:
        """The key as it came."""
        return self.key

    @property
    def original_headers(self) -> Headers:
        """The headers as they came."""
        return unpack(self.packed_headers) if self.packed_headers else []  # noqa: S302 - packed above

    @property
    def headers(self) -> Headers:
        """The headers that travel on, in their order."""
        return [header for header in self.original_headers if header[0] not in TAKEN_OFF] if self.carries else []

    def empty(self) -> int:
        """Let go of all that a delivery would need: there will be none.

        Returns:
            How much less memory it takes.
        """
        before = self.size_bytes
        self.key = self.value = self.packed_headers = None
        return before - self.size_bytes

    @property
    def size_bytes(self) -> int:
        """About how much memory it takes."""
        return (
            OVERHEAD_BYTES
            + (len(self.key) if self.key else 0)
            + (len(self.value) if self.value else 0)
            + (len(self.packed_headers) if self.packed_headers else 0)
        )


class FiledMessage(HeldMessage):
    """A message that waits to be filed to a bucket of the overflow wheel, or that was read from one."""

    __slots__ = ("offset", "source")

    source: Source
    offset: int


class HeldCancel(FiledMessage):
    """A cancel that waits for its message; its due time and id are the handle's, and it has no target."""

    __slots__ = ()


class DeadMessage(NamedTuple):
    """A record that can never be delivered, with all that it came with.

    Attributes:
        sequence: its offset in the intake.
        headers: the original ones, request headers included.
        code: an error code of the header convention.
        detail: one line for people.
        id: 36 ASCII characters: its own where it is readable, else the one derived from its place.
        due_ms: where it is known.
        target: where it is known.
        source: the log that it was read from.
        offset: where in that log it stands.
        is_stub: whether value and headers are left out: they stand in that log.
        stranger: `topic/partition/offset` of a record of a bucket that the service has not filed; else empty.
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
    stranger: bytes = b""

    def named_from(self, prefix: bytes) -> bytes:
        """Its place as results name it; `prefix` is that of its intake's partition."""
        return self.stranger or prefix + b"%d" % self.sequence

    @property
    def location(self) -> tuple[Source, int]:
        """Where it stands; its sequence alone may be that of another, where the service has not filed it."""
        return self.source, self.offset

    def as_stub(self) -> "DeadMessage":
        """What is written in place of a letter that is too large: no value, no headers, and a key if it is short."""
        key = self.key if len(self.key or b"") <= STUB_KEY_BYTES else None
        return self._replace(key=key, value=None, headers=[], detail=self.detail[:STUB_DETAIL], is_stub=True)

    @property
    def size_bytes(self) -> int:
        """About how much memory it takes, unpacked headers included."""
        headers = sum(OVERHEAD_BYTES // 2 + len(name) + len(value or b"") for name, value in self.headers)
        return OVERHEAD_BYTES + len(self.key or b"") + len(self.value or b"") + headers

    @classmethod
    def of(cls, message: HeldMessage, code: str, detail: str) -> "DeadMessage":
        """A message that was found undeliverable when it fired."""
        return cls(
            message.sequence,
            message.original_key,
            message.value,
            message.original_headers,
            code,
            detail,
            message.id,
            message.due_ms,
            message.target,
            message.source,
            message.offset,
        )
