"""The size of a record on the wire, which brokers compare with `max.message.bytes`.

Kafka's record format, version 2 (KIP-98): numbers are zigzag varints, and null has a length of -1. In a batch of one
record, offset delta and time delta are 0 and take a byte each.

    batch     61 bytes, then its records
    record    length, attributes (a byte), time delta, offset delta, key, value, number of headers, headers
    key, value, name and value of a header    length, bytes
"""

from collections.abc import Iterable

BATCH_BYTES = 61
"""The header of a record batch."""


def batch_bytes(key: bytes | None, value: bytes | None, headers: Iterable[tuple[str, str | bytes | None]]) -> int:
    """Return the size of an uncompressed batch with this record alone: a broker with a smaller limit may refuse it."""
    count, size = 0, 3
    for name, content in headers:
        count += 1
        size += _sized(name.encode()) + _sized(content.encode() if isinstance(content, str) else content)
    size += _sized(key) + _sized(value) + _varint_bytes(count)
    return BATCH_BYTES + _varint_bytes(size) + size


def _sized(content: bytes | None) -> int:
    return 1 if content is None else _varint_bytes(len(content)) + len(content)


def _varint_bytes(number: int) -> int:
    """Return the size of a number >= 0 as a varint: zigzag doubles the number, and a byte holds seven bits."""
    return ((number << 1).bit_length() + 6) // 7 or 1
