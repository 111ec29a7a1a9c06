"""Reading the logs of levels while others are trimmed, on the fake cluster."""

from math import ceil

import pytest

from tarry.core.batch import FiledRun
from tarry.core.partition import PartitionState
from tarry.core.progress.source import Source
from tarry.core.wheel.overflow import ToRead
from tarry.core.wheel.refiling import Refiling
from tarry.core.wheel.runs import JOIN
from tarry.errors import LogError
from tests.unit.testing.level import ROOM_BYTES, START_MS, Level


def test_the_first_record_behind_many_aborted_ones_is_not_missed(level: Level) -> None:
    level.write(START_MS)
    level.write(*[START_MS] * (JOIN + 500), commit=False)
    level.write(START_MS + 1)
    state = level.take_over()
    [to_read] = state.level_records.to_read(ROOM_BYTES)
    last = to_read.runs[0][1] - 2
    # Nothing comes of offset 1, the last one of the first run.
    level.reader.open(state, ToRead(1, None, [(0, 2), (last, last + 2)]))
    level.read(state)
    assert state.overflow.in_buckets == {1: 2}


def test_a_message_that_a_take_over_did_not_learn_of_is_an_error(level: Level) -> None:
    level.write(START_MS)
    level.write(START_MS + 1)
    state = level.take_over(end=2)
    level.write(START_MS + 2)
    level.read(state)
    state.overflow.filed([FiledRun(Source(1, START_MS // 1_000), 4, 5, 1)])
    with pytest.raises(LogError, match=r"in.wheel-1/0 has a message at offset 2 that this process does not know of"):
        level.read(state)


def test_an_error_of_one_partition_loses_no_record_of_another_in_the_same_fetch(level: Level) -> None:
    many = 10
    level.write(START_MS)
    level.write(START_MS + 1)
    level.write(*range(START_MS, START_MS + many), partition=1)
    wrong, right = level.take_over(end=2), level.take_over(partition=1)
    level.read(wrong)
    level.read(right)
    level.write(START_MS + 2)
    wrong.overflow.filed([FiledRun(Source(1, START_MS // 1_000), 4, 5, 1)])
    assert right.close_buckets(ROOM_BYTES, START_MS - 100)
    level.open(wrong)
    with pytest.raises(LogError) as caught:
        level.read(right, START_MS)
    assert caught.value.log == wrong.place
    level.reader.forget({wrong.place})
    level.read(right, START_MS)
    assert right.held == many


def test_two_partitions_that_fail_in_one_fetch_are_both_told_of(level: Level) -> None:
    states = [level.take_over(end=0, partition=partition) for partition in (0, 1)]
    for state in states:
        level.write(START_MS, partition=state.partition)
        level.write(START_MS + 1, partition=state.partition)
        state.overflow.filed([FiledRun(Source(1, START_MS // 1_000), 2, 3, 1)])
        level.open(state)
    failed = []
    for _ in range(100):
        try:
            level.reader.read(START_MS)
        except LogError as error:
            failed.append(error.log)
        level.clock.advance(5)
    assert sorted(failed) == [state.place for state in states]


def test_a_bucket_is_read_when_its_own_records_are_and_not_only_those_that_are_read_with_it(
    level: Level, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A reader that is dropped and begins anew would find nothing left of the first bucket, and never end it."""
    monkeypatch.setattr("tarry.service.worker.level_reader.READ_MOST", 2)
    level.write(START_MS, START_MS + 1)
    level.write(START_MS + 1_000)
    state = level.take_over()
    level.read(state)
    assert state.close_buckets(ROOM_BYTES, START_MS + 900)
    both = state.level_records.to_read(ROOM_BYTES)
    assert [to_read.runs for to_read in both] == [[(0, 2)], [(3, 4)]]
    for to_read in both:
        level.reader.open(state, to_read)
    for _ in range(100):
        level.reader.read(START_MS)
        level.clock.advance(5)
        if state.held == 2:
            break
    assert [to_read.runs for to_read in state.level_records.to_read(ROOM_BYTES)] == [[(3, 4)]]


def in_the_middle_of_a_bucket(level: Level, patch: pytest.MonkeyPatch) -> tuple[PartitionState, list[ToRead]]:
    """Close two buckets, of three records and of one; read the first record of the first one."""
    patch.setattr("tarry.service.worker.level_reader.READ_MOST", 1)
    level.write(START_MS, START_MS + 1, START_MS + 2)
    level.write(START_MS + 1_000)
    state = level.take_over()
    level.read(state)
    assert state.close_buckets(ROOM_BYTES, START_MS + 900)
    both = state.level_records.to_read(ROOM_BYTES)
    assert [to_read.runs for to_read in both] == [[(0, 3)], [(4, 5)]]
    level.opened.clear()
    level.reader.open(state, both[0])
    while state.held < 1:
        level.reader.read(START_MS)
        level.clock.advance(5)
    assert level.opened == [0]
    return state, both


def test_what_is_added_ahead_of_the_position_is_read_without_going_back(
    level: Level, monkeypatch: pytest.MonkeyPatch
) -> None:
    state, both = in_the_middle_of_a_bucket(level, monkeypatch)
    level.reader.open(state, both[1])
    level.read(state, START_MS)
    assert state.held == 4
    assert level.opened == [0]


def test_a_refiling_that_ends_while_it_waits_for_the_next_plan_is_not_read(
    level: Level, monkeypatch: pytest.MonkeyPatch
) -> None:
    state, _ = in_the_middle_of_a_bucket(level, monkeypatch)
    refiling = Refiling(1, START_MS + 2_000, [(0, 1)], 1, 0, {})
    level.reader.open(state, ToRead(1, refiling, [(0, 1)]))
    level.reader.read(START_MS)
    refiling.is_given_up = True
    while level.reader.is_open:
        level.reader.read(START_MS)
        level.clock.advance(5)
    assert state.held == 3
    assert level.opened == [0]


def test_a_refiling_that_ends_before_the_first_record_is_read_hides_none_of_a_bucket(
    level: Level, monkeypatch: pytest.MonkeyPatch
) -> None:
    level.write(START_MS, START_MS + 1, START_MS + 2)
    state = level.take_over()
    level.read(state)
    assert state.close_buckets(ROOM_BYTES, START_MS + 900)
    level.open(state)
    refiling = Refiling(1, START_MS + 2_000, [(0, 1)], 1, 0, {})
    level.reader.open(state, ToRead(1, refiling, [(0, 1)]))
    with monkeypatch.context() as patch:
        patch.setattr("tarry.service.worker.level_reader.READ_MOST", 0)
        level.reader.read(START_MS)
    refiling.is_given_up = True
    level.read(state, START_MS)
    assert state.held == 3


def test_when_a_refiling_ends_the_reader_jumps_to_the_bucket_that_it_would_have_come_to(
    level: Level, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is between was to be filed again: to read it would take a long time in a sparse log."""
    monkeypatch.setattr("tarry.service.worker.level_reader.READ_MOST", 1)
    many, far_ms = 5, START_MS + 5_000
    level.write(*[far_ms] * many)
    level.write(START_MS)
    state = level.take_over()
    level.read(state)
    refiling = Refiling(1, far_ms, [(0, many)], many, 0, {})
    level.opened.clear()
    level.reader.open(state, ToRead(1, refiling, [(0, many)]))
    while level.opened != [0]:
        level.reader.read(START_MS)
    assert state.close_buckets(ROOM_BYTES, START_MS - 100)
    level.open(state)
    refiling.is_given_up = True
    level.reader.read(START_MS)
    level.read(state, START_MS)
    assert state.held == 1
    assert level.opened == [0, many + 1]


def test_a_partition_that_is_lost_and_comes_back_is_read_from_the_start(
    level: Level, monkeypatch: pytest.MonkeyPatch
) -> None:
    state, _ = in_the_middle_of_a_bucket(level, monkeypatch)
    level.reader.forget({state.place})
    assert not level.reader.is_open
    again = level.take_over()
    level.read(again, START_MS)
    assert again.overflow.in_buckets == {1: 4}
    assert level.opened == [0, 0]


def test_a_bucket_is_read_at_an_even_pace_over_three_quarters_of_its_lead(
    level: Level, monkeypatch: pytest.MonkeyPatch
) -> None:
    many, ahead = 100, 10
    monkeypatch.setattr("tarry.service.worker.level_reader.READ_MOST", 1)
    monkeypatch.setattr("tarry.service.worker.level_reader.AHEAD", ahead)
    level.write(*range(START_MS, START_MS + many))
    state = level.take_over()
    level.read(state, turns=many * 3)
    lead_ms = state.overflow.levels.lead_ms(1)
    assert state.close_buckets(ROOM_BYTES, START_MS - lead_ms)
    level.open(state)
    read = []
    for part in (0, 0.25, 0.5, 0.9):
        now_ms = START_MS - lead_ms + ceil(lead_ms * 3 / 4 * part)
        while level.reader.is_due(now_ms):
            level.reader.read(now_ms)
            level.clock.advance(5)
        read.append(state.held)
    assert read == [ahead + 1 + int(many * part) for part in (0, 0.25, 0.5)] + [many]
