"""Records of a bucket that is read: superseded messages met in passes, and what counts towards memory."""

from tarry.core.message import FiledMessage, Headers
from tarry.core.partition import PartitionState
from tarry.core.progress.checkpoint import Checkpoint, Geometry
from tarry.core.progress.done_set import DoneSet
from tarry.core.progress.recovered import Recovered
from tarry.core.request.intake_policy import IntakePolicy
from tarry.core.request.naming import Condition, hash_of
from tarry.core.request.reader import RequestReader
from tarry.core.wheel.closed_range import ClosedRange, Span
from tarry.core.wheel.filed import filed_headers
from tarry.core.wheel.overflow import ToRead
from tarry.core.wheel.passes import Passes
from tarry.headers import derived_id
from tarry.timer import TimingWheel

NOW_MS = 1_700_000_000_000
NAME = hash_of(b"k", b"name")


def taken_over(count: int) -> tuple[PartitionState, ToRead]:
    """Return the state of a partition that has just closed a bucket of level 1, with so many records."""
    checkpoint = Checkpoint(("writer",), False, Geometry(1_000, 10, 2), (NOW_MS + 1_000, NOW_MS + 10_000))
    reader = RequestReader(IntakePolicy("in", max_delay_ms=10**9))
    recovered = Recovered(0, checkpoint, DoneSet(), 0)
    state = PartitionState("in", 0, reader, False, lambda start_ms: TimingWheel(1, 64, start_ms), recovered, NOW_MS)
    bucket = ClosedRange(Span(1, NOW_MS, NOW_MS + 1_000), [(0, count)], count, 0, {})
    return state, ToRead(1, bucket, [(0, count)])


def message(sequence: int, *, value: bytes = b"v" * 100, name: bytes | None = None) -> FiledMessage:
    """Return a message of the bucket; all are due in the same millisecond."""
    headers: Headers = [("trace", b"1")]
    one = FiledMessage(NOW_MS + 500, sequence, b"k", value, headers, True, "orders", -1, derived_id("in", 0, sequence))
    one.name = name
    return one


def range_of(to_read: ToRead) -> ClosedRange:
    assert isinstance(to_read.range, ClosedRange)
    return to_read.range


def read(state: PartitionState, to_read: ToRead, *messages: FiledMessage) -> None:
    """Read a bucket to its end; its records are at the offsets from 0 on."""
    for offset, one in enumerate(messages):
        headers = filed_headers(one)
        state.level_records.accept([to_read], offset, one.key, one.value, headers, NOW_MS)  # type: ignore[arg-type]
    for held in range_of(to_read).reach_end():
        state._hot.hold(held, NOW_MS)


def supersede(state: PartitionState, one: FiledMessage) -> None:
    """Let a later message take the name of one that waits."""
    state.names.decide(message(90, name=one.name), Condition.ALWAYS)
    assert state.names.is_superseded(one)


def in_passes(state: PartitionState, to_read: ToRead, messages: int) -> None:
    """Let the bucket be read in passes, with room for so many messages."""
    range_of(to_read).passes = Passes(NOW_MS, messages * message(0).size_bytes)


def dropped(state: PartitionState) -> int:
    """How many superseded messages wait to be completed."""
    return state.names.held


def test_a_superseded_message_that_each_pass_meets_is_dropped_once() -> None:
    state, to_read = taken_over(3)
    messages = message(0), message(1), message(2, name=NAME)
    state.names.decide(messages[2], Condition.ALWAYS)
    supersede(state, messages[2])
    in_passes(state, to_read, 1)
    read(state, to_read, *messages)
    assert dropped(state) == 1
    range_of(to_read).begin_pass(message(0).size_bytes)
    read(state, to_read, *messages)
    assert dropped(state) == 1


def test_a_message_that_an_earlier_pass_has_kept_is_left_to_whoever_holds_it() -> None:
    state, to_read = taken_over(2)
    messages = message(0, name=NAME), message(1)
    state.names.decide(messages[0], Condition.ALWAYS)
    in_passes(state, to_read, 1)
    read(state, to_read, *messages)
    supersede(state, messages[0])
    range_of(to_read).begin_pass(message(0).size_bytes)
    read(state, to_read, *messages)
    assert dropped(state) == 0


def test_the_first_message_that_no_pass_has_kept_is_dropped_where_it_is_met() -> None:
    state, to_read = taken_over(2)
    messages = message(0), message(1, name=NAME)
    state.names.decide(messages[1], Condition.ALWAYS)
    in_passes(state, to_read, 1)
    read(state, to_read, *messages)
    assert range_of(to_read).gate == (messages[1].due_ms, messages[1].sequence)
    supersede(state, messages[1])
    range_of(to_read).begin_pass(message(0).size_bytes)
    read(state, to_read, *messages)
    assert dropped(state) == 1


def test_each_message_of_a_pass_counts_once_towards_the_average_whether_it_is_kept_or_not() -> None:
    state, to_read = taken_over(2)
    small, large = message(0), message(1, value=b"v" * 10_000)
    average_bytes = (small.size_bytes + large.size_bytes) // 2
    in_passes(state, to_read, 1)
    read(state, to_read, small, large)
    assert state._memory.typical_bytes == average_bytes
    range_of(to_read).begin_pass(message(0).size_bytes)
    read(state, to_read, small, large)
    assert state._memory.typical_bytes == average_bytes


def test_a_bucket_that_just_fills_the_room_is_read_whole_and_one_byte_more_turns_it_to_passes() -> None:
    messages = [message(offset) for offset in range(3)]
    room_bytes = sum(one.size_bytes for one in messages)
    for missing_bytes in (0, 1):
        state, to_read = taken_over(3)
        assert not state.level_records.to_read(room_bytes - missing_bytes)
        for offset, one in enumerate(messages):
            headers = filed_headers(one)
            state.level_records.accept([to_read], offset, one.key, one.value, headers, NOW_MS)  # type: ignore[arg-type]
        assert (range_of(to_read).passes is not None) == bool(missing_bytes)


def test_a_record_that_cannot_be_read_is_a_dead_letter_with_its_headers() -> None:
    state, to_read = taken_over(1)
    one = message(0)
    headers = filed_headers(one)
    packed = headers[-1][1]
    assert isinstance(packed, bytes)
    headers[-1] = (headers[-1][0], packed[:21] + b"\x04" + packed[22:])  # in a dialect, which then is not named
    state.level_records.accept([to_read], 0, one.key, one.value, headers, NOW_MS)  # type: ignore[arg-type]
    (dead,) = state.take(100, NOW_MS).dead
    assert (dead.key, dead.value, dead.headers) == (one.key, one.value, headers)
    assert "in.wheel-1/0, offset 0" in dead.detail
