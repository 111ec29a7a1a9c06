"""An intake on a real broker, and processes of the service whose parts run in the test's own thread.

So a test can stop a process between any two steps, more exactly than by a signal.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager, suppress
from functools import partial
from typing import Any, Literal

import pytest
from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from tarry.clock import Clock, SystemClock
from tarry.core.partition import PartitionState
from tarry.core.progress.checkpoint import Geometry
from tarry.core.progress.recovered import Recovered
from tarry.core.request.intake_policy import IntakePolicy
from tarry.core.request.reader import RequestReader
from tarry.kafka.adoption import Adoption
from tarry.kafka.birth import Birth
from tarry.kafka.intake_topics import make_or_check
from tarry.kafka.offsets import Offsets, ask_committed
from tarry.kafka.patience import patiently
from tarry.kafka.reader import Reader
from tarry.kafka.settings import Cluster
from tarry.kafka.topics import TopicAdmin
from tarry.kafka.transaction import Transactor
from tarry.kafka.types import OffsetMetadata, Place
from tarry.service.worker import Plan, Worker
from tarry.service.worker.connections import GroupProducer, open_connections
from tarry.service.worker.context import Context
from tarry.service.worker.firing import Firing
from tarry.service.worker.letters import LetterWriter
from tarry.service.worker.parked_reading import ParkedReading
from tarry.service.worker.parking import Parking
from tarry.service.worker.plan import IntakePlan
from tarry.service.worker.takeovers import TakenOver, TakeOvers
from tarry.service.worker.targets import Targets
from tarry.timer import TimingWheel
from tests.support.brokers import wait_until
from tests.support.topic_settings import change_settings
from tests.support.topics import count_led, make_topics

GEOMETRY = Geometry(20_000, 10, 0)
PATIENCE_S = 20.0
_LATEST = -1
"""The timestamp with which a consumer asks for the end of a partition (KIP-79)."""

Record = tuple[int, bytes | None, bytes | None, list[tuple[str, bytes | None]] | None]
"""Partition, key, value, headers."""


class Events(list[tuple[str, dict[str, Any]]]):
    """The events of a process, for a test to search."""

    def __call__(self, event: str, **fields: Any) -> None:
        self.append((event, fields))

    def of(self, event: str) -> list[dict[str, Any]]:
        return [fields for name, fields in self if name == event]


class Stage:
    """One test's intake, group and targets; topics are created on request.

    Args:
        bootstrap: the broker, HOST:PORT.
        name: a unique name.
        partitions: the number of the intake's partitions.
        until_the_end: closes everything that was opened here.
    """

    def __init__(self, bootstrap: str, name: str, partitions: int, until_the_end: ExitStack) -> None:
        self.cluster = Cluster(bootstrap)
        """Properties of all clients, except those that a test creates itself."""
        self.intake = f"{name}.in"
        self.target = f"{name}.out"
        self.group = f"{name}.group"
        self.partitions = partitions
        self.until_the_end = until_the_end
        self.admin = AdminClient(self.cluster.client())
        self.offsets = Offsets(self.admin, self.group, self.cluster)
        until_the_end.callback(self.offsets.close)
        self._asker = Consumer(self.cluster.client(group_id=self.group, isolation_level="read_committed"))
        until_the_end.callback(self._asker.close)
        self.reader = RequestReader(IntakePolicy(topic=self.intake))
        self._producer = Producer(self.cluster.client(acks="all", message_max_bytes=10_000_000))
        until_the_end.callback(self._producer.close)

    @property
    def places(self) -> list[Place]:
        return [(self.intake, partition) for partition in range(self.partitions)]

    # -- topics --------------------------------------------------------------------------------------------------------

    def make_topic(self, topic: str, partitions: int = 1, **config: str) -> str:
        make_topics(self.admin, [topic], partitions, **config)
        return topic

    def configure(self, topic: str, **config: str) -> None:
        """Change settings of a topic; its leader obeys them when this returns."""
        change_settings(self.admin, topic, **config)

    def count(self, topic: str) -> int:
        """Return how many partitions of a topic have a leader; 0 if there is no such topic."""
        return count_led(self.admin, topic)

    def make_intake(self, *, born: bool = True, fixed_delay: bool = False, geometry: Geometry = GEOMETRY) -> None:
        """Create the intake and its other topics as the service does, if they are missing, and the target."""
        make_or_check(
            TopicAdmin(self.admin),
            self.intake,
            self.partitions,
            1,
            geometry,
            fixed_delay=fixed_delay,
            before_intake=lambda: self.bear(geometry) if born else None,
        )
        wait_until(lambda: self.count(self.intake) == self.partitions, "the intake is known")
        if not self.count(self.target):
            self.make_topic(self.target)

    def bear(self, geometry: Geometry = GEOMETRY) -> None:
        birth = Birth(self.cluster, self.admin, self.group, SystemClock())
        birth.give(self.intake, self.partitions, geometry)

    def adopt(self) -> list[str]:
        """Do what a start with `--adopt` does; return the reasons."""
        events = Events()
        with closing(Adoption(self.cluster, self.group, SystemClock())) as adoption:
            adoption.adopt(self.intake, self.partitions, GEOMETRY, events)
        return [adopted["reason"] for adopted in events.of("adopted")]

    # -- records -------------------------------------------------------------------------------------------------------

    def put(self, topic: str, *records: Record) -> None:
        """Write records, outside of any transaction."""
        failures: list[KafkaError] = []

        def report(error: KafkaError | None, _record: object) -> None:
            if error is not None:
                failures.append(error)

        for partition, key, value, headers in records:
            given: Any = headers
            self._producer.produce(topic, value, key, partition, headers=given, on_delivery=report)
        assert self._producer.flush(20) == 0
        assert not failures

    def send(self, *values: bytes, delay_ms: int = 0, partition: int = 0, target: str | None = None) -> None:
        """Write requests with equal delays to the intake; key and value are equal."""
        headers: list[tuple[str, bytes | None]] = [
            ("tarry-target", (target or self.target).encode()),
            ("tarry-delay-ms", b"%d" % delay_ms),
        ]
        self.put(self.intake, *[(partition, value, value, headers) for value in values])

    @contextmanager
    def transaction(self, topic: str, values: Sequence[bytes]) -> Iterator[Transactor]:
        """Open a transaction of another producer with some records, and leave it open."""
        transactor = Transactor(self.cluster, f"{self.group}.stranger")
        transactor.renew()
        before = self.end(topic)
        try:
            transactor.begin()
            for value in values:
                transactor.produce(topic, 0, None, value, None, lambda _error, _record: None)
            # An abort would drop records that are not in the log yet.
            wait_until(lambda: self.end(topic) == before + len(values), "the records are in the log")
            yield transactor
        finally:
            transactor.close()

    def committed(self, *topics: str) -> "Inbox":
        """Return the records of these topics that a read_committed reader gets."""
        return self.until_the_end.enter_context(inbox(self.cluster, topics))

    def end(self, topic: str, partition: int = 0) -> int:
        return self.offsets.ends([(topic, partition)], committed=False)[topic, partition]

    def watermarks(self) -> dict[Place, OffsetMetadata]:
        """Return the group's committed offsets, once no open transaction holds one of them."""
        return patiently(lambda: ask_committed(self._asker, self.places), SystemClock(), PATIENCE_S)

    # -- processes -----------------------------------------------------------------------------------------------------

    def process(self, name: str) -> "Process":
        """Start a process of the service, and wait until it is a member of the group and owns all partitions."""
        process = self.newcomer(name)
        process.join()
        return process

    def newcomer(self, name: str) -> "Process":
        """Start a process that has sent its join request, and has no answer yet."""
        process = Process(self, f"{self.group}.{name}")
        self.until_the_end.callback(process.bury)
        self.until_the_end.callback(process.die)
        return process

    def worker(
        self, clock: Clock | None = None, *, protocol: Literal["classic", "consumer"] = "classic", **plan: Any
    ) -> "Running":
        """Return a worker with the whole loop, which the test turns."""
        plan = {"member": self.cluster.member(self.group, protocol, None), **plan}
        running = Running(self, clock or SystemClock(), plan)
        self.until_the_end.callback(running.close)
        return running


class Process:
    """The parts of one process of the service."""

    def __init__(self, stage: Stage, name: str) -> None:
        self.stage = stage
        self.events = Events()
        self.owned: set[Place] = set()
        self.states: dict[Place, PartitionState] = {}
        self._alive = True
        plan = Plan(
            cluster=stage.cluster,
            group=stage.group,
            member=stage.cluster.member(stage.group, "classic", None),
            name=name,
            intakes={stage.intake: IntakePlan(stage.reader, False, GEOMETRY, 3_600_000)},
            tick_ms=1,
            wheel_size=64,
            memory_budget_bytes=1 << 30,
            interval_ms=5,
            most=1_000,
        )
        context = Context(SystemClock(), self.events)
        self.connections = open_connections(plan, context)
        self.transactor = self.connections.firing
        self.membership = self.connections.membership
        self._taking_over = TakeOvers(plan, self.connections, context)
        self.membership.join(self)

    def assigned(self, places: Sequence[Place]) -> None:
        self.owned.update(places)

    def revoked(self, places: Sequence[Place]) -> None:
        self.owned.difference_update(places)

    def lost(self, places: Sequence[Place]) -> None:
        self.owned.difference_update(places)

    def join(self) -> None:
        def owns_all() -> bool:
            self.membership.poll()
            return len(self.owned) == self.stage.partitions

        wait_until(owns_all, "the process owns all partitions")

    def take_over(self) -> dict[Place, Recovered]:
        """Take over all partitions, with the steps in the service's order."""
        return patiently(self.try_to_take_over, SystemClock(), PATIENCE_S)

    def try_to_take_over(self) -> dict[Place, Recovered]:
        self.membership.poll()
        self._taking_over.prove(self.stage.places)
        self._taking_over.begin(self.stage.places, SystemClock().monotonic_ms())
        while True:
            for outcome in self._taking_over.turn():
                if isinstance(outcome, TakenOver):
                    return dict(outcome.recovered)
                raise outcome.error

    def serve(self, recovered: Mapping[Place, Recovered]) -> None:
        """Read every partition to its end."""
        now_ms = SystemClock().now_ms()
        for place, found in recovered.items():
            self.states[place] = PartitionState(
                *place, self.stage.reader, False, lambda start_ms: TimingWheel(1, 64, start_ms), found, now_ms
            )
        for place, state in self.states.items():
            with inbox(self.stage.cluster, [place[0]], {place: state.position}) as records:
                for record in records.read_to_the_end():
                    offset, stamp = record.offset() or 0, record.timestamp()[1]
                    headers: Any = record.headers()
                    state.arrivals.accept(offset, stamp, record.key(), record.value(), headers, now_ms)
                state.arrivals.reach(self.stage.end(*place))

    def fire(self, at_most: int = 1_000, *, later_ms: int = 0) -> int:
        """Run one firing transaction with all messages that are due by a time."""
        clock = Later(later_ms)
        ready = [state for state in self.states.values() if state.collect(clock.now_ms())]
        return self._firing(clock, at_most).fire(ready)

    def commit_checkpoints(self, *, released: bool) -> None:
        self._firing(SystemClock(), 1).commit_checkpoints(list(self.states.values()), released=released)

    def _firing(self, clock: Clock, at_most: int) -> Firing:
        cluster = self.stage.cluster
        ask = partial(TopicAdmin(self.stage.admin).targets, timeout_s=5)
        targets = Targets(ask, ask)
        reading = ParkedReading(
            lambda: Reader(cluster, lambda text: self.events("warning", text=text)), 1 << 30, self.events
        )
        clients, apart = cluster.clients, Transactor(cluster, f"{self.transactor.transactional_id}-dead")
        context = Context(clock, self.events)
        letters = LetterWriter(GroupProducer(apart, self.membership), clients, context)
        ours = GroupProducer(self.transactor, self.membership)
        parking = Parking(ours, clients, targets, letters, reading, at_most, context)
        return Firing(ours, targets, parking, letters, at_most, 0, context)

    def open_a_firing_transaction(self, value: bytes) -> None:
        """Open the transaction of a process that dies between steps 4 and 5: delivery, journal record, offset."""
        journal = f"{self.stage.intake}.journal"
        ends = {topic: self.stage.end(topic) for topic in (self.stage.target, journal)}
        self.transactor.begin()
        self.transactor.produce(self.stage.target, 0, None, value, None, lambda _error, _record: None)
        self.transactor.produce(journal, 0, None, b"D\x01", None, lambda _error, _record: None)
        wait_until(
            lambda: all(self.stage.end(topic) > end for topic, end in ends.items()), "the records are in the logs"
        )
        offsets = {place: (state.low + 1, state.settle_checkpoint().metadata) for place, state in self.states.items()}
        self.transactor.send_offsets(offsets, self.membership.metadata())

    def die(self) -> None:
        """Leave the group without a release or an abort, so that the transaction stays open."""
        if self._alive:
            self._alive = False
            self.membership.close()

    def bury(self) -> None:
        """Close the clients of a dead process, only at the end, because closing aborts the open transaction."""
        for transactor in self.connections.transactors:
            with suppress(KafkaException):
                transactor.close()
        self.connections.reader.close()
        self.connections.offsets.close()


class Later:
    """The machine's clock plus a number of milliseconds."""

    def __init__(self, later_ms: int) -> None:
        self._clock = SystemClock()
        self.later_ms = later_ms

    def now_ms(self) -> int:
        return self._clock.now_ms() + self.later_ms

    def monotonic_ms(self) -> int:
        return self._clock.monotonic_ms()

    def sleep(self, seconds: float) -> None:
        self._clock.sleep(seconds)


class Running:
    """A worker whose loop the test turns."""

    def __init__(self, stage: Stage, clock: Clock, plan: Mapping[str, Any]) -> None:
        self.events = Events()
        self.stopped = False
        settings: dict[str, Any] = {
            "cluster": stage.cluster,
            "group": stage.group,
            "name": f"{stage.group}.worker",
            "intakes": {stage.intake: IntakePlan(stage.reader, False, GEOMETRY, 3_600_000)},
            "tick_ms": 1,
            "wheel_size": 512,
            "memory_budget_bytes": 1 << 30,
            "interval_ms": 5,
            "most": 5_000,
        }
        self.worker = Worker(Plan(**{**settings, **plan}), clock, lambda: self.stopped, self.events)

    def until(self, condition: Callable[[], object], what: str, within_s: float = 20.0) -> None:
        def holds() -> bool:
            self.worker.turn()
            return bool(condition())

        try:
            wait_until(holds, what, within_s)
        except pytest.fail.Exception as failure:
            failure.add_note(f"what the worker said last: {self.events[-30:]}")
            raise

    def until_serving(self) -> None:
        self.until(lambda: self.events.of("serving"), "the worker serves")

    def close(self) -> None:
        """Hand the partitions over and end."""
        if not self.stopped:
            self.stopped = True
            self.worker.run()


class Inbox:
    """The committed records of some topics, in the order of their arrival."""

    def __init__(self, consumer: Consumer, starts: Mapping[Place, int]) -> None:
        self.records: list[Message[Any, Any]] = []
        self._consumer = consumer
        self._reached = dict.fromkeys(starts, 0)
        """How far each partition is read, past the marker at its end if it was reached."""

    def poll(self, wait_s: float = 0.0) -> "list[Message[Any, Any]]":
        """Return all records that have come so far."""
        for record in self._consumer.consume(1_000, wait_s):
            error, place, offset = record.error(), (record.topic() or "", record.partition() or 0), record.offset() or 0
            if error is None:
                self.records.append(record)
                self._reached[place] = offset + 1
            elif error.code() == KafkaError._PARTITION_EOF:
                self._reached[place] = offset
        return self.records

    def read_to_the_end(self) -> "list[Message[Any, Any]]":
        """Return all records up to where the topics end now; they may grow meanwhile, and faster than they are read."""
        asked = [TopicPartition(*place, _LATEST) for place in self._reached]
        ends = {(one.topic, one.partition): one.offset for one in self._consumer.offsets_for_times(asked, PATIENCE_S)}

        def at_the_end() -> bool:
            self.poll(0.1)
            return all(self._reached[place] >= end for place, end in ends.items())

        wait_until(at_the_end, "the end of the topic")
        return self.records

    def values(self) -> list[bytes | None]:
        return [record.value() for record in self.poll()]


@contextmanager
def inbox(
    cluster: Cluster, topics: Sequence[str], starts: Mapping[Place, int] | None = None, *, trimmed: bool = False
) -> Iterator[Inbox]:
    """Read topics, or partitions from an offset each, as a read_committed reader does.

    Args:
        cluster: the cluster.
        topics: the topics to read.
        starts: partitions and the offsets to begin at; None: all partitions from the beginning.
        trimmed: whether records may be deleted meanwhile; the reader then continues behind them.
    """
    consumer = Consumer({**cluster.reader(), **({"auto.offset.reset": "earliest"} if trimmed else {})})
    try:
        if starts is None:
            found = {topic: consumer.list_topics(topic, timeout=10).topics[topic].partitions for topic in topics}
            starts = {(topic, partition): OFFSET_BEGINNING for topic in topics for partition in found[topic]}
        consumer.assign([TopicPartition(*place, at) for place, at in starts.items()])
        yield Inbox(consumer, starts)
    finally:
        consumer.close()


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "stage(partitions=1, intake=False): what the fixture `stage` begins with")


@pytest.fixture
def stage(request: pytest.FixtureRequest, bootstrap: str, unique_name: Callable[[str], str]) -> Iterator[Stage]:
    """A stage with one partition and without topics, unless the marker `stage` says otherwise."""

    def begin(partitions: int = 1, *, intake: bool = False) -> Stage:
        begun = Stage(bootstrap, unique_name("stage"), partitions, until_the_end)
        if intake:
            begun.make_intake()
        return begun

    marker = request.node.get_closest_marker("stage")
    with ExitStack() as until_the_end:
        yield begin(**(marker.kwargs if marker else {}))
