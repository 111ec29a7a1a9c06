"""The journal pointer: the last pair at or below the watermark serves, and a recovery's own outlives what it found."""

from hypothesis import given, settings
from hypothesis import strategies as st

from tarry.core.progress.journal_pointer import JournalPointer


def test_the_last_pair_at_or_below_the_watermark_serves() -> None:
    pointer = JournalPointer(0, 0, 0)
    pointer.note(500, 40)
    pointer.note(900, 80)
    assert [pointer.at(low) for low in (0, 499, 500, 620, 899, 900, 5_000)] == [0, 0, 40, 40, 40, 80, 80]


def test_after_a_recovery_the_old_pointer_stays_until_all_that_was_found_done_is_passed() -> None:
    pointer = JournalPointer(100, 7, 400)
    pointer.note(200, 20)
    pointer.note(399, 21)
    assert pointer.at(399) == 7
    pointer.note(400, 30)
    assert (pointer.at(399), pointer.at(400)) == (7, 30)


def test_a_pair_that_brings_nothing_new_is_not_kept() -> None:
    pointer = JournalPointer(10, 5, 0)
    pointer.note(10, 9)
    pointer.note(20, 5)
    pointer.note(20, 4)
    assert pointer.at(100) == 5


def test_trimming_changes_no_answer_at_or_above_the_watermark() -> None:
    pointer = JournalPointer(0, 0, 0)
    for position in range(10, 100, 10):
        pointer.note(position, position * 2)
    before = [pointer.at(low) for low in range(45, 120)]
    pointer.drop_below(45)
    assert [pointer.at(low) for low in range(45, 120)] == before
    pointer.drop_below(45)
    assert [pointer.at(low) for low in range(45, 120)] == before


def test_the_pointer_of_a_watermark_below_all_pairs_is_the_first() -> None:
    pointer = JournalPointer(100, 7, 0)
    assert pointer.at(3) == 7


steps = st.lists(st.tuples(st.integers(0, 5), st.integers(0, 5)), max_size=30)


@settings(max_examples=200)
@given(steps, st.integers(0, 40))
def test_the_pointer_never_falls_as_the_watermark_rises(noted: list[tuple[int, int]], found_end: int) -> None:
    pointer = JournalPointer(0, 3, found_end)
    position, end = 0, 3
    for more_read, more_written in noted:
        position, end = position + more_read, end + more_written
        pointer.note(position, end)
    answers = [pointer.at(low) for low in range(position + 2)]
    assert answers == sorted(answers)
    assert all(answer == 3 for answer in answers[: min(found_end, len(answers))])
