"""Handles as text."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tarry.errors import HeaderError
from tarry.handle import Handle

_ID = "8e8c5b0c-0f5d-4b3e-9a55-0c6b1a3f4d21"


@given(
    st.from_regex(r"[a-zA-Z0-9._-]{1,60}", fullmatch=True),
    st.integers(0, 2**31 - 1),
    st.integers(0, 253_402_300_799_999),
    st.uuids().map(str),
)
def test_a_handle_written_is_read_back(topic: str, partition: int, due_ms: int, message_id: str) -> None:
    handle = Handle(topic, partition, due_ms, message_id)
    assert Handle.parse(str(handle)) == handle


def test_a_topic_with_dots_and_numbers_is_read_from_both_ends() -> None:
    handle = Handle.parse(f"1.1.2.3.4.1767225600000.{_ID.upper()}")
    assert handle == Handle("1.2.3", 4, 1_767_225_600_000, _ID)


@pytest.mark.parametrize(
    "text",
    [
        "",
        f"2.tarry.delayed.0.1.{_ID}",
        f"1.0.1.{_ID}",
        f"1..0.1.{_ID}",
        f"1.tarry.-1.1.{_ID}",
        f"1.tarry.01.1.{_ID}",
        f"1.tarry.2147483648.1.{_ID}",
        f"1.tarry.0.1.{_ID}x",
        f"1.tarry.0.1.{_ID}\n",
        f"1.ta rry.0.1.{_ID}",
        f"1.tarry.0.{'9' * 400}.{_ID}",
        "x" * 10_000,
    ],
)
def test_a_malformed_handle_is_refused_in_one_short_line(text: str) -> None:
    with pytest.raises(HeaderError) as refusal:
        Handle.parse(text)
    assert "\n" not in str(refusal.value)
    assert len(str(refusal.value)) < 200
