"""Which message is known already."""

import tracemalloc

from tarry.core.message import HeldCancel, HeldMessage
from tarry.core.window.matching import DONE_BYTES, Matching

ID, OTHER = b"8e8c5b0c-0f5d-4b3e-9a55-0c6b1a3f4d21", b"00000000-0000-4000-8000-000000000000"


def message(due_ms: int, sequence: int = 0, id_: bytes = ID) -> HeldMessage:
    return HeldMessage(due_ms, sequence, None, None, None, False, "orders", -1, id_)


def cancel(due_ms: int, sequence: int = 1, id_: bytes = ID) -> HeldCancel:
    return HeldCancel(due_ms, sequence, None, None, None, False, "", -1, id_)


def test_messages_are_known_by_id_and_due_time() -> None:
    known = Matching(20_000)
    first, later, other = message(5_000), message(5_001, 1), message(5_000, 2, OTHER)
    assert all(known.remember(one) for one in (first, later, other))
    assert known.find(cancel(5_000)) is first
    assert known.find(cancel(5_001)) is later
    assert known.find(cancel(5_000, id_=OTHER)) is other
    assert known.find(cancel(5_002)) is None
    assert known.find(cancel(65_000)) is None


def test_one_like_it_is_known_until_it_was_due_long_enough_ago() -> None:
    known = Matching(20_000)
    first, twin = message(5_000), message(5_001, 1)
    assert known.remember(first)
    assert known.remember(twin)
    assert not known.remember(message(5_000, 2))
    known.done([first, twin])
    assert isinstance(known.find(cancel(5_000)), int), "what is done cannot be cancelled"
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
    assert known.find(cancel(5_001)) is None
    assert known.remember(message(5_001, 2))
    known.forget(first)
    assert known.remember(message(5_000, 3))


def test_one_like_another_of_the_same_id_and_second_is_known_when_the_first_of_them_is_forgotten() -> None:
    known = Matching(20_000)
    first, twin = message(5_000), message(5_001, 1)
    known.remember(first)
    known.remember(twin)
    known.forget(first)
    assert not known.remember(message(5_001, 2))
    known.done([twin])
    assert not known.remember(message(5_001, 3))


def test_one_like_another_of_the_same_id_and_second_is_known_when_the_first_of_them_is_shed() -> None:
    known = Matching(20_000)
    first, twin = message(5_000), message(5_001, 1)
    known.remember(first)
    known.remember(twin)
    known.done([first])
    known.shed(0)
    assert not known.remember(message(5_001, 2))
    assert known.remember(message(5_000, 3))


def test_a_cancelled_message_is_not_known_again_when_it_is_done() -> None:
    known = Matching(20_000)
    first = message(5_000)
    known.remember(first)
    known.forget(first)
    known.done([first])
    assert known.size_bytes == 0
    assert known.remember(message(5_000, 1))
    known.done([first])
    assert known.find(cancel(5_000)) is not None, "what came anew is still held"
    assert known.size_bytes == 0


def test_ids_due_too_long_ago_are_forgotten_and_later_ones_kept() -> None:
    known = Matching(20_000)
    known.remember(message(5_000))
    known.remember(message(900_000, 1))
    known.advance(26_000)
    assert known.remember(message(5_000, 2))
    assert not known.remember(message(900_000, 3))


def test_of_more_than_there_is_memory_for_those_that_were_due_first_are_forgotten_first() -> None:
    known = Matching(20_000)
    messages = [message(due_ms, due_ms) for due_ms in (1_000, 1_500, 2_000, 3_000)]
    for one in messages:
        known.remember(one)
    assert known.size_bytes == 0, "what is held counts as a message does"
    known.done([messages[0], *messages[2:]])
    assert known.size_bytes == 3 * DONE_BYTES
    known.shed(3 * DONE_BYTES)
    assert not known.remember(message(1_000))
    known.shed(2 * DONE_BYTES)
    assert known.size_bytes == 2 * DONE_BYTES
    assert known.remember(message(1_000))
    assert not known.remember(message(1_500)), "it is not done"
    assert not known.remember(message(2_000))
    known.advance(22_999)
    assert known.size_bytes == 2 * DONE_BYTES
    known.advance(25_000)
    assert known.size_bytes == 0


def test_known_ids_take_no_more_memory_than_is_counted() -> None:
    known = Matching(20_000)
    tracemalloc.start()
    before, _ = tracemalloc.get_traced_memory()
    for number in range(50_000):
        one = message(1_700_000_000_000 + number // 20, number, b"%036d" % number)
        known.remember(one)
        known.done([one])
    del one
    after, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert 0.7 * known.size_bytes < after - before < known.size_bytes
