"""Messages behind a record with a timestamp far ahead must not be filed yet, and hold up no others."""

from collections.abc import Sequence

import pytest

from tarry.core.batch import Filing
from tarry.core.message import FiledMessage
from tarry.core.partition import PartitionState
from tarry.core.progress.checkpoint import Checkpoint, Geometry
from tarry.core.progress.done_set import DoneSet
from tarry.core.progress.recovered import Recovered
from tarry.core.progress.source import INTAKE, Source
from tarry.core.request.intake_policy import IntakePolicy
from tarry.core.request.reader import RequestReader
from tarry.core.window.placing import MOST_HELD_UP
from tarry.service.worker.budget import is_behind
from tarry.timer import TimingWheel

WIDTH_MS = 1_000
CLOSED_MS = 1_700_000_000_000
HOUR_MS = 3_600_000
MOST_TO_FILE = 10_000
LIMIT = 1_000
BUCKET = Source(2, 0)


def in_a_replay(records: int, partition: int = 0) -> PartitionState:
    """A partition in which a record whose stamp was ahead is held, and stamps behind it are for buckets."""
    checkpoint = Checkpoint(("writer",), False, Geometry(WIDTH_MS, 10, 2), (CLOSED_MS, CLOSED_MS))
    state = PartitionState(
        "in",
        partition,
        RequestReader(IntakePolicy(topic="in", fixed_delay_ms=WIDTH_MS, fixed_target="orders")),
        True,
        lambda start_ms: TimingWheel(1, 64, start_ms),
        Recovered(0, checkpoint, DoneSet(), records),
        CLOSED_MS - WIDTH_MS,
    )
    accept(state, 0, CLOSED_MS - WIDTH_MS - 1)
    return state


def accept(state: PartitionState, offset: int, now_ms: int) -> None:
    state.arrivals.accept(offset, now_ms + HOUR_MS, None, b"v", None, now_ms)


def file(states: Sequence[PartitionState]) -> list[Filing]:
    """As the filer does: one transaction of all of them."""
    filings = [(state, state.take_to_file(LIMIT, CLOSED_MS - WIDTH_MS)) for state in states]
    for state, filing in filings:
        state.confirm_filed(filing)
    return [filing for _, filing in filings]


def of_a_bucket(offset: int) -> FiledMessage:
    message = FiledMessage(CLOSED_MS + 1, -1 - offset, None, b"v", None, False, "orders", -1, b"%036d" % offset)
    message.source, message.offset = BUCKET, offset
    return message


@pytest.mark.parametrize("partitions", [1, 3])
def test_a_replay_is_read_to_its_end_however_much_is_held_up(partitions: int) -> None:
    """Nothing fires before, so what holds the others up is not done before either."""
    most = MOST_HELD_UP + MOST_TO_FILE
    states = [in_a_replay(most, partition) for partition in range(partitions)]
    read = 1
    for _ in range(200):
        if read < most and not is_behind(states, MOST_TO_FILE):
            for state in states:
                for offset in range(read, min(read + LIMIT, most)):
                    accept(state, offset, CLOSED_MS - WIDTH_MS)
            read = min(read + LIMIT, most)
        file(states)
    assert read == most
    assert [state.collect(CLOSED_MS - 1) for state in states] == [True] * partitions
    assert not any(state.is_gated for state in states)


def test_held_up_messages_do_not_hold_up_messages_from_buckets() -> None:
    state = in_a_replay(0)
    many = 2 * LIMIT
    for offset in range(1, many + 1):
        accept(state, offset, CLOSED_MS - WIDTH_MS)
    for offset in range(3):
        state.placing.put(of_a_bucket(offset), CLOSED_MS - WIDTH_MS)
    filing = state.take_to_file(LIMIT, CLOSED_MS - WIDTH_MS)
    assert filing.offsets == {BUCKET: [0, 1, 2]}
    assert state.placing.to_file == many


def test_held_up_messages_are_filed_in_order_once_that_is_allowed() -> None:
    state = in_a_replay(0)
    for offset in range(1, 5):
        accept(state, offset, CLOSED_MS - WIDTH_MS)
    assert len(state.take_to_file(LIMIT, CLOSED_MS - WIDTH_MS)) == 0
    accept(state, 5, CLOSED_MS - WIDTH_MS)
    state.collect(CLOSED_MS - 1)
    batch = state.take(LIMIT, CLOSED_MS - 1)
    state.settle(batch)
    state.confirm(batch)
    filing = state.take_to_file(LIMIT, CLOSED_MS - 1)
    assert filing.offsets == {INTAKE: [1, 2, 3, 4, 5]}
    state.put_back_filed(filing, {})
    assert file([state])[0].offsets == {INTAKE: [1, 2, 3, 4, 5]}
    assert (state.low, state.placing.to_file) == (6, 0)


def test_a_record_whose_stamp_was_ahead_and_that_is_done_holds_up_nothing() -> None:
    checkpoint = Checkpoint(("writer",), False, Geometry(WIDTH_MS, 10, 2), (CLOSED_MS + 2_000, CLOSED_MS + 20_000))
    state = PartitionState(
        "in",
        0,
        RequestReader(IntakePolicy(topic="in", fixed_delay_ms=60_000, fixed_target="orders")),
        True,
        lambda start_ms: TimingWheel(1, 64, start_ms),
        Recovered(0, checkpoint, DoneSet(), 0),
        CLOSED_MS,
    )
    state.arrivals.accept(0, CLOSED_MS, None, b"", [("tarry-cancel", b"x")], CLOSED_MS)  # a letter, which is not done
    state.arrivals.accept(1, CLOSED_MS + HOUR_MS, b"k", b"ahead", None, CLOSED_MS)
    filing = state.take_to_file(LIMIT, CLOSED_MS)
    state.arrivals.accept(2, CLOSED_MS + 1, b"k", b"behind it", None, CLOSED_MS + 1)
    assert filing.offsets == {INTAKE: [1]}
    assert not state.take_to_file(LIMIT, CLOSED_MS).offsets, "what is behind it waits until it is filed"
    state.confirm_filed(filing)
    assert state.take_to_file(LIMIT, CLOSED_MS).offsets == {INTAKE: [2]}
