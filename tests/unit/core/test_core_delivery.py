"""Headers of deliveries and of dead letters, and results, which are JSON in every case."""

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tarry.core.batch import Answer, Resolution
from tarry.core.delivery import (
    answer_result,
    dead_headers,
    dead_result,
    delivery_headers,
    filed_cancel_result,
    fired_result,
    quoted,
    resolution_results,
    source_prefix,
    stub_headers,
)
from tarry.core.message import DeadMessage, Headers, HeldCancel, HeldMessage
from tarry.core.progress.source import INTAKE
from tarry.core.request.occurrence import Occurrence
from tarry.headers import DUE_MS, ERROR, ERROR_DETAIL, ID, SOURCE, STUB, TARGET, ErrorCode, Outcome

MESSAGE_ID = b"6f1c1d2e-0000-4000-8000-000000000001"
SCHEDULE_ID = b"6f1c1d2e-0000-4000-8000-000000000002"


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


def test_a_stub_says_where_the_whole_record_is_and_has_no_other_header() -> None:
    assert stub_headers(dead([("a", b"1")]), b"i/0/42", "i.level-1/3/7") == [
        (ID, MESSAGE_ID),
        (SOURCE, b"i/0/42"),
        (STUB, b"i.level-1/3/7"),
        (ERROR, b"no-target"),
        (ERROR_DETAIL, b"why (too large for this topic: the whole record is i.level-1/3/7)"),
    ]


def cancel_at(offset: int) -> HeldCancel:
    return HeldCancel(1_700_000_000_123, offset, None, None, [], False, "", -1, MESSAGE_ID)


def occurrence() -> Occurrence:
    message = Occurrence(1_700_000_000_123, 42, b"k", b"v", [], False, "orders", -1, MESSAGE_ID)
    message.source, message.offset = INTAKE, 42
    message.schedule, message.number = SCHEDULE_ID, 3
    return message


def told(resolution: Resolution) -> list[tuple[bytes, dict[str, object]]]:
    return [(key, json.loads(value)) for key, value in resolution_results(resolution, b"i/0/", 9)]


RESULT = {
    "v": 1,
    "id": MESSAGE_ID.decode(),
    "source": "i/0/42",
    "due_ms": 1_700_000_000_123,
    "at_ms": 9,
    "target": "orders",
}


def test_a_duplicate_has_one_result_without_a_cancel() -> None:
    found = told(Resolution(Outcome.DUPLICATE, held([], carries=False)))
    assert found == [(MESSAGE_ID, {**RESULT, "outcome": "duplicate"})]


def test_a_cancelled_message_has_one_result_that_names_the_cancel() -> None:
    found = told(Resolution(Outcome.CANCELLED, held([], carries=False), cancel_at(50)))
    assert found == [(MESSAGE_ID, {**RESULT, "outcome": "cancelled", "cancel_source": "i/0/50"})]


def test_a_cancel_that_came_too_late_names_itself_and_no_target() -> None:
    found = told(Resolution(Outcome.CANCEL_TOO_LATE, cancel_at(50)))
    late = {**RESULT, "outcome": "cancel-too-late", "source": "i/0/50", "cancel_source": "i/0/50", "target": None}
    assert found == [(MESSAGE_ID, late)]


def test_a_cancelled_occurrence_ends_its_schedule_which_has_a_result_of_its_own() -> None:
    ended = {**RESULT, "outcome": "cancelled", "cancel_source": "i/0/50"}
    assert told(Resolution(Outcome.CANCELLED, occurrence(), cancel_at(50))) == [
        (MESSAGE_ID, {**ended, "schedule": SCHEDULE_ID.decode(), "occurrence": 3}),
        (SCHEDULE_ID, {**ended, "id": SCHEDULE_ID.decode()}),
    ]


def test_a_duplicate_of_an_occurrence_ends_no_schedule() -> None:
    found = told(Resolution(Outcome.DUPLICATE, occurrence()))
    assert found == [
        (MESSAGE_ID, {**RESULT, "outcome": "duplicate", "schedule": SCHEDULE_ID.decode(), "occurrence": 3})
    ]


def test_a_filed_cancel_says_so_and_that_it_is_the_cancel() -> None:
    assert json.loads(filed_cancel_result(cancel_at(50), b"i/0/", 9)) == {
        **RESULT,
        "outcome": "cancel-filed",
        "source": "i/0/50",
        "cancel_source": "i/0/50",
        "target": None,
    }


@pytest.mark.parametrize(
    ("other", "reason", "more"),
    [
        (None, "", {}),
        (("replaced_by", 43), "", {"replaced_by": "i/0/43"}),
        (None, "one waits", {"reason": "one waits"}),
    ],
)
def test_an_answer_says_what_else_is_known_and_nothing_more(
    other: tuple[str, int] | None, reason: str, more: dict[str, str]
) -> None:
    answer = Answer(Outcome.REPLACED, MESSAGE_ID, 42, 1_700_000_000_123, "orders", other, reason)
    assert json.loads(answer_result(answer, b"i/0/", 9)) == {**RESULT, "outcome": "replaced", **more}


@settings(max_examples=100)
@given(st.text(alphabet=st.characters(codec="utf-8"), max_size=30))
def test_any_name_and_any_detail_can_be_written(text: str) -> None:
    assert json.loads(quoted(text)) == text
    assert json.loads(fired_result(held([], carries=False, target=text), b"i/0/1", 5))["target"] == text
    assert dead_headers(dead([], detail=text))[-1] == (ERROR_DETAIL, text.encode())
