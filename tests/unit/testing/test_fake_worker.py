"""The service's own worker on the fake cluster."""

from collections.abc import Callable
from functools import partial
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Literal

import pytest

from tarry.core.partition import PartitionState
from tarry.core.progress.checkpoint import Geometry
from tarry.core.request.intake_policy import IntakePolicy
from tarry.core.request.reader import RequestReader
from tarry.core.window.matching import DONE_BYTES
from tarry.errors import AbortableError
from tarry.kafka.birth import Birth
from tarry.kafka.intake_topics import make_or_check
from tarry.kafka.settings import Cluster
from tarry.kafka.topics import TopicAdmin
from tarry.service.worker import Plan, Worker
from tarry.service.worker.firing import Firing
from tarry.service.worker.maintenance import COPY_EVERY_MS
from tarry.service.worker.plan import IntakePlan
from tarry.service.worker.targets import KEPT_MS
from tarry.testing import FakeBroker, Fate, ManualClock, Step

if TYPE_CHECKING:
    from tarry.service.worker.health import Health

GEOMETRY = Geometry(20_000, 10, 0)
Protocol = Literal["classic", "consumer"]
both_protocols = pytest.mark.parametrize("protocol", ["classic", "consumer"])


class Service:
    """An intake of two partitions, a target of two, and workers."""

    def __init__(self, seed: int, protocol: Protocol) -> None:
        self.clock = ManualClock()
        self.broker = FakeBroker(self.clock, seed=seed, marker_lag_ms=(0, 30), latency_ms=(0, 2))
        self.steps: list[Step] = []
        self.sent = 0
        self._protocol: Protocol = protocol
        cluster = Cluster("fake", {}, self.broker.clients("setup"))
        admin = cluster.clients.admin(cluster.client())
        give = partial(Birth(cluster, admin, "group", self.clock).give, "in", 2, GEOMETRY)
        make_or_check(TopicAdmin(admin), "in", 2, 1, GEOMETRY, fixed_delay=False, before_intake=give)
        self.broker.make_topic("out", 2)

    def worker(self, name: str, keep_ms: int = 3_600_000, budget_bytes: int = 1 << 30) -> Worker:
        cluster = Cluster("fake", {}, self.broker.clients(name, self.steps.append))
        plan = Plan(
            cluster=cluster,
            group="group",
            member=cluster.member("group", self._protocol, None),
            name=f"group.{name}",
            intakes={"in": IntakePlan(RequestReader(IntakePolicy(topic="in")), False, GEOMETRY, keep_ms)},
            tick_ms=1,
            wheel_size=64,
            memory_budget_bytes=budget_bytes,
            interval_ms=5,
            most=100,
        )
        return Worker(plan, self.clock, lambda: False, lambda _event, **_fields: None)

    def send(self, count: int) -> None:
        for number in range(self.sent, self.sent + count):
            value = b"%d" % number
            headers: list[tuple[str, bytes | None]] = [
                ("tarry-target", b"out"),
                ("tarry-delay-ms", b"%d" % (number % 7 * 300)),
            ]
            self.broker.append("in", value, value, headers, number % 2)
        self.sent += count

    def ask_for(self, target: bytes, partition: bytes | None = None) -> None:
        """Send a message for another target, due at once."""
        headers: list[tuple[str, bytes | None]] = [("tarry-target", target), ("tarry-delay-ms", b"0")]
        if partition is not None:
            headers.append(("tarry-partition", partition))
        self.broker.append("in", target, target, headers, 0)

    def turn(self, *workers: Worker, until: int) -> None:
        self.turn_until(lambda: len(self.delivered()) >= until, *workers)

    def turn_until(self, condition: Callable[[], bool], *workers: Worker) -> None:
        for _ in range(20_000):
            for worker in workers:
                worker.turn()
            if condition():
                return
        raise AssertionError(f"not within 20,000 turns; {len(self.delivered())} were delivered")

    def delivered(self) -> list[int]:
        return sorted(int(one.value or b"-1") for partition in (0, 1) for one in self.broker.records("out", partition))


@both_protocols
def test_a_worker_takes_over_and_delivers_each_message_once(protocol: Protocol) -> None:
    service = Service(1, protocol)
    worker = service.worker("a")
    service.send(200)
    service.turn(worker, until=200)
    service.clock.advance(1_000)
    assert service.delivered() == list(range(200))
    assert min(one.timestamp_ms for one in service.broker.records("out")) > 1_700_000_000_000


@both_protocols
def test_a_second_worker_takes_its_share_and_all_when_the_first_is_killed(protocol: Protocol) -> None:
    service = Service(2, protocol)
    first = service.worker("a")
    service.send(100)
    service.turn(first, until=50)
    second = service.worker("b")
    service.send(100)
    service.turn(first, second, until=150)
    assert {step.process for step in service.steps if step.call == "commit_transaction"} == {"a", "b"}
    service.broker.kill("a")
    service.send(100)
    service.turn(second, until=300)
    service.clock.advance(1_000)
    assert service.delivered() == list(range(300))


def test_a_recovered_partition_is_released_if_its_first_copy_is_not_written(monkeypatch: pytest.MonkeyPatch) -> None:
    commit_checkpoints = Firing.commit_checkpoints
    held: list[PartitionState] = []
    closed: list[PartitionState] = []

    def refuse_once(firing: Firing, states: list[PartitionState], **options: Any) -> object:
        if held:
            return commit_checkpoints(firing, states, **options)
        held.extend(states)
        raise AbortableError("the group moves on")

    def close(state: PartitionState) -> None:
        closed.append(state)

    monkeypatch.setattr(Firing, "commit_checkpoints", refuse_once)
    monkeypatch.setattr(PartitionState, "close", close)
    service = Service(4, "classic")
    service.send(20)
    service.turn(service.worker("a"), until=20)
    assert len(held) == len(closed) == 2
    assert set(closed) == set(held)


def test_no_turn_waits_for_the_ids_that_are_asked_for_before_checkpoints_are_copied() -> None:
    service = Service(6, "classic")
    worker = service.worker("a")
    service.send(20)
    service.turn(worker, until=20)
    asked: list[int] = []

    def lose_answers(step: Step) -> Fate | None:
        if (step.call, step.phase) != ("describe_cluster", "after"):
            return None
        asked.append(service.clock.monotonic_ms())
        return Fate.LOSE_ANSWER

    service.broker.clients("a", lose_answers)
    ends_ms = service.clock.monotonic_ms() + COPY_EVERY_MS + 10_000
    turns_ms: list[int] = []
    while (began_ms := service.clock.monotonic_ms()) < ends_ms:
        if len(turns_ms) % 100 == 0:
            service.send(1)
        worker.turn()
        turns_ms.append(service.clock.monotonic_ms() - began_ms)
    assert asked
    assert max(turns_ms) < 1_000


def test_the_same_seed_gives_the_same_run_step_by_step() -> None:
    runs = []
    for seed in (5, 5, 6):
        service = Service(seed, "classic")
        first, second = service.worker("a"), service.worker("b")
        service.send(60)
        service.turn(first, second, until=60)
        runs.append((service.steps, service.clock.monotonic_ms()))
    assert runs[0] == runs[1]
    assert runs[0] != runs[2]


def test_knowledge_of_targets_may_become_stale_while_others_are_asked_for() -> None:
    service = Service(3, "classic")
    worker = service.worker("a")
    service.send(20)
    service.turn(worker, until=20)

    # Not more often: each ends the worker's session, and who takes over asks too.
    slow = [KEPT_MS + 1] * 3

    def take_long(step: Step) -> None:
        if (step.call, step.phase) == ("describe_topics", "after") and slow:
            service.clock.advance(slow.pop())

    service.broker.clients("a", take_long)
    service.broker.make_topic("another", 1)
    service.ask_for(b"another")
    service.ask_for(b"out", b"9")
    service.send(20)
    service.turn(worker, until=40)
    service.turn_until(lambda: bool(service.broker.records("another")), worker)
    assert [one.value for one in service.broker.records("another")] == [b"another"]
    assert [one.value for one in service.broker.records("in.dead")] == [b"out"]


def test_a_clients_open_transaction_keeps_nothing_in_front_of_it_from_firing() -> None:
    service = Service(7, "classic")
    service.send(20)
    cluster = Cluster("fake", {}, service.broker.clients("client"))
    client = cluster.clients.producer(cluster.transactor("client"))
    client.init_transactions(30)
    client.begin_transaction()
    headers: list[tuple[str, str | bytes | None]] = [("tarry-target", b"out"), ("tarry-delay-ms", b"0")]
    for partition in (0, 1):
        client.produce("in", b"%d" % (20 + partition), partition=partition, headers=headers)
    client.flush(1)
    worker = service.worker("a")
    service.turn(worker, until=20)
    client.commit_transaction(30)  # the brokers have not ended it: nobody has waited for that
    service.turn(worker, until=22)
    assert service.delivered() == list(range(22))


def test_done_records_stay_in_the_intake_for_as_long_as_is_configured() -> None:
    keep_ms = 10 * COPY_EVERY_MS
    service = Service(8, "classic")
    worker = service.worker("a", keep_ms)

    def oldest_ms() -> int:
        """How old what the intake still holds is at most."""
        return service.clock.now_ms() - min(service.broker.records("in", at)[0].timestamp_ms for at in (0, 1))

    service.send(10)
    sent_ms = service.clock.monotonic_ms()
    seen = []
    while service.clock.monotonic_ms() < sent_ms + 2 * keep_ms:
        service.send(2)
        service.turn(worker, until=service.sent - 10)
        service.clock.advance(COPY_EVERY_MS // 4)
        seen.append(oldest_ms())
    first = next(at for at, (age_ms, next_ms) in enumerate(pairwise(seen)) if next_ms < age_ms)
    assert keep_ms <= seen[first], "nothing is deleted before its time"
    assert max(seen) <= keep_ms + 3 * COPY_EVERY_MS, "and all is soon after"


def test_as_many_ids_are_known_as_an_eighth_of_the_memory_has_room_for() -> None:
    known = {}
    for budget_bytes in (1 << 20, 16 << 20):
        service = Service(9, "classic")
        worker = service.worker("a", budget_bytes=budget_bytes)
        service.send(4_000)
        service.turn(worker, until=4_000)
        worker.turn()
        known[budget_bytes] = [state.memory_bytes - state.held_bytes for state in worker.look().states.values()]
    small, ample = known.values()
    assert ample == [2_000 * DONE_BYTES] * 2
    assert all(0 < some <= (1 << 20) // 16 for some in small), "for each of two partitions"


def gauges(worker: Worker) -> dict[tuple[str, ...], float]:
    return dict(worker._health._gauges(worker.look()))


@both_protocols
def test_how_long_the_oldest_message_is_overdue_is_a_gauge_of_its_partition(protocol: Protocol) -> None:
    service = Service(8, protocol)
    worker = service.worker("a")
    service.turn_until(lambda: len(worker.look().states) == 2 and not worker.look().not_firing, worker)
    headers: list[tuple[str, bytes | None]] = [("tarry-target", b"out"), ("tarry-delay-ms", b"500")]
    service.broker.append("in", b"k", b"1", headers, 0)
    [position] = [state.position for place, state in worker.look().states.items() if place == ("in", 0)]
    service.turn_until(lambda: worker.look().states["in", 0].position > position, worker)
    assert gauges(worker)["tarry_oldest_overdue_seconds", "in", "0"] == 0
    service.clock.advance(4_500)  # no turn: the loop hangs
    assert 4 <= gauges(worker)["tarry_oldest_overdue_seconds", "in", "0"] <= 4.5
    assert gauges(worker)["tarry_oldest_overdue_seconds", "in", "1"] == 0
    service.turn(worker, until=1)
    assert gauges(worker)["tarry_oldest_overdue_seconds", "in", "0"] == 0


def test_a_process_to_which_no_broker_answers_says_so_and_is_not_ready() -> None:
    service = Service(9, "classic")
    worker = service.worker("a")
    said: list[Health] = []
    worker._health._send = said.append
    service.turn_until(lambda: bool(said) and said[-1].ready, worker)
    service.broker.stop()
    silent_ms = service.clock.monotonic_ms() + 12_000
    service.turn_until(lambda: service.clock.monotonic_ms() > silent_ms, worker)
    assert gauges(worker)["tarry_brokers_silent_seconds",] > 9
    assert (said[-1].ready, said[-1].why[:23]) == (False, "no broker has answered ")
    service.broker.start()
    service.turn_until(lambda: said[-1].ready, worker)
    assert gauges(worker)["tarry_brokers_silent_seconds",] == 0
