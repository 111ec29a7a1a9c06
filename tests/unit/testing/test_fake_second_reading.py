"""Reading again what was passed over, on the fake cluster: a partition that fails harms no other."""

from collections.abc import Container, Iterable
from functools import partial

import pytest

from tarry.core.message import Headers
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
    """An intake of two partitions whose messages are all passed over, and their second reader.

    Args:
        stage: the fake cluster.
        broken: partitions whose first record is another one than the one that was passed over.
        most_to_file: the second reader's.
        budget_bytes: the second reader's.
    """

    def __init__(
        self, stage: TopicStage, broken: Container[int] = (), most_to_file: int = 10_000, budget_bytes: int = 1 << 30
    ) -> None:
        now_ms = stage.clock.now_ms()
        self.states: dict[Place, PartitionState] = {}
        for partition in (0, 1):
            for number in range(MANY):
                is_wrong = partition in broken and number == 0
                stage.broker.append("t", b"k", b"v", [] if is_wrong else _headers(now_ms), partition)
            self.states["t", partition] = _state(partition, now_ms)
        context = Context(stage.clock, lambda _event, **_fields: None)
        self.reading = SecondReading(
            lambda: Reader(stage.cluster("worker"), print), most_to_file, budget_bytes, context
        )
        self.errors: list[str] = []
        self._clock = stage.clock

    def turn(self, *, is_hurried: bool = False) -> list[Place]:
        """Read as long as anything comes; return the partitions that failed, which are set aside."""
        failed: list[Place] = []
        for _ in range(100):
            try:
                self.reading.turn(self.states, is_hurried=is_hurried)
            except LogError as error:
                failed.append(error.log)
                self.errors.append(str(error))
                del self.states[error.log]
            self._clock.advance(5)
        return failed

    @property
    def held(self) -> int:
        return sum(state.held for state in self.states.values())

    def file(self) -> None:
        """File all that waits."""
        for state in self.states.values():
            state.confirm_filed(state.take_to_file(1_000, self._clock.now_ms()))


def _state(partition: int, now_ms: int) -> PartitionState:
    geometry = Geometry(1_000, 10, 2)
    start_ms = now_ms // 10_000 * 10_000
    checkpoint = Checkpoint(("w",), False, geometry, (start_ms,) * 2, (start_ms,) * 2, (0, 0))
    recovered = Recovered(0, checkpoint, DoneSet(), 0, Buckets({1: (0, 0), 2: (0, 0)}, {}, 50))
    reader = RequestReader(IntakePolicy("t", max_delay_ms=2 * FAR_MS))
    state = PartitionState("t", partition, reader, False, partial(TimingWheel, 1, 64), recovered, now_ms)
    _pass_over(state, range(MANY), now_ms)
    return state


def _headers(now_ms: int) -> Headers:
    return [(TARGET, b"out"), (DELIVER_AT, b"%d" % (now_ms + FAR_MS))]


def _pass_over(state: PartitionState, offsets: Iterable[int], now_ms: int) -> None:
    """Let the first reader read messages while filing is behind."""
    assert state.pass_over(is_behind=True, now_ms=now_ms)
    for offset in offsets:
        state.arrivals.accept(offset, now_ms, b"k", b"v", _headers(now_ms), now_ms)
        assert offset in state.passed_over


@pytest.mark.parametrize("broken", [{0}, {1}])
def test_the_other_partition_of_a_fetch_loses_nothing(stage: TopicStage, broken: set[int]) -> None:
    intake = Intake(stage, broken)
    [other] = [state for place, state in intake.states.items() if place[1] not in broken]
    assert intake.turn() == [("t", partition) for partition in broken]
    assert (len(other.passed_over), other.held) == (0, MANY)


def test_two_partitions_that_fail_in_one_fetch_are_both_told_of(stage: TopicStage) -> None:
    assert sorted(Intake(stage, {0, 1}).turn()) == [("t", 0), ("t", 1)]


def test_it_waits_while_the_first_reader_is_behind(stage: TopicStage) -> None:
    intake = Intake(stage)
    intake.turn(is_hurried=True)
    assert (intake.held, intake.reading.is_busy) == (0, True)
    intake.turn()
    assert (intake.held, intake.reading.is_busy) == (2 * MANY, False)


@pytest.mark.parametrize(
    ("most_to_file", "budget_bytes", "held"),
    [
        pytest.param(3, 1 << 30, 4, id="many-wait"),
        pytest.param(10_000, 1, 1, id="memory-is-full-and-any-waits"),
    ],
)
def test_it_waits_while_too_much_waits_to_be_filed(
    stage: TopicStage, monkeypatch: pytest.MonkeyPatch, most_to_file: int, budget_bytes: int, held: int
) -> None:
    monkeypatch.setattr("tarry.service.worker.second_reading.READ_MOST", 1)
    intake = Intake(stage, (), most_to_file, budget_bytes)
    for _ in range(2):
        intake.turn()
        assert intake.held == held
        intake.file()


def test_only_what_was_passed_over_is_read_again(stage: TopicStage) -> None:
    intake = Intake(stage)
    now_ms = stage.clock.now_ms()
    for (_, partition), state in intake.states.items():
        for number in range(MANY):
            stage.broker.append("t", b"k", b"v", _headers(now_ms), partition)
            if number % 2:
                _pass_over(state, [MANY + number], now_ms)
    assert intake.turn() == []
    assert intake.held == 3 * MANY
    assert not intake.reading.is_busy


def test_a_partition_that_another_owner_has_taken_over_is_left_and_read_anew_when_it_is_ours_again(
    stage: TopicStage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tarry.service.worker.second_reading.READ_MOST", 1)
    intake = Intake(stage)
    while not intake.held:
        intake.reading.turn(intake.states, is_hurried=False)
        stage.clock.advance(5)
    lost = intake.states.pop(("t", 0))
    intake.turn()
    assert (lost.held, intake.held) == (lost.held, MANY)
    assert len(lost.passed_over) > 0
    intake.states["t", 0] = again = _state(0, stage.clock.now_ms())
    assert intake.turn() == []
    assert (again.held, len(again.passed_over)) == (MANY, 0)


def test_a_message_that_is_gone_is_an_error_of_its_partition(stage: TopicStage) -> None:
    intake = Intake(stage)
    producer = stage.producer()
    producer.begin_transaction()
    producer.produce("t", b"v", None, 0)
    producer.flush(30)
    producer.abort_transaction(30)
    _pass_over(intake.states["t", 0], [MANY], stage.clock.now_ms())
    assert intake.turn() == [("t", 0)]
    assert intake.errors == ["t/0: 1 messages that are not filed yet are gone: was data deleted?"]
    assert intake.held == MANY


def test_an_error_of_a_partition_that_was_lost_meanwhile_is_forgotten(stage: TopicStage) -> None:
    intake = Intake(stage, {0, 1})
    failed: list[Place] = []
    while not failed:
        try:
            intake.reading.turn(intake.states, is_hurried=False)
        except LogError as error:
            failed.append(error.log)
        stage.clock.advance(5)
    intake.states.clear()
    assert intake.turn() == []
