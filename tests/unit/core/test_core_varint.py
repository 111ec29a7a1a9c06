"""Varints: what is packed comes back, small numbers cost a byte, and a number cut off is an error."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tarry.core.progress.journal import pack_varints, unpack_varints

numbers = st.lists(st.integers(0, 2**63) | st.integers(0, 300))


@settings(max_examples=200)
@given(numbers)
def test_numbers_come_back(given_numbers: list[int]) -> None:
    assert unpack_varints(pack_varints(given_numbers)) == given_numbers


@pytest.mark.parametrize(
    ("number", "packed"),
    [
        (0, b"\x00"),
        (127, b"\x7f"),
        (128, b"\x80\x01"),
        (129, b"\x81\x01"),
        (255, b"\xff\x01"),
        (16_383, b"\xff\x7f"),
        (16_384, b"\x80\x80\x01"),
        (2**63, b"\x80" * 9 + b"\x01"),
    ],
)
def test_seven_bits_a_byte_lowest_first(number: int, packed: bytes) -> None:
    assert pack_varints([number]) == packed
    assert unpack_varints(packed) == [number]


def test_a_large_number_among_small_ones_keeps_its_place() -> None:
    assert pack_varints([1, 200, 2]) == b"\x01\xc8\x01\x02"
    assert unpack_varints(b"\x01\xc8\x01\x02") == [1, 200, 2]


def test_no_numbers_are_no_bytes() -> None:
    assert pack_varints([]) == b""
    assert unpack_varints(b"") == []


@settings(max_examples=200)
@given(numbers.filter(lambda found: bool(found) and found[-1] > 127))
def test_a_number_that_is_cut_off_is_an_error(given_numbers: list[int]) -> None:
    with pytest.raises(ValueError, match="cut off"):
        unpack_varints(pack_varints(given_numbers)[:-1])


@settings(max_examples=200)
@given(st.binary(max_size=40))
def test_any_bytes_are_numbers_or_a_value_error(data: bytes) -> None:
    try:
        found = unpack_varints(data)
    except ValueError:
        assert data[-1] > 127
    else:
        assert not data or data[-1] < 128
        assert len(found) == sum(byte < 128 for byte in data)
