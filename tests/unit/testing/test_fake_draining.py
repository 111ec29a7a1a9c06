"""Draining on the fake cluster: what is read when, and what waits for a commit."""

from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from tarry.core.partition import PartitionState
from tarry.core.window.level_records import LevelRecords
from tarry.errors import AbortableError, LogError, RetriableError
from tarry.kafka.offsets import Offsets
from tarry.service.worker.context import Context
from tarry.service.worker.draining import Draining
from tarry.service.worker.trimming import AGAIN_MS
from tests.unit.testing.level import LOG, ROOM_BYTES, START_MS, Level

MOST_TO_FILE = 4
"""How many messages may wait to be filed before the upper levels are read no further."""
BEFORE_MS = 2_000
"""How long before `START_MS` the tests begin: a bucket of level 2 is closed by then, and one of level 1 is not."""
READ_MOST = "tarry.service.worker.level_reader.READ_MOST"


class Drained:
    """A partition with levels, and what drains them, with commits that a test can refuse."""

    def __init__(self, level: Level, budget_bytes: int = ROOM_BYTES) -> None:
        self.clock = level.clock
        self.clock.jump(START_MS - BEFORE_MS - self.clock.now_ms())
        self.commits_fail = False
        self.proofs_fail = 0
        """How many times membership cannot be proved, because a rebalance is going on."""
        self.committed: list[list[PartitionState]] = []
        """The partitions of each commit."""
        self.trimmed: list[dict[Any, int]] = []
        """Below which offset each log was trimmed, by request."""
        self.events: list[str] = []
        trimmed = self.trimmed

        class Asked(Offsets):
            def trim(self, below: Any) -> Any:
                trimmed.append(dict(below))
                return super().trim(below)

        cluster = level.stage.cluster("worker")
        membership, never_filing = (
            SimpleNamespace(commit=self._prove),
            SimpleNamespace(is_handling=lambda _state: False),
        )
        self.draining = Draining(
            Asked(cluster.clients.admin(cluster.admin()), "group", cluster),
            membership,  # type: ignore[arg-type]  # it is asked only after an error
            level.new_reader,
            never_filing,  # type: ignore[arg-type]
            MOST_TO_FILE,
            self._commit,
            budget_bytes,
            Context(self.clock, lambda event, **_fields: self.events.append(event)),
        )

    def _commit(self, states: Sequence[PartitionState]) -> None:
        if self.commits_fail:
            raise AbortableError("refused")
        self.committed.append(list(states))

    def _prove(self, _offsets: Any) -> None:
        self.proofs_fail -= 1
        if self.proofs_fail >= 0:
            raise RetriableError("a rebalance is going on")

    def turn(self, *states: PartitionState, times: int = 1) -> None:
        for _ in range(times):
            self.draining.turn({state.place: state for state in states})
            self.clock.advance(5)

    def turn_until(self, condition: Callable[[], object], *states: PartitionState) -> None:
        for _ in range(10_000):
            if condition():
                return
            self.turn(*states)
        raise AssertionError("not within 10,000 turns")


def test_reading_level_1_is_told_until_it_ends(level: Level, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(READ_MOST, 1)
    level.write(START_MS, START_MS + 1, START_MS + 2)
    state, drained = level.take_over(), Drained(level)
    drained.turn(state)
    assert (drained.draining.is_busy, drained.draining.is_reading) == (True, True)
    drained.turn_until(lambda: not drained.draining.is_reading, state)
    assert not drained.draining.is_busy
    assert state.overflow.in_buckets == {1: 3}


@pytest.mark.parametrize(
    ("budget_bytes", "most"), [(ROOM_BYTES, MOST_TO_FILE + 2), (1, 2)], ids=["to be filed", "memory"]
)
def test_the_upper_levels_wait_for_the_filing_of_what_they_brought_and_for_memory(
    level: Level, monkeypatch: pytest.MonkeyPatch, budget_bytes: int, most: int
) -> None:
    monkeypatch.setattr(READ_MOST, 2)
    level.write(*range(START_MS, START_MS + 20), level=2)
    state, drained = level.take_over(levels=2), Drained(level, budget_bytes)
    drained.turn_until(lambda: state.placing.moving, state)
    drained.turn(state, times=100)
    assert state.placing.moving == most
    assert drained.draining.is_reading


def test_a_log_is_not_trimmed_in_front_of_its_reader(level: Level, monkeypatch: pytest.MonkeyPatch) -> None:
    level.write(START_MS, START_MS + 1)
    level.write(START_MS + 1_000)
    state, drained = level.take_over(), Drained(level)
    drained.turn(state)
    drained.turn_until(lambda: not drained.draining.is_reading, state)
    with monkeypatch.context() as patch:
        patch.setattr(READ_MOST, 0)
        drained.turn_until(lambda: drained.committed, state)
        # What is planned begins at 0, and meanwhile all before 3 is done and committed.
        state.overflow.note([3])
        drained.clock.advance(AGAIN_MS)
        drained.turn(state)
        assert drained.trimmed == []
    drained.turn_until(lambda: drained.trimmed, state)
    assert drained.trimmed == [{LOG: 3}]


def test_a_closed_bucket_whose_commit_failed_is_committed_although_another_partition_is_given_up(level: Level) -> None:
    level.write(START_MS)
    state, drained = level.take_over(), Drained(level)
    drained.commits_fail = True
    drained.clock.jump(BEFORE_MS)
    drained.turn_until(lambda: drained.draining.held_up, state)
    drained.draining.forget([("in", 1)])
    assert drained.draining.held_up == [state]
    drained.commits_fail = False
    drained.turn(state)
    assert drained.committed == [[state]]
    assert drained.draining.held_up == []
    assert set(drained.events) == {"checkpoint_not_committed"}


def test_a_log_that_cannot_be_read_is_reported_when_membership_is_proved_and_not_read_on_before(
    level: Level, monkeypatch: pytest.MonkeyPatch
) -> None:
    level.write(START_MS, START_MS + 1)
    state, drained = level.take_over(), Drained(level)
    cluster = level.stage.cluster("other")
    Offsets(cluster.clients.admin(cluster.admin()), "group", cluster).trim({LOG: 2})
    to_read, asked = LevelRecords.to_read, list[int]()

    def ask(records: LevelRecords, room_bytes: int, least_bytes: int) -> Any:
        asked.append(len(said))
        return to_read(records, room_bytes, least_bytes)

    monkeypatch.setattr(LevelRecords, "to_read", ask)
    drained.proofs_fail = 3
    said: list[type[Exception]] = []

    def is_reported() -> bool:
        return LogError in said

    while not is_reported():
        try:
            drained.turn_until(is_reported, state)
        except (RetriableError, LogError) as error:
            said.append(type(error))
    assert said == [RetriableError, RetriableError, RetriableError, LogError]
    assert set(asked) == {0}, "it is read again before the fault is reported"
