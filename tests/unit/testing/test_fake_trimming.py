"""When the logs are trimmed, up to where, and what is said of a log that the brokers do not trim."""

from typing import TYPE_CHECKING, Any

from tarry.kafka.offsets import Offsets, PendingAnswers
from tarry.service.metrics.families import TRIM_FAILURES
from tarry.service.worker.context import Context
from tarry.service.worker.trimming import AGAIN_MS, EVERY_MS, SAY_EVERY_MS, Trimming
from tests.unit.testing.stage import TopicStage

if TYPE_CHECKING:
    from tarry.kafka.types import Place

RECORDS = 10


class Owned:
    """A partition, of which only its logs' offsets count here."""

    def __init__(self, number: int, to_trim: dict[int, int]) -> None:
        self.intake = "in"
        self.place = ("in", number)
        self.is_low_uncommitted = False
        self.below = to_trim
        self.told: list[tuple[int, int]] = []

    def to_trim(self) -> dict[int, int]:
        return self.below

    def trimmed(self, level: int, below: int) -> None:
        self.told.append((level, below))
        del self.below[level]


class Logs:
    """The logs of two levels on the fake cluster, and what trims them."""

    def __init__(self, stage: TopicStage) -> None:
        self.clock = stage.clock
        self.broker = stage.broker
        self.needs_from: dict[Place, int] = {}
        self.asked: list[dict[Place, int]] = []
        self.events: list[tuple[str, dict[str, Any]]] = []
        for topic in ("in.wheel-1", "in.wheel-2"):
            stage.broker.make_topic(topic, 2, **{"cleanup.policy": "delete"})
            for number in range(2 * RECORDS):
                stage.broker.append(topic, b"k", b"v", [], number % 2)
        self.is_slow = False
        """Whether the brokers do not answer for now."""
        logs = self

        class Late(PendingAnswers):
            @property
            def done(self) -> bool:
                return not logs.is_slow and super().done

        class Asked(Offsets):
            def trim(self, below: Any) -> PendingAnswers:
                logs.asked.append(dict(below))
                return Late(super().trim(below)._futures)

        cluster = stage.cluster("worker")
        offsets = Asked(cluster.clients.admin(cluster.admin()), "group", cluster)
        self.context = Context(stage.clock, lambda event, **fields: self.events.append((event, fields)))
        self.trimming = Trimming(offsets, self.needs_from.get, self.context)

    def turn(self, *states: Owned) -> list[Any]:
        return self.trimming.turn(list(states))  # type: ignore[arg-type]

    def run(self, ms: int, *states: Owned) -> None:
        for _ in range(ms // 100):
            self.turn(*states)
            self.clock.advance(100)

    def refuse(self, topic: str, *, refused: bool = True) -> None:
        self.broker.configure(topic, **{"cleanup.policy": "compact" if refused else "delete"})

    @property
    def failures(self) -> float:
        return self.context.tally.snapshot().counters.get((TRIM_FAILURES.name, "in"), 0)


def test_each_log_is_trimmed_where_its_partition_says_and_the_partition_is_told(stage: TopicStage) -> None:
    logs = Logs(stage)
    states = Owned(0, {1: 3, 2: 4}), Owned(1, {2: 5})
    logs.run(2 * EVERY_MS, *states)
    assert logs.asked == [{("in.wheel-1", 0): 3, ("in.wheel-2", 0): 4, ("in.wheel-2", 1): 5}]
    assert [state.told for state in states] == [[(1, 3), (2, 4)], [(2, 5)]]
    assert [record.offset for record in stage.broker.records("in.wheel-2", 1)] == list(range(5, RECORDS))
    assert (logs.events, logs.failures) == ([], 0)


def test_logs_are_looked_at_once_in_a_while_and_while_an_answer_is_due_not_at_all(stage: TopicStage) -> None:
    logs = Logs(stage)
    state = Owned(0, {1: 3})
    state.is_low_uncommitted = True
    assert logs.turn(state) == [state]
    assert logs.turn(state) == []
    assert state.told == [(1, 3)]
    logs.clock.advance(EVERY_MS - 1)
    state.below = {1: 5}
    assert logs.turn(state) == []
    assert len(logs.asked) == 1
    logs.clock.advance(1)
    assert logs.turn(state) == [state]
    assert len(logs.asked) == 2
    other = Owned(1, {1: 5})
    logs.turn(state, other)
    logs.clock.advance(EVERY_MS)
    state.is_low_uncommitted = False
    assert logs.turn(state, other) == []
    assert logs.asked[2:] == [{("in.wheel-1", 1): 5}]


def test_nothing_more_is_asked_before_the_brokers_have_answered(stage: TopicStage) -> None:
    logs = Logs(stage)
    state = Owned(0, {1: 3})
    logs.is_slow = True
    logs.run(5 * EVERY_MS, state)
    assert (len(logs.asked), state.told) == (1, [])
    logs.is_slow = False
    logs.run(2 * EVERY_MS, state)
    assert state.told == [(1, 3)]


def test_a_log_is_not_trimmed_in_front_of_what_its_reader_needs(stage: TopicStage) -> None:
    logs = Logs(stage)
    state = Owned(0, {1: 3, 2: 3})
    logs.needs_from |= {("in.wheel-1", 0): 2, ("in.wheel-2", 0): 3}
    logs.run(2 * EVERY_MS, state)
    assert state.told == [(2, 3)]
    logs.needs_from["in.wheel-1", 0] = 4
    logs.run(2 * EVERY_MS, state)
    assert state.told == [(2, 3), (1, 3)]


def test_a_partition_that_is_lost_meanwhile_is_told_nothing(stage: TopicStage) -> None:
    logs = Logs(stage)
    states = Owned(0, {1: 3}), Owned(1, {1: 3})
    logs.turn(*states)
    logs.trimming.forget({("in", 0)})
    logs.turn(*states)
    assert [state.told for state in states] == [[], [(1, 3)]]


def test_a_log_that_the_brokers_do_not_trim_is_reported_now_and_then_until_they_do(stage: TopicStage) -> None:
    logs = Logs(stage)
    states = Owned(0, {1: 3, 2: 3}), Owned(1, {1: 3})
    logs.refuse("in.wheel-1")
    logs.run(SAY_EVERY_MS - AGAIN_MS, *states)
    [(event, fields)] = logs.events
    assert (event, fields["topic"], fields["logs"]) == ("buckets_not_emptied", "in.wheel-1", 2)
    assert fields["reason"]
    assert len(logs.asked) == logs.failures == (SAY_EVERY_MS - AGAIN_MS) // AGAIN_MS
    assert [state.told for state in states] == [[(2, 3)], []]
    logs.run(2 * AGAIN_MS, *states)
    assert [event for event, _ in logs.events] == ["buckets_not_emptied"] * 2
    logs.refuse("in.wheel-1", refused=False)
    logs.run(2 * AGAIN_MS, *states)
    assert logs.events[2:] == [("buckets_emptied_again", {"topic": "in.wheel-1"})]
    assert [state.told for state in states] == [[(2, 3), (1, 3)], [(1, 3)]]
    states[0].below = {1: 4}
    logs.run(2 * AGAIN_MS, *states)
    assert states[0].told[-1] == (1, 4)
    assert len(logs.events) == 3, "it is said once"


def test_each_topic_is_reported_with_its_own_logs(stage: TopicStage) -> None:
    logs = Logs(stage)
    for topic in ("in.wheel-1", "in.wheel-2"):
        logs.refuse(topic)
    logs.run(EVERY_MS, Owned(0, {1: 3, 2: 3}), Owned(1, {1: 3}))
    said = {fields["topic"]: fields["logs"] for _, fields in logs.events}
    assert said == {"in.wheel-1": 2, "in.wheel-2": 1}
    assert logs.failures == 1, "one of the intake"


def test_a_log_of_which_a_part_is_not_trimmed_is_not_said_to_be_trimmed_again(stage: TopicStage) -> None:
    logs = Logs(stage)
    state = Owned(0, {1: RECORDS + 1})  # there is no such offset
    other = Owned(1, {1: 3})
    logs.run(2 * AGAIN_MS, state, other)
    assert [event for event, _ in logs.events] == ["buckets_not_emptied"]
    assert other.told == [(1, 3)]
