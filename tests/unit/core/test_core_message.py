"""A held message: its headers packed and back, what travels on, and what it weighs."""

from hypothesis import given, settings
from hypothesis import strategies as st

from tarry.core.message import OVERHEAD_BYTES, DeadMessage, Headers, HeldMessage
from tarry.headers import DELAY_MS, TAKEN_OFF, TARGET, ErrorCode

names = st.sampled_from(sorted(TAKEN_OFF)) | st.text(max_size=8)
headers = st.lists(st.tuples(names, st.none() | st.binary(max_size=8)), max_size=8)


def held(found: Headers | None, *, carries: bool, key: bytes | None = None, value: bytes | None = None) -> HeldMessage:
    return HeldMessage(7, 3, key, value, found, carries, "orders", -1, b"0" * 36)


@settings(max_examples=200)
@given(headers)
def test_headers_come_back_in_their_order_repeated_and_null_ones_too(found: Headers) -> None:
    message = held(found, carries=True)
    assert message.original_headers == found
    assert message.headers == [header for header in found if header[0] not in TAKEN_OFF]


def test_a_message_that_carries_nothing_on_still_knows_what_it_came_with() -> None:
    message = held([(TARGET, b"orders"), (DELAY_MS, b"5")], carries=False)
    assert message.headers == []
    assert message.original_headers == [(TARGET, b"orders"), (DELAY_MS, b"5")]


def test_no_headers_are_none_and_weigh_nothing() -> None:
    nothing: list[Headers | None] = [None, []]
    for none in nothing:
        message = held(none, carries=False)
        assert (message.original_headers, message.headers) == ([], [])
        assert message.size_bytes == OVERHEAD_BYTES


def test_key_value_and_headers_count_for_what_it_weighs() -> None:
    light = held([("a", b"1")], carries=True)
    heavy = held([("a", b"1")], carries=True, key=b"k" * 10, value=b"v" * 1_000)
    assert heavy.size_bytes - light.size_bytes == 1_010
    assert light.size_bytes > OVERHEAD_BYTES


def test_an_empty_key_or_value_is_not_a_null_one() -> None:
    message = held(None, carries=False, key=b"", value=b"")
    assert (message.key, message.value) == (b"", b"")
    assert (held(None, carries=False).key, held(None, carries=False).value) == (None, None)


def test_key_value_and_headers_count_for_what_a_dead_letter_weighs() -> None:
    light = DeadMessage.of(held([], carries=False), ErrorCode.EXPIRED, "why")
    heavy = light._replace(key=b"k" * 10, value=b"v" * 1_000, headers=[("a", b"1234"), ("bc", None)])
    assert light.size_bytes == OVERHEAD_BYTES
    assert heavy.size_bytes == OVERHEAD_BYTES + 10 + 1_000 + (OVERHEAD_BYTES // 2 + 5) + (OVERHEAD_BYTES // 2 + 2)
