"""Messages that a transaction could not file wait again; those that a level refuses are dead letters."""

from tarry.core.batch import Batch, Filing
from tarry.core.message import Headers
from tarry.core.partition import PartitionState
from tarry.core.progress.checkpoint import Checkpoint, Geometry
from tarry.core.progress.done_set import DoneSet
from tarry.core.progress.recovered import Recovered
from tarry.core.progress.source import INTAKE
from tarry.core.request.intake_policy import IntakePolicy
from tarry.core.request.reader import RequestReader
from tarry.headers import CANCEL, DELIVER_AT, ID, TARGET, derived_id
from tarry.timer import TimingWheel

NOW_MS = 1_700_000_000_000
DUE_MS = NOW_MS + 60_000
MESSAGE_ID = b"8e8c5b0c-0f5d-4b3e-9a55-0c6b1a3f4d21"
TOO_LARGE = ("too-large", "in.wheel-1: too large")


def taken_over() -> PartitionState:
    checkpoint = Checkpoint(("writer",), False, Geometry(1_000, 10, 2), (NOW_MS, NOW_MS))
    reader = RequestReader(IntakePolicy("in", max_delay_ms=10**9))
    recovered = Recovered(0, checkpoint, DoneSet(), 0)
    return PartitionState("in", 0, reader, False, lambda start_ms: TimingWheel(1, 64, start_ms), recovered, NOW_MS)


def send(state: PartitionState, offset: int) -> Headers:
    headers: Headers = [(TARGET, b"orders"), (DELIVER_AT, b"%d" % DUE_MS), (ID, MESSAGE_ID)]
    state.arrivals.accept(offset, NOW_MS, b"k", b"v%d" % offset, headers, NOW_MS)
    return headers


def file(state: PartitionState) -> Filing:
    return state.take_to_file(100, NOW_MS)


def fire(state: PartitionState) -> Batch:
    state.collect(NOW_MS)
    batch = state.take(100, NOW_MS)
    state.settle(batch)
    state.confirm(batch)
    return batch


def test_a_message_that_a_level_refuses_is_an_unchanged_dead_letter_and_the_others_wait_in_order() -> None:
    state = taken_over()
    headers = [send(state, offset) for offset in range(5)]
    state.put_back_filed(file(state), {1: TOO_LARGE, 3: TOO_LARGE})
    again = file(state)
    assert [message.sequence for message, _ in again.records] == [0, 2, 4]
    dead = fire(state).dead
    assert [(one.sequence, one.key, one.value, one.headers) for one in dead] == [
        (1, b"k", b"v1", headers[1]),
        (3, b"k", b"v3", headers[3]),
    ]
    assert {(one.code, one.detail, one.id, one.due_ms, one.target) for one in dead} == {
        (*TOO_LARGE, MESSAGE_ID, DUE_MS, "orders")
    }
    assert state.low == 0
    state.confirm_filed(again)
    assert (state.low, state.held, state.held_bytes) == (5, 0, 0)


def test_a_filing_that_failed_temporarily_condemns_no_message() -> None:
    state = taken_over()
    for offset in range(3):
        send(state, offset)
    state.put_back_filed(file(state), {})
    assert not fire(state).dead
    assert file(state).offsets == {INTAKE: [0, 1, 2]}


def test_a_cancel_that_no_level_takes_is_dead_as_itself_not_as_its_message() -> None:
    state = taken_over()
    handle = f"1.in.0.{DUE_MS}.{MESSAGE_ID.decode()}".encode()
    state.arrivals.accept(0, NOW_MS, None, None, [(CANCEL, handle)], NOW_MS)
    state.put_back_filed(file(state), {0: TOO_LARGE})
    (dead,) = fire(state).dead
    assert (dead.id, dead.due_ms, dead.target) == (derived_id("in", 0, 0), None, None)
    assert dead.headers == [(CANCEL, handle)]
    assert (state.low, state.held_bytes) == (1, 0)
