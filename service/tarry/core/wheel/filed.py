"""A message as it lies in a bucket: as it came to the intake, and one header that says what was made of it.

The header is packed, the last of all, and taken off again before the message travels on. With it a message needs not
be read as a request a second time, and keeps its due time, its place in the intake, which decides between equal due
times, and its id through any number of buckets:

    version u8 | due_ms i64 | offset in the intake i64 | target's partition or -1 i32 | flags u8 | id, 36 | target

The flags are 1 where other headers travel on, 2 for a cancel, whose due time and id are those of its message, and 4 for
a message in a dialect: behind the target then stand, after a space each, the dialect's name, the timestamp of the
record in the intake, and the intake.
"""

import struct
from struct import Struct
from sys import intern

from tarry.core.message import FiledMessage, Headers, HeldCancel, HeldMessage
from tarry.core.progress.source import Source
from tarry.core.request.dialects import DIALECTS
from tarry.core.request.request import Request
from tarry.core.request.translated import TranslatedMessage

FILED = "tarry-filed"

_VERSION = 1
_FORM = Struct(">BqqiB36s")
_CARRIES, _CANCEL, _TRANSLATED = 1, 2, 4


def filed_headers(message: HeldMessage) -> list[tuple[str, str | bytes | None]]:
    """The headers with which a message is filed."""
    flags = (_CARRIES if message.carries else 0) | (_CANCEL if type(message) is HeldCancel else 0)
    text = message.target
    if isinstance(message, TranslatedMessage):
        flags |= _TRANSLATED
        text = f"{text} {message.dialect.name} {message.timestamp_ms} {message.intake}"
    packed = _FORM.pack(_VERSION, message.due_ms, message.sequence, message.target_partition, flags, message.id)
    return [*message.original_headers, (FILED, packed + text.encode())]


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
        version, due_ms, sequence, target_partition, flags, message_id = _FORM.unpack_from(packed)
    except struct.error as error:
        raise ValueError("a record whose header is cut off") from error
    if version != _VERSION:
        raise ValueError(f"a record of version {version}, and only {_VERSION} is known here")
    carries, text = bool(flags & _CARRIES), packed[_FORM.size :].decode()
    message: FiledMessage
    if flags & _TRANSLATED:
        target, name, timestamp_ms, intake = text.split(" ")
        if name not in DIALECTS:
            raise ValueError(f"a record in a dialect that is not known here: {name}")
        dialect = DIALECTS[name]
        request = Request(due_ms, intern(target), target_partition, message_id, carries, dialect)
        message = TranslatedMessage(dialect, request, sequence, key, value, headers[:-1], int(timestamp_ms), intake)
    else:
        kind = HeldCancel if flags & _CANCEL else FiledMessage
        message = kind(due_ms, sequence, key, value, headers[:-1], carries, intern(text), target_partition, message_id)
    message.source, message.offset = source, offset
    return message
