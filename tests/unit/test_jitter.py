"""The jitter of a message: the same on every side, and even over the window."""

from collections import Counter
from hashlib import blake2b
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tarry.jitter import jitter_ms


@pytest.mark.parametrize(
    ("message_id", "window_ms", "later_ms"),
    [
        ("00000000-0000-0000-0000-000000000000", 1_000, 529),
        ("00000000-0000-0000-0000-000000000000", 300_000, 254_529),
        ("8e8c5b0c-0f5d-4b3e-9a55-0c6b1a3f4d21", 300_000, 10_350),
        ("8e8c5b0c-0f5d-4b3e-9a55-0c6b1a3f4d21", 86_400_000, 14_410_350),
        ("ffffffff-ffff-ffff-ffff-ffffffffffff", 300_000, 280_920),
        ("ffffffff-ffff-ffff-ffff-ffffffffffff", 1, 0),
    ],
)
def test_the_vectors_of_the_documentation(message_id: str, window_ms: int, later_ms: int) -> None:
    assert jitter_ms(message_id.encode(), window_ms) == later_ms


@given(st.uuids(), st.integers(1, 10**18))
def test_it_is_a_hash_of_the_ids_bytes_within_the_window(message_id: UUID, window_ms: int) -> None:
    digest = blake2b(message_id.bytes, digest_size=16).digest()
    found = jitter_ms(str(message_id).encode(), window_ms)
    assert found == int.from_bytes(digest[:8], "big") % window_ms
    assert 0 <= found < window_ms


def test_many_ids_are_even_over_the_window() -> None:
    found = Counter(jitter_ms(str(UUID(int=number)).encode(), 10) for number in range(10_000))
    assert set(found) == set(range(10))
    assert all(900 < count < 1_100 for count in found.values())
