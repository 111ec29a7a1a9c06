import gc
import sys
import weakref

import pytest

from tarry.native import core
from tarry.timer.task_list import NOWHERE, UNQUEUED, TimerTaskEntry, TimerTaskList


class Held(TimerTaskEntry):
    """As the service extends an entry: slots of its own, set without a call of the base constructor."""

    __slots__ = ("__weakref__", "value")

    def __init__(self, due_ms: int, value: bytes) -> None:
        self.due_ms = due_ms
        self.sequence = 0
        self.bucket = None
        self.value = value


def filled(*sequences: int) -> tuple[TimerTaskList, list[TimerTaskEntry]]:
    bucket = TimerTaskList()
    entries = [TimerTaskEntry(5, sequence) for sequence in sequences]
    for entry in entries:
        bucket.append(entry)
    return bucket, entries


def is_outside(entry: TimerTaskEntry) -> bool:
    return entry.bucket is None and entry.prev is NOWHERE and entry.next is NOWHERE


def test_a_new_list_is_empty_and_has_no_expiration() -> None:
    bucket = TimerTaskList(20)
    assert not bucket
    assert list(bucket) == []
    assert (bucket.expiration_ms, bucket.tick_ms) == (UNQUEUED, 20)


def test_entries_stay_in_the_order_in_which_they_came() -> None:
    bucket, entries = filled(3, 1, 2)
    assert bucket
    assert list(bucket) == entries
    assert all(entry.bucket is bucket for entry in entries)


@pytest.mark.parametrize("gone", [0, 1, 2])
def test_an_entry_leaves_from_anywhere_and_keeps_no_link(gone: int) -> None:
    bucket, entries = filled(1, 2, 3)
    assert bucket.remove(entries[gone])
    assert list(bucket) == entries[:gone] + entries[gone + 1 :]
    assert is_outside(entries[gone])


def test_the_last_entry_to_leave_empties_the_list() -> None:
    bucket, (entry,) = filled(1)
    assert bucket.remove(entry)
    assert not bucket
    bucket.append(entry)
    assert list(bucket) == [entry]


def test_an_entry_that_is_not_in_the_list_is_not_removed() -> None:
    bucket, _ = filled(1)
    other, (entry,) = filled(2)
    assert not bucket.remove(entry)
    assert not bucket.remove(TimerTaskEntry(5))
    assert list(other) == [entry]


def test_setting_an_expiration_tells_whether_it_is_a_new_one() -> None:
    bucket = TimerTaskList()
    assert bucket.set_expiration(20)
    assert not bucket.set_expiration(20)
    assert bucket.set_expiration(40)
    assert bucket.expiration_ms == 40


def test_a_flush_hands_out_everything_in_order_and_makes_the_list_new() -> None:
    bucket, entries = filled(1, 2, 3)
    bucket.set_expiration(20)
    assert bucket.flush() == entries
    assert all(map(is_outside, entries))
    assert not bucket
    assert bucket.set_expiration(20), "after a flush the same time is a new one"
    assert bucket.flush() == []


def test_an_entry_of_a_subclass_is_one_object_without_a_dictionary() -> None:
    held = Held(7, b"payload")
    bucket = TimerTaskList()
    bucket.append(held)
    assert not hasattr(held, "__dict__")
    assert bucket.flush() == [held]
    assert repr(held) == "Held(due_ms=7, sequence=0)"
    own = 8 if core() == "compiled core" else 0
    assert sys.getsizeof(TimerTaskEntry(7)) <= 80 + own, "16 of the collector, 8 a slot; compiled 8 for its methods"


def test_a_flushed_or_closed_list_keeps_nothing_alive_without_the_collector() -> None:
    gc.disable()
    try:
        flushed, closed = TimerTaskList(), TimerTaskList()
        held = [Held(7, b"a"), Held(7, b"b"), Held(7, b"c"), Held(7, b"d")]
        for bucket, entry in zip((flushed, flushed, closed, closed), held, strict=True):
            bucket.append(entry)
        watched = [weakref.ref(entry) for entry in held]
        del held, entry, bucket
        flushed.flush()
        closed.close()
        assert [ref() for ref in watched] == [None] * 4
    finally:
        gc.enable()
