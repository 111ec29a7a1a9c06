"""Partitioners, which choose a partition for a key."""

import zlib
from random import Random

from tarry.core.murmur2 import partition_of


def choose(partitioner: str, key: bytes | None, partitions: int, random: Random) -> int:
    """Return the partition for a key. Some partitioners choose a random partition for a null key.

    Args:
        partitioner: the partitioner, by librdkafka's name.
        key: the record's key.
        partitions: the number of partitions.
        random: for the random choices.
    """
    if partitioner.startswith("murmur2"):
        if key is None and partitioner == "murmur2_random":
            return random.randrange(partitions)
        return partition_of(key or b"", partitions)
    if not key:
        return random.randrange(partitions)
    return zlib.crc32(key) % partitions
