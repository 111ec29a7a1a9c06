"""A message as it lies in a bucket: as it came to the intake, and one header that says what was made of it.

The header is packed, the last of all, and taken off again before the message travels on. With it a message needs not
be read as a request a second time, and keeps its due time, its place in the intake, which decides between equal due
times, and its id through any number of buckets:

    version u8 | due_ms i64 | offset in the intake i64 | target's partition or -1 i32 | carries u8 | id, 36 | target
"""

import struct
from struct import Struct
from sys import intern

from tarry.core.message import FiledMessage, Headers, HeldMessage
from tarry.core.source import Source

FILED = "tarry-filed"

_VERSION = 1
_FORM = Struct(">Bqqi?36s")


def filed_headers(message: HeldMessage) -> list[tuple[str, str | bytes | None]]:
    """The headers with which a message is filed."""
    packed = _FORM.pack(
        _VERSION, message.due_ms, message.sequence, message.target_partition, message.carries, message.id
    )
    return [*message.original_headers, (FILED, packed + message.target.encode())]


def read_filed(
    source: Source, offset: int, key: bytes | None, value: bytes | None, headers: Headers | None
) -> FiledMessage:
    """Read a record of a bucket.

    Args:
        source: the bucket's slot.
        offset: in it.
        key: of the record.
        value: of the record.
        headers: of the record.

    Raises:
        ValueError: it is none of ours, or of a version that is not known here.
    """
    if not headers or headers[-1][0] != FILED:
        raise ValueError("a record that the service has not filed")
    packed = headers[-1][1] or b""
    try:
        version, due_ms, sequence, target_partition, carries, message_id = _FORM.unpack_from(packed)
    except struct.error as error:
        raise ValueError("a record whose header is cut off") from error
    if version != _VERSION:
        raise ValueError(f"a record of version {version}, and only {_VERSION} is known here")
    target = intern(packed[_FORM.size :].decode())
    message = FiledMessage(due_ms, sequence, key, value, headers[:-1], carries, target, target_partition, message_id)
    message.source, message.offset = source, offset
    return message
