"""Transactions that others leave open in the logs of a partition, on the fake cluster: what waits, and what is said."""

from collections.abc import Callable
from functools import partial
from typing import Any, Final

import pytest
from confluent_kafka import Producer

from tarry.core.progress.checkpoint import Geometry
from tarry.core.request.intake_policy import IntakePolicy
from tarry.core.request.reader import RequestReader
from tarry.kafka.birth import Birth
from tarry.kafka.intake_topics import make_or_check
from tarry.kafka.offsets import Offsets, PendingAnswers
from tarry.kafka.settings import Cluster
from tarry.kafka.topics import TopicAdmin
from tarry.kafka.types import Place
from tarry.service.metrics.families import OPEN_TRANSACTION
from tarry.service.metrics.tally import Tally
from tarry.service.worker import Plan, Worker
from tarry.service.worker.context import Context
from tarry.service.worker.open_transactions import SAY_EVERY_MS, OpenTransactions
from tarry.service.worker.plan import OPEN_AFTER_MS, IntakePlan
from tarry.testing import FakeBroker, Fate, ManualClock, Step
from tests.unit.testing.stage import TopicStage

LOOK_MS: Final = OPEN_AFTER_MS // 3
SHOWN_MS: Final = 1_200
"""After this time the metrics show a change."""
NEAR_MS, FAR_MS = 1_000, 60_000
"""Delays: the second is beyond the hot window."""


class Owner:
    """A process of the service, and what it says."""

    def __init__(self, name: str, broker: FakeBroker, clock: ManualClock, geometry: Geometry) -> None:
        self.events: list[tuple[str, dict[str, Any]]] = []
        self.tally = Tally()
        self.loses: Callable[[Step], bool] = lambda _step: False
        cluster = Cluster("fake", {}, broker.clients(name, self._fate))
        policy = IntakePolicy(topic="in", max_delay_ms=3_600_000)
        plan = Plan(
            cluster=cluster,
            group="group",
            member=cluster.member("group", "classic", None),
            name=f"group.{name}",
            intakes={"in": IntakePlan(RequestReader(policy), False, geometry, 3_600_000)},
            tick_ms=1,
            wheel_size=64,
            memory_budget_bytes=1 << 30,
            interval_ms=5,
            most=100,
            park_after_ms=1_000,
        )
        self.worker = Worker(
            plan, clock, lambda: False, lambda event, **fields: self.events.append((event, fields)), self.tally
        )

    def _fate(self, step: Step) -> Fate | None:
        return Fate.LOSE_ANSWER if self.loses(step) else None

    def said(self, event: str) -> list[dict[str, Any]]:
        return [fields for name, fields in self.events if name == event]

    @property
    def seconds(self) -> dict[tuple[str, ...], float]:
        """The series of the metric, by partition and topic."""
        gauges = self.tally.snapshot().gauges
        return {series[2:]: value for series, value in gauges.items() if series[0] == OPEN_TRANSACTION.name}


class Scene:
    """An intake of two partitions with one level, a target, and an owner of both."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.broker = FakeBroker(self.clock, seed=1, latency_ms=(0, 2))
        self.geometry = Geometry(20_000, 10, 1)
        cluster = Cluster("fake", {}, self.broker.clients("setup"))
        admin = cluster.clients.admin(cluster.client())
        give = partial(Birth(cluster, admin, "group", self.clock).give, "in", 2, self.geometry)
        make_or_check(TopicAdmin(admin), "in", 2, 1, self.geometry, fixed_delay=False, before_intake=give)
        self.broker.make_topic("out")
        self.owners = [self.start("a")]

    @property
    def owner(self) -> Owner:
        return self.owners[-1]

    def start(self, name: str) -> Owner:
        return Owner(name, self.broker, self.clock, self.geometry)

    def until(self, condition: Callable[[], object], within_ms: int) -> None:
        ends_ms = self.clock.monotonic_ms() + within_ms
        while not condition():
            assert self.clock.monotonic_ms() < ends_ms, self.owner.events[-20:]
            for owner in self.owners:
                owner.worker.turn()
            self.clock.advance(5)

    def run(self, ms: int) -> None:
        ends_ms = self.clock.monotonic_ms() + ms
        self.until(lambda: self.clock.monotonic_ms() >= ends_ms, 2 * ms + 1_000)

    def serve(self) -> None:
        self.until(lambda: self.owner.said("serving"), 20_000)

    def leave_open(self, topic: str, *partitions: int) -> Producer:
        """Leave a transaction open that has a record in some partitions of a topic; it may last for hours."""
        options = {"transactional.id": f"foreign-{topic}", "transaction.timeout.ms": 86_400_000}
        producer = self.broker.clients("foreign").producer(options)
        producer.init_transactions(30)
        producer.begin_transaction()
        for partition in partitions:
            producer.produce(topic, b"of somebody else", partition=partition)
        producer.flush(1)
        return producer

    def send(self, value: bytes, delay_ms: int) -> None:
        headers: list[tuple[str, bytes | None]] = [("tarry-target", b"out"), ("tarry-delay-ms", b"%d" % delay_ms)]
        self.broker.append("in", value, value, headers)

    @property
    def delivered(self) -> list[bytes | None]:
        return [one.value for one in self.broker.records("out")]

    def is_said_while_open(self, topic: str, foreign: Producer) -> None:
        """Within a minute and two looks it is said, once, and shown; nothing is delivered before the transaction ends.

        Then it is said that it has ended, the metric is gone, and what has waited is delivered.
        """
        owner = self.owner
        offset = min(self.broker.undecided(topic))
        self.until(lambda: owner.said("transaction_stays_open"), OPEN_AFTER_MS + 2 * LOOK_MS)
        self.run(2 * LOOK_MS)
        [said] = owner.said("transaction_stays_open")
        # The owner may have deleted its first record meanwhile: to a process it is no message.
        start = self.broker.records(topic, committed=False)[0].offset
        assert (said["topic"], said["partition"], said["offset"]) == (topic, 0, max(offset, start))
        assert 60 <= said["for_s"] <= 80
        assert owner.seconds.keys() == {("0", topic)}
        assert owner.seconds["0", topic] > 60 + 2 * LOOK_MS / 1000 - 2, "at most a second old"
        assert self.delivered == []
        assert owner.said("transaction_ended") == []
        foreign.abort_transaction(30)
        self.until(lambda: owner.said("transaction_ended"), 2 * LOOK_MS)
        [ended] = owner.said("transaction_ended")
        assert {name: ended[name] for name in ("topic", "partition", "offset")} == {
            name: said[name] for name in ("topic", "partition", "offset")
        }
        self.until(lambda: self.delivered == [b"waits"], 2 * FAR_MS)
        self.run(LOOK_MS)
        assert owner.seconds == {}
        assert self.broker.records("in.dead") == []


@pytest.fixture
def scene() -> Scene:
    begun = Scene()
    begun.serve()
    return begun


def test_a_transaction_that_is_left_open_in_the_intake(scene: Scene) -> None:
    foreign = scene.leave_open("in", 0)
    scene.send(b"waits", NEAR_MS)
    scene.is_said_while_open("in", foreign)


def test_a_transaction_that_is_left_open_in_the_log_of_a_level(scene: Scene) -> None:
    foreign = scene.leave_open("in.wheel-1", 0)
    scene.send(b"waits", FAR_MS)
    scene.is_said_while_open("in.wheel-1", foreign)


def test_a_transaction_that_is_left_open_in_the_parked_log(scene: Scene) -> None:
    scene.broker.take_away("out")
    foreign = scene.leave_open("in.parked", 0)
    scene.send(b"waits", NEAR_MS)
    filed = partial(scene.broker.records, "in.parked", committed=False)
    scene.until(lambda: len(filed()) > 1, 20_000)
    scene.broker.bring_back("out")
    scene.is_said_while_open("in.parked", foreign)


def test_a_transaction_that_is_left_open_in_the_journal_and_a_take_over_that_waits_for_it(scene: Scene) -> None:
    foreign = scene.leave_open("in.journal", 0)
    scene.broker.kill("a")
    scene.owners[:] = [scene.start("b")]
    scene.send(b"waits", NEAR_MS)
    scene.until(lambda: scene.owner.said("assigned"), 20_000)
    scene.is_said_while_open("in.journal", foreign)
    assert scene.owner.said("serving")


def test_transactions_of_the_service_and_of_clients_that_end_are_not_spoken_of(scene: Scene) -> None:
    for number in range(40):
        foreign = scene.leave_open("in", 0)
        scene.send(b"%d" % number, FAR_MS if number % 2 else NEAR_MS)
        scene.run(LOOK_MS // 4)
        foreign.commit_transaction(30)
    scene.until(lambda: len(scene.delivered) == 40, 2 * FAR_MS)
    assert scene.owner.said("transaction_stays_open") == []
    assert scene.owner.said("transaction_ended") == []


def test_what_is_known_stays_while_answers_are_lost(scene: Scene) -> None:
    foreign, owner = scene.leave_open("in", 0), scene.owner
    scene.until(lambda: owner.seconds, OPEN_AFTER_MS + 2 * LOOK_MS)
    owner.loses = lambda step: step.call == "list_offsets" and step.phase == "after"
    scene.run(4 * LOOK_MS)
    assert owner.seconds["0", "in"] > 60 + 4 * LOOK_MS / 1000 - 2
    foreign.commit_transaction(30)
    scene.run(2 * LOOK_MS)
    assert owner.said("transaction_ended") == []
    owner.loses = lambda _step: False
    scene.until(lambda: owner.said("transaction_ended"), 2 * LOOK_MS)
    scene.run(1_000)
    assert owner.seconds == {}
    assert len(owner.said("transaction_stays_open")) == 1


def test_a_partition_that_is_given_up_is_forgotten_and_its_next_owner_finds_the_transaction(scene: Scene) -> None:
    scene.leave_open("in", 0, 1)
    first = scene.owner
    scene.until(lambda: len(first.seconds) == 2, OPEN_AFTER_MS + 2 * LOOK_MS)
    scene.owners.append(scene.start("b"))
    scene.serve()
    [given_up] = {"0", "1"} - {str(place[1]) for place in first.worker.look().states}
    scene.run(SHOWN_MS)
    assert (given_up, "in") not in first.seconds
    scene.run(OPEN_AFTER_MS + LOOK_MS)
    assert [set(owner.seconds) for owner in scene.owners] == [
        {(partition, "in")} for partition in ("01".replace(given_up, ""), given_up)
    ]
    assert first.said("transaction_ended") == []


def test_a_partition_that_is_set_aside_is_forgotten_until_it_is_back(scene: Scene) -> None:
    foreign, owner = scene.leave_open("in", 0, 1), scene.owner
    scene.until(lambda: len(owner.seconds) == 2, OPEN_AFTER_MS + 2 * LOOK_MS)
    scene.broker.take_away("in.results", 0)
    scene.until(lambda: owner.said("partition_waits"), LOOK_MS)
    scene.run(SHOWN_MS)
    assert set(owner.seconds) == {("1", "in")}
    scene.run(OPEN_AFTER_MS + LOOK_MS)
    assert set(owner.seconds) == {("1", "in")}
    scene.broker.bring_back("in.results", 0)
    scene.until(lambda: len(owner.seconds) == 2, OPEN_AFTER_MS + 2 * LOOK_MS)
    foreign.abort_transaction(30)
    scene.until(lambda: owner.seconds == {}, 2 * LOOK_MS)
    assert sorted(one["partition"] for one in owner.said("transaction_stays_open")) == [0, 0, 1]
    assert sorted(one["partition"] for one in owner.said("transaction_ended")) == [0, 1]


# -- when the brokers are asked ----------------------------------------------------------------------------------------


class Watch:
    """What looks for open transactions in two partitions without levels, and what it asks the brokers."""

    def __init__(self, stage: TopicStage, after_ms: int = OPEN_AFTER_MS) -> None:
        self.clock, self.broker = stage.clock, stage.broker
        self.asked: list[tuple[bool, list[Place]]] = []
        """Whether for the last stable offsets, and of which logs."""
        self.slow: set[bool] = set()
        """The questions that are not answered for now."""
        self.events: list[tuple[str, dict[str, Any]]] = []
        self.places = [("in", 0), ("in", 1)]
        for topic in ("in", "in.journal", "in.parked"):
            stage.broker.make_topic(topic, 2)
        watch = self

        class Late(PendingAnswers):
            is_committed = False

            @property
            def done(self) -> bool:
                return self.is_committed not in watch.slow and super().done

            def answers(self) -> dict[Place, int]:
                assert self.done, "the answers are not there"
                return super().answers()

        class Asked(Offsets):
            def ask_ends(self, places: Any, *, committed: bool = False) -> PendingAnswers:
                watch.asked.append((committed, list(places)))
                late = Late(super().ask_ends(places, committed=committed)._futures)
                late.is_committed = committed
                return late

        cluster = stage.cluster("worker")
        offsets = Asked(cluster.clients.admin(cluster.admin()), "group", cluster)
        context = Context(stage.clock, lambda event, **fields: self.events.append((event, fields)))
        self.watched = OpenTransactions(offsets, {"in": Geometry(20_000, 10, 0)}, after_ms, context)

    def turn(self) -> None:
        self.watched.turn(lambda: self.places)

    def run(self, ms: int) -> None:
        for _ in range(ms // 100):
            self.turn()
            self.clock.advance(100)

    def look(self) -> None:
        """Let it ask once, and take the answers."""
        self.clock.advance(LOOK_MS)
        self.turn()
        self.turn()


def test_the_brokers_are_asked_every_twenty_seconds_for_both_offsets_of_each_log(stage: TopicStage) -> None:
    watch = Watch(stage)
    watch.run(3 * LOOK_MS)
    logs = [(topic, partition) for partition in (0, 1) for topic in ("in", "in.journal", "in.parked")]
    assert watch.asked == [(True, logs), (False, logs)] * 3


@pytest.mark.parametrize("slow", [True, False])
def test_nothing_is_asked_again_before_both_answers_are_there(stage: TopicStage, slow: bool) -> None:
    watch = Watch(stage)
    watch.slow.add(slow)
    watch.run(3 * LOOK_MS)
    assert len(watch.asked) == 2
    watch.slow.clear()
    watch.run(LOOK_MS)
    assert len(watch.asked) == 4


def test_no_turn_waits_for_an_answer(stage: TopicStage) -> None:
    watch = Watch(stage)
    stage.broker.stop()
    watch.turn()
    before_ms = stage.clock.monotonic_ms()
    for _ in range(10):
        watch.turn()
    assert stage.clock.monotonic_ms() == before_ms


def test_nothing_is_asked_without_partitions(stage: TopicStage) -> None:
    watch = Watch(stage)
    watch.places = []
    watch.run(LOOK_MS)
    assert watch.asked == []
    watch.places = [("in", 1)]
    watch.turn()
    assert [{partition for _, partition in logs} for _, logs in watch.asked] == [{1}, {1}]


def test_nothing_is_asked_if_it_is_switched_off(stage: TopicStage) -> None:
    watch = Watch(stage, after_ms=0)
    watch.run(2 * LOOK_MS)
    assert watch.asked == []


def test_an_answer_about_a_partition_that_was_given_up_meanwhile_does_not_count(stage: TopicStage) -> None:
    watch = Watch(stage)
    foreign = stage.producer("foreign", transaction_timeout_ms=86_400_000)
    foreign.begin_transaction()
    for partition in (0, 1):
        foreign.produce("in", b"v", partition=partition)
    foreign.flush(10)
    for _ in range(3):
        watch.look()
    stage.clock.advance(LOOK_MS)
    watch.turn()
    watch.watched.forget([("in", 1)])
    watch.turn()
    said = ("transaction_stays_open", {"topic": "in", "partition": 0, "offset": 0, "for_s": OPEN_AFTER_MS // 1000})
    assert watch.events == [said]
    stage.clock.advance(100)
    assert watch.watched.seconds() == {(("in", 0), "in"): OPEN_AFTER_MS / 1000 + 0.1}
    watch.look()
    assert watch.events == [said]
    watch.places.remove(("in", 1))
    for _ in range(SAY_EVERY_MS // LOOK_MS):
        watch.look()
    assert [fields["for_s"] for _, fields in watch.events] == [60, 660]
