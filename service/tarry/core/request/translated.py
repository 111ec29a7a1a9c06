"""A message that came with another scheduler's headers."""

from tarry.core.message import FiledMessage, Headers
from tarry.core.progress.source import INTAKE
from tarry.core.request.dialects import Dialect
from tarry.core.request.request import Request

_NAMES_BYTES = 80
"""What the names of added headers take on the wire, and their numbers."""


class TranslatedMessage(FiledMessage):
    """A message whose target receives another key and other headers than came.

    Its `key` and `headers` are what is delivered; `original_key` and `original_headers` are what came, for a dead
    letter, and for a bucket, where all this is told anew.

    Args:
        dialect: of its headers.
        request: what they ask for.
        offset: in the intake.
        key: as it came.
        value: as it came.
        headers: as they came.
        timestamp_ms: of the record in the intake.
        intake: its topic.
    """

    __slots__ = ("dialect", "intake", "original_key", "timestamp_ms")

    original_key: bytes | None

    def __init__(
        self,
        dialect: Dialect,
        request: Request,
        offset: int,
        key: bytes | None,
        value: bytes | None,
        headers: Headers | None,
        timestamp_ms: int,
        intake: str,
    ) -> None:
        due_ms, target, target_partition, message_id, carries, _ = request
        delivered = dialect.delivered_key(headers or [], key)
        super().__init__(due_ms, offset, delivered, value, headers, carries, target, target_partition, message_id)
        self.source, self.offset = INTAKE, offset
        self.original_key = key
        self.dialect = dialect
        self.timestamp_ms = timestamp_ms
        self.intake = intake

    @property
    def headers(self) -> Headers:
        """The headers that are delivered, in their order."""
        if not self.carries:
            return []
        return self.dialect.delivered_headers(self.original_headers, self.original_key, self.timestamp_ms, self.intake)

    @property
    def size_bytes(self) -> int:
        """About how much memory it takes; no less than it takes on the wire."""
        return super().size_bytes + len(self.original_key or b"") + len(self.intake) + _NAMES_BYTES
