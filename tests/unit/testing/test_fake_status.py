"""The status that the service's own worker publishes, on the fake cluster."""

import json
from collections.abc import Callable
from functools import partial

from tarry.core.progress.checkpoint import Geometry
from tarry.core.request.intake_policy import IntakePolicy
from tarry.core.request.reader import RequestReader
from tarry.core.request.status import Status, parsed_status
from tarry.kafka.birth import Birth
from tarry.kafka.broker_time import KEY as CLOCK
from tarry.kafka.intake_topics import make_or_check, make_or_check_topic, status_topic
from tarry.kafka.offsets import Offsets
from tarry.kafka.settings import Cluster
from tarry.kafka.status import statuses_of
from tarry.kafka.topics import TopicAdmin
from tarry.service.worker import Plan, Worker
from tarry.service.worker.plan import IntakePlan
from tarry.service.worker.publishing import AGAIN_MS
from tarry.testing import FakeBroker, ManualClock

GEOMETRY = Geometry(20_000, 10, 0)
PARTITIONS = 3


class Service:
    """An intake of three partitions, and workers that deliver to `out`."""

    def __init__(self, *, with_status: bool = True) -> None:
        self.clock = ManualClock()
        self.broker = FakeBroker(self.clock, seed=1, latency_ms=(0, 2))
        self.events: list[tuple[str, dict[str, object]]] = []
        self.cluster = Cluster("fake", {}, self.broker.clients("setup"))
        self.admin = self.cluster.clients.admin(self.cluster.client())
        give = partial(Birth(self.cluster, self.admin, "group", self.clock).give, "in", PARTITIONS, GEOMETRY)
        make_or_check(
            TopicAdmin(self.admin),
            "in",
            PARTITIONS,
            1,
            GEOMETRY,
            fixed_delay=False,
            before_intake=give,
        )
        if with_status:
            self.make_status()
        self.broker.make_topic("out", 1)

    def make_status(self) -> list[str]:
        return make_or_check_topic(TopicAdmin(self.admin), status_topic("in", 1))

    def worker(self, name: str, *targets: str, figures_every_ms: int = 0) -> Worker:
        cluster = Cluster("fake", {}, self.broker.clients(name))
        plan = Plan(
            cluster=cluster,
            group="group",
            member=cluster.member("group", "classic", None),
            name=f"group.{name}",
            intakes={"in": IntakePlan(RequestReader(IntakePolicy("in", targets)), False, GEOMETRY, 3_600_000)},
            tick_ms=1,
            wheel_size=64,
            memory_budget_bytes=1 << 30,
            interval_ms=5,
            most=100,
            figures_every_ms=figures_every_ms,
        )
        return Worker(plan, self.clock, lambda: False, lambda event, **fields: self.events.append((event, fields)))

    def turn(self, *workers: Worker, until: Callable[[], bool]) -> None:
        for _ in range(20_000):
            for worker in workers:
                worker.turn()
            if until():
                return
        raise AssertionError("it did not come to be")

    def told(self) -> dict[int, tuple[str, tuple[str, ...]]]:
        """The owners and their targets, by partition, as a client reads them."""
        offsets = Offsets(self.admin, "anybody", self.cluster)
        found = statuses_of("in", self.cluster, TopicAdmin(self.admin), offsets, self.clock, lambda _text: None)
        return {number: (status.owner, status.policy.targets) for number, status in found.items()}

    def count(self, event: str) -> int:
        return sum(name == event for name, _ in self.events)


def test_an_owner_says_once_what_its_partitions_accept() -> None:
    service = Service()
    worker = service.worker("a", "out", "bills.*")
    service.turn(worker, until=lambda: service.broker.end("in.status", 0) >= PARTITIONS)
    assert service.told() == dict.fromkeys(range(PARTITIONS), ("group.a", ("out", "bills.*")))
    for _ in range(100):
        service.clock.advance(10_000)
        worker.turn()
    said = [record for record in service.broker.records("in.status", 0) if record.key != CLOCK]
    assert len(said) == PARTITIONS, "it is said once"


def test_the_next_owner_says_what_it_accepts_instead() -> None:
    service = Service()
    old = service.worker("a", "out")
    service.turn(old, until=lambda: len(service.told()) == PARTITIONS)
    new = service.worker("b", "out", "more")
    service.turn(old, new, until=lambda: len({owner for owner, _ in service.told().values()}) == 2)
    old.hand_over()
    old.close()
    service.turn(new, until=lambda: {owner for owner, _ in service.told().values()} == {"group.b"})
    assert service.told() == dict.fromkeys(range(PARTITIONS), ("group.b", ("out", "more")))


def test_without_the_topic_the_service_serves_and_says_so_and_tells_later() -> None:
    service = Service(with_status=False)
    worker = service.worker("a", "out")
    headers: list[tuple[str, bytes | None]] = [("tarry-target", b"out"), ("tarry-delay-ms", b"0")]
    service.broker.append("in", b"k", b"v", headers, 0)
    service.turn(worker, until=lambda: bool(service.broker.records("out", 0)))
    service.turn(worker, until=lambda: service.count("status_not_published") == 1)
    [reason] = [fields["reason"] for name, fields in service.events if name == "status_not_published"]
    assert "in.status" in str(reason)
    for _ in range(50):
        worker.turn()
    assert service.count("status_not_published") == 1, "not again at once"
    assert service.make_status() == ["in.status"]
    service.clock.advance(AGAIN_MS)
    service.turn(worker, until=lambda: len(service.told()) == PARTITIONS)


def test_readers_ignore_a_record_that_is_no_status() -> None:
    service = Service()
    service.turn(service.worker("a", "out"), until=lambda: len(service.told()) == PARTITIONS)
    [first, *_] = [parsed_status(record.value or b"") for record in service.broker.records("in.status", 0)]
    for key, value in ((b"x", b"nonsense"), (b"9", json.dumps({"v": 9}).encode()), (b"y", None)):
        service.broker.append("in.status", key, value, [], 0)
    stray = json.dumps({**json.loads(first.value()), "partition": PARTITIONS}).encode()
    service.broker.append("in.status", b"%d" % PARTITIONS, stray, [], 0)
    assert sorted(service.told()) == list(range(PARTITIONS))


def published(service: Service) -> list[Status]:
    records = service.broker.records("in.status", 0)
    return [parsed_status(record.value) for record in records if record.value is not None and record.key != CLOCK]


def test_figures_are_published_while_something_happens_and_seldom_while_nothing_does() -> None:
    service = Service()
    worker = service.worker("a", "out", figures_every_ms=5_000)
    headers: list[tuple[str, bytes | None]] = [("tarry-target", b"out"), ("tarry-delay-ms", b"0")]
    service.turn(worker, until=lambda: len(service.told()) == PARTITIONS)
    for _ in range(20):
        service.broker.append("in", b"k", b"v", headers, 1)
    service.turn(worker, until=lambda: len(service.broker.records("out", 0)) == 20)

    def run(for_ms: int) -> list[Status]:
        before, ends_ms = len(published(service)), service.clock.monotonic_ms() + for_ms
        while service.clock.monotonic_ms() < ends_ms:
            service.clock.advance(10)
            worker.turn()
        return published(service)[before:]

    latest = run(6_000)[-PARTITIONS:]
    assert sorted(status.partition for status in latest) == list(range(PARTITIONS))
    by_partition = {status.partition: status.figures for status in latest}
    figures = by_partition[1]
    assert figures is not None
    assert (figures.held, figures.parked, figures.paused) == (0, (), ())
    assert figures.process.delivered == 20
    assert figures.process.takeovers == PARTITIONS
    assert figures.process.resident_bytes > 1 << 20
    [delivered] = figures.process.targets
    assert (delivered.target, delivered.messages) == ("out", 20)
    assert 0 <= delivered.p50_ms <= delivered.p99_ms <= delivered.worst_ms < 10_000
    assert service.clock.now_ms() - figures.at_ms < 15_000

    assert len(run(120_000)) <= 6 * PARTITIONS, "it is idle"
    service.broker.take_away("out")
    for _ in range(3):
        service.broker.append("in", b"k", b"v", headers, 1)
    latest = run(20_000)[-PARTITIONS:]
    [parked] = [one for status in latest if status.figures is not None for one in status.figures.parked]
    assert (parked.target, parked.messages) == ("out", 3)
    assert parked.since_ms <= service.clock.now_ms()
    first = {status.partition: status.at_ms for status in published(service)[:PARTITIONS]}
    assert {status.partition: status.at_ms for status in latest} == first, "since when they are ours"


def test_figures_that_cannot_be_published_are_tried_again_later() -> None:
    service = Service(with_status=False)
    worker = service.worker("a", "out", figures_every_ms=5_000)
    service.turn(worker, until=lambda: service.count("status_not_published") == 1)
    service.make_status()
    for _ in range(2 * AGAIN_MS // 100):
        service.clock.advance(100)
        worker.turn()
    assert any(status.figures is not None for status in published(service))
