"""Headers of deliveries and of dead letters, and results, which are JSON in every case."""

import json

from hypothesis import given, settings
from hypothesis import strategies as st

from tarry.core.delivery import (
    dead_headers,
    dead_result,
    delivery_headers,
    fired_result,
    quoted,
    source_prefix,
)
from tarry.core.message import DeadMessage, Headers, HeldMessage
from tarry.core.progress.source import INTAKE
from tarry.headers import DUE_MS, ERROR, ERROR_DETAIL, ID, SOURCE, TARGET, ErrorCode

MESSAGE_ID = b"6f1c1d2e-0000-4000-8000-000000000001"


def held(headers: Headers, *, carries: bool, target: str = "orders") -> HeldMessage:
    return HeldMessage(1_700_000_000_123, 42, b"k", b"v", headers, carries, target, -1, MESSAGE_ID)


def test_the_source_is_the_place_in_the_intake() -> None:
    assert source_prefix("orders.delayed", 3) + b"%d" % 42 == b"orders.delayed/3/42"


def test_a_delivery_has_its_own_headers_and_then_ours() -> None:
    message = held([("a", b"1"), (TARGET, b"orders"), ("a", None), (DUE_MS, b"5"), ("b", b"")], carries=True)
    assert delivery_headers(message, b"orders.delayed/0/42") == [
        ("a", b"1"),
        ("a", None),
        ("b", b""),
        (ID, MESSAGE_ID),
        (DUE_MS, b"1700000000123"),
        (SOURCE, b"orders.delayed/0/42"),
    ]


def test_a_delivery_without_headers_of_its_own_has_ours() -> None:
    names = [name for name, _ in delivery_headers(held([(TARGET, b"orders")], carries=False), b"i/0/42")]
    assert names == [ID, DUE_MS, SOURCE]


def test_the_result_of_a_delivery_says_what_the_convention_says() -> None:
    result = json.loads(fired_result(held([], carries=False), b"i/0/42", 1_700_000_000_130))
    assert result == {
        "v": 1,
        "outcome": "fired",
        "id": MESSAGE_ID.decode(),
        "source": "i/0/42",
        "due_ms": 1_700_000_000_123,
        "at_ms": 1_700_000_000_130,
        "target": "orders",
    }


def dead(headers: Headers, *, due_ms: int | None = None, target: str | None = None, detail: str = "why") -> DeadMessage:
    return DeadMessage(42, None, None, headers, ErrorCode.NO_TARGET, detail, MESSAGE_ID, due_ms, target, INTAKE, 42)


def test_a_dead_letter_keeps_every_header_and_gets_the_reason_behind_them() -> None:
    came: Headers = [(TARGET, b"orders"), (TARGET, None), ("a", b"\xff"), (DUE_MS, b"5")]
    assert dead_headers(dead(came)) == [*came, (ERROR, b"no-target"), (ERROR_DETAIL, b"why")]


def test_the_result_of_a_dead_letter_tells_what_is_known() -> None:
    result = json.loads(dead_result(dead([]), b"i/0/42", 9))
    assert result == {
        "v": 1,
        "outcome": "dead",
        "id": MESSAGE_ID.decode(),
        "source": "i/0/42",
        "due_ms": None,
        "at_ms": 9,
        "target": None,
        "reason": "no-target",
    }
    known = json.loads(dead_result(dead([], due_ms=7, target="orders"), b"i/0/42", 9))
    assert (known["due_ms"], known["target"]) == (7, "orders")


@settings(max_examples=100, deadline=None)
@given(st.text(alphabet=st.characters(codec="utf-8"), max_size=30))
def test_any_name_and_any_detail_can_be_written(text: str) -> None:
    assert json.loads(quoted(text)) == text
    assert json.loads(fired_result(held([], carries=False, target=text), b"i/0/1", 5))["target"] == text
    assert dead_headers(dead([], detail=text))[-1] == (ERROR_DETAIL, text.encode())
