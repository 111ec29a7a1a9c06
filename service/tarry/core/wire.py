"""How many bytes a record takes on its way to a broker, which is what brokers hold against `max.message.bytes`.

Kafka's record format, version 2 (KIP-98): numbers are zigzag varints, and a null is a length of -1. A batch of one
record has offset and time deltas of 0, of a byte each.

    batch     61 bytes, then its records
    record    length, attributes (a byte), time delta, offset delta, key, value, number of headers, headers
    key, value, name and value of a header    length, bytes
"""

from collections.abc import Iterable

BATCH_BYTES = 61


def batch_bytes(key: bytes | None, value: bytes | None, headers: Iterable[tuple[str, str | bytes | None]]) -> int:
    """The size of a batch that holds this record alone, uncompressed: what no broker's limit may be below."""
    count, size = 0, 3
    for name, content in headers:
        count += 1
        size += _sized(name.encode()) + _sized(content.encode() if isinstance(content, str) else content)
    size += _sized(key) + _sized(value) + _varint_bytes(count)
    return BATCH_BYTES + _varint_bytes(size) + size


def _sized(content: bytes | None) -> int:
    return 1 if content is None else _varint_bytes(len(content)) + len(content)


def _varint_bytes(number: int) -> int:
    """Of a number >= 0: zigzag doubles it, and a byte holds seven bits."""
    return ((number << 1).bit_length() + 6) // 7 or 1
