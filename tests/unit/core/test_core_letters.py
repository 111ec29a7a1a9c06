"""Dead letters that go apart, and what fits in no form."""

from tarry.core.batch import Batch, FiledRun
from tarry.core.message import STUB_KEY_BYTES, DeadMessage, Headers, HeldMessage
from tarry.core.partition import PartitionState
from tarry.core.progress.checkpoint import Checkpoint, Geometry
from tarry.core.progress.done_set import DoneSet
from tarry.core.progress.recovered import Buckets, Recovered
from tarry.core.progress.source import INTAKE, Source
from tarry.core.request.intake_policy import IntakePolicy
from tarry.core.request.reader import RequestReader
from tarry.core.wheel.filed import filed_headers
from tarry.core.window.letters import LARGE_BYTES
from tarry.headers import DELAY_MS, TARGET
from tarry.timer import TimingWheel

NOW_MS = 1_700_000_000_000
EVERYTHING = 1 << 40
LARGE = b"." * LARGE_BYTES
TOO_LARGE = ("too-large", "orders: too large")


def taken_over() -> PartitionState:
    checkpoint = Checkpoint(("writer",), False, Geometry(20_000, 10, 0))
    reader = RequestReader(IntakePolicy("in", max_delay_ms=10**9))
    recovered = Recovered(0, checkpoint, DoneSet(), 0)
    return PartitionState("in", 0, reader, False, lambda start_ms: TimingWheel(1, 64, start_ms), recovered, NOW_MS)


def send(state: PartitionState, offset: int, value: bytes = b"v", *, is_dead: bool = True, key: bytes = b"k") -> None:
    headers: Headers = [] if is_dead else [(TARGET, b"orders"), (DELAY_MS, b"0")]
    state.arrivals.accept(offset, NOW_MS, key, value, headers, NOW_MS)


def take(state: PartitionState) -> Batch:
    state.collect(NOW_MS)
    return state.take(100, NOW_MS)


def fire(state: PartitionState) -> Batch:
    batch = take(state)
    state.settle(batch)
    state.confirm(batch)
    return batch


def write(state: PartitionState, limit: int = 100, limit_bytes: int = EVERYTHING) -> list[int]:
    letters = state.letters.take(limit, limit_bytes)
    state.confirm_letters(letters)
    return [letter.sequence for letter in letters]


def refuse(state: PartitionState, *offsets: int, source: Source = INTAKE) -> None:
    letters = state.letters.take(100, EVERYTHING)
    state.letters.put_back(letters, {(source, offset) for offset in offsets})


def test_small_letters_go_with_what_fires_and_large_ones_apart() -> None:
    state = taken_over()
    send(state, 0)
    send(state, 1, LARGE)
    assert [dead.sequence for dead in fire(state).dead] == [0]
    assert (state.low, state.held, state.letters.waiting) == (1, 1, 1)
    assert write(state) == [1]
    assert (state.low, state.held, state.held_bytes) == (2, 0, 0)


def test_a_message_that_turns_out_undeliverable_goes_apart_where_it_is_large() -> None:
    state = taken_over()
    send(state, 0, is_dead=False)
    send(state, 1, LARGE, is_dead=False)
    batch = take(state)
    batch.give_up({0: TOO_LARGE, 1: TOO_LARGE})
    assert [letter.sequence for letter in state.split_off_letters(batch, every=False)] == [1]
    state.settle(batch)
    state.put_back(batch)
    assert [message.sequence for message in take(state).due] == [0], "what is apart is not tried again"
    assert write(state) == [1]


def test_all_letters_of_a_batch_can_be_taken_from_it_and_are_counted_once() -> None:
    state = taken_over()
    send(state, 0, is_dead=False)
    send(state, 1)
    batch = take(state)
    batch.give_up({0: TOO_LARGE})
    assert len(state.split_off_letters(batch, every=True)) == 2
    assert len(batch) == 0
    state.settle(batch)
    state.confirm(batch)
    assert sorted(write(state)) == [0, 1]
    assert (state.low, state.held, state.held_bytes) == (2, 0, 0)


def test_letters_are_taken_as_far_as_they_fit_and_at_least_one() -> None:
    state = taken_over()
    for offset in range(3):
        send(state, offset, LARGE)
    assert write(state, limit_bytes=1) == [0]
    assert write(state, limit_bytes=3 * LARGE_BYTES) == [1, 2]


def test_a_refused_letter_gets_a_stub_takes_no_memory_and_is_not_done() -> None:
    state = taken_over()
    for offset in range(3):
        send(state, offset, LARGE)
    refuse(state, 1)
    letters = state.letters.take(100, EVERYTHING)
    assert [(letter.sequence, letter.is_stub) for letter in letters] == [(0, False), (1, True), (2, False)]
    stub = letters[1]
    assert (stub.key, stub.value, stub.headers, stub.code) == (b"k", None, [], "no-delay")
    state.confirm_letters(letters)
    assert (state.low, state.held, state.held_bytes) == (1, 1, 0)
    assert (state.letters.waiting, state.letters.left) == (0, 1)


def test_a_long_key_is_left_out_of_a_stub_and_a_stub_that_is_refused_is_given_up() -> None:
    state = taken_over()
    send(state, 0, LARGE, key=b"k" * (STUB_KEY_BYTES + 1))
    refuse(state, 0)
    [stub] = state.letters.take(1, EVERYTHING)
    assert stub.key is None
    state.letters.put_back([stub], {stub.location})
    assert (state.low, state.held, state.held_bytes, state.letters.waiting) == (0, 1, 0, 0)


def test_a_record_of_a_bucket_is_not_taken_for_the_message_of_the_same_offset() -> None:
    message = HeldMessage(NOW_MS, 5, b"k", b"v", [], False, "orders", -1, b"id")
    stranger = DeadMessage(5, None, b"s", [], "unreadable-headers", "", b"", None, None, Source(1, 0), 5)
    batch = Batch([message], [stranger])
    batch.give_up({5: TOO_LARGE})
    apart, retired = batch.split_off(lambda dead: dead is stranger)
    assert (apart, retired) == ([stranger], [])
    batch.dead.append(stranger)
    batch.reinstate()
    assert (batch.due, batch.dead) == ([message], [stranger])


ABOVE = Source(2, 4)
"""The first bucket of level 2 that is closed here: what is due from 8,000 on."""
ID = b"8e8c5b0c-0f5d-4b3e-9a55-0c6b1a3f4d21"
DIALECT = 4
"""The flag of a message in a dialect."""


def filed(due_ms: int) -> Headers:
    """Return the headers of a record of a bucket that can be read."""
    message = HeldMessage(due_ms, 7, b"k", b"v", None, False, "orders", -1, ID)
    return [(name, value) for name, value in filed_headers(message) if isinstance(value, bytes)]


def unreadable(due_ms: int) -> Headers:
    """Return the headers of a record of a bucket in a dialect that only a later version knows."""
    *headers, (name, packed) = filed(due_ms)
    at = len(packed or b"") - len(b"orders") - len(ID) - 1
    assert packed is not None
    return [*headers, (name, packed[:at] + bytes([DIALECT]) + packed[at + 1 :] + b" unheard-of 0 in")]


def over_levels(recovered: Recovered, now_ms: int) -> PartitionState:
    reader = RequestReader(IntakePolicy("in", max_delay_ms=10**9))
    return PartitionState("in", 0, reader, False, lambda start_ms: TimingWheel(1, 64, start_ms), recovered, now_ms)


def to_trim(state: PartitionState) -> dict[int, int]:
    """Return what may be deleted of the levels' logs when the present checkpoint is committed."""
    state.settle_checkpoint(sums_up=False)
    state.confirm_checkpoint()
    return state.overflow.to_trim()


def with_a_large_letter_above(headers: Headers, source: Source) -> PartitionState:
    """Move all records of a bucket of level 2 down, but the log also has a large one that cannot be read."""
    checkpoint = Checkpoint(("writer",), False, Geometry(1_000, 2, 2), (4_000, 8_000))
    state = over_levels(Recovered(0, checkpoint, DoneSet(), 0), 7_000)
    state.overflow.filed([FiledRun(ABOVE, 0, 2, 2)])
    assert state.close_buckets(EVERYTHING, 7_000)
    [to_read] = state.level_records.to_read(EVERYTHING)
    assert (to_read.level, to_read.runs) == (2, [(0, 2)])
    state.level_records.accept([to_read], 0, b"k", LARGE, headers, 7_000)
    state.level_records.accept([to_read], 1, b"k", b"v", filed(9_000), 7_000)
    state.level_records.reach_end(to_read, 7_000)
    filing = state.take_to_file(100, 7_000)
    filing.runs.append(FiledRun(Source(1, 9), 0, 1, 1))
    state.confirm_filed(filing)
    refuse(state, 0, source=source)
    return state


def test_a_refused_letter_in_a_bucket_does_not_hold_up_the_levels_below() -> None:
    state = with_a_large_letter_above(unreadable(8_000), ABOVE)
    assert state.overflow.levels.is_draining(2), "nothing is said of it yet"
    assert write(state) == [0]
    assert not state.overflow.levels.is_draining(2)
    assert (state.overflow.done_ms[1], state.overflow.low[1]) == (8_000, 0), "it is not done"
    assert to_trim(state) == {}


def test_a_refused_stub_does_not_hold_up_the_levels_below_either() -> None:
    state = with_a_large_letter_above(unreadable(8_000), ABOVE)
    refuse(state, 0, source=ABOVE)
    assert not state.overflow.levels.is_draining(2)
    assert (state.overflow.done_ms[1], state.overflow.low[1]) == (8_000, 0)
    assert to_trim(state) == {}


def test_a_refused_letter_that_belongs_to_no_bucket_holds_up_no_level_and_is_not_deleted() -> None:
    stranger = Source(2, 0)
    state = with_a_large_letter_above([], stranger)
    assert not state.overflow.levels.is_draining(2), "the bucket is without it"
    assert write(state) == [0]
    assert (state.overflow.done_ms[1], state.overflow.low[1]) == (10_000, 0)
    assert to_trim(state) == {}
    assert state.letters.left == 1


def test_a_letter_that_belongs_to_no_bucket_is_deleted_once_it_is_written() -> None:
    checkpoint = Checkpoint(("writer",), False, Geometry(1_000, 2, 2), (4_000, 8_000))
    buckets = Buckets({2: (0, 2)})
    state = over_levels(Recovered(0, checkpoint, DoneSet(), 0, buckets=buckets), 3_000)
    [to_read] = state.level_records.to_read(EVERYTHING)
    for _ in range(2):
        state.level_records.accept([to_read], 0, b"k", LARGE, [], 3_000)
    state.level_records.reach_end(to_read, 3_000)
    assert to_trim(state) == {}
    assert write(state) == [0], "once, however often it is read"
    assert to_trim(state) == {2: 2}


def test_a_refused_letter_found_by_a_take_over_does_not_hold_up_the_levels_below() -> None:
    now_ms = 12_000
    checkpoint = Checkpoint(("writer",), False, Geometry(1_000, 2, 2), (12_000, 14_000), (12_000, 8_000), (0, 0))
    state = over_levels(Recovered(0, checkpoint, DoneSet(), 0, buckets=Buckets({2: (0, 2)})), now_ms)
    reading = state.level_records.to_read(EVERYTHING)
    state.level_records.accept(reading, 0, b"k", b"v", filed(9_000), now_ms)
    assert state.overflow.levels.is_draining(2), "it is not read to its end"
    for to_read in reading:
        state.level_records.reach_end(to_read, now_ms)
    assert not state.overflow.levels.is_draining(2), "it is hot, and may wait for its target"
    assert (state.overflow.done_ms[1], state.overflow.low[1]) == (8_000, 0)
    state.collect(now_ms)
    batch = state.take(100, now_ms)
    assert [message.sequence for message in batch.due] == [7]
    state.settle(batch)
    state.confirm(batch)
    assert (state.overflow.done_ms[1], state.overflow.low[1]) == (14_000, 2)
    assert to_trim(state) == {2: 2}
