"""The form of a message in a bucket: the record as it came to the intake, with one more header.

That header, `tarry-filed`, is the last one, and is removed when the bucket is read. It holds the parsed request, so
that a message is parsed only once. It keeps the due time, the id, and the offset in the intake (which decides the order
of equal due times) through any number of buckets:

    version u8 | due_ms i64 | offset in the intake i64 | target's partition or -1 i32 | flags u8 | id, 36 | target

In version 2, which only messages with a name have, the hash of the name (16 bytes) is before the target.

Flags: 1 if other headers are delivered; 2 for a cancel, whose due time and id are those of its message; 4 for a message
in a dialect; 8 for one that expires, whose original headers say when; 16 for an occurrence of a schedule. In a dialect,
the target is followed by the name of the dialect, the timestamp of the record in the intake, and the intake, each after
a space. For an occurrence, it is followed by the schedule's id and the number of the occurrence.
"""

from struct import Struct
from sys import intern

from tarry.core.expiry import NO_EXPIRY_MS
from tarry.core.message import FiledMessage, Headers, HeldCancel, HeldMessage
from tarry.core.progress.name_index import HASH_BYTES
from tarry.core.progress.source import Source
from tarry.core.request.dialects import DIALECTS
from tarry.core.request.header_values import expiry_in
from tarry.core.request.occurrence import Occurrence
from tarry.core.request.request import Request
from tarry.core.request.translated import TranslatedMessage

FILED = "tarry-filed"

_VERSION, _NAMED_VERSION = 1, 2
_FORM = Struct(">BqqiB36s")
_START = Struct(">Bq")
_CARRIES, _CANCEL, _TRANSLATED, _EXPIRES, _REPEATED = 1, 2, 4, 8, 16


def filed_headers(message: HeldMessage) -> list[tuple[str, str | bytes | None]]:
    """Return the headers with which a message is filed."""
    flags = (_CARRIES if message.carries else 0) | (_CANCEL if type(message) is HeldCancel else 0)
    if message.expires_ms < NO_EXPIRY_MS:
        flags |= _EXPIRES
    text, kind = message.target, type(message)
    if kind is FiledMessage or kind is HeldMessage:
        pass
    elif isinstance(message, TranslatedMessage):
        flags |= _TRANSLATED
        text = f"{text} {message.dialect.name} {message.timestamp_ms} {message.intake}"
    elif isinstance(message, Occurrence):
        flags |= _REPEATED
        text = f"{text} {message.schedule.decode()} {message.number}"
    name = message.name
    version = _VERSION if name is None else _NAMED_VERSION
    packed = _FORM.pack(version, message.due_ms, message.sequence, message.target_partition, flags, message.id)
    return [*message.original_headers, (FILED, (packed if name is None else packed + name) + text.encode())]


def due_ms_of(headers: Headers | None) -> int:
    """Return the due time of a record of a level's log.

    Raises:
        ValueError: the service has not filed the record, or a later version of tarry has.
    """
    return int(_START.unpack_from(_packed(headers or []))[1])


def target_of(headers: Headers | None) -> str | None:
    """Return the target of a record that the service has filed; None if it has not.

    Raises:
        ValueError: a later version of tarry has filed the record.
    """
    if not headers or headers[-1][0] != FILED:
        return None
    # In a dialect, and for an occurrence, more follows after a space.
    packed = _packed(headers)
    return packed[_text_at(packed) :].decode().partition(" ")[0]


def _packed(headers: Headers) -> bytes:
    if not headers or headers[-1][0] != FILED:
        raise ValueError("a record that the service has not filed")
    packed = headers[-1][1] or b""
    if len(packed) < _FORM.size:
        raise ValueError(f"a record whose header {FILED} is truncated")
    if packed[0] != _VERSION:
        if packed[0] != _NAMED_VERSION:
            known = f"this version of tarry reads up to {_NAMED_VERSION}"
            raise ValueError(f"a record filed in version {packed[0]}; {known}")
        if len(packed) < _text_at(packed):
            raise ValueError(f"a record whose header {FILED} is truncated")
    return packed


def _text_at(packed: bytes) -> int:
    """Return where the target begins."""
    return _FORM.size + (HASH_BYTES if packed[0] == _NAMED_VERSION else 0)


def read_filed(
    source: Source, offset: int, key: bytes | None, value: bytes | None, headers: Headers | None
) -> FiledMessage:
    """Parse a record of a bucket.

    Args:
        source: the bucket.
        offset: the record's offset in the level's log.
        key: the record's key.
        value: the record's value.
        headers: the record's headers.

    Raises:
        ValueError: the service has not filed the record, or a later version of tarry has.
    """
    headers = headers or []
    packed = _packed(headers)
    _, due_ms, sequence, target_partition, flags, message_id = _FORM.unpack_from(packed)
    begin = _text_at(packed)
    carries, text = bool(flags & _CARRIES), packed[begin:].decode()
    message: FiledMessage
    if flags <= _CARRIES:
        message = FiledMessage(
            due_ms, sequence, key, value, headers[:-1], carries, intern(text), target_partition, message_id
        )
    elif flags & _TRANSLATED:
        target, name, timestamp_ms, intake = text.split(" ")
        if name not in DIALECTS:
            raise ValueError(f"a record in a dialect that this version of tarry does not know: {name}")
        dialect = DIALECTS[name]
        request = Request(due_ms, intern(target), target_partition, message_id, carries, dialect)
        message = TranslatedMessage(dialect, request, sequence, key, value, headers[:-1], int(timestamp_ms), intake)
    elif flags & _REPEATED:
        target, schedule, number = text.split(" ")
        message = Occurrence(
            due_ms, sequence, key, value, headers[:-1], carries, intern(target), target_partition, message_id
        )
        message.schedule, message.number = schedule.encode(), int(number)
    else:
        kind = HeldCancel if flags & _CANCEL else FiledMessage
        message = kind(due_ms, sequence, key, value, headers[:-1], carries, intern(text), target_partition, message_id)
    message.source, message.offset = source, offset
    if begin > _FORM.size:
        message.name = packed[_FORM.size : begin]
    if flags & _EXPIRES:
        message.expires_ms = expiry_in(headers)
    return message
