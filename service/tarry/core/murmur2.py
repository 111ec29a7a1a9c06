"""Kafka's MurmurHash2, by which Java clients choose the partition of a key."""

_M = 0x5BD1E995
_SEED = 0x9747B28C
_MASK = 0xFFFFFFFF


def murmur2(key: bytes) -> int:
    """Return the 32 bits of Kafka's MurmurHash2; Java clients use the lower 31."""
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


def partition_of(key: bytes, partitions: int) -> int:
    """Return the partition of a key, in a topic with this many partitions."""
    return (murmur2(key) & 0x7FFFFFFF) % partitions
