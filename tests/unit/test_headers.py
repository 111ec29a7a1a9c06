"""Ids and topic names in the header convention."""

import uuid

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tarry.headers import (
    NAMESPACE,
    REQUEST_HEADERS,
    ErrorCode,
    Outcome,
    derived_id,
    is_legal_topic,
    owner_of_internal_topic,
    parse_cloudevents_id,
    parse_id,
)


@given(st.uuids())
def test_an_id_is_read_from_text_in_either_case_and_from_bytes(message_id: uuid.UUID) -> None:
    expected = str(message_id).encode()
    assert parse_id(expected) == expected
    assert parse_id(expected.upper()) == expected
    assert parse_id(message_id.bytes) == expected


@pytest.mark.parametrize(
    "value",
    [
        None,
        b"",
        b"1",
        b"x" * 36,
        b"8e8c5b0c-0f5d-4b3e-9a55-0c6b1a3f4d2\n",
        b"8e8c5b0c0f5d4b3e9a550c6b1a3f4d21",
        b"x" * 17,
    ],
)
def test_a_value_that_is_no_uuid_is_no_id(value: bytes | None) -> None:
    assert parse_id(value) is None


def test_a_cloudevents_id_counts_only_where_it_is_a_uuid_in_text() -> None:
    assert parse_cloudevents_id(b"8E8C5B0C-0F5D-4B3E-9A55-0C6B1A3F4D21") == b"8e8c5b0c-0f5d-4b3e-9a55-0c6b1a3f4d21"
    assert parse_cloudevents_id(b"order-1234567890") is None
    assert parse_cloudevents_id(None) is None


@given(
    st.from_regex(r"[a-zA-Z0-9._-]{1,40}", fullmatch=True),
    st.integers(0, 2**31 - 1),
    st.integers(0, 2**63 - 1),
)
def test_a_derived_id_is_the_uuid5_of_the_records_place(topic: str, partition: int, offset: int) -> None:
    expected = uuid.uuid5(uuid.uuid5(uuid.NAMESPACE_URL, "tarry"), f"{topic}/{partition}/{offset}")
    assert derived_id(topic, partition, offset) == str(expected).encode()


def test_the_namespace_never_changes() -> None:
    assert str(NAMESPACE) == str(uuid.uuid5(uuid.NAMESPACE_URL, "tarry"))


def test_a_topic_name_is_legal_where_kafka_takes_it() -> None:
    assert all(is_legal_topic(name) for name in ("a", "a.b-c_D9", "...", "x" * 249))
    assert not any(is_legal_topic(name) for name in ("", ".", "..", "x" * 250, "a b", "a/b", "ä", "a\n"))


def test_an_internal_topic_names_its_intake() -> None:
    owners = [
        owner_of_internal_topic(f"a.b.{end}")
        for end in ("results", "journal", "dead", "operations", "wheel-1", "wheel-12")
    ]
    assert owners == ["a.b"] * 6
    assert [owner_of_internal_topic(name) for name in ("a.b", "results", ".results", "a.wheel-", "a.wheel-x")] == [
        None
    ] * 5


def test_codes_and_outcomes_are_plain_text() -> None:
    assert f"{ErrorCode.NO_DELAY}" == "no-delay"
    assert f"{Outcome.CANCEL_TOO_LATE}" == "cancel-too-late"
    assert len(ErrorCode) == 29
    assert len(REQUEST_HEADERS) == 16
