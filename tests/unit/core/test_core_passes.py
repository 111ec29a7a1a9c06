"""A bucket larger than memory comes out in order, a part at a time."""

import random
from itertools import pairwise

import pytest

from tarry.core.message import FiledMessage, HeldMessage
from tarry.core.progress.source import Source
from tarry.core.wheel.passes import Passes


def message(due_ms: int, sequence: int) -> HeldMessage:
    return HeldMessage(due_ms, sequence, None, b"x" * 20, None, False, "orders", -1, b"0" * 36)


SIZE = message(0, 0).size_bytes


def run(passes: Passes, bucket: list[HeldMessage]) -> list[list[tuple[int, int]]]:
    """All passes over a bucket, which gets no shorter meanwhile."""
    parts = []
    while True:
        held = 0
        for one in bucket:
            held += passes.offer(one)
            assert held <= 2 * SIZE
        part, is_last = passes.end()
        assert held == sum(one.size_bytes for one in part)
        parts.append([(one.due_ms, one.sequence) for one in part])
        if is_last:
            return parts
        passes.begin(2 * SIZE)


def test_each_pass_hands_out_the_first_behind_the_last_one() -> None:
    bucket = [message(due_ms, sequence) for sequence, due_ms in enumerate((5, 3, 9, 1, 7))]
    assert run(Passes(0, 2 * SIZE), bucket) == [[(1, 3), (3, 1)], [(5, 0), (7, 4)], [(9, 2)]]


def test_messages_due_in_the_same_millisecond_come_in_the_order_of_sending() -> None:
    bucket = [message(5, sequence) for sequence in (4, 1, 3, 0, 2)]
    assert run(Passes(0, 2 * SIZE), bucket) == [[(5, 0), (5, 1)], [(5, 2), (5, 3)], [(5, 4)]]


def copy(due_ms: int, sequence: int, offset: int) -> FiledMessage:
    made = FiledMessage(due_ms, sequence, None, b"x" * 20, None, False, "orders", -1, b"0" * 36)
    made.source, made.offset = Source(1, 0), offset
    return made


def test_copies_with_the_same_key_come_in_one_pass_whatever_their_order() -> None:
    """As after an adoption."""
    keys = [(5, 1), (5, 1), (3, 0), (5, 1), (9, 2), (9, 2), (7, 3)]
    for case in range(50):
        bucket = [copy(*key, offset) for offset, key in enumerate(random.Random(case).sample(keys, len(keys)))]
        passes, found = Passes(0, 2 * SIZE), []
        for _ in keys:
            for one in bucket:
                passes.offer(one)
            part, is_last = passes.end()
            found.append([(one.due_ms, one.sequence) for one in part])
            if is_last:
                break
            passes.begin(2 * SIZE)
        assert [key for part in found for key in part] == sorted(keys)
        assert all(part[0] > before[-1] for before, part in pairwise(found)), "all copies of a key, or none"


def test_the_gate_is_right_behind_the_last_message_of_the_pass() -> None:
    passes = Passes(3, 2 * SIZE)
    assert passes.gate == (3, -1)
    for one in (message(5, 8), message(5, 7), message(5, 9)):
        passes.offer(one)
    assert passes.gate == (3, -1), "nothing was handed out yet"
    passes.end()
    assert passes.gate == (5, 9)


def test_a_message_larger_than_the_limit_is_taken_all_the_same() -> None:
    passes = Passes(0, 1)
    assert passes.offer(message(1, 0)) == SIZE
    assert passes.offer(message(2, 1)) == 0
    part, is_last = passes.end()
    assert ([one.sequence for one in part], is_last) == ([0], False)


def test_no_small_message_overtakes_a_large_one_that_did_not_fit() -> None:
    passes = Passes(0, 2 * SIZE)
    large = HeldMessage(2, 1, None, b"x" * 300, None, False, "orders", -1, b"0" * 36)
    for one in (message(1, 0), large, message(3, 2)):
        passes.offer(one)
    part, is_last = passes.end()
    assert ([one.sequence for one in part], is_last) == ([0], False)


@pytest.mark.parametrize("messages", [0, 1, 2, 3, 50])
def test_nothing_is_left_out_and_nothing_comes_twice(messages: int, seed: int) -> None:
    choose = random.Random(seed)
    bucket = [message(choose.randint(0, 5), sequence) for sequence in range(messages)]
    choose.shuffle(bucket)
    found = [key for part in run(Passes(0, 2 * SIZE), bucket) for key in part]
    assert found == sorted((one.due_ms, one.sequence) for one in bucket)


def test_the_room_is_what_the_kept_messages_leave_and_nothing_between_passes() -> None:
    passes = Passes(0, 3 * SIZE)
    assert passes.room_bytes == 3 * SIZE
    passes.offer(message(1, 0))
    passes.offer(message(2, 1))
    assert passes.room_bytes == SIZE
    passes.end()
    assert passes.room_bytes == 0
    passes.begin(2 * SIZE)
    assert passes.room_bytes == 2 * SIZE


def test_a_message_larger_than_the_limit_leaves_no_room() -> None:
    passes = Passes(0, 1)
    passes.offer(message(1, 0))
    assert passes.room_bytes == 0


def test_a_bucket_is_too_large_as_soon_as_a_message_is_dropped() -> None:
    passes = Passes(0, 2 * SIZE)
    found = []
    for sequence in range(3):
        passes.offer(message(1, sequence))
        found.append(passes.is_oversized)
    assert found == [False, False, True]


def test_a_bucket_that_just_fits_is_not_too_large() -> None:
    passes = Passes(0, 2 * SIZE)
    assert run(passes, [message(1, 0), message(2, 1)]) == [[(1, 0), (2, 1)]]
    assert not passes.is_oversized
