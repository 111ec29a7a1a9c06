"""Buckets that are larger than memory, and all that comes beside: catching up, in order, in bounded memory."""

from collections.abc import Iterable
from typing import Any

import pytest

from tarry.core.batch import Batch, FiledRun
from tarry.core.message import FiledMessage, Headers, HeldCancel
from tarry.core.partition import PartitionState
from tarry.core.progress.checkpoint import Checkpoint, Geometry
from tarry.core.progress.done_set import DoneSet
from tarry.core.progress.ledger import Ledger
from tarry.core.progress.recovered import Buckets, Recovered
from tarry.core.progress.source import Source
from tarry.core.request.intake_policy import IntakePolicy
from tarry.core.request.reader import RequestReader
from tarry.core.wheel.filed import filed_headers
from tarry.headers import DELIVER_AT, TARGET, Outcome
from tarry.timer import TimingWheel

START_MS = 1_700_000_000_000
ONE_LEVEL = Geometry(1_000, 10, 1)
Filed = tuple[bytes | None, bytes | None, Any]


def message(due_ms: int, sequence: int, size: int = 20) -> FiledMessage:
    return FiledMessage(due_ms, sequence, None, b"x" * size, None, False, "orders", -1, b"%036d" % sequence)


def filed(due_ms: int, sequence: int, size: int = 20, like: int | None = None) -> Filed:
    one = message(due_ms, sequence, size)
    if like is not None:
        one.id = message(due_ms, like).id
    return None, one.value, filed_headers(one)


def filed_cancel(due_ms: int, sequence: int, of: int) -> Filed:
    """A cancel that was sent as the `sequence`-th, for the message that was sent as the `of`-th."""
    cancel = HeldCancel(due_ms, sequence, None, None, None, False, "", -1, b"%036d" % of)
    return None, None, filed_headers(cancel)


SIZE = message(0, 0).size_bytes


def bucket_of(start_ms: int) -> Source:
    return Source(1, start_ms // 1_000)


class Owner:
    """One partition, and the log of its level; half of its budget is for buckets."""

    def __init__(
        self,
        half_bytes: int,
        log: Iterable[Filed] = (),
        *,
        done_ms: int = START_MS,
        done: dict[Source, DoneSet] | None = None,
        replay_end: int = 0,
    ) -> None:
        """The level is closed up to `START_MS`; a take-over found in it what is in `log`."""
        checkpoint = Checkpoint(("writer",), False, ONE_LEVEL, (START_MS,), (done_ms,), (0,), wheel_pointer=0)
        self.log = list(log)
        self.half_bytes = half_bytes
        self.most_bytes = 0
        self.scans = 0
        self.state = PartitionState(
            "in",
            0,
            RequestReader(IntakePolicy("in", max_delay_ms=10**9)),
            False,
            lambda start_ms: TimingWheel(1, 64, start_ms),
            Recovered(0, checkpoint, DoneSet(), replay_end, Buckets({1: (0, len(self.log))}, done or {}, 50)),
            START_MS,
        )

    @property
    def room_bytes(self) -> int:
        return max(0, self.half_bytes - self.state.held_bytes)

    def fill(self, start_ms: int, messages: Iterable[Filed]) -> None:
        first = len(self.log)
        self.log += messages
        self.state.overflow.filed([FiledRun(bucket_of(start_ms), first, len(self.log), len(self.log) - first)])

    def turn(self, now_ms: int) -> None:
        """Close what is to be closed, and read what is to be read."""
        state = self.state
        state.close_buckets(self.room_bytes, now_ms)
        reading = state.level_records.to_read(self.room_bytes, self.half_bytes // 10)
        self.scans += len(reading)
        for offset in sorted({offset for one in reading for run in one.runs for offset in range(*run)}):
            state.level_records.accept(reading, offset, *self.log[offset], now_ms)
            self.most_bytes = max(self.most_bytes, state.held_bytes)
        for one in reading:
            state.level_records.reach_end(one, now_ms)

    def fire(self, now_ms: int) -> Batch:
        self.state.collect(now_ms)
        batch = self.state.take(5_000, now_ms)
        if len(batch):
            self.state.settle(batch)
            self.state.confirm(batch)
        return batch


def test_a_large_bucket_has_the_memory_that_those_behind_it_would_take() -> None:
    owner = Owner(100 * SIZE)
    owner.fill(START_MS, [filed(START_MS + number, number) for number in range(1_000)])
    for later in range(1, 8):
        start_ms = START_MS + 1_000 * later
        owner.fill(start_ms, [filed(start_ms + number, 10_000 * later + number) for number in range(90)])
    now_ms = START_MS + 60_000
    fired: list[int] = []
    while len(fired) < 1_000 + 7 * 90:
        owner.turn(now_ms)
        batch = owner.fire(now_ms)
        assert batch.due, "each pass brings something"
        fired += [one.sequence for one in batch.due]
    assert fired == sorted(fired)
    assert owner.scans <= 10 + 7 + 2, "as few as memory has room for"
    assert owner.most_bytes <= 101 * SIZE


def bring_down_all(owner: Owner, now_ms: int) -> tuple[list[int], list[tuple[Outcome, int]]]:
    """All that lies in the buckets is read and fires: what fired, and what needed no delivery, by their numbers."""
    fired: list[int] = []
    outcomes: list[tuple[Outcome, int]] = []
    for _ in range(1_000):
        owner.turn(now_ms)
        batch = owner.fire(now_ms)
        fired += [one.sequence for one in batch.due]
        outcomes += [(one.outcome, record.sequence) for one in batch.resolutions for record in one.records]
        if not owner.state.held and owner.state.overflow.done_ms == owner.state.overflow.levels.closed_ms:
            return fired, outcomes
    raise AssertionError("it does not come to an end")


LARGE = 10_000
"""The size of each message of a bucket, after all earlier messages were small."""


def with_large_ones(start_ms: int, messages: Iterable[Filed]) -> Owner:
    """Small messages came down, and fired; the next bucket has large ones, for which there seems to be room."""
    owner = Owner(100 * SIZE)
    owner.fill(START_MS, [filed(START_MS + number, number) for number in range(90)])
    assert len(bring_down_all(owner, START_MS + 999)[0]) == 90
    owner.fill(start_ms, messages)
    owner.scans = 0
    return owner


def test_a_bucket_of_messages_larger_than_ever_before_takes_no_more_memory_than_there_is() -> None:
    start_ms = START_MS + 2_000
    mixed = [filed(start_ms + 7 * number % 80, 100 + number, LARGE * (number % 3 == 0)) for number in range(80)]
    owner = with_large_ones(start_ms, mixed)
    fired, _ = bring_down_all(owner, start_ms + 999)
    assert fired == sorted(range(100, 180), key=lambda number: 7 * (number - 100) % 80)
    assert owner.scans > 2, "it went by passes"
    assert owner.most_bytes <= 100 * SIZE + LARGE + SIZE, "one message more than there is room for"


def test_messages_read_before_a_bucket_switched_to_passes_match_cancels_and_duplicates_once() -> None:
    start_ms = START_MS + 2_000
    ahead = [
        filed(start_ms + 500, 100),
        filed(start_ms + 500, 101, like=100),
        filed_cancel(start_ms + 500, 102, of=100),
    ]
    then = [filed(start_ms + 600, 103), *[filed(start_ms + number, 200 + number, LARGE) for number in range(30)]]
    late = [filed_cancel(start_ms + 600, 300, of=103), filed_cancel(start_ms + 3, 301, of=203)]
    owner = with_large_ones(start_ms, [*ahead, *then, *late])
    fired, outcomes = bring_down_all(owner, start_ms + 999)
    assert fired == [200 + number for number in range(30) if number != 3]
    assert sorted(outcomes, key=lambda one: one[1]) == [
        (Outcome.CANCELLED, 100),
        (Outcome.DUPLICATE, 101),
        *[(Outcome.CANCELLED, number) for number in (102, 103, 203, 300, 301)],
    ]
    assert owner.state.held_bytes == 0


def test_no_pass_brings_a_message_that_was_cancelled_before_the_bucket_switched_to_passes() -> None:
    """Nothing of that is committed when the second pass begins: all that the first one brings is cancelled too."""
    start_ms = START_MS + 2_000
    ahead = [filed(start_ms + 500, 100), filed_cancel(start_ms + 500, 101, of=100)]
    large = [filed(start_ms + number, 200 + number, LARGE) for number in range(30)]
    cancels = [filed_cancel(start_ms + number, 300 + number, of=200 + number) for number in range(29)]
    owner = with_large_ones(start_ms, [*ahead, *large, *cancels])
    for _ in range(20):
        owner.turn(start_ms + 999)
        owner.state.collect(start_ms + 999)
    assert owner.scans > 2
    fired, outcomes = bring_down_all(owner, start_ms + 999)
    assert fired == [229]
    assert {result for result, _ in outcomes} == {Outcome.CANCELLED}
    assert len(outcomes) == 60


def test_a_bucket_goes_by_passes_when_others_take_the_room_that_it_had() -> None:
    owner = Owner(100 * SIZE)
    owner.fill(START_MS, [filed(START_MS + number, number) for number in range(60)])
    state = owner.state
    state.close_buckets(owner.room_bytes, START_MS)
    reading = state.level_records.to_read(owner.room_bytes)
    assert [one.runs for one in reading] == [[(0, 60)]]
    for offset in range(30):
        state.level_records.accept(reading, offset, *owner.log[offset], START_MS)
    headers: Headers = [(TARGET, b"orders"), (DELIVER_AT, b"%d" % (START_MS + 10))]
    for offset in range(60):
        state.arrivals.accept(offset, START_MS - 5_000, None, b"x" * 20, headers, START_MS)
    assert state.level_records.to_read(owner.room_bytes)
    for offset in range(30, 60):
        state.level_records.accept(reading, offset, *owner.log[offset], START_MS)
    assert state.held_bytes <= 101 * SIZE


@pytest.mark.parametrize("of", [1, 9, 10, 11, 12, 30, 59])
def test_a_cancel_that_is_read_before_its_message_waits_for_the_pass_that_brings_it(of: int) -> None:
    """All is due in one millisecond, so that a pass ends between any two of it."""
    owner = Owner(10 * SIZE)
    owner.fill(START_MS, [filed_cancel(START_MS, 100, of), *[filed(START_MS, number) for number in range(1, 60)]])
    fired, outcomes = bring_down_all(owner, START_MS + 5_000)
    assert outcomes == [(Outcome.CANCELLED, of), (Outcome.CANCELLED, 100)]
    assert fired == [number for number in range(1, 60) if number != of]


def test_buckets_come_down_also_where_parked_messages_fill_all_memory() -> None:
    """As they do where the parked log is away, or refuses them; all others go on, a few messages at a time."""
    owner = Owner(100)
    headers: Headers = [(TARGET, b"away"), (DELIVER_AT, b"%d" % (START_MS - 1))]
    for offset in range(50):
        owner.state.arrivals.accept(offset, START_MS - 5_000, None, b"x", headers, START_MS - 5_000)
    owner.state.collect(START_MS)
    assert not len(owner.state.take(100, START_MS, {"away"}))
    assert owner.state.held_bytes > 2 * owner.half_bytes
    for behind in range(3):
        start_ms = START_MS + 1_000 * behind
        owner.fill(start_ms, [filed(start_ms + number, 100 * (behind + 1) + number) for number in range(40)])
    fired: list[int] = []
    for _ in range(30):
        owner.turn(START_MS + 5_000)
        fired += [one.sequence for one in owner.fire(START_MS + 5_000).due]
    assert fired == [100 * (behind + 1) + number for behind in range(3) for number in range(40)]
    assert owner.state.held == 50


def test_a_cancel_whose_message_no_pass_brings_is_too_late_after_the_last() -> None:
    owner = Owner(10 * SIZE)
    owner.fill(START_MS, [filed_cancel(START_MS, 0, of=99), *[filed(START_MS, number) for number in range(1, 60)]])
    fired, outcomes = bring_down_all(owner, START_MS + 5_000)
    assert (fired, outcomes) == (list(range(1, 60)), [(Outcome.CANCEL_TOO_LATE, 0)])


def test_reading_the_buckets_that_a_recovery_finds_stays_within_memory() -> None:
    begin_ms = START_MS - 20_000
    log = [
        filed(begin_ms + 1_000 * number + one, 1_000 * number + one, 1_000)
        for one in range(100)
        for number in range(20)
    ]
    owner = Owner(100 * 1_500, log, done_ms=begin_ms)
    fired: list[int] = []
    while len(fired) < 20 * 100:
        owner.turn(START_MS)
        batch = owner.fire(START_MS)
        fired += [one.sequence for one in batch.due]
        assert owner.scans < 500
    assert fired == sorted(fired)
    assert owner.most_bytes < 3 * 100 * 1_500, "a pass, and what it brought before"


def test_a_message_that_became_hot_before_it_was_filed_is_no_duplicate_of_what_a_pass_brings() -> None:
    """It waits to be filed while its bucket, which is larger than memory, is closed: it does not go there any more."""
    owner = Owner(1)
    owner.fill(START_MS, [filed(START_MS + number, 100 + number) for number in range(30)])
    headers: Headers = [(TARGET, b"orders"), (DELIVER_AT, b"%d" % (START_MS + 6))]
    owner.state.arrivals.accept(0, START_MS - 5_000, None, b"x", headers, START_MS - 5_000)
    assert owner.state.placing.to_file == 1
    now_ms = START_MS + 100
    fired: list[int] = []
    for _ in range(10):
        owner.turn(now_ms)
        batch = owner.fire(now_ms)
        assert [one.outcome for one in batch.resolutions] == []
        fired += [one.sequence for one in batch.due]
    assert owner.state.placing.to_file == 0
    assert owner.scans > 1, "it went by passes"
    assert fired == [*range(100, 106), 0, *range(106, 130)]
    assert owner.state.held_bytes == 0


def test_dead_letters_are_counted_and_do_not_wait_for_a_replay_to_end() -> None:
    owner = Owner(100 * SIZE, replay_end=1_001)
    for offset in range(1_000):
        owner.state.arrivals.accept(offset, START_MS, b"k", b"x" * 1_000, [(TARGET, b"orders")], START_MS)
    assert owner.state.held_bytes > 1_000 * 1_000
    assert owner.state.is_gated
    assert owner.state.next_due_ms() == 0
    assert len(owner.fire(START_MS).dead) == 1_000
    assert owner.state.held_bytes == 0
    assert owner.state.low == 1_000


def test_a_clock_that_steps_back_while_a_recovery_reads_does_no_harm() -> None:
    log = [filed(START_MS - 500, 100 + number) for number in range(10)]
    owner = Owner(10**6, log, done_ms=START_MS - 1_000, replay_end=5)
    owner.state.level_records.to_read(10**6)
    headers: Headers = [(TARGET, b"orders"), (DELIVER_AT, b"%d" % (START_MS - 50))]
    owner.state.arrivals.accept(0, START_MS - 5_000, b"k", b"v", headers, START_MS - 100)
    assert owner.state.held == 1


def test_done_offsets_of_a_bucket_that_an_old_copy_lists_as_open_stay_known() -> None:
    source = bucket_of(START_MS)
    log = [filed(START_MS + number, number) for number in range(10)]
    owner = Owner(10**6, log, done={source: DoneSet([(3, 10)])})
    overflow = owner.state.overflow
    for _ in range(2):  # the log is read once to know what it holds, and then the bucket is closed
        owner.turn(START_MS)
        assert overflow.pointer == 0, "where this recovery began to read the journal"
        [(of, ranges)] = overflow.done_ranges()
        assert (of, DoneSet(list(ranges)).ranges()) == (source, [(3, 10)])
    assert [one.sequence for one in owner.fire(START_MS + 10).due] == [0, 1, 2]
    assert (overflow.done_ms, overflow.low) == (overflow.levels.closed_ms, (10,))
    assert overflow.pointer == 50, "the journal's end: nothing of it is needed"


def test_an_offset_that_was_trimmed_is_not_marked_in_anothers_place() -> None:
    ledger = Ledger(0)
    for offset in range(10):
        ledger.read(offset)
    ledger.mark(range(5))
    ledger.make_final()
    with pytest.raises(ValueError, match="below the committed watermark"):
        ledger.mark([3])
    assert ledger.low == 5
