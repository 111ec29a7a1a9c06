"""Reading again what was passed over, on the fake cluster: a partition that fails harms no other."""

from functools import partial

import pytest

from tarry.core.partition import PartitionState
from tarry.core.progress.checkpoint import Checkpoint, Geometry
from tarry.core.progress.done_set import DoneSet
from tarry.core.progress.recovered import Buckets, Recovered
from tarry.core.request.intake_policy import IntakePolicy
from tarry.core.request.reader import RequestReader
from tarry.errors import LogError
from tarry.headers import DELIVER_AT, TARGET
from tarry.kafka.reader import Reader
from tarry.kafka.types import Place
from tarry.service.worker.context import Context
from tarry.service.worker.second_reading import SecondReading
from tarry.timer import TimingWheel
from tests.unit.testing.stage import TopicStage

FAR_MS = 10**9
MANY = 10


class Intake:
    """An intake of two partitions whose messages are all passed over, and their second reader."""

    def __init__(self, stage: TopicStage, broken: set[int]) -> None:
        """Make the intake; the first record of a broken partition is another one than the one that was passed over."""
        now_ms = stage.clock.now_ms()
        self.states: dict[Place, PartitionState] = {}
        for partition in (0, 1):
            for number in range(MANY):
                is_wrong = partition in broken and number == 0
                headers = [] if is_wrong else [(TARGET, b"out"), (DELIVER_AT, b"%d" % (now_ms + FAR_MS))]
                stage.broker.append("t", b"k", b"v", headers, partition)
            self.states["t", partition] = state = _state(partition, now_ms)
            for offset in range(MANY):
                state.passed_over.add(offset, now_ms + FAR_MS, now_ms)
        context = Context(stage.clock, lambda _event, **_fields: None)
        self.reading = SecondReading(lambda: Reader(stage.cluster("worker"), print), 10_000, 1 << 30, context)
        self._clock = stage.clock

    def turn(self) -> list[Place]:
        """Read until nothing is left to be read; return the partitions that failed, which are set aside."""
        failed: list[Place] = []
        for _ in range(100):
            try:
                self.reading.turn(self.states, is_hurried=False)
            except LogError as error:
                failed.append(error.log)
                del self.states[error.log]
            self._clock.advance(5)
        return failed


def _state(partition: int, now_ms: int) -> PartitionState:
    geometry = Geometry(1_000, 10, 1)
    start_ms = now_ms // 1_000 * 1_000
    checkpoint = Checkpoint(("w",), False, geometry, (start_ms,), (start_ms,), (0,))
    recovered = Recovered(0, checkpoint, DoneSet(), MANY, Buckets({1: (0, 0)}, {}, 50))
    reader = RequestReader(IntakePolicy("t", max_delay_ms=2 * FAR_MS))
    return PartitionState("t", partition, reader, False, partial(TimingWheel, 1, 64), recovered, now_ms)


@pytest.mark.parametrize("broken", [{0}, {1}])
def test_the_other_partition_of_a_fetch_loses_nothing(stage: TopicStage, broken: set[int]) -> None:
    intake = Intake(stage, broken)
    [other] = [state for place, state in intake.states.items() if place[1] not in broken]
    assert intake.turn() == [("t", partition) for partition in broken]
    assert (len(other.passed_over), other.held) == (0, MANY)


def test_two_partitions_that_fail_in_one_fetch_are_both_told_of(stage: TopicStage) -> None:
    assert sorted(Intake(stage, {0, 1}).turn()) == [("t", 0), ("t", 1)]
