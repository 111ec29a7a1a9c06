"""Occurrences of schedules: each is followed by the next, in whatever way it leaves."""

import json

import pytest

from tarry.core.batch import Batch
from tarry.core.delivery import dead_result, delivery_headers, fired_result, resolution_results, source_prefix
from tarry.core.message import DeadMessage, HeldMessage
from tarry.core.partition import PartitionState
from tarry.core.progress.checkpoint import Checkpoint, Geometry
from tarry.core.progress.done_set import DoneSet
from tarry.core.progress.name_index import CONTINUES, NameEntry, NameIndex, Shard
from tarry.core.progress.name_records import (
    NameRecords,
    NamesEntry,
    ShardEntry,
    continues,
    continues_in_side,
    decode_changes,
    gone,
    put,
)
from tarry.core.progress.recovered import Recovered
from tarry.core.progress.source import Source
from tarry.core.request.intake_policy import IntakePolicy
from tarry.core.request.naming import hash_of
from tarry.core.request.occurrence import Occurrence
from tarry.core.request.reader import RequestReader
from tarry.core.wheel.filed import FILED, filed_headers, read_filed, target_of
from tarry.core.window.names import Names, NameVerdict
from tarry.headers import (
    CANCEL,
    CANCEL_NAME,
    EVERY,
    EXPIRES_AT,
    ID,
    NAME,
    NEXT,
    TARGET,
    WINDOW_MS,
    ErrorCode,
    Outcome,
    id_bytes,
    occurrence_id,
)
from tarry.jitter import jitter_ms
from tarry.timer import TimingWheel

NOW_MS = 1_700_000_000_000
SECOND_MS = 1_000
SCHEDULE = b"8e8c5b0c-0f5d-4b3e-9a55-0c6b1a3f4d21"
OTHER = b"00000000-0000-4000-8000-000000000001"
X = hash_of(b"k", b"x")
PREFIX = source_prefix("in", 0)
Headers = list[tuple[str, bytes | None]]


def taken_over(levels: int = 0, policy: IntakePolicy | None = None) -> PartitionState:
    checkpoint = Checkpoint(("writer",), False, Geometry(1_000, 10, levels), (NOW_MS,) * levels)
    reader = RequestReader(policy or IntakePolicy("in", max_delay_ms=10**9))
    recovered = Recovered(0, checkpoint, DoneSet(), 0)
    return PartitionState("in", 0, reader, False, lambda start_ms: TimingWheel(1, 64, start_ms), recovered, NOW_MS)


def schedule(every: bytes = b"1s", id_: bytes = SCHEDULE, *others: tuple[str, bytes | None]) -> Headers:
    return [(TARGET, b"orders"), (NAME, b"x"), (EVERY, every), (ID, id_), ("own", b"1"), *others]


def accept(state: PartitionState, offset: int, headers: Headers, now_ms: int = NOW_MS) -> None:
    state.arrivals.accept(offset, now_ms, b"k", b"v", headers, now_ms)


def take(state: PartitionState, now_ms: int) -> Batch:
    """Take what is due, as the firing transaction does."""
    state.collect(now_ms)
    batch = state.take(100, now_ms)
    batch.expire(now_ms)
    state.end_unfollowed(batch)
    state.follow(batch, now_ms)
    return batch


def fire(state: PartitionState, now_ms: int) -> Batch:
    batch = take(state, now_ms)
    state.settle(batch)
    state.confirm(batch)
    return batch


def follow(state: PartitionState, offset: int, batch: Batch, now_ms: int) -> Headers:
    """Read the next record that a batch has written; return its headers."""
    [(_, follower)] = batch.followers
    headers: Headers = [(name, value.encode() if isinstance(value, str) else value) for name, value in follower.headers]
    accept(state, offset, headers, now_ms)
    return headers


def test_each_delivery_writes_the_next_record_which_follows_it() -> None:
    state = taken_over()
    accept(state, 0, schedule())
    for number in range(1, 5):
        at_ms = NOW_MS + number * SECOND_MS
        batch = fire(state, at_ms)
        [occurrence] = batch.due
        assert isinstance(occurrence, Occurrence)
        assert (occurrence.number, occurrence.due_ms) == (number, at_ms)
        assert (occurrence.id, occurrence.asker) == (occurrence_id(SCHEDULE, at_ms), SCHEDULE)
        assert state.names.count == 1
        headers = follow(state, number, batch, at_ms)
        follows = (number - 1, at_ms + SECOND_MS, number + 1)
        assert headers == [*(one for one in schedule() if one[0] != ID), (ID, SCHEDULE), (NEXT, b"%d %d %d" % follows)]
    assert (state.low, state.held) == (4, 1)


def test_what_was_missed_is_not_made_up_for() -> None:
    state = taken_over()
    accept(state, 0, schedule())
    [(_, follower)] = fire(state, NOW_MS + 3_600_400).followers
    assert follower.due_ms == NOW_MS + 3_601_000


def test_after_a_clock_has_stepped_back_the_next_occurrence_is_after_the_one_before() -> None:
    state = taken_over()
    accept(state, 0, schedule())
    batch = take(state, NOW_MS + SECOND_MS)
    state.follow(batch, NOW_MS - 60_000)
    [(_, follower)] = batch.followers
    assert follower.due_ms == NOW_MS + 2 * SECOND_MS


def test_the_delivery_names_schedule_and_number_and_so_does_its_result() -> None:
    state = taken_over()
    accept(state, 0, schedule())
    [occurrence] = take(state, NOW_MS + SECOND_MS).due
    source = PREFIX + b"0"
    assert delivery_headers(occurrence, source)[-2:] == [("tarry-schedule", SCHEDULE), ("tarry-occurrence", b"1")]
    assert "tarry-every" not in dict(delivery_headers(occurrence, source))
    result = json.loads(fired_result(occurrence, source, NOW_MS))
    assert (result["id"], result["schedule"], result["occurrence"]) == (
        occurrence_id(SCHEDULE, NOW_MS + SECOND_MS).decode(),
        SCHEDULE.decode(),
        1,
    )


def test_an_aborted_delivery_is_tried_again_and_follows_once() -> None:
    state = taken_over()
    accept(state, 0, schedule())
    batch = take(state, NOW_MS + SECOND_MS)
    state.settle(batch)
    state.put_back(batch)
    assert batch.followers == []
    again = take(state, NOW_MS + 5 * SECOND_MS)
    assert [(one.number, follower.due_ms) for one, follower in again.followers] == [(1, NOW_MS + 6 * SECOND_MS)]
    state.settle(again)
    state.confirm(again)
    follow(state, 1, again, NOW_MS + 5 * SECOND_MS)
    assert [one.sequence for one in fire(state, NOW_MS + 6 * SECOND_MS).due] == [1]


# -- what ends a schedule ------------------------------------------------------------------------------------------


def answers(batch: Batch) -> list[tuple[Outcome, bytes, int]]:
    return [(one.outcome, one.id, one.offset) for decision in batch.decisions for one in decision.answers]


def test_what_is_in_the_intake_before_the_next_record_ends_the_schedule() -> None:
    state = taken_over()
    accept(state, 0, schedule())
    fired = fire(state, NOW_MS + SECOND_MS)
    accept(state, 1, [(CANCEL_NAME, b"x")], NOW_MS + SECOND_MS)
    follow(state, 2, fired, NOW_MS + SECOND_MS)
    batch = fire(state, NOW_MS + 9 * SECOND_MS)
    assert batch.due == []
    assert [(outcome, offset) for outcome, _, offset in answers(batch)] == [
        (Outcome.CANCELLED, 0),
        (Outcome.CANCELLED, 1),
    ]
    assert answers(batch)[0][1] == SCHEDULE
    assert (state.names.count, state.low, state.held) == (0, 3, 0)


def test_a_new_schedule_before_the_next_record_replaces_the_old_one() -> None:
    state = taken_over()
    accept(state, 0, schedule())
    fired = fire(state, NOW_MS + SECOND_MS)
    accept(state, 1, schedule(b"7s", OTHER), NOW_MS + SECOND_MS)
    follow(state, 2, fired, NOW_MS + SECOND_MS)
    batch = fire(state, NOW_MS + 2 * SECOND_MS)
    assert answers(batch) == [(Outcome.REPLACED, SCHEDULE, 0)]
    [occurrence] = fire(state, NOW_MS + 20 * SECOND_MS).due
    assert isinstance(occurrence, Occurrence)
    assert (occurrence.schedule, occurrence.number) == (OTHER, 1)


def test_a_replace_of_an_occurrence_that_waits_drops_it() -> None:
    state = taken_over()
    accept(state, 0, schedule())
    fire(state, NOW_MS)
    accept(state, 1, schedule(b"7s", OTHER))
    batch = fire(state, NOW_MS)
    assert answers(batch) == [(Outcome.REPLACED, SCHEDULE, 0)]
    assert [one.sequence for one in batch.dropped] == [0]
    assert state.held == 1


def test_a_schedule_that_is_sent_again_with_its_id_is_a_duplicate() -> None:
    state = taken_over()
    accept(state, 0, schedule())
    accept(state, 1, schedule())
    assert answers(fire(state, NOW_MS)) == [(Outcome.DUPLICATE, SCHEDULE, 1)]
    fired = fire(state, NOW_MS + SECOND_MS)
    # Also while its next record is on its way.
    accept(state, 2, schedule(), NOW_MS + SECOND_MS)
    follow(state, 3, fired, NOW_MS + SECOND_MS)
    assert answers(fire(state, NOW_MS + SECOND_MS)) == [(Outcome.DUPLICATE, SCHEDULE, 2)]
    assert [one.sequence for one in fire(state, NOW_MS + 2 * SECOND_MS).due] == [3]


@pytest.mark.parametrize("condition", [b"absent", b"present"])
def test_a_schedule_that_continues_counts_as_waiting(condition: bytes) -> None:
    state = taken_over()
    accept(state, 0, schedule())
    fire(state, NOW_MS + SECOND_MS)
    accept(state, 1, schedule(b"7s", OTHER, ("tarry-if", condition)), NOW_MS + SECOND_MS)
    found = answers(fire(state, NOW_MS + SECOND_MS))
    assert found[0] == ((Outcome.SKIPPED, OTHER, 1) if condition == b"absent" else (Outcome.REPLACED, SCHEDULE, 0))


def test_a_dead_occurrence_ends_its_schedule_with_one_result_of_the_schedule() -> None:
    state = taken_over()
    accept(state, 0, schedule(b"1s", SCHEDULE, (EXPIRES_AT, b"%d" % (NOW_MS + 1_500))))
    batch = fire(state, NOW_MS + 1_600)
    assert (batch.due, batch.followers) == ([], [])
    [dead] = batch.dead
    assert (dead.id, dead.code, dead.due_ms) == (SCHEDULE, ErrorCode.EXPIRED, NOW_MS + SECOND_MS)
    assert json.loads(dead_result(dead, b"in/0/0", NOW_MS))["id"] == SCHEDULE.decode()
    assert (state.names.count, state.low) == (0, 1)


def test_an_expiry_is_the_end_of_a_schedule_whose_next_time_is_later() -> None:
    state = taken_over()
    accept(state, 0, schedule(b"1s", SCHEDULE, (EXPIRES_AT, b"%d" % (NOW_MS + 1_500))))
    fired = fire(state, NOW_MS + SECOND_MS)
    headers = follow(state, 1, fired, NOW_MS + SECOND_MS)
    [dead] = fire(state, NOW_MS + SECOND_MS).dead
    assert (dead.id, dead.code, dead.headers, dead.value) == (SCHEDULE, ErrorCode.EXPIRED, headers, b"v")
    assert (state.names.count, state.low, state.held) == (0, 2, 0)


def test_a_rejected_next_record_of_a_schedule_that_was_replaced_is_done_without_a_letter() -> None:
    state = taken_over()
    accept(state, 0, schedule(b"1s", SCHEDULE, (EXPIRES_AT, b"%d" % (NOW_MS + 1_500))))
    fired = fire(state, NOW_MS + SECOND_MS)
    accept(state, 1, schedule(b"7s", OTHER), NOW_MS + SECOND_MS)
    follow(state, 2, fired, NOW_MS + SECOND_MS)
    batch = fire(state, NOW_MS + SECOND_MS)
    assert batch.dead == []
    assert (state.names.count, state.held) == (1, 1)
    assert [one.sequence for one in fire(state, NOW_MS + 9 * SECOND_MS).due] == [1]


def test_a_cancel_by_handle_ends_the_schedule_and_says_so_of_both() -> None:
    state = taken_over()
    accept(state, 0, schedule())
    id_ = occurrence_id(SCHEDULE, NOW_MS + SECOND_MS)
    accept(state, 1, [(CANCEL, b"1.in.0.%d.%b" % (NOW_MS + SECOND_MS, id_))])
    batch = fire(state, NOW_MS)
    [resolution] = [one for one in batch.resolutions if one.outcome is Outcome.CANCELLED]
    results = [(key, json.loads(value)) for key, value in resolution_results(resolution, PREFIX, NOW_MS)]
    assert [(key, one["outcome"], one.get("schedule")) for key, one in results] == [
        (id_, "cancelled", SCHEDULE.decode()),
        (SCHEDULE, "cancelled", None),
    ]
    assert batch.followers == []
    assert (state.names.count, state.low) == (0, 2)


def test_a_forged_next_record_is_dropped_without_a_result() -> None:
    state = taken_over()
    accept(state, 0, schedule())
    forged: tuple[str, bytes | None] = (NEXT, b"0 %d 2" % (NOW_MS + SECOND_MS))
    accept(state, 1, schedule(b"1s", SCHEDULE, forged))
    accept(state, 2, schedule(b"1s", OTHER, forged))
    batch = fire(state, NOW_MS)
    assert (answers(batch), batch.dead) == ([], [])
    assert state.held == 1
    # Nor does one with the id of another schedule continue it.
    fire(state, NOW_MS + SECOND_MS)
    accept(state, 3, schedule(b"1s", OTHER, forged), NOW_MS + SECOND_MS)
    fire(state, NOW_MS + SECOND_MS)
    assert (state.held, state.names.count) == (0, 1)


def test_an_occurrence_that_was_delivered_before_is_a_duplicate_and_is_followed() -> None:
    state = taken_over()
    accept(state, 0, schedule())
    fired = fire(state, NOW_MS + SECOND_MS)
    accept(state, 1, [(CANCEL_NAME, b"x")], NOW_MS + SECOND_MS)
    # The clock of its sender is behind: the same schedule, due at the same time again.
    state.arrivals.accept(2, NOW_MS, b"k", b"v", schedule(), NOW_MS + SECOND_MS)
    follow(state, 3, fired, NOW_MS + SECOND_MS)
    batch = fire(state, NOW_MS + SECOND_MS + 1)
    while not batch.resolutions:
        batch = fire(state, NOW_MS + SECOND_MS + 1)
    assert [(one.outcome, one.message.sequence) for one in batch.resolutions] == [(Outcome.DUPLICATE, 2)]
    assert [(one.sequence, follower.due_ms) for one, follower in batch.followers] == [(2, NOW_MS + 2 * SECOND_MS)]


# -- an intake that refuses the next record ------------------------------------------------------------------------


def three(state: PartitionState) -> None:
    for offset, name in enumerate((b"a", b"b", b"c")):
        headers = [(NAME, name) if one[0] == NAME else one for one in schedule(id_=OTHER[:-1] + b"%d" % offset)]
        accept(state, offset, headers)


def test_an_intake_with_small_batches_takes_one_next_record_in_each_transaction() -> None:
    state = taken_over()
    state.limit_occurrences(1)
    three(state)
    assert [[one.sequence for one in fire(state, NOW_MS + SECOND_MS).due] for _ in range(4)] == [[0], [1], [2], []]


def test_a_refused_next_record_ends_its_schedule_and_no_other() -> None:
    state = taken_over()
    three(state)
    batch = take(state, NOW_MS + SECOND_MS)
    assert len(batch.followers) == 3
    state.refuse_next(batch, ErrorCode.TOO_LARGE, "refused")
    state.put_back(batch)
    # Which of them was refused is known only when each is alone.
    batch = take(state, NOW_MS + SECOND_MS)
    assert [one.sequence for one in batch.due] == [0]
    state.refuse_next(batch, ErrorCode.TOO_LARGE, "refused")
    state.put_back(batch)
    batch = fire(state, NOW_MS + SECOND_MS)
    assert [(one.sequence, one.code, one.detail) for one in batch.dead] == [(0, ErrorCode.TOO_LARGE, "refused")]
    # Then batches have several again.
    assert [one.sequence for one in fire(state, NOW_MS + SECOND_MS).due] == [1, 2]
    assert state.names.count == 2


def test_without_the_right_to_write_to_the_intake_each_schedule_ends_when_it_is_due() -> None:
    state = taken_over()
    three(state)
    state.end_schedules(ErrorCode.SCHEDULES_NOT_ACCEPTED, "no right")
    batch = fire(state, NOW_MS + SECOND_MS)
    assert [(one.sequence, one.code) for one in batch.dead] == [
        (offset, ErrorCode.SCHEDULES_NOT_ACCEPTED) for offset in range(3)
    ]
    assert (batch.due, batch.followers, state.names.count) == ([], [], 0)


# -- in a bucket ---------------------------------------------------------------------------------------------------


def test_an_occurrence_comes_back_from_a_bucket_as_it_was() -> None:
    state = taken_over(levels=2)
    accept(state, 0, schedule(b"1h", SCHEDULE, (EXPIRES_AT, b"%d" % (NOW_MS + 10**9))))
    fire(state, NOW_MS)
    [(message, source)] = state.take_to_file(10, NOW_MS).records
    assert isinstance(message, Occurrence)
    headers: Headers = [
        (name, value.encode() if isinstance(value, str) else value) for name, value in filed_headers(message)
    ]
    assert target_of(headers) == "orders"
    again = read_filed(Source(1, 7), 3, b"k", b"v", headers)
    assert isinstance(again, Occurrence)
    slots = ("due_ms", "sequence", "id", "target", "name", "schedule", "number", "expires_ms", "original_headers")
    assert [getattr(again, slot) for slot in slots] == [getattr(message, slot) for slot in slots]
    assert again.follower(NOW_MS, 1) == message.follower(NOW_MS, 1)
    assert source.level >= 1
    filed = dict(headers)[FILED]
    assert filed is not None
    carries, expires, repeated = 1, 8, 16
    assert filed[21] == carries | expires | repeated, "a record that an earlier version has filed is read otherwise"


def test_a_rule_that_this_version_cannot_read_ends_the_schedule_at_its_next_record() -> None:
    state = taken_over()
    accept(state, 0, schedule())
    [occurrence] = take(state, NOW_MS + SECOND_MS).due
    assert isinstance(occurrence, Occurrence)
    strange = Occurrence(occurrence.due_ms, 0, b"k", b"v", schedule(b"a fortnight"), True, "orders", -1, occurrence.id)
    strange.schedule, strange.number = SCHEDULE, 1
    follower = strange.follower(NOW_MS + SECOND_MS, 1)
    assert follower is not None
    reader = RequestReader(IntakePolicy("in"))
    headers = [(name, value.encode() if isinstance(value, str) else value) for name, value in follower.headers]
    rejection = reader.read(0, 1, NOW_MS, headers, NOW_MS, key=b"k")
    assert rejection.code == ErrorCode.BAD_SCHEDULE  # type: ignore[union-attr]
    assert rejection.planned.follows == 0  # type: ignore[union-attr]


# -- the index and the journal -------------------------------------------------------------------------------------


def entry(offset: int, second: int = 1) -> NameEntry:
    return NameEntry(offset, NOW_MS + second * SECOND_MS, id_bytes(SCHEDULE))


def test_an_entry_that_continues_is_named_by_the_place_of_the_occurrence() -> None:
    index = NameIndex()
    index.put(X, entry(CONTINUES | 5))
    found = index.find(X)
    assert found is not None
    assert (found.continues, found.place, found.offset) == (True, 5, CONTINUES | 5)
    assert (entry(5).continues, entry(5).place) == (False, 5)


def records(*taken: bytes | Shard) -> NameEntry | None:
    found = NameRecords()
    for one in taken:
        found.take(decode_changes(one) if isinstance(one, bytes) else ShardEntry(9, one))
    return found.index.find(X)


def shard(*entries: NameEntry) -> Shard:
    return Shard(b"", b"", b"".join(X + one.packed() for one in entries))


BEHIND_5 = entry(CONTINUES | 5, 2)


@pytest.mark.parametrize("change", [continues(X, BEHIND_5), continues_in_side(X, BEHIND_5)], ids=["firing", "aside"])
def test_a_schedule_continues_only_behind_the_occurrence_that_waits(change: bytes) -> None:
    assert records(put(X, entry(5)), change) == BEHIND_5
    assert records(put(X, entry(7)), change) == entry(7)
    assert records(change) is None
    assert records(put(X, entry(5)), change, put(X, entry(9))) == entry(9)
    assert records(put(X, entry(5)), change, gone(X, CONTINUES | 5)) is None


def test_a_shard_does_not_bring_back_an_occurrence_that_a_side_transaction_has_delivered() -> None:
    aside = continues_in_side(X, BEHIND_5)
    assert records(put(X, entry(5)), aside, shard(entry(5))) == BEHIND_5
    assert records(put(X, entry(5)), aside, shard(entry(5)), gone(X, CONTINUES | 5)) is None
    assert records(put(X, entry(5)), aside, shard(entry(5)), put(X, entry(9)), shard(entry(9))) == entry(9)
    assert records(put(X, entry(5)), aside, shard()) is None
    # What a firing transaction has done, a later shard knows.
    assert records(put(X, entry(5)), continues(X, BEHIND_5), shard(BEHIND_5)) == BEHIND_5


def test_a_change_of_a_schedule_does_not_count_as_a_decision() -> None:
    found = NameRecords()
    found.take(NamesEntry(put(X, entry(5)) + continues(X, BEHIND_5) + continues_in_side(X, BEHIND_5)))
    assert found.below == 6


def test_a_decision_of_a_next_record_depends_on_the_whole_entry() -> None:
    def decided(follows: int, id_: bytes) -> NameVerdict:
        names = Names(("in", 0), NameRecords(), None, 0, 0, taken_over()._memory)
        names._index.put(X, BEHIND_5)
        message = Occurrence(NOW_MS + 2 * SECOND_MS, 9, b"k", b"v", None, False, "orders", -1, OTHER)
        message.schedule, message.number, message.name = id_, 2, X
        return names.decide_next(message, follows)

    assert decided(5, SCHEDULE) is NameVerdict.KEEP
    assert decided(4, SCHEDULE) is NameVerdict.DONE
    assert decided(5, OTHER) is NameVerdict.DONE


def test_a_message_that_is_no_schedule_has_one_id() -> None:
    message = HeldMessage(1, 0, b"k", b"v", None, False, "orders", -1, OTHER)
    assert message.asker == OTHER
    assert DeadMessage.of(message, "bad-time", "").id == OTHER


def same_id_under(name: bytes) -> Headers:
    return [(header, name if header == NAME else value) for header, value in schedule()]


def test_a_cancel_ends_all_schedules_whose_occurrences_it_takes() -> None:
    # Two names, and one id: so their occurrences are duplicates.
    state, due_ms = taken_over(), NOW_MS + SECOND_MS
    accept(state, 0, schedule())
    accept(state, 1, same_id_under(b"y"))
    accept(state, 2, [(CANCEL, b"1.in.0.%d.%b" % (due_ms, occurrence_id(SCHEDULE, due_ms)))])
    batch = fire(state, NOW_MS + 1)
    taken = [(one.outcome, one.message.sequence) for one in batch.resolutions]
    assert (taken, batch.followers) == ([(Outcome.DUPLICATE, 1), (Outcome.CANCELLED, 0)], [])
    assert (state.names.count, state.low, state.held, state.held_bytes) == (0, 3, 0, 0)


@pytest.mark.parametrize("is_large", [False, True])
@pytest.mark.parametrize("is_denied", [False, True])
def test_a_duplicate_that_cannot_be_followed_ends_its_schedule_with_a_dead_letter(
    *, is_denied: bool, is_large: bool
) -> None:
    state = taken_over()
    accept(state, 0, schedule())
    accept(state, 1, same_id_under(b"y"))
    batch = take(state, NOW_MS + 1)
    assert [(one.outcome, one.message.sequence) for one in batch.resolutions] == [(Outcome.DUPLICATE, 1)]
    if is_denied:
        state.end_schedules("schedules-not-accepted", "no right")
    else:
        state.refuse_next(batch, "too-large", "too large")
    for _ in range(2):  # an abort takes it back
        state.settle(batch)
        state.put_back(batch)
        batch = take(state, NOW_MS + 1)
        assert (batch.due, batch.resolutions, batch.followers) == ([], [], [])
        assert [(dead.sequence, dead.id, dead.ends_schedule) for dead in batch.dead] == [(1, SCHEDULE, True)]
    if is_large:
        state.split_off_letters(batch, every=True)
        assert (batch.dead, batch.retired) == ([], [])
        state.put_back(batch)  # the letter stays apart
        fire(state, NOW_MS + 1)
        letters = state.take_letters(9, 1 << 62)
        state.journal_of_letters(letters)
        state.confirm_letters(letters)
    else:
        state.settle(batch)
        state.confirm(batch)
    assert state.names.count == 1
    assert len(fire(state, NOW_MS + SECOND_MS).due) == (0 if is_denied else 1)
    assert (state.held, state.held_bytes, state.low) == (0, 0, 2)


def test_the_hash_of_a_key_and_a_name_is_a_format_that_lasts() -> None:
    """Journals of earlier versions hold it. A key and a name cannot be confused with others of the same bytes."""
    assert hash_of(b"order", b"payment").hex() == "f21039e17f02e0e16b0a27b6829a1c2e"
    assert hash_of(b"orderp", b"ayment") != hash_of(b"order", b"payment")


def test_each_occurrence_is_later_than_its_rule_by_the_part_of_the_window_that_its_schedule_has() -> None:
    window_ms = 500
    later_ms = jitter_ms(SCHEDULE, window_ms)
    assert 0 < later_ms < window_ms
    state = taken_over()
    accept(state, 0, schedule(b"1s", SCHEDULE, (WINDOW_MS, b"%d" % window_ms)))
    due_ms = NOW_MS + later_ms
    assert not fire(state, due_ms - 1).due
    [(_, follower)] = fire(state, due_ms).followers
    assert follower.due_ms == due_ms + SECOND_MS
