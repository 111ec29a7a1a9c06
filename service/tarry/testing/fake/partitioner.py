"""Partitioners: which partition a key goes to."""

import zlib
from random import Random

from tarry.kafka.murmur2 import partition_of


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
        return partition_of(key or b"", partitions)
    if not key:
        return random.randrange(partitions)
    return zlib.crc32(key) % partitions
