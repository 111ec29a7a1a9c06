"""Which partition a key goes to."""

from collections import Counter
from random import Random

import pytest

from tarry.core.murmur2 import murmur2
from tarry.testing.fake.partitioner import choose


@pytest.mark.parametrize(
    ("key", "code"),
    [
        (b"21", -973932308),
        (b"foobar", -790332482),
        (b"a-little-bit-long-string", -985981536),
        (b"a-little-bit-longer-string", -1486304829),
        (b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8", -58897971),
        (b"abc", 479470107),
    ],
)
def test_the_partitioner_uses_the_hash_of_javas_clients(key: bytes, code: int) -> None:
    assert murmur2(key) == code & 0xFFFFFFFF


def test_a_key_always_goes_to_the_same_partition_an_empty_one_too() -> None:
    random = Random(0)
    for key in (b"a", b""):
        assert len({choose("murmur2_random", key, 7, random) for _ in range(20)}) == 1


def test_null_keys_go_anywhere() -> None:
    random = Random(0)
    chosen = Counter(choose("murmur2_random", None, 3, random) for _ in range(60))
    assert sorted(chosen) == [0, 1, 2]
