"""Partitioners: which partition a key goes to."""

import zlib
from random import Random

_M = 0x5BD1E995
_SEED = 0x9747B28C
_MASK = 0xFFFFFFFF


def murmur2(key: bytes) -> int:
    """Kafka's 32 bits of MurmurHash2, of which Java's clients take the lower 31."""
    code = _SEED ^ len(key)
    whole = len(key) - len(key) % 4
    for at in range(0, whole, 4):
        word = int.from_bytes(key[at : at + 4], "little") * _M & _MASK
        word = (word ^ word >> 24) * _M & _MASK
        code = code * _M & _MASK ^ word
    if whole < len(key):
        code = (code ^ int.from_bytes(key[whole:], "little")) * _M & _MASK
    code = (code ^ code >> 13) * _M & _MASK
    return code ^ code >> 15


def choose(partitioner: str, key: bytes | None, partitions: int, random: Random) -> int:
    """A partition for a key; a null key goes anywhere.

    Args:
        partitioner: librdkafka's name.
        key: of the record.
        partitions: how many there are.
        random: for null keys.
    """
    if partitioner.startswith("murmur2"):
        if key is None and partitioner == "murmur2_random":
            return random.randrange(partitions)
        return (murmur2(key or b"") & 0x7FFFFFFF) % partitions
    if not key:
        return random.randrange(partitions)
    return zlib.crc32(key) % partitions
