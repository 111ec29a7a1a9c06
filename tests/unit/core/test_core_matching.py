"""Which cancel meets which message, and which message is known already."""

import pytest

from tarry.core import matching
from tarry.core.matching import Matching
from tarry.core.message import HeldCancel, HeldMessage

ID, OTHER = b"8e8c5b0c-0f5d-4b3e-9a55-0c6b1a3f4d21", b"00000000-0000-4000-8000-000000000000"


def message(due_ms: int, sequence: int = 0, id_: bytes = ID) -> HeldMessage:
    return HeldMessage(due_ms, sequence, None, None, None, False, "orders", -1, id_)


def cancel(due_ms: int, sequence: int = 1, id_: bytes = ID) -> HeldCancel:
    return HeldCancel(due_ms, sequence, None, None, None, False, "", -1, id_)


def test_a_cancel_meets_the_message_of_its_id_and_due_time_alone() -> None:
    known = Matching(20_000)
    first, later, other = message(5_000), message(5_001, 1), message(5_000, 2, OTHER)
    assert all(known.remember(one) for one in (first, later, other))
    assert known.message_of(cancel(5_000)) is first
    assert known.message_of(cancel(5_001)) is later
    assert known.message_of(cancel(5_000, id_=OTHER)) is other
    assert known.message_of(cancel(5_002)) is None
    assert known.message_of(cancel(65_000)) is None


def test_a_message_meets_the_cancel_that_waits_for_it_once() -> None:
    known = Matching(20_000)
    first, second = cancel(5_000, 1), cancel(5_000, 2)
    known.wait(first)
    known.wait(second)
    assert known.cancel_of(message(5_001)) is None
    assert known.cancel_of(message(5_000)) is first
    assert known.cancel_of(message(5_000)) is None


def test_a_cancel_that_is_due_waits_no_longer() -> None:
    known = Matching(20_000)
    first, second = cancel(5_000, 1), cancel(5_000, 2)
    known.wait(first)
    known.expire(second)
    assert known.cancel_of(message(5_000)) is first
    known.wait(first)
    known.expire(first)
    assert known.cancel_of(message(5_000)) is None


def test_one_like_it_is_known_until_it_was_due_long_enough_ago() -> None:
    known = Matching(20_000)
    first, twin = message(5_000), message(5_001, 1)
    assert known.remember(first)
    assert known.remember(twin)
    assert not known.remember(message(5_000, 2))
    known.done([first, twin])
    assert known.message_of(cancel(5_000)) is None, "what is done cannot be cancelled"
    known.advance(25_000)
    assert not known.remember(message(5_000, 3))
    assert not known.remember(message(5_001, 4))
    known.advance(26_000)
    assert known.remember(message(5_000, 5))


def test_one_like_a_message_that_was_cancelled_is_new() -> None:
    known = Matching(20_000)
    first, twin = message(5_000), message(5_001, 1)
    known.remember(first)
    known.remember(twin)
    known.forget(twin)
    assert known.message_of(cancel(5_001)) is None
    assert known.remember(message(5_001, 2))
    known.forget(first)
    assert known.remember(message(5_000, 3))


def test_of_very_many_those_that_were_due_first_are_forgotten_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(matching, "MOST_KNOWN", 2)
    known = Matching(20_000)
    for due_ms in (1_000, 2_000, 3_000):
        known.remember(message(due_ms))
    known.advance(1_000)
    assert not known.remember(message(1_000)), "it may not be due yet"
    known.advance(2_000)
    assert known.remember(message(1_000))
    assert not known.remember(message(2_000))
