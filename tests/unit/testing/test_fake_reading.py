"""When reading the intakes pauses, and goes on, on the fake cluster: each cause lasts whatever becomes of the other."""

from functools import partial
from typing import TYPE_CHECKING

import pytest

from tarry.core.partition import PartitionState
from tarry.core.progress.checkpoint import Checkpoint, Geometry
from tarry.core.progress.done_set import DoneSet
from tarry.core.progress.recovered import Buckets, Recovered
from tarry.core.request.intake_policy import IntakePolicy
from tarry.core.request.reader import RequestReader
from tarry.headers import DELIVER_AT, TARGET
from tarry.kafka.broker_time import BrokerTime
from tarry.kafka.control_log import control_log_of
from tarry.service.worker import Plan
from tarry.service.worker.connections import open_connections
from tarry.service.worker.context import Context
from tarry.service.worker.parts import make_parts
from tarry.service.worker.plan import IntakePlan
from tarry.service.worker.reading import HELD_UP_MS
from tarry.service.worker.steady_clock import SteadyClock
from tarry.timer import TimingWheel
from tests.unit.testing.stage import TopicStage

if TYPE_CHECKING:
    from tarry.core.message import Headers
    from tarry.kafka.types import Place

GEOMETRY = Geometry(1_000, 10, 1)
HOUR_MS = 3_600_000
MOST_TO_FILE = 5
VALUE = b"v" * 1_000
BUDGET_BYTES = 20 * len(VALUE)


class Intake:
    """An intake of two partitions, whose first one has messages to file, and the second one messages that are due.

    Nothing is filed, and nothing fires, unless the test does it.
    """

    def __init__(self, stage: TopicStage) -> None:
        self.clock, self.broker = stage.clock, stage.broker
        self.broker.make_topic(control_log_of("t")[0])
        self.events: list[str] = []
        cluster = stage.cluster("worker")
        policy = RequestReader(IntakePolicy("t"))
        plan = Plan(
            cluster=cluster,
            group="group",
            member=cluster.member("group", "classic", None),
            name="group.worker",
            intakes={"t": IntakePlan(policy, False, GEOMETRY, HOUR_MS)},
            tick_ms=1,
            wheel_size=64,
            memory_budget_bytes=BUDGET_BYTES,
            interval_ms=0,
            most=100,
            most_to_file=MOST_TO_FILE,
        )
        brokers = BrokerTime(cluster, ["t"], self.clock, self._note)
        clock = SteadyClock(self.clock, brokers, self._note)
        context = Context(clock, self._note)
        parts = make_parts(plan, open_connections(plan, context), clock, context)
        self.reading, self._pausing = parts.reading, parts.pausing
        self.states: dict[Place, PartitionState] = {}
        self.take_over(0)
        self.take_over(1)
        self.turn(100)
        assert self._pausing.is_reading

    def _note(self, event: str, **_fields: object) -> None:
        self.events.append(event)

    def take_over(self, partition: int, replay_end: int = 0) -> None:
        now_ms = self.clock.now_ms()
        closed_ms = now_ms // 1_000 * 1_000 + 20_000
        checkpoint = Checkpoint(("w",), False, GEOMETRY, (closed_ms,), (closed_ms,), (0,))
        recovered = Recovered(0, checkpoint, DoneSet(), replay_end, Buckets({1: (0, 0)}, {}, 50))
        reader = RequestReader(IntakePolicy("t", max_delay_ms=2 * HOUR_MS))
        others = list(self.states)
        state = PartitionState("t", partition, reader, False, partial(TimingWheel, 1, 64), recovered, now_ms)
        self.states["t", partition] = state
        self.reading.open({("t", partition): 0}, others)

    def turn(self, for_ms: int) -> None:
        ends_ms = self.clock.monotonic_ms() + for_ms
        while self.clock.monotonic_ms() < ends_ms:
            self.reading.turn(self.states, 1)
            self._pausing.turn(self.states)
            for state in self.states.values():
                state.collect(self.clock.now_ms())
            self.clock.advance(1)

    def send(self, partition: int, many: int, delay_ms: int) -> None:
        headers: Headers = [(TARGET, b"out"), (DELIVER_AT, b"%d" % (self.clock.now_ms() + delay_ms))]
        for _ in range(many):
            self.broker.append("t", b"k", VALUE, headers, partition)

    def fill(self) -> None:
        """Let too many messages wait to be filed, and all together fill the memory."""
        self.send(0, MOST_TO_FILE + 5, HOUR_MS)
        self.send(1, 20, 1)
        self.turn(100)
        assert "reading_paused" in self.events
        self.turn(HELD_UP_MS)

    def fire(self) -> None:
        """Deliver what is due."""
        state = self.states["t", 1]
        assert state.collect(self.clock.now_ms())
        batch = state.take(100, self.clock.now_ms())
        state.settle(batch)
        state.confirm(batch)

    def file(self) -> None:
        """File what waits for it."""
        state = self.states["t", 0]
        filing = state.take_to_file(100, self.clock.now_ms())
        state.journal_of(filing)
        state.confirm_filed(filing)

    def is_read(self) -> bool:
        """Send one more message to each partition; return whether it is read soon."""
        for partition in (0, 1):
            self.send(partition, 1, HOUR_MS)
        self.turn(200)
        read = {state.position == self.broker.end(*place) for place, state in self.states.items()}
        assert len(read) == 1, "of all partitions, or of none"
        return read.pop()


@pytest.fixture
def intake(stage: TopicStage) -> Intake:
    return Intake(stage)


def test_what_waits_to_be_filed_holds_reading_up_also_when_memory_has_room_again(intake: Intake) -> None:
    intake.fill()
    intake.fire()
    intake.turn(100)
    assert "reading_resumed" in intake.events
    assert not intake.is_read()
    intake.file()
    assert intake.is_read()


def test_memory_that_is_full_holds_reading_up_also_when_all_is_filed(intake: Intake) -> None:
    intake.fill()
    intake.send(1, 20, 1)
    intake.file()
    intake.turn(100)
    assert "reading_resumed" not in intake.events
    assert not intake.is_read()
    intake.fire()
    assert intake.is_read()


def test_a_partition_that_is_taken_over_is_read_although_memory_is_full_and_then_none_is(intake: Intake) -> None:
    intake.fill()
    intake.file()
    intake.reading.shut([("t", 0)])
    del intake.states["t", 0]
    intake.take_over(0, replay_end=intake.broker.end("t", 0))
    state = intake.states["t", 0]
    intake.turn(50)
    assert not state.is_replaying
    intake.turn(50)
    assert not intake.is_read()


def test_a_rebalance_does_not_let_more_be_read_while_too_much_waits_to_be_filed(intake: Intake) -> None:
    intake.fill()
    intake.fire()
    intake.reading.shut([("t", 1)])
    del intake.states["t", 1]
    intake.turn(100)
    intake.take_over(1)
    for _ in range(2):
        assert not intake.is_read()
        intake.turn(HELD_UP_MS)
    intake.file()
    assert intake.is_read()
