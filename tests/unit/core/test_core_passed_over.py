"""Messages that are passed over: which of them are to be read again, and how far the gate may open until then."""

import tracemalloc
from typing import Any

import pytest

from tarry.core import partition
from tarry.core.batch import FiledRun
from tarry.core.message import NEVER_MS, Headers, HeldMessage
from tarry.core.partition import PartitionState
from tarry.core.progress.checkpoint import Checkpoint, Geometry
from tarry.core.progress.done_set import DoneSet
from tarry.core.progress.recovered import Recovered
from tarry.core.request.intake_policy import IntakePolicy
from tarry.core.request.reader import RequestReader
from tarry.core.wheel.filed import filed_headers
from tarry.core.wheel.levels import first_closed_ms
from tarry.core.window.passed_over import BLOCK, PassedOver
from tarry.headers import CANCEL, DELAY_MS, ID, TARGET
from tarry.timer import TimingWheel

NOW_MS = 1_700_000_000_000
WIDTH_MS = 1_000
TWO_LEVELS = Geometry(WIDTH_MS, 10, 2)
FAR_MS = 10 * WIDTH_MS
"""The width of level 2."""


def taken_over(geometry: Geometry = TWO_LEVELS, *, fixed: bool = False) -> PartitionState:
    checkpoint = Checkpoint(("writer",), False, geometry, first_closed_ms(geometry, NOW_MS))
    policy = IntakePolicy("in", fixed_delay_ms=60_000, fixed_target="orders") if fixed else IntakePolicy("in")
    return PartitionState(
        "in",
        0,
        RequestReader(policy),
        fixed,
        lambda start_ms: TimingWheel(1, 64, start_ms),
        Recovered(0, checkpoint, DoneSet(), 0),
        NOW_MS,
    )


def delay(delay_ms: int) -> Headers:
    return [(TARGET, b"orders"), (DELAY_MS, b"%d" % delay_ms), (ID, b"00000000-0000-4000-8000-%012d" % delay_ms)]


def send(state: PartitionState, offset: int, headers: Headers, now_ms: int = NOW_MS) -> None:
    state.arrivals.accept(offset, NOW_MS, b"k", b"v%d" % offset, headers, now_ms)


def test_while_too_many_wait_what_is_far_is_passed_over_and_what_is_near_is_held() -> None:
    state = taken_over()
    assert state.pass_over(is_behind=True, now_ms=NOW_MS)
    send(state, 0, delay(FAR_MS))
    send(state, 1, delay(FAR_MS - 1))
    send(state, 2, delay(1))
    send(state, 3, [(CANCEL, b"1.in.0.%d.00000000-0000-4000-8000-%012d" % (NOW_MS + FAR_MS, FAR_MS))])
    assert [offset for offset in range(5) if offset in state.passed_over] == [0, 3]
    assert (state.held, state.placing.to_file) == (2, 1)
    assert (state.position, state.low) == (4, 0)
    state.collect(NOW_MS + 1)
    assert [message.sequence for message in state.take(10, NOW_MS + 1).due] == [2]


def test_what_was_passed_over_is_taken_in_once_when_it_is_read_again() -> None:
    state = taken_over()
    state.pass_over(is_behind=True, now_ms=NOW_MS)
    send(state, 0, delay(FAR_MS))
    send(state, 1, delay(5))
    for _ in range(2):
        for offset, delay_ms in ((0, FAR_MS), (1, 5)):
            state.arrivals.accept_again(offset, NOW_MS, b"k", b"v", delay(delay_ms), NOW_MS)
    assert (state.placing.to_file, len(state.passed_over)) == (1, 0)
    [(message, _)] = state.take_to_file(10, NOW_MS).records
    assert (message.sequence, message.due_ms) == (0, NOW_MS + FAR_MS)


def test_a_clock_that_stepped_back_rejects_nothing_that_was_passed_over() -> None:
    state = taken_over()
    state.pass_over(is_behind=True, now_ms=NOW_MS)
    longest_ms = IntakePolicy("in").max_delay_ms
    send(state, 0, delay(longest_ms))
    state.arrivals.accept_again(0, NOW_MS, b"k", b"v", delay(longest_ms), NOW_MS - 3_600_000)
    assert state.placing.to_file == 1


def test_passing_over_goes_on_until_all_is_read_again() -> None:
    state = taken_over()
    assert state.pass_over(is_behind=False, now_ms=NOW_MS)
    send(state, 0, delay(5 * FAR_MS))
    assert not len(state.passed_over), "few wait to be filed"
    state.pass_over(is_behind=True, now_ms=NOW_MS)
    send(state, 1, delay(5 * FAR_MS))
    state.pass_over(is_behind=False, now_ms=NOW_MS)
    send(state, 2, delay(5 * FAR_MS))
    assert [offset for offset in range(4) if offset in state.passed_over] == [1, 2]
    for offset in (1, 2):
        state.arrivals.accept_again(offset, NOW_MS, b"k", b"v", delay(5 * FAR_MS), NOW_MS)
    state.passed_over.reach(3)
    state.pass_over(is_behind=False, now_ms=NOW_MS)
    send(state, 3, delay(5 * FAR_MS))
    assert 3 not in state.passed_over


def test_nothing_more_is_passed_over_when_the_first_of_them_comes_close() -> None:
    state = taken_over()
    state.pass_over(is_behind=True, now_ms=NOW_MS)
    send(state, 0, delay(FAR_MS))
    assert state.pass_over(is_behind=True, now_ms=NOW_MS + FAR_MS // 2)
    assert not state.pass_over(is_behind=True, now_ms=NOW_MS + FAR_MS // 2 + 1)
    send(state, 1, delay(9 * FAR_MS), NOW_MS + FAR_MS // 2 + 1)
    assert 1 not in state.passed_over


def test_no_more_offsets_are_noted_than_memory_is_meant_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(partition, "MOST_PASSED_OVER", 3)
    state = taken_over()
    for offset in range(3):
        assert state.pass_over(is_behind=True, now_ms=NOW_MS)
        send(state, offset, delay(FAR_MS))
    assert state.memory_bytes == 3
    assert not state.pass_over(is_behind=True, now_ms=NOW_MS)


def test_nothing_fires_beyond_what_is_passed_over() -> None:
    state = taken_over()
    state.pass_over(is_behind=True, now_ms=NOW_MS)
    send(state, 0, delay(FAR_MS))
    late_ms = NOW_MS + 2 * FAR_MS
    while state.close_buckets(1 << 30, late_ms):
        pass
    state.pass_over(is_behind=False, now_ms=late_ms)
    send(state, 1, delay(FAR_MS - 1), late_ms)
    send(state, 2, delay(FAR_MS + 1), late_ms)
    state.collect(late_ms)
    assert [message.sequence for message in state.take(10, late_ms).due] == [1]
    state.arrivals.accept_again(0, NOW_MS, b"k", b"v", delay(FAR_MS), late_ms)
    state.passed_over.reach(1)
    state.collect(late_ms)
    assert [message.sequence for message in state.take(10, late_ms).due] == [0, 2]


@pytest.mark.parametrize(
    "state",
    [taken_over(fixed=True), taken_over(Geometry(WIDTH_MS, 10, 1)), taken_over(Geometry(WIDTH_MS, 10, 0))],
    ids=["a fixed delay", "one level", "no level"],
)
def test_nothing_is_passed_over_with(state: PartitionState) -> None:
    assert not state.pass_over(is_behind=True, now_ms=NOW_MS)
    send(state, 0, delay(9 * WIDTH_MS))
    assert not state.passed_over.span


def test_only_what_was_passed_over_is_read_again_and_only_once() -> None:
    passed_over = PassedOver()
    for offset in (7, 8, 11):
        passed_over.add(offset, 1_000, 0)
    assert (passed_over.position, passed_over.end, len(passed_over)) == (7, 12, 3)
    assert [offset for offset in range(20) if offset in passed_over] == [7, 8, 11]
    passed_over.take(8)
    assert [offset for offset in range(20) if offset in passed_over] == [7, 11]
    assert len(passed_over) == 2


def test_the_gate_is_the_earliest_due_time_until_its_block_is_read_again() -> None:
    passed_over = PassedOver()
    assert passed_over.gate == (NEVER_MS, -1)
    passed_over.add(5, 900, 0)
    passed_over.add(6, 300, 0)
    passed_over.add(BLOCK + 1, 700, 0)
    passed_over.add(2 * BLOCK, 800, 0)
    assert passed_over.gate == (300, -1)
    for offset in (5, 6):
        passed_over.take(offset)
    assert passed_over.reach(BLOCK) == 0
    assert passed_over.first_due_ms == 700, "the first block is read again"
    assert passed_over.position == BLOCK
    passed_over.take(BLOCK + 1)
    assert passed_over.reach(BLOCK + 2) == 0
    assert passed_over.first_due_ms == 700, "of a block that is read in part the earliest stays"
    passed_over.take(2 * BLOCK)
    assert passed_over.reach(5 * BLOCK) == 0
    assert (passed_over.gate, passed_over.span, len(passed_over)) == ((NEVER_MS, -1), 0, 0)


def test_a_position_that_was_reached_before_changes_nothing() -> None:
    passed_over = PassedOver()
    passed_over.add(5, 900, 0)
    assert passed_over.reach(3) == 0
    assert (passed_over.position, passed_over.end, len(passed_over)) == (5, 6, 1)
    assert 5 in passed_over


def test_messages_that_are_gone_from_the_log_are_counted() -> None:
    passed_over = PassedOver()
    for offset in range(10, 20):
        passed_over.add(offset, 1_000, 0)
    passed_over.take(12)
    assert passed_over.reach(15) == 4
    assert (passed_over.position, len(passed_over)) == (15, 5)


def test_it_begins_anew_where_the_next_message_is() -> None:
    passed_over = PassedOver()
    passed_over.add(5, 900, 40)
    passed_over.take(5)
    assert passed_over.reach(6) == 0
    passed_over.add(1_000_000, 2_000, 30)
    assert (passed_over.position, passed_over.end, passed_over.span) == (1_000_000, 1_000_001, 1)
    assert passed_over.first_due_ms == 2_000
    assert passed_over.read_ms == 40, "the latest time stays: a clock that stepped back rejects nothing"


def test_a_bucket_larger_than_memory_is_not_read_on_while_what_was_passed_over_holds_its_messages_back() -> None:
    state = taken_over()
    state.pass_over(is_behind=True, now_ms=NOW_MS)
    send(state, 0, delay(FAR_MS))
    state.arrivals.passes_over_from_ms = NEVER_MS
    many, size, room_bytes = 1_000, 1_000, 100_000
    for offset in range(1, many + 1):
        headers = [*delay(FAR_MS + 5_000)[:2], (ID, b"00000000-0000-4000-8000-%012d" % offset)]
        state.arrivals.accept(offset, NOW_MS, b"k", b"." * size, headers, NOW_MS)
    logs: dict[int, list[HeldMessage]] = {1: [], 2: []}

    def file_all(now_ms: int) -> None:
        while filing := state.take_to_file(many, now_ms):
            for message, source in filing.records:
                log = logs[source.level]
                filing.runs.append(FiledRun(source, len(log), len(log) + 1, 1))
                log.append(message)
            state.confirm_filed(filing)

    file_all(NOW_MS)
    assert [len(log) for log in logs.values()] == [0, many]
    most_bytes = 0
    for now_ms in range(NOW_MS, NOW_MS + 3 * FAR_MS, 100):
        while state.close_buckets(room_bytes, now_ms):
            pass
        for to_read in state.level_records.to_read(max(0, room_bytes - state.memory_bytes), 5_000):
            for offset in (at for run in to_read.runs for at in range(*run)):
                message = logs[to_read.level][offset]
                filed: Any = filed_headers(message)
                state.level_records.accept([to_read], offset, message.original_key, message.value, filed, now_ms)
            state.level_records.reach_end(to_read, now_ms)
        file_all(now_ms)
        most_bytes = max(most_bytes, state.memory_bytes)
        assert not state.collect(now_ms)
    assert len(logs[1]) == many, "all of the bucket came down to level 1, and stays there"
    assert size < most_bytes < 2 * room_bytes


def test_an_offset_that_is_passed_over_costs_one_byte() -> None:
    passed_over, many = PassedOver(), 10 * BLOCK
    tracemalloc.start()
    try:
        for offset in range(many):
            passed_over.add(offset, NOW_MS + FAR_MS + offset, NOW_MS)
        taken, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert many <= taken < 2 * many
