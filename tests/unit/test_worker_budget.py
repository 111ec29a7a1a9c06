"""When the memory of a process counts as full, and when filing counts as behind."""

from typing import TYPE_CHECKING

import pytest

from tarry.core.partition import PartitionState
from tarry.core.progress.checkpoint import Checkpoint, Geometry
from tarry.core.progress.done_set import DoneSet
from tarry.core.progress.recovered import Recovered
from tarry.core.request.intake_policy import IntakePolicy
from tarry.core.request.reader import RequestReader
from tarry.headers import DELAY_MS, ID, TARGET, derived_id
from tarry.service.worker.budget import (
    DRAINING_SHARE,
    KNOWN_SHARE,
    LEAST_SHARE,
    PARKED_SHARE,
    PAUSE_AT,
    RESUME_AT,
    is_behind,
    is_full,
)
from tarry.timer import TimingWheel

if TYPE_CHECKING:
    from tarry.core.message import Headers

NOW_MS = 1_700_000_000_000
FAR_MS, NEAR_MS = 10**6, 1


def partition(number: int, *delays_ms: int) -> PartitionState:
    """Return a partition that has read a message for each delay."""
    checkpoint = Checkpoint(("writer",), False, Geometry(1_000, 10, 2), (NOW_MS + 1_000, NOW_MS + 10_000))
    reader = RequestReader(IntakePolicy("in", max_delay_ms=10**9))
    recovered = Recovered(0, checkpoint, DoneSet(), 0)
    state = PartitionState(
        "in", number, reader, False, lambda start_ms: TimingWheel(1, 64, start_ms), recovered, NOW_MS
    )
    for offset, delay_ms in enumerate(delays_ms):
        id_ = derived_id("in", number, offset)
        headers: Headers = [(TARGET, b"orders"), (DELAY_MS, b"%d" % delay_ms), (ID, id_)]
        state.arrivals.accept(offset, NOW_MS, b"k", b"v" * 500, headers, NOW_MS)
    return state


def test_memory_is_full_above_the_budget_of_all_partitions_together() -> None:
    states = [partition(0, FAR_MS, FAR_MS), partition(1, FAR_MS)]
    held_bytes = sum(state.memory_bytes for state in states)
    assert all(0 < state.memory_bytes < held_bytes for state in states)
    assert not is_full(states, held_bytes)
    assert is_full(states, held_bytes - 1)
    assert not is_full([], 0)


def test_memory_that_messages_hardly_fill_is_not_full() -> None:
    state = partition(0, FAR_MS)
    state.passed_over.add(0, NOW_MS + FAR_MS, NOW_MS)
    state.passed_over.add(10**6, NOW_MS + FAR_MS, NOW_MS)
    most_bytes = state.held_bytes / LEAST_SHARE
    assert most_bytes < state.memory_bytes
    assert not is_full([state], most_bytes)
    assert is_full([state], most_bytes - 1)


@pytest.mark.parametrize("others", [0, 1])
def test_filing_is_behind_with_more_than_the_bound_over_all_partitions(others: int) -> None:
    states = [partition(0, FAR_MS, FAR_MS, NEAR_MS), *[partition(1, FAR_MS)] * others]
    assert not is_behind(states, 2 + others)
    assert is_behind(states, 1 + others)


def test_the_shares_leave_room_for_each_other() -> None:
    # Draining stops at its share, so the intake can still be read; parked messages and those read again take two
    # shares; and reading resumes below the bound at which it paused.
    assert DRAINING_SHARE + 2 * PARKED_SHARE + KNOWN_SHARE <= 1
    assert 0 < LEAST_SHARE < min(PARKED_SHARE, KNOWN_SHARE)
    assert DRAINING_SHARE < RESUME_AT < 1 < PAUSE_AT
