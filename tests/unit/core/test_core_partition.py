"""The state of a partition, case by case; what any course of events keeps is in the model test."""

import gc
import tracemalloc
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

import pytest

from tarry.core.batch import Batch, FiledRun
from tarry.core.message import Headers, HeldMessage
from tarry.core.partition import PartitionState
from tarry.core.progress.checkpoint import Checkpoint, CheckpointError, Geometry, decode_checkpoint
from tarry.core.progress.done_set import DoneSet
from tarry.core.progress.journal import Copy, DoneEntry, LostEnd, decode_entry, encode_done
from tarry.core.progress.recovered import Recovered
from tarry.core.progress.source import INTAKE, PARKED, Source
from tarry.core.request.intake_policy import IntakePolicy
from tarry.core.request.reader import RequestReader
from tarry.core.window.letters import LARGE_BYTES
from tarry.core.window.matching import DONE_BYTES
from tarry.headers import CANCEL, DELAY_MS, DELIVER_AT, ID, PURGE, TARGET, derived_id
from tarry.timer import TimingWheel
from tests.support.durable import LevelLog
from tests.support.parked import file_parked, read_parked

NOW_MS = 1_700_000_000_000
BORN = Checkpoint(writer=("w",), released=False, geometry=Geometry(20_000, 10, 0))
PLAIN = IntakePolicy(topic="in", max_delay_ms=3_600_000)
FIXED = IntakePolicy(topic="in", fixed_delay_ms=1_000, fixed_target="orders")


def recovered(low: int = 0, *, done: tuple[tuple[int, int], ...] = (), replay_end: int = 0) -> Recovered:
    return Recovered(low, BORN, DoneSet(done, low), replay_end)


def taken_over(found: Recovered | None = None, *, fixed: bool = False, tick_ms: int = 1) -> PartitionState:
    return PartitionState(
        "in",
        2,
        RequestReader(replace(FIXED if fixed else PLAIN, tick_ms=tick_ms)),
        fixed,
        lambda start_ms: TimingWheel(tick_ms, 16, start_ms),
        found or recovered(),
        NOW_MS,
    )


def delay(delay_ms: int) -> Headers:
    return [(TARGET, b"orders"), (DELAY_MS, b"%d" % delay_ms)]


def send(state: PartitionState, offset: int, delay_ms: int, *, now_ms: int = NOW_MS) -> None:
    state.arrivals.accept(offset, now_ms, b"k", b"v%d" % offset, delay(delay_ms), now_ms)


def fire(state: PartitionState, now_ms: int, limit: int = 100) -> Batch:
    state.collect(now_ms)
    batch = state.take(limit, now_ms)
    state.settle(batch)
    state.confirm(batch)
    return batch


def due_offsets(batch: Batch) -> list[int]:
    return [message.sequence for message in batch.due]


# -- firing ------------------------------------------------------------------------------------------------------------


def test_due_messages_come_by_due_time_and_then_by_offset() -> None:
    state = taken_over()
    for offset, delay_ms in enumerate((30, 10, 20, 10, 0)):
        send(state, offset, delay_ms)
    assert state.next_due_ms() == 0
    assert due_offsets(fire(state, NOW_MS + 9)) == [4]
    assert due_offsets(fire(state, NOW_MS + 30)) == [1, 3, 2, 0]
    assert (state.low, state.held, state.held_bytes) == (5, 0, 0)
    assert state.next_due_ms() is None


def test_a_batch_is_bounded_and_the_rest_stays_in_order() -> None:
    state = taken_over()
    for offset in range(5):
        send(state, offset, 10)
    assert due_offsets(fire(state, NOW_MS + 10, limit=2)) == [0, 1]
    assert due_offsets(fire(state, NOW_MS + 10, limit=2)) == [2, 3]
    assert due_offsets(fire(state, NOW_MS + 10, limit=2)) == [4]


def test_the_settlement_names_watermark_journal_and_checkpoint() -> None:
    state = taken_over()
    send(state, 0, 50)
    send(state, 1, 10)
    state.collect(NOW_MS + 10)
    batch = state.take(10, NOW_MS + 10)
    settled = state.settle(batch)
    assert settled.low == 0
    assert decode_entry(settled.journal) == DoneEntry({INTAKE: [(1, 2)]})
    assert decode_checkpoint(settled.metadata) == BORN


def test_a_rejected_record_is_in_the_next_batch_with_all_that_it_came_with() -> None:
    state = taken_over()
    state.arrivals.accept(0, NOW_MS, None, b"v", [("a", None), ("tarry-id", b"?")], NOW_MS)
    assert (state.held, state.next_due_ms()) == (1, 0)
    assert state.held_bytes > 0, "it takes memory like any other"
    (dead,) = fire(state, NOW_MS).dead
    assert (dead.code, dead.key, dead.value) == ("bad-id", None, b"v")
    assert dead.headers == [("a", None), ("tarry-id", b"?")]
    assert dead.id == derived_id("in", 2, 0)
    assert (state.low, state.held) == (1, 0)


def test_an_unreadable_record_is_dead_and_counts_once() -> None:
    state = taken_over()
    headers: list[tuple[str, bytes | None]] = [("caf\\xe9", b"1"), ("a", None)]
    state.arrivals.accept_unreadable(0, b"k", b"v", headers)
    state.arrivals.accept_unreadable(0, b"k", b"v", headers)
    (dead,) = fire(state, NOW_MS).dead
    assert (dead.offset, dead.key, dead.value, dead.headers) == (0, b"k", b"v", headers)
    state.arrivals.accept_unreadable(0, b"k", b"v", headers)
    assert (state.held, state.low) == (0, 1)


def test_an_unreadable_record_that_is_known_to_be_done_is_passed_over() -> None:
    state = taken_over(recovered(done=((1, 2),), replay_end=2))
    state.arrivals.accept_unreadable(0, None, None, [])
    state.arrivals.accept_unreadable(1, None, None, [])
    assert [dead.offset for dead in fire(state, NOW_MS).dead] == [0]
    assert state.low == 2


def test_an_aborted_batch_is_ready_again_in_front_with_its_dead_letters() -> None:
    state = taken_over()
    state.arrivals.accept(0, NOW_MS, None, None, None, NOW_MS)
    for offset in (1, 2, 3):
        send(state, offset, 10)
    held_bytes = state.held_bytes
    state.collect(NOW_MS + 10)
    batch = state.take(3, NOW_MS + 10)
    assert (batch.offsets(), len(batch)) == ({INTAKE: [1, 2, 0]}, 3)
    batch.give_up({1: ("too-large", "too large")})
    assert (due_offsets(batch), [dead.offset for dead in batch.dead]) == ([2], [0, 1])
    assert state.settle(batch).low == 3
    state.put_back(batch)
    assert (state.low, state.held, state.held_bytes) == (0, 4, held_bytes)
    again = fire(state, NOW_MS + 10)
    assert (due_offsets(again), [dead.offset for dead in again.dead]) == ([1, 2, 3], [0])
    assert (state.low, state.held_bytes) == (4, 0)


def test_a_batch_that_failed_before_it_was_settled_can_be_put_back_too() -> None:
    state = taken_over()
    send(state, 0, 0)
    send(state, 1, 0)
    state.collect(NOW_MS)
    state.put_back(state.take(1, NOW_MS))
    assert due_offsets(fire(state, NOW_MS)) == [0, 1]


def test_a_message_given_up_goes_with_its_original_headers_and_frees_its_memory() -> None:
    state = taken_over()
    send(state, 0, 0)
    state.collect(NOW_MS)
    batch = state.take(1, NOW_MS)
    batch.give_up({0: ("unknown-target", "no topic")})
    (dead,) = batch.dead
    assert (dead.headers, dead.due_ms, dead.target) == (delay(0), NOW_MS, "orders")
    assert (dead.key, dead.value, dead.code) == (b"k", b"v0", "unknown-target")
    state.settle(batch)
    state.confirm(batch)
    assert (state.held_bytes, state.held) == (0, 0)


# -- reading -----------------------------------------------------------------------------------------------------------


def test_a_record_that_is_read_again_is_passed_over() -> None:
    state = taken_over(recovered(10))
    send(state, 12, 5)
    send(state, 12, 5)
    send(state, 3, 5)
    assert (state.held, state.position, state.low) == (1, 13, 12)


def test_markers_at_the_end_move_the_watermark() -> None:
    state = taken_over()
    send(state, 0, 0)
    fire(state, NOW_MS)
    state.arrivals.reach(7)
    assert (state.low, state.position) == (7, 7)


def test_a_checkpoint_at_rest_and_its_copy_say_the_same() -> None:
    state = taken_over(recovered(4))
    rest = state.settle_checkpoint(released=True)
    copy = decode_entry(rest.journal)
    assert copy == Copy(4, rest.metadata)
    assert decode_checkpoint(rest.metadata) == replace(BORN, released=True)
    assert not decode_checkpoint(state.settle_checkpoint().metadata).released


def test_a_writer_too_long_for_the_metadata_is_an_error_and_not_a_cut() -> None:
    found = replace(recovered(), checkpoint=replace(BORN, writer=("x" * 5_000,)))
    with pytest.raises(CheckpointError):
        taken_over(found).settle_checkpoint()


def test_the_pointer_follows_what_was_noted_when_the_watermark_passes() -> None:
    state = taken_over()
    send(state, 0, 0)
    state.note_journal_end(30)
    send(state, 1, 5_000)
    assert state.reads_from == 0
    fire(state, NOW_MS)
    assert (state.low, state.reads_from) == (1, 30)
    assert decode_checkpoint(state.settle_checkpoint().metadata).pointer == 30


# -- taking over -------------------------------------------------------------------------------------------------------


def test_nothing_fires_before_the_replay_is_through_and_then_by_due_time() -> None:
    state = taken_over(recovered(5, replay_end=8))
    send(state, 5, 3)
    send(state, 6, -0)
    assert state.is_gated
    assert not state.collect(NOW_MS + 1_000)
    assert state.next_due_ms() is None
    send(state, 7, 1)
    assert due_offsets(fire(state, NOW_MS + 1_000)) == [6, 7, 5]
    assert not state.is_gated


def test_a_replay_that_ends_in_markers_ends() -> None:
    state = taken_over(recovered(5, replay_end=9))
    send(state, 5, 0)
    state.arrivals.reach(9)
    assert not state.is_gated
    assert due_offsets(fire(state, NOW_MS)) == [5]


def test_an_intake_without_records_needs_no_replay() -> None:
    assert not taken_over(recovered(9, replay_end=9)).is_gated


def test_a_message_known_to_be_done_does_not_fire_again() -> None:
    state = taken_over(recovered(5, done=((6, 8), (9, 10)), replay_end=11))
    for offset in range(5, 11):
        send(state, offset, 0)
    assert due_offsets(fire(state, NOW_MS)) == [5, 8, 10]
    assert state.low == 11


def test_done_offsets_count_even_above_a_captured_end_that_lags() -> None:
    # A leader just elected may answer with an end that is behind what was read from the one before.
    state = taken_over(recovered(5, done=((7, 9),), replay_end=6))
    send(state, 5, 0)
    fired = due_offsets(fire(state, NOW_MS))
    for offset in range(6, 10):
        send(state, offset, 0)
    assert fired + due_offsets(fire(state, NOW_MS)) == [5, 6, 9]


def test_with_a_fixed_delay_stamps_that_step_back_do_not_change_the_order() -> None:
    state = taken_over(fixed=True)
    for offset, stamp_ms in enumerate((NOW_MS, NOW_MS - 700, NOW_MS + 5, NOW_MS + 1)):
        state.arrivals.accept(offset, stamp_ms, None, None, None, NOW_MS)
    assert due_offsets(fire(state, NOW_MS + 999)) == []
    batch = fire(state, NOW_MS + 1_005)
    assert [(m.sequence, m.due_ms - NOW_MS) for m in batch.due] == [(0, 1_000), (1, 1_000), (2, 1_005), (3, 1_005)]


def test_with_a_fixed_delay_a_new_owner_goes_on_from_the_due_time_below_the_watermark() -> None:
    state = taken_over(fixed=True)
    state.arrivals.accept(0, NOW_MS + 50, None, None, None, NOW_MS)
    fire(state, NOW_MS + 1_050)
    checkpoint = decode_checkpoint(state.settle_checkpoint().metadata)
    assert checkpoint.due_below_ms == NOW_MS + 1_050
    after = taken_over(Recovered(1, checkpoint, DoneSet([], 1), 2), fixed=True)
    after.arrivals.accept(1, NOW_MS, None, None, None, NOW_MS)
    assert due_offsets(fire(after, NOW_MS + 1_049)) == []
    assert due_offsets(fire(after, NOW_MS + 1_050)) == [1]


def test_with_a_fixed_delay_an_aborted_batch_leaves_the_due_time_below_the_watermark_as_it_was() -> None:
    state = taken_over(fixed=True)
    for offset, stamp_ms in enumerate((NOW_MS, NOW_MS + 500)):
        state.arrivals.accept(offset, stamp_ms, None, None, None, NOW_MS)
    state.collect(NOW_MS + 2_000)
    batch = state.take(10, NOW_MS + 2_000)
    state.settle(batch)
    state.put_back(batch)
    assert decode_checkpoint(state.settle_checkpoint().metadata).due_below_ms is None


def test_with_a_fixed_delay_a_message_given_up_counts_for_the_due_time_below_the_watermark() -> None:
    state = taken_over(fixed=True)
    for offset, stamp_ms in enumerate((NOW_MS, NOW_MS + 500)):
        state.arrivals.accept(offset, stamp_ms, None, None, None, NOW_MS)
    state.collect(NOW_MS + 2_000)
    batch = state.take(10, NOW_MS + 2_000)
    batch.give_up({1: ("too-large", "")})
    assert decode_checkpoint(state.settle(batch).metadata).due_below_ms == NOW_MS + 1_500


def test_with_a_fixed_delay_what_was_found_done_counts_for_the_due_time_below_the_watermark() -> None:
    state = taken_over(recovered(done=((0, 2),), replay_end=3), fixed=True)
    for offset in range(3):
        state.arrivals.accept(offset, NOW_MS + 100 * offset, None, None, None, NOW_MS)
    rest = state.settle_checkpoint()
    assert (rest.low, decode_checkpoint(rest.metadata).due_below_ms) == (2, NOW_MS + 1_100)


# -- the clock ---------------------------------------------------------------------------------------------------------


def test_after_a_large_step_back_what_was_ready_waits_again() -> None:
    state = taken_over()
    send(state, 0, 0)
    send(state, 1, 7_000)
    state.collect(NOW_MS)
    earlier_ms = NOW_MS - 60_000
    state.collect(earlier_ms)
    assert due_offsets(fire(state, earlier_ms)) == []
    send(state, 2, 100, now_ms=earlier_ms)
    assert state.next_due_ms() is not None
    assert due_offsets(fire(state, earlier_ms + 100)) == [2]
    assert due_offsets(fire(state, NOW_MS)) == [0]
    assert due_offsets(fire(state, NOW_MS + 7_000)) == [1]


def test_after_a_small_step_back_nothing_that_was_ready_is_early() -> None:
    state = taken_over()
    send(state, 0, 0)
    state.collect(NOW_MS)
    assert due_offsets(fire(state, NOW_MS - 1)) == []
    assert due_offsets(fire(state, NOW_MS)) == [0]


def test_ready_messages_are_not_taken_after_the_clock_went_back_before_their_due_times() -> None:
    state = taken_over()
    send(state, 0, 0)
    state.collect(NOW_MS)
    assert due_offsets(state.take(100, NOW_MS - 1)) == []
    assert due_offsets(state.take(100, NOW_MS)) == [0]


def test_after_a_small_step_back_what_is_due_first_does_not_wait_behind_what_was_ready() -> None:
    state = taken_over()
    send(state, 0, 0)
    state.collect(NOW_MS)
    back_ms = NOW_MS - 500
    send(state, 1, 300, now_ms=back_ms)
    send(state, 2, 100, now_ms=back_ms)
    assert due_offsets(fire(state, back_ms + 100)) == [2]
    assert due_offsets(fire(state, NOW_MS)) == [1, 0]


def test_after_a_small_step_back_the_order_holds_also_when_the_clock_jumps_on() -> None:
    state = taken_over()
    send(state, 0, 0)
    state.collect(NOW_MS)
    send(state, 1, 300, now_ms=NOW_MS - 500)
    assert due_offsets(fire(state, NOW_MS + 1_000)) == [1, 0]


# -- a target that is away ---------------------------------------------------------------------------------------------


def parked(state: PartitionState, now_ms: int) -> Batch:
    state.collect(now_ms)
    state.take(100, now_ms, {"orders"})
    return state.parked.take("orders", 100, now_ms)


def test_due_messages_for_an_unavailable_target_are_parked_and_hold_up_no_others() -> None:
    state = taken_over()
    for offset, target in enumerate((b"orders", b"bills", b"orders", b"bills")):
        state.arrivals.accept(offset, NOW_MS, None, None, [(TARGET, target), (DELAY_MS, b"0")], NOW_MS)
    state.collect(NOW_MS)
    batch = state.take(2, NOW_MS, {"orders"})
    assert due_offsets(batch) == [1, 3]
    assert state.settle(batch).low == 0
    state.confirm(batch)
    assert (len(state.parked), state.held, state.low) == (2, 2, 0)
    assert state.parked.by_target() == {"orders": 2}
    tried = state.parked.take("orders", 1, NOW_MS)
    assert due_offsets(tried) == [0]
    assert decode_entry(encode_done(tried.offsets())) == DoneEntry({INTAKE: [(0, 1)]})
    state.parked.park_again("orders", tried)
    tried = state.parked.take("orders", 10, NOW_MS)
    assert due_offsets(tried) == [0, 2]
    state.confirm_parked(tried)
    assert (state.low, state.held, state.held_bytes) == (4, 0, 0)


def test_messages_of_an_aborted_batch_for_a_target_that_is_away_now_are_parked_at_once() -> None:
    state = taken_over()
    for offset, target in enumerate((b"orders", b"bills", b"orders", b"bills")):
        state.arrivals.accept(offset, NOW_MS, None, None, [(TARGET, target), (DELAY_MS, b"0")], NOW_MS)
    state.collect(NOW_MS)
    batch = state.take(4, NOW_MS)
    state.settle(batch)
    batch.give_up({0: ("too-large", "")})
    state.put_back(batch, {"orders"})
    assert "orders" in state.parked
    assert due_offsets(state.take(4, NOW_MS, {"orders"})) == [1, 3]
    assert due_offsets(state.parked.take("orders", 4, NOW_MS)) == [0, 2]


def test_parked_messages_are_not_early_when_the_clock_goes_back() -> None:
    state = taken_over()
    send(state, 0, 0)
    state.parked.park_again("orders", parked(state, NOW_MS))
    assert due_offsets(state.parked.take("orders", 10, NOW_MS - 1)) == []
    assert len(state.parked) == 1
    assert due_offsets(state.parked.take("orders", 10, NOW_MS)) == [0]


def purge(state: PartitionState, offset: int, target: str = "orders", *, at_ms: int = NOW_MS) -> None:
    state.arrivals.accept(offset, at_ms, b"k", b"v", [(PURGE, target.encode())], at_ms)


def test_a_purge_of_a_target_that_has_nothing_parked_is_answered_at_once() -> None:
    state = taken_over()
    send(state, 0, 0)
    purge(state, 1, "bills")
    batch = fire(state, NOW_MS)
    assert (due_offsets(batch), outcomes(batch)) == ([0], [("purged", 1, None)])
    assert (state.low, state.held, state.held_bytes) == (2, 0, 0)


def test_a_purge_waits_for_its_targets_messages_in_the_same_batch_and_takes_them_if_it_aborts() -> None:
    state = taken_over()
    for offset in range(2):
        send(state, offset, 0)
    purge(state, 2)
    send(state, 3, 0)
    state.collect(NOW_MS)
    batch = state.take(10, NOW_MS)
    assert (due_offsets(batch), batch.resolutions) == ([0, 1], [])
    state.settle(batch)
    state.put_back(batch, {"orders"})
    assert not len(state.take(10, NOW_MS, {"orders"}))
    taken = state.parked.take_purged("orders", 10)
    assert [(dead.sequence, dead.code) for dead in taken.dead] == [(0, "purged"), (1, "purged")]
    state.confirm_parked(taken)
    answer = state.parked.take_purged("orders", 10)
    assert outcomes(answer) == [("purged", 2, None)]
    state.confirm_parked(answer)
    assert due_offsets(state.parked.take("orders", 10, NOW_MS)) == [3]
    assert state.low == 3


def test_a_purge_is_due_when_it_is_read() -> None:
    state = taken_over()
    state.arrivals.accept(0, NOW_MS + 60_000, None, None, [(PURGE, b"orders")], NOW_MS)
    assert outcomes(fire(state, NOW_MS)) == [("purged", 0, None)]
    purge(state, 1, at_ms=NOW_MS)
    state.collect(NOW_MS - 1)
    assert not len(state.take(10, NOW_MS - 1)), "the clock stepped back"


def test_a_purge_that_is_done_is_not_answered_again() -> None:
    state = taken_over(recovered(0, done=((0, 1),), replay_end=1))
    purge(state, 0)
    assert not len(fire(state, NOW_MS))
    assert state.position == 1


# -- memory ------------------------------------------------------------------------------------------------------------


@contextmanager
def no_collector() -> Iterator[None]:
    """As the service runs: its full collections are too rare to count on."""
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


def held_messages() -> int:
    return sum(isinstance(thing, HeldMessage) for thing in gc.get_objects())


def test_a_partition_that_is_closed_leaves_no_message_in_memory() -> None:
    with no_collector():
        before = held_messages()
        state = taken_over()
        for offset in range(50):
            send(state, offset, offset * 100)
        assert held_messages() == before + 50
        state.close()
        del state
        assert held_messages() == before


def test_fired_messages_are_not_in_memory_after_the_clock_went_back() -> None:
    with no_collector():
        before = held_messages()
        state = taken_over()
        for offset in range(50):
            send(state, offset, offset * 100)
        state.collect(NOW_MS - 60_000)
        fire(state, NOW_MS + 60_000)
        assert state.held == 0
        assert held_messages() == before


HOUR_MS = 3_600_000


def accept_stamped(state: PartitionState, offset: int, timestamp_ms: int, now_ms: int) -> None:
    state.arrivals.accept(offset, timestamp_ms, b"k", b"v", None, now_ms)


def test_a_timestamp_an_hour_ahead_does_not_delay_the_messages_behind_it() -> None:
    state = taken_over(fixed=True)
    accept_stamped(state, 0, NOW_MS + HOUR_MS, NOW_MS)
    accept_stamped(state, 1, NOW_MS, NOW_MS)
    accept_stamped(state, 2, NOW_MS + 5, NOW_MS + 5)
    assert due_offsets(fire(state, NOW_MS + 999)) == []
    assert due_offsets(fire(state, NOW_MS + 1_000)) == [0, 1]
    assert due_offsets(fire(state, NOW_MS + 1_005)) == [2]


def test_a_stamp_is_ahead_of_the_latest_that_it_may_be_and_not_of_a_clock_that_is_behind() -> None:
    state = taken_over(fixed=True)
    behind_ms = NOW_MS - HOUR_MS
    for offset, timestamp_ms in enumerate((NOW_MS, NOW_MS + HOUR_MS, NOW_MS + 7)):
        state.arrivals.accept(offset, timestamp_ms, None, None, None, behind_ms, NOW_MS + 5)
    assert due_offsets(fire(state, NOW_MS + 999)) == []
    assert due_offsets(fire(state, NOW_MS + 1_000)) == [0]
    assert due_offsets(fire(state, NOW_MS + 1_005)) == [1]
    assert due_offsets(fire(state, NOW_MS + 1_007)) == [2]


def test_a_new_owner_gives_a_timestamp_that_is_ahead_its_own_time_and_keeps_the_order() -> None:
    state = taken_over(fixed=True)
    stamps = (NOW_MS, NOW_MS + HOUR_MS, NOW_MS + 1, NOW_MS + 2)
    for offset, timestamp_ms in enumerate(stamps):
        accept_stamped(state, offset, timestamp_ms, NOW_MS + 2)
    assert due_offsets(fire(state, NOW_MS + 1_000)) == [0]
    settled = state.settle_checkpoint()
    assert decode_checkpoint(settled.metadata).due_below_ms == NOW_MS + 1_000
    after = taken_over(Recovered(1, decode_checkpoint(settled.metadata), DoneSet([], 1), 4), fixed=True)
    for offset in (1, 2, 3):
        accept_stamped(after, offset, stamps[offset], NOW_MS + 700)
    assert due_offsets(fire(after, NOW_MS + 1_699)) == []
    assert due_offsets(fire(after, NOW_MS + 1_700)) == [1, 2, 3]


def test_nothing_is_filed_behind_a_stamp_that_was_ahead_before_that_is_done() -> None:
    """Or who takes over would give that a later due time than what lies in a bucket behind it."""
    width_ms = 1_000
    closed_ms = (NOW_MS // width_ms + 2) * width_ms
    checkpoint = Checkpoint(("writer",), False, Geometry(width_ms, 10, 1), (closed_ms,))
    state = taken_over(Recovered(0, checkpoint, DoneSet(), 0), fixed=True)
    accept_stamped(state, 0, NOW_MS + HOUR_MS, closed_ms - 1_001)
    accept_stamped(state, 1, closed_ms - 1_000, closed_ms - 1_000)
    accept_stamped(state, 2, closed_ms + HOUR_MS, closed_ms - 999)
    accept_stamped(state, 3, closed_ms - 998, closed_ms - 998)
    assert state.placing.to_file == 3
    assert len(state.take_to_file(10, closed_ms - 998)) == 0
    assert due_offsets(fire(state, closed_ms - 1)) == [0]
    filing = state.take_to_file(10, closed_ms - 1)
    assert [(message.sequence, message.due_ms - closed_ms) for message, _ in filing.records] == [(1, 0), (2, 1), (3, 2)]


# -- cancels and duplicates --------------------------------------------------------------------------------------------


MESSAGE_ID = b"8e8c5b0c-0f5d-4b3e-9a55-0c6b1a3f4d21"


def cancel(state: PartitionState, offset: int, due_ms: int) -> None:
    handle = f"1.in.2.{due_ms}.{MESSAGE_ID.decode()}".encode()
    state.arrivals.accept(offset, NOW_MS, None, None, [(CANCEL, handle)], NOW_MS)


def send_named(state: PartitionState, offset: int, due_ms: int) -> None:
    headers: Headers = [(TARGET, b"orders"), (DELIVER_AT, b"%d" % due_ms), (ID, MESSAGE_ID)]
    state.arrivals.accept(offset, NOW_MS, None, None, headers, NOW_MS)


def outcomes(batch: Batch) -> list[tuple[str, int, int | None]]:
    return [
        (one.outcome.value, one.message.sequence, one.cancel.sequence if one.cancel else None)
        for one in batch.resolutions
    ]


def test_a_cancel_and_its_message_settle_each_other() -> None:
    state, due_ms = taken_over(), NOW_MS + 1_000
    send_named(state, 0, due_ms)
    cancel(state, 1, due_ms)
    assert state.next_due_ms() == 0, "the result is not put off"
    batch = fire(state, NOW_MS)
    assert outcomes(batch) == [("cancelled", 0, 1)]
    assert (due_offsets(batch), state.low, state.held, state.held_bytes) == ([], 2, 0, 0)
    assert due_offsets(fire(state, due_ms)) == []


def test_records_that_need_no_delivery_are_ready_even_alone() -> None:
    state, due_ms = taken_over(), NOW_MS + 1_000
    send_named(state, 0, due_ms)
    cancel(state, 1, due_ms)
    assert state.collect(NOW_MS)
    assert state.next_due_ms() == 0
    assert outcomes(fire(state, NOW_MS)) == [("cancelled", 0, 1)]
    assert not state.collect(NOW_MS)


def test_a_cancel_in_front_of_its_message_or_of_another_due_time_takes_nothing_and_is_too_late() -> None:
    state, due_ms = taken_over(), NOW_MS + 1_000
    cancel(state, 0, due_ms)
    send_named(state, 1, due_ms)
    send_named(state, 2, due_ms + 1)
    cancel(state, 3, due_ms + 2)
    assert outcomes(fire(state, NOW_MS)) == [("cancel-too-late", 0, None), ("cancel-too-late", 3, None)]
    assert due_offsets(fire(state, due_ms + 1)) == [1, 2]
    cancel(state, 4, due_ms + 1)
    assert outcomes(fire(state, due_ms + 1)) == [("cancel-too-late", 4, None)]


def test_a_cancel_whose_handle_is_not_rounded_to_the_tick_takes_its_message_and_frees_the_watermark() -> None:
    state, due_ms = taken_over(tick_ms=10), NOW_MS + 1_000
    send_named(state, 0, due_ms - 3)
    cancel(state, 1, due_ms - 6)
    cancel(state, 2, due_ms + 4)
    cancel(state, 3, NOW_MS + 3)
    batch = fire(state, NOW_MS + 3)
    assert sorted(outcomes(batch)) == [
        ("cancel-too-late", 2, None),
        ("cancel-too-late", 3, None),
        ("cancelled", 0, 1),
    ]
    assert (state.low, state.held) == (4, 0)


def test_an_aborted_cancellation_is_settled_again() -> None:
    state, due_ms = taken_over(), NOW_MS + 1_000
    send_named(state, 0, due_ms)
    cancel(state, 1, due_ms)
    state.collect(NOW_MS)
    batch = state.take(10, NOW_MS)
    assert decode_entry(state.settle(batch).journal) == DoneEntry({INTAKE: [(0, 2)]})
    state.put_back(batch)
    assert (state.low, state.held) == (0, 2)
    assert outcomes(fire(state, NOW_MS)) == [("cancelled", 0, 1)]


def test_a_second_message_with_the_same_id_and_due_time_is_a_duplicate() -> None:
    state, due_ms = taken_over(), NOW_MS + 1_000
    for offset, due in enumerate((due_ms, due_ms, due_ms + 1)):
        send_named(state, offset, due)
    batch = fire(state, due_ms + 1)
    assert (outcomes(batch), due_offsets(batch)) == ([("duplicate", 1, None)], [0, 2])
    send_named(state, 3, due_ms)
    assert outcomes(fire(state, due_ms + 2)) == [("duplicate", 3, None)]


def test_delivered_messages_stay_known_for_the_width_of_a_bucket() -> None:
    state, due_ms = taken_over(), NOW_MS + 1_000
    send_named(state, 0, due_ms)
    assert due_offsets(fire(state, due_ms)) == [0]
    fire(state, due_ms + BORN.geometry.width_ms)
    send_named(state, 1, due_ms)
    assert outcomes(fire(state, due_ms + BORN.geometry.width_ms)) == [("duplicate", 1, None)]
    fire(state, due_ms + BORN.geometry.width_ms + 1_000)
    send_named(state, 2, due_ms)
    assert due_offsets(fire(state, due_ms + BORN.geometry.width_ms + 1_000)) == [2], "nor is it known for ever"


def test_a_message_about_to_be_delivered_stays_known_however_overdue_it_is() -> None:
    """Else a cancel takes one like it, says so, and the first is delivered all the same."""
    state, due_ms = taken_over(), NOW_MS - 100_000
    send_named(state, 0, due_ms)
    state.collect(NOW_MS)
    send_named(state, 1, due_ms)
    cancel(state, 2, due_ms)
    batch = fire(state, NOW_MS)
    assert due_offsets(batch) == [0]
    assert outcomes(batch) == [("duplicate", 1, None), ("cancel-too-late", 2, None)]


def test_known_ids_of_delivered_messages_count_as_memory_and_can_be_shed() -> None:
    state = taken_over()
    for offset in range(50):
        send(state, offset, 10)
    fire(state, NOW_MS + 10)
    assert (state.held_bytes, state.memory_bytes) == (0, 50 * DONE_BYTES)
    state.shed_known(49 * DONE_BYTES)
    assert state.memory_bytes == 0


def park(state: PartitionState, offset: int, size: int, number: int | None = None) -> None:
    headers: Headers = [
        (TARGET, b"orders"),
        (DELIVER_AT, b"%d" % NOW_MS),
        (ID, b"00000000-0000-4000-8000-%012d" % (offset if number is None else number)),
    ]
    state.arrivals.accept(offset, NOW_MS, None, bytes(size), headers, NOW_MS)
    state.collect(NOW_MS)
    assert not len(state.take(1, NOW_MS, {"orders"}))


def test_a_message_in_the_parked_log_takes_no_memory_but_that_it_is_known() -> None:
    state, log = taken_over(), LevelLog()
    state.parked.limit_bytes = 0
    tracemalloc.start()
    before, _ = tracemalloc.get_traced_memory()
    for offset in range(21):
        park(state, offset, 100_000)
        file_parked(state, log, NOW_MS)
        log.records.clear()
    after, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert after - before < 100_000
    assert (state.held_bytes, state.memory_bytes) == (0, 21 * DONE_BYTES)
    assert state.parked.by_target() == {"orders": 21}
    assert (state.held, state.waiting) == (0, 21), "an alert compares what waits with what is parked"


def filed_to_the_parked_log() -> tuple[PartitionState, LevelLog]:
    state, log = taken_over(), LevelLog()
    state.parked.limit_bytes = 0
    park(state, 0, 10)
    file_parked(state, log, NOW_MS)
    assert not state.lost_ends
    return state, log


def test_a_parked_log_that_goes_on_below_its_end_is_noted_and_told_with_each_filing() -> None:
    state, log = filed_to_the_parked_log()
    end = state.parked.log.end
    log.end = end - 1
    for offset, why in ((1, "it meets the lost end"), (2, "the filing that met it may have been aborted")):
        park(state, offset, 10)
        [*_, told] = file_parked(state, log, NOW_MS)
        assert decode_entry(told) == LostEnd(PARKED, end - 1, end), why


def test_records_of_an_aborted_filing_show_that_a_log_has_lost_its_end() -> None:
    state, _ = filed_to_the_parked_log()
    end, source = state.parked.log.end, Source(PARKED, 1)
    state.note_ends([FiledRun(source, end, end + 1, 1)])
    assert not state.lost_ends, "it goes on where it was"
    state.note_ends([FiledRun(source, end - 1, end, 1), FiledRun(source, end - 2, end - 1, 1)])
    assert state.lost_ends == {PARKED: LostEnd(PARKED, end - 1, end)}, "as it was met first"


def test_one_like_a_message_in_the_parked_log_is_a_duplicate() -> None:
    state = taken_over()
    park(state, 0, 10)
    state.parked.limit_bytes = 0
    file_parked(state, LevelLog(), NOW_MS)
    headers: Headers = [(TARGET, b"others"), (DELIVER_AT, b"%d" % NOW_MS), (ID, b"00000000-0000-4000-8000-%012d" % 0)]
    state.arrivals.accept(1, NOW_MS, None, b"v", headers, NOW_MS)
    assert outcomes(fire(state, NOW_MS)) == [("duplicate", 1, None)]


@pytest.mark.parametrize("is_large", [False, True])
def test_a_dead_letter_of_a_message_in_the_parked_log_may_be_redriven_at_once(is_large: bool) -> None:
    state, log = taken_over(), LevelLog()
    state.parked.limit_bytes = 0
    size = LARGE_BYTES if is_large else 10
    park(state, 0, size)
    file_parked(state, log, NOW_MS)
    purge(state, 1)
    state.collect(NOW_MS)
    assert not len(state.take(1, NOW_MS, {"orders"}))
    read_parked(state, log, "orders")
    purged = state.take_purged("orders", 10)
    assert [dead.code for dead in purged.dead] == ["purged"]
    assert len(state.split_off_letters(purged, every=False)) == is_large
    state.confirm_parked(purged)
    park(state, 2, size, number=0)
    assert state.parked.by_target() == {"orders": 1}


def test_a_dead_letter_of_a_message_that_the_parked_log_refuses_may_be_redriven_at_once() -> None:
    state = taken_over()
    state.parked.limit_bytes = 0
    park(state, 0, 10)
    filing = state.take_to_file(1, NOW_MS, only="parked")
    state.put_back_filed(filing, {0: ("too-large", "it is")})
    assert [dead.code for dead in fire(state, NOW_MS).dead] == ["too-large"]
    park(state, 1, 10, number=0)
    assert state.parked.by_target() == {"orders": 1}


def test_the_due_times_of_a_fixed_delay_count_as_memory() -> None:
    state = taken_over(fixed=True)
    for offset in range(50):
        state.arrivals.accept(offset, NOW_MS + offset // 10, None, None, None, NOW_MS)
    assert state.memory_bytes == state.held_bytes + 5 * 16


def test_a_message_sent_again_after_its_cancel_is_new() -> None:
    state, due_ms = taken_over(), NOW_MS + 1_000
    send_named(state, 0, due_ms)
    cancel(state, 1, due_ms)
    send_named(state, 2, due_ms)
    batch = fire(state, due_ms)
    assert (outcomes(batch), due_offsets(batch)) == ([("cancelled", 0, 1)], [2])
