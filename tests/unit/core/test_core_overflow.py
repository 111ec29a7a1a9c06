"""The slots of a partition's overflow wheel: closed, read, done, emptied, and found by a recovery."""

from dataclasses import replace

from tarry.core.progress.checkpoint import Checkpoint, DrainingSlot, EmptyingSlot, Geometry
from tarry.core.progress.done_set import DoneSet
from tarry.core.progress.recovered import Buckets
from tarry.core.progress.source import Source
from tarry.core.wheel.levels import MOST_DRAINING, Bucket
from tarry.core.wheel.overflow import OverflowWheel

RING = Geometry(1_000, 2, 1)
"""One level: six slots of a second, closed half a second before their time."""
TWO = Geometry(1_000, 2, 2)
CLOSED_MS = 6_000
ROOM = 100


def checkpoint(closed_ms: int = CLOSED_MS, *, geometry: Geometry = RING) -> Checkpoint:
    closed = tuple(closed_ms for _ in range(geometry.levels))
    return Checkpoint(writer=(), released=False, geometry=geometry, closed_ms=closed)


def close(overflow: OverflowWheel, now_ms: int, **ends: int) -> bool:
    """Close what is to be closed; `l1s0=5` is the end of slot 0 of level 1."""
    return overflow.close({Source(int(name[1]), int(name[3:])): end for name, end in ends.items()}, ROOM, now_ms)


def is_new(overflow: OverflowWheel, source: Source, offset: int) -> bool:
    """Read a record of a slot; whether it is to be placed."""
    slot = overflow.closed(source)
    assert slot is not None
    return slot.read(offset)


def is_of_an_earlier_turn(overflow: OverflowWheel, due_ms: int) -> bool:
    slot = overflow.closed(SLOT)
    assert slot is not None
    return slot.is_of_an_earlier_turn(due_ms)


def waiting(overflow: OverflowWheel, ends: dict[Source, int]) -> dict[int, int]:
    overflow.note_ends(ends)
    return overflow.in_buckets


def read(overflow: OverflowWheel, source: Source, *offsets: int, end: int) -> list[int]:
    """Read a slot to its end; what of it is new."""
    new = [offset for offset in offsets if is_new(overflow, source, offset)]
    overflow.reach(source, end)
    return new


def finish(overflow: OverflowWheel, source: Source, *offsets: int) -> None:
    """All of these fire."""
    overflow.mark(source, offsets)
    overflow.trim()


def turns(overflow: OverflowWheel, many: int, now_ms: int) -> int:
    """Close a number of empty buckets; return the time then."""
    for _ in range(many):
        now_ms += 1_000
        assert overflow.close({}, ROOM, now_ms)
    return now_ms


SLOT = Source(1, 0)
"""Slot 0 is that of the first bucket that is closed here."""
ABOVE = Source(2, 4)
"""That of the first bucket of level 2."""


def with_a_closed_slot(*, end: int = 5) -> OverflowWheel:
    overflow = OverflowWheel(checkpoint(), Buckets())
    overflow.fill(SLOT)
    assert overflow.to_ask(CLOSED_MS - 500) == [SLOT]
    assert close(overflow, CLOSED_MS - 500, l1s0=end)
    return overflow


# -- closing and reading ---------------------------------------------------------------------------------------------


def test_a_slot_that_is_filed_to_is_not_closed_before_its_end_is_known() -> None:
    overflow = OverflowWheel(checkpoint(), Buckets())
    overflow.fill(SLOT)
    assert not close(overflow, CLOSED_MS - 500)
    assert overflow.levels.closed_ms == (CLOSED_MS,)
    assert close(overflow, CLOSED_MS - 500, l1s0=5)
    assert overflow.levels.closed_ms == (CLOSED_MS + 1_000,)


def test_a_slot_that_nothing_was_filed_to_is_closed_and_done_at_once() -> None:
    overflow = OverflowWheel(checkpoint(), Buckets())
    assert overflow.to_ask(CLOSED_MS - 500) == []
    assert close(overflow, CLOSED_MS - 500)
    assert overflow.levels.draining == []
    assert overflow.entries() == ((), ())


def test_the_gate_is_at_the_first_closed_bucket_that_is_not_read() -> None:
    overflow = with_a_closed_slot()
    assert overflow.gate == (CLOSED_MS, -1)
    assert list(overflow.unread(ROOM, 1)) == [(SLOT, 0, 5)]
    assert read(overflow, SLOT, 0, 1, 3, end=5) == [0, 1, 3]
    assert overflow.gate == (CLOSED_MS + 1_000, -1)
    assert list(overflow.unread(ROOM, 1)) == []


def test_a_level_above_is_drained_when_all_of_it_lies_below() -> None:
    overflow = OverflowWheel(replace(checkpoint(geometry=TWO), closed_ms=(4_000, 8_000)), Buckets())
    above = Source(2, 4)
    overflow.fill(above)
    assert close(overflow, 6_000, l2s4=3)
    assert read(overflow, above, 0, 1, end=3) == [0, 1]
    assert Bucket(2, 8_000) in overflow.levels.draining
    finish(overflow, above, 0, 1)
    assert Bucket(2, 8_000) not in overflow.levels.draining


def left_above() -> OverflowWheel:
    """A bucket of level 2 is drained but for offset 1, of which a dead letter is written."""
    overflow = OverflowWheel(replace(checkpoint(geometry=TWO), closed_ms=(4_000, 8_000)), Buckets())
    overflow.fill(ABOVE)
    assert close(overflow, 6_000, l2s4=3)
    read(overflow, ABOVE, 0, 1, end=3)
    return overflow


def test_a_level_above_waits_for_what_is_moved_and_not_for_what_stays() -> None:
    overflow = left_above()
    overflow.stay(ABOVE, 1)
    assert Bucket(2, 8_000) in overflow.levels.draining
    finish(overflow, ABOVE, 0)
    assert Bucket(2, 8_000) not in overflow.levels.draining
    assert overflow.entries() == ((DrainingSlot(*ABOVE, 1, 3, 0),), ()), "that one is not done"
    finish(overflow, ABOVE, 1)
    assert overflow.entries() == ((), (EmptyingSlot(*ABOVE, 3),))


def test_a_level_above_that_is_not_read_to_its_end_waits_for_the_rest_of_it() -> None:
    overflow = OverflowWheel(replace(checkpoint(geometry=TWO), closed_ms=(4_000, 8_000)), Buckets())
    overflow.fill(ABOVE)
    assert close(overflow, 6_000, l2s4=3)
    assert is_new(overflow, ABOVE, 0)
    overflow.stay(ABOVE, 0)
    assert Bucket(2, 8_000) in overflow.levels.draining
    assert read(overflow, ABOVE, end=3) == []
    assert Bucket(2, 8_000) not in overflow.levels.draining


def test_a_slot_above_comes_round_again_with_what_stays_in_it() -> None:
    overflow = left_above()
    finish(overflow, ABOVE, 0)
    overflow.stay(ABOVE, 1)
    now_ms = 6_000
    while overflow.levels.closed_ms[1] < 8_000 + 6 * 2_000:
        now_ms += 500
        overflow.close({}, ROOM, now_ms)
    overflow.fill(ABOVE)
    while overflow.to_ask(now_ms) != [ABOVE]:
        now_ms += 500
        overflow.close({}, ROOM, now_ms)
    assert close(overflow, now_ms, l2s4=7)
    assert overflow.entries() == ((DrainingSlot(*ABOVE, 1, 7, 0, turns=1),), ())
    assert list(overflow.unread(ROOM, 1)) == [(ABOVE, 3, 7)]
    assert read(overflow, ABOVE, 3, end=7) == [3]
    assert Bucket(2, 8_000 + 6 * 2_000) in overflow.levels.draining
    finish(overflow, ABOVE, 3)
    assert overflow.levels.draining == []


def test_a_record_read_twice_or_behind_the_end_is_not_new() -> None:
    overflow = with_a_closed_slot()
    assert [is_new(overflow, SLOT, offset) for offset in (0, 0, 4, 5, 6)] == [True, False, True, False, False]
    assert overflow.closed(Source(1, 3)) is None, "it is open"


# -- a slot that comes round again -----------------------------------------------------------------------------------


def held_for_a_turn() -> OverflowWheel:
    """Slot 0 is read, but offset 1 has not fired when the ring reaches the slot again: its target is away."""
    overflow = with_a_closed_slot()
    read(overflow, SLOT, 0, 1, 2, end=5)
    finish(overflow, SLOT, 0, 2)
    now_ms = turns(overflow, 5, CLOSED_MS - 500)
    overflow.fill(SLOT)
    assert overflow.to_ask(now_ms + 1_000) == [SLOT]
    assert close(overflow, now_ms + 1_000, l1s0=9)
    return overflow


def test_two_turns_of_a_slot_are_one_stretch() -> None:
    overflow = held_for_a_turn()
    assert overflow.entries() == ((DrainingSlot(*SLOT, 1, 9, 0, turns=1),), ())
    assert overflow.gate == (CLOSED_MS + 6_000, -1)
    assert list(overflow.unread(ROOM, 1)) == [(SLOT, 5, 9)]
    assert read(overflow, SLOT, 1, 5, 6, end=9) == [5, 6]


def test_a_stretch_of_two_turns_is_done_when_both_are() -> None:
    overflow = held_for_a_turn()
    read(overflow, SLOT, 5, 6, end=9)
    finish(overflow, SLOT, 5, 6)
    assert overflow.entries() == ((DrainingSlot(*SLOT, 1, 9, 0, turns=1),), ())
    assert not overflow.done.is_unnoted
    finish(overflow, SLOT, 1)
    assert overflow.entries() == ((), (EmptyingSlot(*SLOT, 9),))


def test_a_stretch_of_two_turns_keeps_the_pointer_of_the_first() -> None:
    overflow = OverflowWheel(checkpoint(), Buckets(journal_end=10))
    overflow.fill(SLOT)
    assert close(overflow, CLOSED_MS - 500, l1s0=5)
    read(overflow, SLOT, 0, end=5)
    overflow.note_journal_end(70)
    now_ms = turns(overflow, 5, CLOSED_MS - 500)
    overflow.fill(SLOT)
    assert close(overflow, now_ms + 1_000, l1s0=9)
    assert overflow.pointer == 10


def test_the_pointer_of_a_slot_advances_with_its_watermark_while_it_is_drained() -> None:
    overflow = with_a_closed_slot()
    assert [is_new(overflow, SLOT, offset) for offset in (0, 1)] == [True, True]
    overflow.note_journal_end(30)
    assert read(overflow, SLOT, 2, 3, 4, end=5) == [2, 3, 4]
    overflow.note_journal_end(50)
    finish(overflow, SLOT, 1, 2)
    assert overflow.pointer == 0, "1 and 2 are done above the watermark, and 1 may be journalled before 30"
    finish(overflow, SLOT, 0)
    assert overflow.pointer == 30
    assert overflow.entries() == ((DrainingSlot(*SLOT, 3, 5, 30),), ())


def test_an_aborted_transaction_moves_no_pointer() -> None:
    overflow = with_a_closed_slot()
    assert is_new(overflow, SLOT, 0)
    overflow.note_journal_end(30)
    read(overflow, SLOT, 1, end=5)
    overflow.mark(SLOT, [0])
    assert overflow.pointer == 30
    overflow.unmark(SLOT, [0])
    assert overflow.pointer == 0


def test_a_stretch_of_two_turns_is_found_again() -> None:
    before = held_for_a_turn()
    draining, emptying = before.entries()
    found = replace(checkpoint(before.levels.closed_ms[0]), draining=draining, emptying=emptying)
    overflow = OverflowWheel(found, Buckets({SLOT: (0, 9)}, {SLOT: DoneSet([(0, 1), (2, 3)], 0)}))
    assert (overflow.is_recovering, read(overflow, SLOT, 1, 2, 5, 6, end=9)) == (True, [1, 5, 6])
    assert not overflow.is_recovering
    finish(overflow, SLOT, 1, 5, 6)
    assert overflow.entries() == ((), (EmptyingSlot(*SLOT, 9),))


def lagging() -> tuple[OverflowWheel, int]:
    """After an outage longer than the ring, slot 0 is closed and not read yet; all others are empty."""
    overflow = with_a_closed_slot()
    assert is_new(overflow, SLOT, 0)
    now_ms = turns(overflow, 5, CLOSED_MS - 500) + 1_000
    overflow.fill(SLOT)
    return overflow, now_ms


def test_a_slot_that_is_not_read_yet_is_not_closed_for_its_next_turn() -> None:
    overflow, now_ms = lagging()
    assert overflow.to_ask(now_ms) == []
    assert not close(overflow, now_ms, l1s0=9)
    assert overflow.gate == (CLOSED_MS, -1), "what lies there unread would be overtaken"


def test_a_slot_that_was_read_late_leaves_nothing_to_be_drained_for_ever() -> None:
    overflow, now_ms = lagging()
    close(overflow, now_ms, l1s0=9)
    read(overflow, SLOT, 1, end=5)
    close(overflow, now_ms, l1s0=9)
    read(overflow, SLOT, 5, end=9)
    assert overflow.levels.draining == []


# -- memory ----------------------------------------------------------------------------------------------------------


def test_no_more_slots_are_closed_than_memory_has_room_for_but_one_in_any_case() -> None:
    overflow = OverflowWheel(checkpoint(), Buckets())
    for slot in range(3):
        overflow.fill(Source(1, slot))
    assert close(overflow, 10_000, l1s0=60, l1s1=60, l1s2=60)
    assert overflow.levels.draining == [Bucket(1, 6_000)]
    read(overflow, SLOT, end=60)
    assert overflow.close({Source(1, 1): 400, Source(1, 2): 60}, ROOM, 10_000)
    assert overflow.levels.draining == [Bucket(1, 7_000)]


def test_the_number_of_slots_read_at_once_is_limited() -> None:
    ring = Geometry(1_000, 10, 1)
    overflow = OverflowWheel(checkpoint(22_000, geometry=ring), Buckets())
    for slot in range(12):
        overflow.fill(Source(1, slot))
    assert overflow.close({Source(1, slot): 2 for slot in range(12)}, ROOM, 60_000)
    assert len(overflow.levels.draining) == MOST_DRAINING


# -- emptying --------------------------------------------------------------------------------------------------------


def done() -> OverflowWheel:
    overflow = with_a_closed_slot()
    read(overflow, SLOT, 0, 1, end=5)
    finish(overflow, SLOT, 0, 1)
    return overflow


def test_a_slot_is_emptied_only_after_a_checkpoint_that_does_not_need_it() -> None:
    overflow = done()
    assert (overflow.done.is_unnoted, overflow.done.to_empty()) == (True, {})
    confirm = overflow.done.noted()
    assert overflow.done.to_empty() == {}, "that checkpoint is not committed yet"
    confirm()
    assert (overflow.done.is_unnoted, overflow.done.to_empty()) == (False, {SLOT: 5})
    overflow.done.emptied(SLOT, 5)
    assert (overflow.done.to_empty(), overflow.entries()) == ({}, ((), ()))


def test_a_checkpoint_from_before_it_was_done_does_not_let_it_be_emptied() -> None:
    overflow = with_a_closed_slot()
    read(overflow, SLOT, 0, end=5)
    confirm = overflow.done.noted()
    finish(overflow, SLOT, 0)
    confirm()
    assert overflow.done.is_unnoted
    assert overflow.done.to_empty() == {}


def test_marks_that_are_not_committed_make_nothing_done() -> None:
    overflow = with_a_closed_slot()
    read(overflow, SLOT, 0, 1, end=5)
    overflow.mark(SLOT, [0, 1])
    assert overflow.entries()[1] == ()
    overflow.unmark(SLOT, [0, 1])
    assert overflow.entries()[0] == (DrainingSlot(*SLOT, 0, 5, 0),)


def test_a_slot_that_was_emptied_up_to_less_is_still_to_be_emptied() -> None:
    """It was done a second time while the first emptying was under way."""
    overflow = done()
    overflow.done.noted()()
    now_ms = turns(overflow, 5, CLOSED_MS - 500)
    overflow.fill(SLOT)
    assert close(overflow, now_ms + 1_000, l1s0=9)
    read(overflow, SLOT, 5, end=9)
    finish(overflow, SLOT, 5)
    overflow.done.emptied(SLOT, 5)
    assert overflow.entries() == ((), (EmptyingSlot(*SLOT, 9),))
    assert overflow.done.to_empty() == {}
    overflow.done.noted()()
    assert overflow.done.to_empty() == {SLOT: 9}


def test_slots_to_be_emptied_stay_so_after_a_take_over() -> None:
    overflow = OverflowWheel(replace(checkpoint(), emptying=(EmptyingSlot(*SLOT, 5),)), Buckets({SLOT: (0, 7)}))
    assert overflow.done.to_empty() == {SLOT: 5}
    # 5 and 6 were filed for the turn that comes.
    assert close(overflow, CLOSED_MS - 500, l1s0=7)
    assert list(overflow.unread(ROOM, 1)) == [(SLOT, 5, 7)]


# -- recovery --------------------------------------------------------------------------------------------------------


def recovered(*, spans: tuple[int, int], done: list[tuple[int, int]] | None = None) -> OverflowWheel:
    """From a checkpoint that has slot 0 closed from 2 to 6."""
    found = replace(checkpoint(CLOSED_MS + 1_000), draining=(DrainingSlot(*SLOT, 2, 6, 40),))
    return OverflowWheel(found, Buckets({SLOT: spans}, {SLOT: DoneSet(done or [], 0)}, 90))


def test_a_recovery_reads_from_where_it_was_done() -> None:
    overflow = recovered(spans=(0, 6), done=[(3, 5)])
    assert overflow.is_recovering
    assert overflow.pointer == 40
    assert list(overflow.unread(ROOM, 1)) == [(SLOT, 2, 6)]
    assert read(overflow, SLOT, 2, 3, 4, 5, end=6) == [2, 5]
    finish(overflow, SLOT, 2, 5)
    assert overflow.entries() == ((), (EmptyingSlot(*SLOT, 6),))


def test_after_a_recovery_the_pointer_stays_until_all_that_was_found_done_is_passed() -> None:
    overflow = recovered(spans=(0, 6), done=[(4, 5)])
    assert is_new(overflow, SLOT, 2)
    assert is_new(overflow, SLOT, 3)
    overflow.note_journal_end(95)
    finish(overflow, SLOT, 2)
    assert overflow.pointer == 40, "a record of the journal from 40 on says that 4 is done"
    assert not is_new(overflow, SLOT, 4)
    overflow.note_journal_end(96)
    read(overflow, SLOT, 5, end=6)
    finish(overflow, SLOT, 3)
    assert overflow.pointer == 96


def test_a_recovery_reads_in_passes_since_it_knows_no_sizes() -> None:
    found = recovered(spans=(0, 6))
    assert list(found.unread(ROOM, 1)) == [(SLOT, 2, 6)]
    slot = found.closed(SLOT)
    assert slot is not None
    assert slot.passes is not None
    filled = OverflowWheel(checkpoint(), Buckets())
    filled.fill(SLOT)
    assert close(filled, CLOSED_MS + 500, l1s0=4)
    list(filled.unread(ROOM, 1))
    slot = filled.closed(SLOT)
    assert slot is not None
    assert slot.passes is None, "what this process has filed, it knows"


def test_a_recovery_from_an_old_copy_begins_where_the_log_does() -> None:
    """The slot has been emptied since, up to 5."""
    overflow = recovered(spans=(5, 6), done=[(2, 5)])
    assert list(overflow.unread(ROOM, 1)) == [(SLOT, 5, 6)]
    assert waiting(overflow, {SLOT: 6}) == {1: 1}


def test_a_recovery_from_an_old_copy_passes_over_what_has_been_emptied_whole() -> None:
    overflow = recovered(spans=(6, 6))
    assert not overflow.is_recovering
    assert list(overflow.unread(ROOM, 1)) == []
    assert overflow.levels.draining == []
    assert overflow.entries() == ((), (EmptyingSlot(*SLOT, 6),))


def test_a_recovery_from_an_old_copy_passes_over_what_was_emptied_of_a_later_turn() -> None:
    """The slot came round again, was done and emptied up to 9: behind the end that the copy knows."""
    overflow = recovered(spans=(9, 12))
    assert not overflow.is_recovering
    now_ms = turns(overflow, 5, CLOSED_MS - 500)
    assert overflow.to_ask(now_ms + 1_000) == [SLOT]
    assert close(overflow, now_ms + 1_000, l1s0=12)
    assert list(overflow.unread(ROOM, 1)) == [(SLOT, 9, 12)]
    assert read(overflow, SLOT, 9, 10, end=12) == [9, 10]


def test_a_recovery_knows_that_an_open_slot_was_filed_to() -> None:
    overflow = OverflowWheel(checkpoint(), Buckets({SLOT: (3, 8), Source(1, 1): (4, 4)}))
    assert overflow.to_ask(CLOSED_MS - 500) == [SLOT]
    assert close(overflow, CLOSED_MS - 500, l1s0=8)
    assert list(overflow.unread(ROOM, 1)) == [(SLOT, 3, 8)]


def test_a_recovery_from_an_old_copy_knows_what_was_done_of_a_slot_that_was_open_then() -> None:
    overflow = OverflowWheel(checkpoint(), Buckets({SLOT: (0, 4)}, {SLOT: DoneSet([(0, 2)], 0)}))
    assert close(overflow, CLOSED_MS - 500, l1s0=4)
    assert read(overflow, SLOT, 0, 1, 2, 3, end=4) == [2, 3]


def test_a_recovery_knows_what_a_killed_broker_has_brought_back_of_an_earlier_turn() -> None:
    """It has again what was deleted; the slot comes round, is closed, and its owner crashes before it is done."""
    before = OverflowWheel(checkpoint(), Buckets({SLOT: (0, 5)}))
    assert close(before, CLOSED_MS - 500, l1s0=5)
    assert is_of_an_earlier_turn(before, CLOSED_MS - 1)
    found = replace(checkpoint(before.levels.closed_ms[0]), draining=before.entries()[0])
    after = OverflowWheel(found, Buckets({SLOT: (0, 5)}))
    assert is_of_an_earlier_turn(after, CLOSED_MS - 1)
    assert not is_of_an_earlier_turn(after, CLOSED_MS)


# -- counts ----------------------------------------------------------------------------------------------------------


def test_waiting_records_are_counted_from_the_low_watermark_to_the_end() -> None:
    overflow = OverflowWheel(checkpoint(), Buckets({SLOT: (3, 8), Source(1, 1): (4, 4)}))
    assert waiting(overflow, {SLOT: 8, Source(1, 1): 4}) == {1: 5}
    assert close(overflow, CLOSED_MS - 500, l1s0=8)
    read(overflow, SLOT, 3, 4, 6, end=8)
    finish(overflow, SLOT, 3)
    assert waiting(overflow, {SLOT: 8, Source(1, 1): 6}) == {1: 4 + 2}
    finish(overflow, SLOT, 4, 6)
    assert waiting(overflow, {SLOT: 8, Source(1, 1): 6}) == {1: 2}


def test_waiting_records_are_counted_by_level() -> None:
    spans = {Source(1, 2): (0, 3), Source(2, 5): (1, 2), Source(2, 1): (7, 9)}
    overflow = OverflowWheel(replace(checkpoint(geometry=TWO), closed_ms=(4_000, 8_000)), Buckets(spans))
    assert waiting(overflow, {source: end for source, (_, end) in spans.items()}) == {1: 3, 2: 3}
