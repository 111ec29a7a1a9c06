"""A reader whose client stops fetching goes on with another; one for which there is nothing does not."""

import json
from typing import Any

import pytest
from confluent_kafka import Message

from tarry.client.group_consumer import GroupClients
from tarry.client.outcome.follower import Follower
from tarry.client.outcome.looking_back import LookingBack, Search
from tarry.client.outcome.recent import RecentResults
from tarry.client.outcome.result import Wanted
from tarry.client.outcome.waiting import AwaitedOutcome
from tarry.client.retry import RetryingConsumer
from tarry.client.retry.core.journey import Journey
from tarry.client.retry.core.key_queue import Ticket, Trouble, encode
from tarry.client.retry.core.names import Names
from tarry.client.retry.missing import LOOK_EVERY_MS
from tarry.client.retry.terms import Pace
from tarry.handle import Handle
from tarry.headers import TARGET
from tarry.kafka.clients import Clients
from tarry.kafka.offsets import Offsets
from tarry.kafka.reader import Reader
from tarry.kafka.settings import Cluster
from tarry.kafka.stall import STALL_MS, StallWatch
from tarry.kafka.topics import RESULTS
from tarry.testing import FakeBroker, ManualClock


class Deaf:
    """A consumer that gets nothing any more, from one moment on."""

    def __init__(self, consumer: Any) -> None:
        self._consumer = consumer
        self.is_deaf = False
        self.is_closed = False

    def consume(self, most: int, timeout_s: float) -> list[Message]:
        found: list[Message] = self._consumer.consume(most, timeout_s)
        return [] if self.is_deaf else found

    def poll(self, timeout_s: float) -> "Message | None":
        found: Message | None = self._consumer.poll(timeout_s)
        return None if self.is_deaf else found

    def close(self) -> None:
        self.is_closed = True
        self._consumer.close()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._consumer, name)


class Ears:
    """Clients whose consumers may become deaf."""

    def __init__(self, clients: Clients) -> None:
        self._clients = clients
        self.made: list[Deaf] = []
        self.born_deaf = False

    def consumer(self, properties: dict[str, Any]) -> Any:
        self.made.append(Deaf(self._clients.consumer(properties)))
        self.made[-1].is_deaf = self.born_deaf
        return self.made[-1]

    def __getattr__(self, name: str) -> Any:
        return getattr(self._clients, name)


class FirstDeaf(Ears):
    """Clients of which the next consumer is born deaf, and no other."""

    def consumer(self, properties: dict[str, Any]) -> Any:
        made = super().consumer(properties)
        self.born_deaf = False
        return made


class ReadTopic:
    """A topic of two partitions, its reader, and what that got."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.broker = FakeBroker(self.clock)
        self.broker.make_topic("t", 2)
        clients = self.broker.clients()
        self.ears = Ears(clients)
        cluster = Cluster("fake", {}, clients)
        watch = StallWatch(Offsets(clients.admin(cluster.admin()), "g", cluster), self.clock)
        self.warnings: list[str] = []
        self.reader = Reader(Cluster("fake", {}, self.ears), self.warnings.append, watch=watch)
        self.got: list[tuple[int, bytes | None]] = []
        self._producer = clients.producer(cluster.client())
        self.reader.open({("t", 0): 0, ("t", 1): 0})

    def put(self, partition: int, *values: bytes) -> None:
        for value in values:
            self._producer.produce("t", value, partition=partition)
        self._producer.flush(10)

    def read_for(self, ms: int, most: int = 100) -> None:
        for _ in range(ms // 100):
            self.clock.advance(100)
            records, _ = self.reader.read(most, 0)
            self.got += [(record.partition() or 0, record.value()) for record in records]


@pytest.fixture
def stage() -> ReadTopic:
    return ReadTopic()


def test_a_client_that_stops_fetching_is_replaced_and_nothing_is_read_twice_or_passed_over(stage: ReadTopic) -> None:
    stage.put(0, b"a", b"b")
    stage.put(1, b"x")
    stage.read_for(1_000)
    [first] = stage.ears.made
    first.is_deaf = True
    stage.put(0, b"c")
    stage.put(1, b"y", b"z")
    stage.read_for(STALL_MS + 3_000)
    assert len(stage.ears.made) == 2
    assert first.is_closed
    assert sorted(stage.got) == [(0, b"a"), (0, b"b"), (0, b"c"), (1, b"x"), (1, b"y"), (1, b"z")]
    [warning] = stage.warnings
    assert warning.endswith("its consumer is replaced")


def test_a_client_for_which_there_is_nothing_is_kept(stage: ReadTopic) -> None:
    stage.put(0, b"a")
    stage.read_for(5 * STALL_MS)
    assert len(stage.ears.made) == 1
    assert stage.warnings == []


def test_a_paused_partition_is_kept_and_stays_paused_in_the_new_consumer(stage: ReadTopic) -> None:
    stage.read_for(1_000)
    stage.reader.pause([("t", 1)])
    stage.put(1, b"later")
    stage.read_for(3 * STALL_MS)
    assert len(stage.ears.made) == 1
    stage.ears.made[0].is_deaf = True
    stage.put(0, b"a")
    stage.read_for(2 * STALL_MS)
    assert len(stage.ears.made) == 2
    assert stage.got == [(0, b"a")]
    stage.reader.resume([("t", 1)])
    stage.read_for(1_000)
    assert stage.got == [(0, b"a"), (1, b"later")]


def test_a_reader_that_did_not_read_for_a_while_has_not_waited(stage: ReadTopic) -> None:
    stage.read_for(1_000)
    stage.put(0, b"a")
    stage.clock.advance(2 * STALL_MS)
    stage.read_for(1_000)
    assert len(stage.ears.made) == 1
    assert stage.got == [(0, b"a")]


def test_fetched_records_that_wait_for_the_reader_are_no_stall(stage: ReadTopic) -> None:
    stage.put(0, *[b"%d" % number for number in range(5 * STALL_MS // 100)])
    stage.put(1, b"last")
    stage.read_for(4 * STALL_MS, most=1)
    assert len(stage.ears.made) == 1
    stage.read_for(2 * STALL_MS)
    assert len(stage.got) == 5 * STALL_MS // 100 + 1


def test_where_another_client_does_not_help_the_next_one_comes_later_and_later(stage: ReadTopic) -> None:
    stage.read_for(1_000)
    stage.ears.born_deaf = True
    stage.ears.made[0].is_deaf = True
    stage.put(0, b"a")
    stage.read_for(10 * STALL_MS)
    assert len(stage.ears.made) == 4, "after 1, 2 and 4 times the patience"
    stage.ears.born_deaf = False
    stage.read_for(10 * STALL_MS)
    assert stage.got == [(0, b"a")]
    assert len(stage.ears.made) == 5


def test_who_follows_the_results_of_an_intake_goes_on_with_another_client_too() -> None:
    clock = ManualClock()
    broker = FakeBroker(clock)
    for topic in ("in", "in.results"):
        broker.make_topic(topic, 2)
    ears = Ears(broker.clients())
    follower = Follower(Cluster("fake", {}, ears), "in", clock)
    got: list[tuple[int, int, bytes | None]] = []

    def follow(ms: int) -> None:
        for _ in range(ms // 100):
            clock.advance(100)
            follower.read(0, lambda partition, offset, _key, value: got.append((partition, offset, value)))

    broker.append("in.results", b"k", b"a", [], 0)
    follow(1_000)
    first, *others = ears.made  # the others ask for offsets
    first.is_deaf = True
    broker.append("in.results", b"k", b"b", [], 0)
    broker.append("in.results", b"k", b"x", [], 1)
    follow(STALL_MS + 3_000)
    assert sorted(got) == [(0, 0, b"a"), (0, 1, b"b"), (1, 0, b"x")]
    assert first.is_closed
    assert len(ears.made) == 2 + len(others)
    assert ears.made[-1] in follower.clients()
    follow(3 * STALL_MS)
    assert len(ears.made) == 2 + len(others), "there was nothing to get"
    follower.close()


def test_a_consumer_of_a_group_goes_on_with_another_client_too() -> None:
    clock = ManualClock()
    broker = FakeBroker(clock)
    broker.make_topic("t", 1)
    ears = Ears(broker.clients())
    cluster = Cluster("fake", {}, ears)
    warnings: list[str] = []
    clients = GroupClients(
        cluster, cluster.member("g", "classic", None), ["t"], clock, lambda _, **said: warnings.append(said["reason"])
    )
    reads = ears.made[-1]
    clients.reader.open({("t", 0): 0})
    reads.is_deaf = True
    broker.append("t", b"k", b"a", [], 0)
    got: list[bytes | None] = []
    for _ in range((STALL_MS + 3_000) // 100):
        clock.advance(100)
        got += [record.value() for record in clients.reader.read(100, 0)[0]]
    assert got == [b"a"]
    assert reads.is_closed
    assert [warning.rpartition(": ")[2] for warning in warnings] == ["its consumer is replaced"]


def test_who_looks_back_in_the_results_of_an_intake_goes_on_with_another_client_too() -> None:
    clock = ManualClock()
    broker = FakeBroker(clock)
    broker.make_topic("in.results", 2)
    handle = Handle("in", 1, 0, "8e8c5b0c-0f5d-4b3e-9a55-0c6b1a3f4d21")
    result = {"outcome": "fired", "id": handle.id, "due_ms": 0}
    broker.append("in.results", handle.id.encode(), json.dumps(result).encode(), [], 1)
    ears = FirstDeaf(broker.clients())
    cluster = Cluster("fake", {}, ears)
    offsets = Offsets(ears.admin(cluster.admin()), "g", cluster)
    looking_back = LookingBack(cluster, "in.results", offsets, clock)
    operation = AwaitedOutcome(Wanted(handle), RecentResults(1, {}), None)
    looking_back.ask(Search(operation, times_ms=[1, 0]))
    ears.born_deaf = True
    for _ in range((STALL_MS + 3_000) // 100):
        clock.advance(100)
        looking_back.step({1: 1})
    assert operation.future.result(0) == result
    assert not looking_back.is_busy
    assert ears.made[-1] in looking_back.clients()
    looking_back.close()


def test_a_retrying_consumer_takes_over_and_looks_for_late_messages_with_another_client_too() -> None:
    clock = ManualClock()
    broker = FakeBroker(clock)
    names = Names("t", "g", "in")
    for topic in (names.topic, names.intake, names.intake + RESULTS):
        broker.make_topic(topic, 1)
    ears = FirstDeaf(broker.clients())
    consumer = RetryingConsumer("fake", "t", "g", lambda *_: None, intake="in", clock=clock)
    session = consumer.join(ears, clock, pace=Pace(read_wait_s=0.0, poll_interval_ms=1 << 30))
    due_ms = clock.now_ms() + 60_000
    trouble = Trouble(0, 1, 1, due_ms, due_ms)
    broker.append(names.state, b"k", encode(trouble), [], 0)
    journey = Journey("8e8c5b0c-0f5d-4b3e-9a55-0c6b1a3f4d21", "t/0/0", Ticket(0, 1))
    broker.append(names.intake, b"k", b"v", [(TARGET, names.retry.encode()), *journey.headers()], 0)
    lost = {"outcome": "cancelled", "source": "in/0/0", "target": names.retry}
    broker.append(names.intake + RESULTS, b"id", json.dumps(lost).encode(), [], 0)
    for _ in range(10):
        clock.advance(100)
        ears.born_deaf = not session.loop.owned
        session.turn()
    assert session.loop.owned[0].key_queues.of(b"k") == trouble
    ears.born_deaf = True
    for _ in range(20):
        clock.advance(LOOK_EVERY_MS)
        session.turn()
    session.leave()
    [dead] = broker.records(names.dead)
    assert (dead.key, dead.value) == (b"k", b"v")
    assert sum(made.is_deaf for made in ears.made) == 2
