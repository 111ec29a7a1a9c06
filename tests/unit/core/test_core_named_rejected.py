"""A named record that is rejected, at once or when a process with another configuration reads it again."""

from typing import TYPE_CHECKING

import pytest

from tarry.core.batch import Batch
from tarry.core.partition import PartitionState
from tarry.core.progress.checkpoint import Checkpoint, Geometry
from tarry.core.progress.done_set import DoneSet
from tarry.core.progress.name_index import NameEntry
from tarry.core.progress.name_records import NameRecords, NamesEntry, gone, put
from tarry.core.progress.recovered import Recovered
from tarry.core.request.intake_policy import IntakePolicy
from tarry.core.request.naming import hash_of
from tarry.core.request.reader import RequestReader
from tarry.core.window.names import hidden_name
from tarry.headers import DELIVER_AT, NAME, TARGET, ErrorCode, derived_id, id_bytes
from tarry.timer import TimingWheel

if TYPE_CHECKING:
    from tarry.core.message import Headers

NOW_MS = 1_700_000_000_000
DUE_MS = NOW_MS + 60_000
X, Y = b"x", b"y"


def entry(offset: int) -> NameEntry:
    return NameEntry(offset, DUE_MS, id_bytes(derived_id("in", 0, offset)))


ORDERS_ONLY = IntakePolicy("in", targets=("orders",))


def taken_over(changes: bytes, end: int, policy: IntakePolicy = ORDERS_ONLY) -> PartitionState:
    """A partition whose journal has these changes of names; `bills` is no target any more."""
    names = NameRecords()
    names.take(NamesEntry(changes))
    checkpoint = Checkpoint(("w",), False, Geometry(20_000, 10, 0), names_pointer=0)
    found = Recovered(0, checkpoint, DoneSet(), end, names=names)
    reader = RequestReader(policy)
    return PartitionState("in", 0, reader, False, lambda start_ms: TimingWheel(1, 16, start_ms), found, NOW_MS)


def read(state: PartitionState, *names: bytes) -> None:
    """Read records for `bills`, from the first one on, with these names."""
    for offset, name in enumerate(names):
        headers: Headers = [(TARGET, b"bills"), (DELIVER_AT, b"%d" % DUE_MS), (NAME, name)]
        state.arrivals.accept(offset, NOW_MS, b"k", b"v", headers, NOW_MS)
    state.arrivals.reach(len(names))


def fire(state: PartitionState) -> Batch:
    """Return what one transaction completes; nothing is left then."""
    assert state.collect(NOW_MS)
    batch = state.take(100, NOW_MS)
    state.settle(batch)
    state.confirm(batch)
    assert (state.held, state.held_bytes) == (0, 0)
    return batch


def test_it_is_a_dead_letter_and_its_name_is_free_afterwards() -> None:
    x = hash_of(b"k", X)
    state = taken_over(put(x, entry(0)), 1)
    read(state, X)
    assert state.names.count == 1  # until the letter is written
    (dead,) = fire(state).dead
    assert (dead.sequence, dead.code, dead.name) == (0, ErrorCode.TARGET_NOT_ALLOWED, x)
    assert state.names.count == 0


def test_it_is_dropped_if_it_was_replaced_or_cancelled_by_name() -> None:
    x, y = hash_of(b"k", X), hash_of(b"k", Y)
    state = taken_over(put(x, entry(0)) + put(x, entry(1)) + put(y, entry(2)) + gone(y, 2), 3)
    read(state, X, X, Y)
    batch = fire(state)
    assert [dead.sequence for dead in batch.dead] == [1]  # the others have their results
    assert sorted(copy.sequence for copy in batch.dropped) == [0, 2]
    assert state.low == 3


def test_it_waits_under_a_hidden_name_if_nothing_was_decided_about_it() -> None:
    x = hash_of(b"k", X)
    state = taken_over(put(x, entry(0)), 2)
    read(state, X, X)
    assert state.names.count == 1
    first, second = fire(state).dead
    assert (first.name, second.name) == (x, hidden_name(1))
    assert not list(state.names._index)


def test_its_letter_is_written_after_a_take_over_between_the_decision_and_the_letter() -> None:
    state = taken_over(b"", 1)
    read(state, X)
    assert state.collect(NOW_MS)
    decided = state.take(1, NOW_MS)  # one half is for decisions, and the letter finds no room
    assert (len(decided.decisions), decided.dead) == (1, [])
    after = taken_over(b"".join(decision.change for decision in decided.decisions), 1)
    assert after.names.decided_below == 1
    read(after, X)
    assert [dead.code for dead in fire(after).dead] == [ErrorCode.TARGET_NOT_ALLOWED]


def test_its_letter_says_the_first_reason_if_it_has_no_fault_when_it_is_read_again() -> None:
    state = taken_over(b"", 1)
    read(state, X)
    assert state.collect(NOW_MS)
    decided = b"".join(decision.change for decision in state.take(1, NOW_MS).decisions)
    after = taken_over(decided, 1, IntakePolicy("in", targets=("orders", "bills")))
    read(after, X)
    (dead,) = fire(after).dead
    assert (dead.code, dead.name) == (ErrorCode.TARGET_NOT_ALLOWED, hidden_name(0))
    assert "names wait" not in dead.detail


@pytest.mark.parametrize(
    ("number", "code"),
    [
        (0, ErrorCode.TOO_MANY_NAMES),
        (1, ErrorCode.NO_DELAY),
        (25, ErrorCode.WRONG_PARTITION),
        (26, ErrorCode.EXPIRED),
        (28, ErrorCode.SCHEDULES_NOT_ACCEPTED),
        (65_000, ErrorCode.TOO_MANY_NAMES),  # by a later version
    ],
)
def test_journals_keep_the_number_of_a_reason(number: int, code: ErrorCode) -> None:
    found = NameEntry(0, number, id_bytes(derived_id("in", 0, 0)))
    state = taken_over(put(hidden_name(0), found), 1, IntakePolicy("in", targets=("bills",)))
    read(state, X)
    (dead,) = fire(state).dead
    assert dead.code is code


def test_a_rejected_record_leaves_the_message_of_its_name_alone_and_takes_no_room() -> None:
    x = hash_of(b"k", X)
    state = taken_over(put(x, entry(5)), 6)
    state.names.limit = 1
    state.arrivals.reach(6)
    headers: Headers = [(TARGET, b"bills"), (DELIVER_AT, b"%d" % DUE_MS), (NAME, X)]
    state.arrivals.accept(6, NOW_MS, b"k", b"v", headers, NOW_MS)
    assert state.collect(NOW_MS)
    (dead,) = state.take(100, NOW_MS).dead
    assert (dead.sequence, dead.code, dead.name) == (6, ErrorCode.TARGET_NOT_ALLOWED, hidden_name(6))
    assert (state.names.count, state.names._index.find(x)) == (1, entry(5))


def test_its_hidden_name_goes_with_its_letter_also_when_names_are_not_accepted_any_more() -> None:
    state = taken_over(put(hidden_name(0), entry(0)), 1, IntakePolicy("in", fixed_delay_ms=0, fixed_target="orders"))
    read(state, X)
    (dead,) = fire(state).dead
    assert (dead.code, dead.name) == (ErrorCode.NAMES_NOT_ACCEPTED, hidden_name(0))
    assert not list(state.names._index)


def test_it_leaves_the_name_to_a_message_that_is_read_behind_it() -> None:
    x = hash_of(b"k", X)
    state = taken_over(put(x, entry(0)), 1)
    read(state, X)
    headers: Headers = [(TARGET, b"orders"), (DELIVER_AT, b"%d" % DUE_MS), (NAME, X)]
    state.arrivals.accept(1, NOW_MS, b"k", b"v", headers, NOW_MS)
    batches = []
    while state.collect(NOW_MS):
        batches.append(state.take(100, NOW_MS))
        state.settle(batches[-1])
        state.confirm(batches[-1])
    assert [dead for batch in batches for dead in batch.dead] == []
    assert [copy.sequence for batch in batches for copy in batch.dropped] == [0]
    assert state.names.count == 1


def test_it_is_a_dead_letter_if_it_was_refused_before_and_its_letter_was_not_written() -> None:
    state = taken_over(put(hidden_name(0), entry(0)), 1)
    read(state, X)
    batch = fire(state)
    assert [dead.code for dead in batch.dead] == [ErrorCode.TARGET_NOT_ALLOWED]
    assert state.names.count == 0
