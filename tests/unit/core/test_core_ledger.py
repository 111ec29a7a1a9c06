"""The ledger of done offsets: its table, its gaps, tentative marks, and any course of events against a plain set."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tarry.core.progress.ledger import Ledger


def test_the_table_of_the_module() -> None:
    ledger = Ledger(7)
    for offset in (7, 8, 10):
        ledger.read(offset)
    assert (ledger.low, ledger.position) == (7, 11)
    ledger.mark([8])
    assert ledger.low == 7
    ledger.mark([7])
    assert ledger.low == 10
    ledger.make_final()
    assert (ledger.low, ledger.position) == (10, 11)
    ledger.mark([10])
    assert ledger.low == 11


def test_the_watermark_of_an_empty_ledger_is_its_position() -> None:
    ledger = Ledger(42)
    assert (ledger.low, ledger.position) == (42, 42)
    ledger.reach(50)
    assert (ledger.low, ledger.position) == (50, 50)


def test_a_position_below_the_own_changes_nothing() -> None:
    ledger = Ledger(5)
    ledger.read(5)
    ledger.reach(3)
    ledger.reach(6)
    assert (ledger.low, ledger.position) == (5, 6)


def test_reading_an_offset_twice_is_an_error() -> None:
    ledger = Ledger(0)
    ledger.read(3)
    with pytest.raises(ValueError, match="offset 3 was read before"):
        ledger.read(3)
    with pytest.raises(ValueError, match="offset 0 was read before"):
        ledger.read(0)


def test_marks_are_taken_back_when_their_transaction_aborts() -> None:
    ledger = Ledger(0)
    for offset in range(4):
        ledger.read(offset)
    ledger.mark([0, 1, 3])
    assert ledger.low == 2
    ledger.unmark([0, 1, 3])
    assert ledger.low == 0
    ledger.mark([0])
    ledger.make_final()
    assert (ledger.low, ledger.position) == (1, 4)


def test_a_committed_offset_cannot_be_marked() -> None:
    ledger = Ledger(5)
    ledger.read(5)
    ledger.read(6)
    ledger.mark([5])
    ledger.make_final()
    ledger.mark([6])
    with pytest.raises(ValueError, match="offset 5 is below the committed watermark 6"):
        ledger.mark([6, 5])


events = st.lists(
    st.tuples(st.sampled_from(["read", "gap", "done", "abort"]), st.integers(1, 5), st.integers(0, 2**16)), max_size=60
)


@settings(max_examples=200)
@given(st.integers(0, 1_000), events)
def test_the_watermark_is_the_smallest_offset_that_is_held(start: int, course: list[tuple[str, int, int]]) -> None:
    ledger = Ledger(start)
    held: set[int] = set()
    position = low = start
    for what, count, choice in course:
        if what == "read":
            for _ in range(count):
                ledger.read(position)
                held.add(position)
                position += 1
        elif what == "gap":
            position += count
            ledger.reach(position)
        else:
            chosen = sorted(held)[choice % 3 :: count]
            ledger.mark(chosen)
            assert ledger.low == min(held.difference(chosen), default=position)
            if what == "abort":
                ledger.unmark(chosen)
            else:
                held.difference_update(chosen)
                ledger.make_final()
        assert ledger.position == position
        assert ledger.low == min(held, default=position)
        assert ledger.low >= low
        low = ledger.low
        assert list(ledger.undone()) == sorted(held)
        done = [offset for offset in range(low, position) if offset not in held]
        assert [offset for offset in range(low, position) if ledger.is_done(offset)] == done
        assert start == 0 or ledger.is_done(start - 1)
        assert [offset for first, end in ledger.ranges() for offset in range(first, end)] == done
        assert all(end not in done for _, end in ledger.ranges()), "they do not touch"
        for first in (start - 1, low, low + choice % 7, position):
            wanted = min((offset for offset in held if offset >= first), default=position)
            assert ledger.first_undone(first) == wanted
