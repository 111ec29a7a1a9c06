"""Which partition a key goes to."""

from collections import Counter
from random import Random

from tarry.testing.fake.partitioner import choose


def test_a_key_always_goes_to_the_same_partition_an_empty_one_too() -> None:
    random = Random(0)
    for key in (b"a", b""):
        assert len({choose("murmur2_random", key, 7, random) for _ in range(20)}) == 1


def test_null_keys_go_anywhere() -> None:
    random = Random(0)
    chosen = Counter(choose("murmur2_random", None, 3, random) for _ in range(60))
    assert sorted(chosen) == [0, 1, 2]
