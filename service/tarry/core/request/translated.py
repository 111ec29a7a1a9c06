"""Messages whose records have the headers of another scheduler."""

from tarry.core.message import FiledMessage, Headers
from tarry.core.progress.source import INTAKE
from tarry.core.request.dialects import Dialect
from tarry.core.request.request import Request

_NAMES_BYTES = 80
"""The size on the wire of the names of added headers and of the numbers in their values."""


class TranslatedMessage(FiledMessage):
    """A message whose target receives another key and other headers than the original record has.

    `key` and `headers` are those to deliver. `original_key` and `original_headers` are those of the record: a dead
    letter has them, and a bucket stores them, so that they are translated again when the bucket is read.

    Args:
        dialect: the dialect of the headers.
        request: the parsed request.
        offset: the offset in the intake.
        key: the original key.
        value: the original value.
        headers: the original headers.
        timestamp_ms: the timestamp of the record in the intake.
        intake: the intake's topic.
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
        due_ms, target, target_partition, message_id, carries, _, _, _ = request
        delivered = dialect.delivered_key(headers or [], key)
        super().__init__(due_ms, offset, delivered, value, headers, carries, target, target_partition, message_id)
        self.source, self.offset = INTAKE, offset
        self.original_key = key
        self.dialect = dialect
        self.timestamp_ms = timestamp_ms
        self.intake = intake

    @property
    def headers(self) -> Headers:
        """The headers to deliver, in their order."""
        if not self.carries:
            return []
        return self.dialect.delivered_headers(self.original_headers, self.original_key, self.timestamp_ms, self.intake)

    @property
    def size_bytes(self) -> int:
        """The approximate memory that the message takes; never less than its size on the wire."""
        return super().size_bytes + len(self.original_key or b"") + len(self.intake) + _NAMES_BYTES
