"""Pauses, on the fake cluster: what becomes of them if their log is missing, away, made again, or not allowed."""

from collections import Counter
from collections.abc import Callable
from contextlib import closing
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

import pytest
from confluent_kafka import Producer, TopicPartition

from tarry.core.progress.checkpoint import Geometry
from tarry.core.request.intake_policy import IntakePolicy
from tarry.core.request.pause import Pause
from tarry.core.request.reader import RequestReader
from tarry.core.window.parked import PARK_AFTER_MS
from tarry.errors import RetriableError, UsageError
from tarry.kafka.adoption import Adoption
from tarry.kafka.birth import Birth
from tarry.kafka.control import Control, Unconfirmed
from tarry.kafka.intake_topics import control_topic, make_or_check, make_or_check_topic
from tarry.kafka.settings import Cluster
from tarry.kafka.topics import DEAD, JOURNAL, PARKED, RESULTS, TopicAdmin
from tarry.service.metrics.families import PAUSED, PAUSED_TARGETS
from tarry.service.metrics.tally import Tally
from tarry.service.worker import Plan, Worker
from tarry.service.worker.pausing import LOOK_EVERY_MS, PATIENCE_MS
from tarry.service.worker.plan import IntakePlan
from tarry.service.worker.side_producer import SideProducer
from tarry.testing import FakeBroker, FakeService, ManualClock

GEOMETRY = Geometry(20_000, 10, 0)
HOUR_MS = 3_600_000
WITHIN_TURNS = 3_000


class Service:
    """Two intakes of one partition each, two targets, and one worker at a time."""

    def __init__(
        self, *, with_control: bool = True, is_fixed: bool = False, memory_budget_bytes: int = 1 << 30
    ) -> None:
        self._is_fixed = is_fixed
        self._geometry = Geometry(20_000, 10, 1) if is_fixed else GEOMETRY
        self.clock = ManualClock()
        self.memory_budget_bytes = memory_budget_bytes
        self.broker = FakeBroker(self.clock, seed=1, latency_ms=(0, 2), fetch_most=20)
        self.events: list[tuple[str, dict[str, object]]] = []
        self.tally = Tally()
        self._lives = 0
        cluster = Cluster("fake", {}, self.broker.clients("setup"))
        self.admin = TopicAdmin(cluster.clients.admin(cluster.admin()))
        for intake in ("in", "by"):
            if with_control:
                make_or_check_topic(self.admin, control_topic(intake, 1))
            self.prepare(intake, 1)
        for target in ("out", "more"):
            self.broker.make_topic(target)
        self.control = Control(Cluster("fake", {}, self.broker.clients("people")), "group", self.clock)
        self.sent = 0
        self.worker = self.start()

    def prepare(self, intake: str, partitions: int) -> None:
        """Make topics and first checkpoints, as the start of the service does."""
        cluster = Cluster("fake", {}, self.broker.clients("setup"))
        birth = Birth(cluster, cluster.clients.admin(cluster.admin()), "group", self.clock)
        give = partial(birth.give, intake, partitions, self._geometry)
        make_or_check(self.admin, intake, partitions, 1, self._geometry, fixed_delay=self._is_fixed, before_intake=give)

    def grow(self) -> None:
        """Add a partition to the intake, and to its other topics."""
        for suffix in ("", RESULTS, JOURNAL, DEAD, PARKED):
            self.broker.grow("in" + suffix, 2)

    def adopt(self) -> list[str]:
        """Adopt partitions as `--adopt` does; return why."""
        reasons: list[str] = []
        cluster = Cluster("fake", {}, self.broker.clients("adopter"))
        with closing(Adoption(cluster, "group", self.clock)) as adoption:
            adoption.adopt("in", 2, self._geometry, lambda _event, **fields: reasons.append(fields["reason"]))
        return reasons

    def delete_records(self, topic: str, below: int) -> None:
        cluster = Cluster("fake", {}, self.broker.clients("setup"))
        admin = cluster.clients.admin(cluster.admin())
        self.broker.configure(topic, cleanup_policy="compact,delete")
        [deleted] = admin.delete_records([TopicPartition(topic, 0, below)]).values()
        deleted.result()

    def begin_in_log(self, pause: Pause) -> Producer:
        """Begin a transaction that writes a pause, as no command does."""
        producer = self.broker.clients("foreign").producer({"transactional.id": "foreign"})
        producer.init_transactions()
        producer.begin_transaction()
        producer.produce("in.control", pause.value(), pause.key(), 0)
        producer.flush(10)
        return producer

    def start(self) -> Worker:
        self._lives += 1
        cluster = Cluster("fake", {}, self.broker.clients(f"life-{self._lives}"))
        fixed: dict[str, Any] = {"fixed_delay_ms": HOUR_MS, "fixed_target": "out"} if self._is_fixed else {}
        intakes = {
            name: IntakePlan(RequestReader(IntakePolicy(name, **fixed)), self._is_fixed, self._geometry, HOUR_MS)
            for name in ("in", "by")
        }
        plan = Plan(
            cluster=cluster,
            group="group",
            member=cluster.member("group", "classic", None),
            name=f"group.life-{self._lives}",
            intakes=intakes,
            tick_ms=1,
            wheel_size=64,
            memory_budget_bytes=self.memory_budget_bytes,
            interval_ms=5,
            most=100,
            most_to_file=10 if self._is_fixed else 10_000,
        )
        self.worker = Worker(
            plan,
            self.clock,
            lambda: False,
            lambda event, **fields: self.events.append((event, fields)),
            self.tally,
        )
        return self.worker

    def crash_and_start(self) -> None:
        self.broker.kill(f"life-{self._lives}")
        self.events.clear()
        self.start()

    def until(self, condition: Callable[[], object], within_ms: int = 60_000) -> None:
        ends_ms = self.clock.monotonic_ms() + within_ms
        while not condition():
            assert self.clock.monotonic_ms() < ends_ms, self.events[-20:]
            self.worker.turn()
            self.clock.advance(1)

    def run(self, for_ms: int) -> None:
        ends_ms = self.clock.monotonic_ms() + for_ms
        self.until(lambda: self.clock.monotonic_ms() >= ends_ms, for_ms + 1_000)

    def serve(self) -> None:
        self.until(lambda: self.said("serving"))

    def said(self, event: str) -> list[dict[str, object]]:
        return [fields for name, fields in self.events if name == event]

    def pause(self, target: str = "out", intake: str = "in", until_ms: int | None = None) -> int:
        pause = Pause(target, paused=True, reason="r", who="w", at_ms=self.clock.now_ms(), until_ms=until_ms)
        return self.control.write(intake, pause)

    def park_by_a_pause(self, for_ms: int) -> int:
        """Pause a target, send messages for it, and run for `for_ms` after they are parked; return how many."""
        self.wait_confirmed(self.pause())
        many = 60
        for _ in range(many):
            self.send()
        self.run(PARK_AFTER_MS + for_ms)
        return many

    def resume(self, target: str = "out", intake: str = "in") -> int:
        return self.control.write(intake, Pause(target, paused=False, reason="", who="w", at_ms=self.clock.now_ms()))

    def confirmed(self, offset: int, intake: str = "in") -> bool:
        return not self.control.unconfirmed(intake, offset)

    def wait_confirmed(self, offset: int, intake: str = "in") -> None:
        # Asking takes time, in which the worker does not turn: so not at each turn.
        for _ in range(100):
            self.run(100)
            if self.confirmed(offset, intake):
                return
        raise AssertionError(self.events[-20:])

    def send(self, target: str = "out", intake: str = "in", partition: int = 0) -> None:
        self.sent += 1
        headers: list[tuple[str, bytes | None]] = [("tarry-target", target.encode()), ("tarry-delay-ms", b"0")]
        self.broker.append(intake, b"k", b"%d" % self.sent, headers, partition)

    def delivered(self, target: str = "out") -> list[bytes | None]:
        return [record.value for record in self.broker.records(target, 0)]

    def wait_delivered(self, count: int, target: str = "out") -> None:
        self.until(lambda: len(self.delivered(target)) >= count)
        assert len(self.delivered(target)) == count


def test_a_pause_is_of_one_intake_and_one_target_and_shows_in_the_metrics() -> None:
    service = Service()
    service.serve()
    service.wait_confirmed(service.pause())
    service.send()
    service.send("more")
    service.send("out", "by")
    service.wait_delivered(1, "more")
    service.wait_delivered(1)
    service.run(5_000)
    assert service.delivered() == [b"3"], "what came by the other intake"
    gauges = service.tally.snapshot().gauges
    assert gauges[PAUSED_TARGETS.name, "in"] == 1
    assert gauges[PAUSED_TARGETS.name, "by"] == 0
    assert gauges[PAUSED.name, "in", "out"] > 4
    assert (PAUSED.name, "by", "out") not in gauges
    [said] = service.said("target_paused")
    assert (said["topic"], said["target"], said["reason"], said["who"], said["until"]) == ("in", "out", "r", "w", None)
    service.wait_confirmed(service.resume())
    service.wait_delivered(2)
    service.run(1_500)
    assert (PAUSED.name, "in", "out") not in service.tally.snapshot().gauges
    assert len(service.said("target_resumed")) == 1
    assert not service.said("target_away"), "it was not away"


def test_a_target_that_is_away_and_paused_is_tried_when_it_is_resumed() -> None:
    service = Service()
    service.serve()
    service.broker.take_away("out")
    service.send()
    service.until(lambda: service.said("target_away"))
    service.wait_confirmed(service.pause())
    service.broker.bring_back("out")
    service.run(20_000)
    assert service.delivered() == []
    assert not service.said("target_back")
    service.wait_confirmed(service.resume())
    service.wait_delivered(1)
    service.until(lambda: service.said("target_back"))


def test_a_new_owner_does_not_call_a_target_away_that_is_paused() -> None:
    service = Service()
    service.serve()
    service.wait_confirmed(service.pause())
    service.send()
    service.run(PARK_AFTER_MS + 20_000)
    service.crash_and_start()
    service.serve()
    service.run(5_000)
    assert service.said("target_paused")
    assert not service.said("target_away")
    service.wait_confirmed(service.resume())
    service.wait_delivered(1)


def test_what_waited_for_a_pause_is_delivered_at_once_although_the_results_fit_no_batch_of_all() -> None:
    service = Service()
    service.serve()
    many = service.park_by_a_pause(20_000)
    service.broker.configure("in" + RESULTS, max_message_bytes="1500")
    service.wait_confirmed(service.resume())
    service.wait_delivered(many)
    assert not service.said("target_still_away")


def test_a_pause_ends_an_open_transaction_and_the_next_one_takes_as_much() -> None:
    service = Service()
    service.serve()
    many = service.park_by_a_pause(2_000)
    service.broker.throttle(500)
    service.resume()
    service.until(lambda: service.said("target_resumed"))
    service.run(1_500)
    service.pause()
    service.until(lambda: len(service.said("target_paused")) == 2)
    service.run(2_000)
    service.broker.throttle(None)
    assert service.delivered() == []
    service.resume()
    service.wait_delivered(many)
    written = len(service.broker.records("out", committed=False))
    assert written > many, "the transaction that the pause ended had written records"
    assert service.broker.end("out") - written == 2, "it has one marker, and that of all messages another"


def test_no_transaction_begins_while_its_producer_is_being_built_for_smaller_batches(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """With several targets that are due: one producer at a time may register its transactional id."""
    built: list[SideProducer] = []
    renew, begin = SideProducer.renew, SideProducer.begin

    def watched_renew(producer: SideProducer) -> None:
        assert producer._renewal is None
        built.append(producer)
        renew(producer)

    def watched_begin(producer: SideProducer) -> None:
        assert producer._renewal is None
        begin(producer)

    monkeypatch.setattr(SideProducer, "renew", watched_renew)
    monkeypatch.setattr(SideProducer, "begin", watched_begin)
    service = Service()
    service.serve()
    for target in ("out", "more"):
        service.wait_confirmed(service.pause(target))
        service.send(target)
    service.run(1_000)  # they are still in memory
    for target in ("out", "more"):
        service.broker.configure(target, max_message_bytes="5000")
    built.clear()
    for target in ("out", "more"):
        service.resume(target)
    service.wait_delivered(1)
    service.wait_delivered(1, "more")
    assert built


def test_a_new_owner_learns_why_a_target_is_away_and_says_it_once() -> None:
    service = Service()
    service.serve()
    service.broker.take_away("out")
    service.send()
    service.until(lambda: service.said("target_away"))
    [away] = service.said("target_away")
    service.run(PARK_AFTER_MS + 20_000)
    assert not service.said("target_still_away"), "the reason is the same"
    service.crash_and_start()
    service.serve()
    service.run(20_000)
    [found] = service.said("target_away")
    assert found["reason"] == "messages for it are parked"
    [still] = service.said("target_still_away")
    assert (still["target"], still["reason"]) == ("out", away["reason"])
    service.broker.bring_back("out")
    service.wait_delivered(1)


def test_an_intake_without_the_log_is_served_and_obeys_once_it_is_there() -> None:
    service = Service(with_control=False)
    service.serve()
    service.send()
    service.wait_delivered(1)
    assert {said["topic"] for said in service.said("pausing_not_possible")} == {"in", "by"}
    with pytest.raises(UsageError, match=r"has no topic in\.control"):
        service.pause()
    service.run(3 * LOOK_EVERY_MS)
    assert len(service.said("pausing_not_possible")) == 2, "it is said once"
    make_or_check_topic(service.admin, control_topic("in", 1))
    offset = service.pause()
    assert service.control.unconfirmed("in", offset) == [Unconfirmed(0, "group.life-1", is_too_old=True)]
    service.run(LOOK_EVERY_MS)
    service.wait_confirmed(offset)
    service.send()
    service.run(5_000)
    assert len(service.delivered()) == 1


def test_a_partition_that_nobody_has_served_is_not_confirmed() -> None:
    service = Service()
    assert service.control.unconfirmed("in", service.pause()) == [Unconfirmed(0, None, is_too_old=False)]
    service.serve()
    service.send()
    service.run(5_000)
    assert service.delivered() == []


def test_a_restart_obeys_before_it_fires() -> None:
    service = Service()
    service.serve()
    offset = service.pause()
    service.wait_confirmed(offset)
    service.crash_and_start()
    service.send()
    service.serve()
    service.run(10_000)
    assert service.delivered() == []
    assert service.confirmed(offset)
    service.wait_confirmed(service.resume())
    service.wait_delivered(1)


def test_a_released_partition_counts_as_confirmed_and_its_next_owner_obeys() -> None:
    service = Service()
    service.serve()
    service.wait_confirmed(service.resume())
    service.worker.hand_over()
    service.worker.close()
    assert service.confirmed(service.pause())
    service.send()
    service.start()
    service.run(20_000)
    assert len(service.said("serving")) == 2
    assert service.delivered() == []


@pytest.mark.parametrize("was_obeyed", [True, False])
@pytest.mark.parametrize(("hindered_by", "event"), [("no leader", "taken_over"), ("no right", "pausing_not_possible")])
def test_a_log_that_cannot_be_read_holds_up_a_take_over_only_if_a_pause_may_have_been_confirmed(
    hindered_by: str, event: str, *, was_obeyed: bool
) -> None:
    service = Service(with_control=was_obeyed)
    service.serve()
    if was_obeyed:
        service.wait_confirmed(service.pause())
    else:
        make_or_check_topic(service.admin, control_topic("in", 1))
    if hindered_by == "no leader":
        service.broker.take_away("in.control")
    else:
        service.broker.deny("in.control")
    service.crash_and_start()
    service.send()
    service.until(lambda: service.said(event))
    if not was_obeyed:
        service.wait_delivered(1)
        return
    service.run(3 * PATIENCE_MS)
    assert not service.said("serving")
    assert service.said("pausing_not_possible")[0]["waiting"] == 1
    if hindered_by == "no leader":
        service.broker.bring_back("in.control")
    else:
        service.broker.deny("in.control", denied=False)
    service.serve()
    service.run(5_000)
    assert service.delivered() == []
    service.wait_confirmed(service.resume())
    service.wait_delivered(1)


@pytest.mark.parametrize("is_adopted", [False, True], ids=["added", "adopted"])
@pytest.mark.parametrize("is_away_before", [False, True], ids=["away at the take-over", "away before"])
def test_a_new_partition_waits_for_the_log_if_a_pause_may_have_been_confirmed(
    *, is_adopted: bool, is_away_before: bool
) -> None:
    service = Service()
    service.serve()
    service.wait_confirmed(service.pause())
    service.grow()
    if is_away_before:
        service.broker.take_away("in.control")
    if is_adopted:
        service.send(partition=1)
        [reason] = service.adopt()
        assert "in/1 holds records" in reason
    else:
        service.prepare("in", 2)
        service.send(partition=1)
    service.broker.take_away("in.control")
    service.crash_and_start()
    service.run(3 * PATIENCE_MS)
    assert service.delivered() == []
    assert service.said("pausing_not_possible")[-1]["waiting"] == 2
    service.broker.bring_back("in.control")
    service.serve()
    service.run(5_000)
    assert service.delivered() == []
    service.wait_confirmed(service.resume())
    service.wait_delivered(1)


def test_a_new_partition_is_served_without_a_log_that_never_held_a_pause() -> None:
    service = Service()
    service.serve()
    service.run(1_000)
    service.grow()
    service.prepare("in", 2)
    service.broker.deny("in.control")
    service.send(partition=1)
    service.crash_and_start()
    service.wait_delivered(1)
    assert service.said("pausing_not_possible")


def test_what_is_known_stays_in_force_while_the_log_is_away() -> None:
    service = Service()
    service.serve()
    service.wait_confirmed(service.pause())
    service.broker.take_away("in.control")
    service.send()
    service.run(3 * LOOK_EVERY_MS)
    assert service.delivered() == []
    with pytest.raises(RetriableError):
        service.resume()
    service.broker.bring_back("in.control")
    service.wait_confirmed(service.resume())
    service.wait_delivered(1)


def test_a_log_that_was_made_again_is_read_anew_and_its_predecessor_confirms_nothing() -> None:
    service = Service()
    service.serve()
    for _ in range(5):
        service.pause()
    service.wait_confirmed(service.pause())
    service.broker.delete_topic("in.control")
    service.run(2 * LOOK_EVERY_MS)
    service.send()
    service.run(2_000)
    assert service.delivered() == [], "what is known stays in force"
    make_or_check_topic(service.admin, control_topic("in", 1))
    offset = service.pause("more")
    assert offset == 0
    assert not service.confirmed(offset), "the offsets of the former log do not count"
    service.run(2 * LOOK_EVERY_MS)
    service.wait_confirmed(offset)
    service.wait_delivered(1)
    service.send("more")
    service.run(2_000)
    assert service.delivered("more") == []


def test_a_log_that_was_deleted_holds_up_a_take_over_for_some_seconds_only() -> None:
    service = Service()
    service.serve()
    service.wait_confirmed(service.pause())
    service.broker.delete_topic("in.control")
    service.crash_and_start()
    service.send()
    service.until(lambda: service.said("taken_over"))
    service.run(PATIENCE_MS // 2)
    assert service.delivered() == []
    service.serve()
    service.wait_delivered(1)
    assert service.said("pausing_not_possible")


def test_a_log_that_has_lost_its_end_is_believed_after_some_seconds() -> None:
    service = Service()
    service.serve()
    service.wait_confirmed(service.pause("more"))
    service.wait_confirmed(service.pause())
    service.broker.truncate("in.control", 1)
    service.crash_and_start()
    service.send()
    service.send("more")
    service.until(lambda: service.said("taken_over"))
    service.run(PATIENCE_MS // 2)
    assert service.delivered() == []
    service.until(lambda: service.said("pauses_lost"))
    service.wait_delivered(1)
    assert service.delivered("more") == []
    service.wait_confirmed(service.pause())


def test_a_pause_is_obeyed_while_reading_waits_for_messages_to_be_filed() -> None:
    service = Service(is_fixed=True)
    service.serve()
    service.broker.throttle(20)
    for _ in range(300):
        service.broker.append("in", b"k", b"v" * 100, None, 0)
    service.run(2_000)
    offset = service.pause()
    service.until(lambda: service.said("target_paused"), within_ms=20_000)
    [state] = [state for place, state in service.worker.look().states.items() if place[0] == "in"]
    assert state.position < service.broker.end("in"), "it is far behind"
    service.broker.throttle(None)
    service.wait_confirmed(offset)
    service.until(lambda: state.position == service.broker.end("in"))


def test_a_pause_ends_by_the_clock_of_the_owner() -> None:
    service = Service()
    service.serve()
    until_ms = service.clock.now_ms() + 20_000
    service.wait_confirmed(service.pause(until_ms=until_ms))
    service.send()
    service.until(service.delivered, within_ms=30_000)
    assert service.clock.now_ms() >= until_ms
    assert len(service.said("target_resumed")) == 1


def test_a_target_can_be_paused_on_the_fake_service() -> None:
    fake = FakeService()
    fake.make_topic("out")
    fake.pause("out", until=datetime.fromtimestamp(fake.clock.now_ms() / 1_000, UTC) + timedelta(minutes=10))
    fake.send("out", b"1", delay=timedelta(minutes=1))
    fake.clock.advance(300_000)
    assert fake.delivered("out") == []
    fake.resume("out")
    fake.clock.advance(1_000)
    assert [record.value for record in fake.delivered("out")] == [b"1"]
    fake.pause("out", until=datetime.fromtimestamp(fake.clock.now_ms() / 1_000, UTC) + timedelta(minutes=10))
    fake.send("out", b"2", delay=timedelta(minutes=1))
    fake.clock.advance(11 * 60_000)
    assert [record.value for record in fake.delivered("out")] == [b"1", b"2"]


@pytest.mark.parametrize("has_end", [True, False])
def test_a_week_of_a_pause_costs_few_turns(monkeypatch: pytest.MonkeyPatch, has_end: bool) -> None:
    fake, turns, usual = FakeService(), Counter[str](), Worker.turn

    def counted(worker: Worker) -> None:
        turns["all"] += 1
        usual(worker)

    monkeypatch.setattr(Worker, "turn", counted)
    fake.make_topic("out")
    ends = datetime.fromtimestamp(fake.clock.now_ms() / 1_000, UTC) + timedelta(days=7)
    fake.pause("out", until=ends if has_end else None)
    fake.send("out", b"1", delay=timedelta(minutes=1))
    fake.clock.advance(7 * 24 * HOUR_MS - 1)
    assert fake.delivered("out") == []
    assert turns["all"] < 7 * 24 * 20  # it runs once an hour
    if not has_end:
        fake.resume("out")
    fake.clock.advance(1_001)
    assert [record.value for record in fake.delivered("out")] == [b"1"]


def test_a_damaged_record_with_an_impossible_timestamp_does_not_end_the_service() -> None:
    service = Service()
    service.serve()
    service.broker.configure("in.control", message_timestamp_after_max_ms=str((1 << 63) - 1))
    offset = service.broker.append("in.control", b"out", b"damaged", [], timestamp_ms=1 << 62)
    service.wait_confirmed(offset)
    service.send()
    service.send("more")
    service.wait_delivered(1, "more")
    assert service.delivered() == []
    assert service.said("target_paused")


def test_memory_is_bounded_while_a_partition_waits_for_the_log() -> None:
    service = Service(memory_budget_bytes=200_000)
    service.serve()
    service.wait_confirmed(service.pause())
    service.broker.deny("in.control")
    service.crash_and_start()
    service.until(lambda: service.said("taken_over"))
    service.run(1_000)
    for _ in range(60):
        for _ in range(50):
            service.send("more")
        service.run(50)
    held = max(state.memory_bytes for state in service.worker.look().states.values())
    assert held < 400_000, held
    service.broker.deny("in.control", denied=False)
    service.wait_delivered(3_000, "more")


def test_a_log_that_has_lost_its_end_confirms_nothing_beyond_it() -> None:
    service = Service()
    service.serve()
    for _ in range(5):
        service.pause("more")
    service.wait_confirmed(service.pause("more"))
    service.broker.truncate("in.control", 1)
    offset = service.pause()
    assert offset == 1
    assert not service.confirmed(offset), "the checkpoint is about records that are lost"
    service.wait_confirmed(offset)
    service.send()
    service.run(5_000)
    assert service.delivered() == []


def test_a_broker_that_does_not_know_the_log_is_not_believed_if_another_one_does() -> None:
    service = Service()
    service.serve()
    service.wait_confirmed(service.pause())
    service.crash_and_start()
    service.broker.hide("in.control")
    service.send()
    service.until(lambda: service.said("taken_over"))
    service.run(3 * PATIENCE_MS)
    assert service.delivered() == []
    service.broker.hide("in.control", hidden=False)
    service.serve()
    service.run(1_000)
    assert service.delivered() == []
    service.wait_confirmed(service.resume())
    service.wait_delivered(1)


def test_records_that_were_deleted_from_the_log_are_said_to_be_lost() -> None:
    service = Service()
    service.serve()
    service.wait_confirmed(service.pause())
    service.wait_confirmed(service.pause("more"))
    assert not service.said("pauses_lost")
    service.delete_records("in.control", 1)
    service.run(LOOK_EVERY_MS)
    lost = {"topic": "in", "start": 1}
    assert service.said("pauses_lost") == [lost]
    service.send()
    service.run(2 * LOOK_EVERY_MS)
    assert service.delivered() == [], "what is known stays in force"
    assert service.said("pauses_lost") == [lost], "it is said once"
    service.crash_and_start()
    service.wait_delivered(1)
    assert service.said("pauses_lost") == [lost]
    service.delete_records("in.control", 2)
    service.run(LOOK_EVERY_MS)
    assert service.said("pauses_lost")[1:] == [{"topic": "in", "start": 2}]


def test_an_open_transaction_in_the_log_holds_up_no_take_over_and_confirms_nothing() -> None:
    service = Service()
    service.serve()
    offset = service.pause("more")
    service.wait_confirmed(offset)
    producer = service.begin_in_log(Pause("out", paused=True, reason="", who="", at_ms=0))
    behind = service.pause()
    service.crash_and_start()
    service.serve()
    assert service.confirmed(offset)
    service.send()
    service.send("more")
    service.wait_delivered(1)
    assert not service.confirmed(behind)
    assert service.control.pauses("in").keys() == {"more"}
    producer.abort_transaction()
    service.wait_confirmed(behind)
    service.send()
    service.run(5_000)
    assert len(service.delivered()) == 1
    assert service.delivered("more") == []


def test_a_pause_behind_an_open_transaction_is_not_confirmed_while_nobody_serves() -> None:
    service = Service()
    service.serve()
    service.wait_confirmed(service.resume())
    service.worker.hand_over()
    service.worker.close()
    producer = service.begin_in_log(Pause("more", paused=True, reason="", who="", at_ms=0))
    offset = service.pause()
    assert not service.confirmed(offset), "the next owner could not read it"
    producer.abort_transaction()
    assert service.confirmed(offset)
