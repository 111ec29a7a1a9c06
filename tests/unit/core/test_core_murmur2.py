"""The partition of a key is that of Kafka's Java clients: the values are those of Kafka's own test (`UtilsTest`)."""

import pytest

from tarry.core.murmur2 import murmur2, partition_of

OF_KAFKA = [
    (b"21", -973932308),
    (b"foobar", -790332482),
    (b"a-little-bit-long-string", -985981536),
    (b"a-little-bit-longer-string", -1486304829),
    (b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8", -58897971),
    (b"abc", 479470107),
]


@pytest.mark.parametrize(("key", "code"), OF_KAFKA)
def test_the_hash_is_that_of_kafka(key: bytes, code: int) -> None:
    assert murmur2(key) == code % (1 << 32)


@pytest.mark.parametrize(("key", "code"), OF_KAFKA)
def test_the_partition_is_chosen_by_the_lower_31_bits(key: bytes, code: int) -> None:
    assert partition_of(key, 12) == (code & 0x7FFFFFFF) % 12
