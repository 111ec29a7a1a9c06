"""How a retrying consumer takes over, on the fake cluster: what the last owner has written, and what it had open."""

from collections.abc import Callable, Collection, Sequence
from datetime import timedelta
from typing import Any

import pytest

from tarry.client.group_consumer import Begin, GroupClients
from tarry.client.retry import RetryingConsumer
from tarry.client.retry.core.key_queue import Trouble, encode
from tarry.client.retry.core.message import RetryMessage
from tarry.client.retry.core.names import Names
from tarry.client.retry.core.partition import RetryPartition
from tarry.client.retry.core.policy import RetryPolicy
from tarry.client.retry.handling import Handler, HandlerTransaction
from tarry.client.retry.loop import READ_MOST
from tarry.client.retry.session import Session
from tarry.client.retry.takeover import WRITER, TakeOver
from tarry.client.retry.terms import Pace, Terms
from tarry.errors import FatalError, RetriableError
from tarry.kafka.clients import Clients
from tarry.kafka.membership import Membership
from tarry.kafka.reader import Reader
from tarry.kafka.settings import TRANSACTION_TIMEOUT_MS, Cluster
from tarry.kafka.topics import RESULTS
from tarry.kafka.transaction import Transactor
from tarry.kafka.types import Place
from tarry.testing import FakeBroker, ManualClock
from tarry.testing.fake_consumers import AtOnce

NAMES = Names("t", "group", "in")
TERMS = Terms(NAMES, RetryPolicy(), True, Begin.EARLIEST, 10_000, 60_000, 1, "classic")
TROUBLE = Trouble(0, 1, 1, 5_000, 5_000)
KEY, OTHER = b"k", b"other"
LARGE = b"x" * 2_000
NEVER = timedelta(days=36_500)
SEEDS = range(10)


class Slow:
    """Clients whose readers return one record a second.

    Args:
        clients: make the consumers.
        clock: advances while a reader waits.
        topics: only readers of these topics are slow.
    """

    def __init__(self, clients: Clients, clock: ManualClock, *topics: str) -> None:
        self._clients = clients
        self._clock = clock
        self._topics = topics

    def consumer(self, properties: dict[str, Any]) -> Any:
        return SlowConsumer(self._clients.consumer(properties), self._clock, self._topics)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._clients, name)


class SlowConsumer:
    """A consumer of `Slow`."""

    def __init__(self, consumer: Any, clock: ManualClock, topics: Sequence[str]) -> None:
        self._consumer = consumer
        self._clock = clock
        self._topics = topics

    def consume(self, most: int, timeout_s: float) -> Any:
        if not any(place.topic in self._topics for place in self._consumer.assignment()):
            return self._consumer.consume(most, timeout_s)
        self._clock.advance(1_000)
        return self._consumer.consume(1, timeout_s)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._consumer, name)


class Consumer:
    """A member of the group that takes over what it is assigned, and writes state as the consumer's loop does."""

    def __init__(self, broker: FakeBroker, process: str) -> None:
        cluster = Cluster("fake", {}, broker.clients(process))
        member = cluster.member(NAMES.group, "classic", None)
        self._clients = GroupClients(cluster, member, [NAMES.topic, NAMES.retry], ManualClock(), lambda *_, **__: None)
        self.membership = self._clients.membership
        self.transactor = Transactor(cluster, f"group.{process}-retry")
        self.places: list[Place] = []
        self.membership.join(self)

    def assigned(self, places: Sequence[Place]) -> None:
        self.places = list(places)

    def revoked(self, _places: Sequence[Place]) -> None:
        self.places = []

    lost = revoked

    def take_over(self, clock: ManualClock) -> RetryPartition:
        while not self.places:
            self.membership.poll()
            clock.advance(1)
        return TakeOver(self._clients, TERMS, self.transactor.transactional_id).run([0], self.membership.poll)[0]

    def write_trouble(self) -> None:
        """In a transaction, which is open afterwards."""
        self.transactor.renew()
        self.transactor.begin()
        self.transactor.produce(NAMES.state, 0, KEY, encode(TROUBLE), None, lambda _error, _record: None)
        self.transactor.deliver(lambda: False)
        offsets = {(NAMES.topic, 0): (1, WRITER + self.transactor.transactional_id)}
        self.transactor.send_offsets(offsets, self.membership.metadata())

    def release(self) -> None:
        """Give the partition up: nobody waits for this one's markers by fencing it."""
        self.membership.commit({(NAMES.topic, 0): (1, ""), (NAMES.retry, 0): (0, "")})
        self.membership.close()


def consumers(clock: ManualClock, broker: FakeBroker) -> tuple[Consumer, Consumer]:
    """One that has taken over, and written that a key is in trouble, in an open transaction; and the next one."""
    for topic in (NAMES.topic, NAMES.retry, NAMES.state):
        broker.make_topic(topic, 1)
    broker.append(NAMES.topic, KEY, b"fails", None)
    first = Consumer(broker, "first")
    assert first.take_over(clock).key_queues.of(KEY) is None
    first.write_trouble()
    return first, Consumer(broker, "second")


@pytest.mark.parametrize("seed", SEEDS)
def test_a_key_is_known_to_be_in_trouble_while_the_marker_of_its_commit_is_on_its_way(
    clock: ManualClock, seed: int
) -> None:
    """Else what follows of the key overtakes the message that failed."""
    broker = FakeBroker(clock, seed=seed, marker_lag_ms=(0, 3_000))
    first, second = consumers(clock, broker)
    first.transactor.commit()
    first.release()
    assert second.take_over(clock).key_queues.of(KEY) == TROUBLE


def test_the_former_owner_of_a_partition_is_fenced_and_its_open_transaction_aborted(clock: ManualClock) -> None:
    broker = FakeBroker(clock)
    first, second = consumers(clock, broker)
    began_ms = clock.monotonic_ms()
    first.membership.close()
    assert second.take_over(clock).key_queues.of(KEY) is None
    assert clock.monotonic_ms() < began_ms + TRANSACTION_TIMEOUT_MS, "the brokers' time-out is not waited for"
    with pytest.raises(FatalError):
        first.transactor.commit()
    assert broker.records(NAMES.state) == []


def test_offsets_of_an_ended_transaction_that_stay_pending_are_waited_for(clock: ManualClock) -> None:
    """They are the only record of what is done: to remove them, as the service does, would do it once more."""
    broker = FakeBroker(clock)
    first, second = consumers(clock, broker)
    broker.miss_ends(NAMES.group)
    first.transactor.commit()
    first.membership.close()
    broker.miss_ends(NAMES.group, missed=False)
    for _ in range(2):
        with pytest.raises(RetriableError, match="Timed out"):
            second.take_over(clock)


def test_a_consumer_that_has_released_a_partition_is_not_fenced(clock: ManualClock) -> None:
    broker = FakeBroker(clock)
    first, second = consumers(clock, broker)
    first.transactor.commit()
    first.release()
    second.take_over(clock)
    first.transactor.begin()
    first.transactor.produce(NAMES.state, 0, OTHER, encode(TROUBLE), None, lambda _error, _record: None)
    first.transactor.commit()
    assert [record.key for record in broker.records(NAMES.state)] == [KEY, OTHER]


def test_a_partition_that_could_not_be_dropped_when_it_was_lost_is_dropped_after_the_failure(
    clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker = FakeBroker(clock)
    for topic in (NAMES.topic, NAMES.intake):
        broker.make_topic(topic, 1)
    consumer = RetryingConsumer("fake", NAMES.topic, NAMES.group, lambda *_: None, intake=NAMES.intake, clock=clock)
    session = consumer.join(broker.clients("one"), clock, pace=Pace(read_wait_s=0.0, poll_interval_ms=1 << 30))
    loop = session.loop
    while not loop.owned:
        session.turn()
        clock.advance(50)
    shut, poll = Reader.shut, Membership.poll

    def fail_once(reader: Reader, places: Collection[Place]) -> None:
        monkeypatch.setattr(Reader, "shut", shut)
        raise RetriableError("the brokers do not answer")

    def lose_once(membership: Membership) -> None:
        monkeypatch.setattr(Membership, "poll", lambda _: None)
        loop.lost([(NAMES.topic, 0), (NAMES.retry, 0)])

    monkeypatch.setattr(Reader, "shut", fail_once)
    monkeypatch.setattr(Membership, "poll", lose_once)
    session.turn()
    assert loop.owned == {}
    monkeypatch.setattr(Membership, "poll", poll)
    session.abandon()


def started(
    broker: FakeBroker,
    clock: ManualClock,
    events: list[str],
    handler: Handler,
    *slow_topics: str,
    missing_after: timedelta = NEVER,
    partitions: int = 1,
) -> Session:
    """A consumer that must poll its group every 10 s, and whose readers of some topics are slow."""
    for topic in (NAMES.topic, NAMES.intake, NAMES.intake + RESULTS):
        broker.make_topic(topic, partitions)
    consumer = RetryingConsumer(
        "fake",
        NAMES.topic,
        NAMES.group,
        handler,
        RetryPolicy(attempts=1),
        intake=NAMES.intake,
        missing_after=missing_after,
        clock=clock,
        on_event=lambda name, **_: events.append(name),
    )
    pace = Pace(read_wait_s=0.0, poll_interval_ms=10_000)
    return consumer.join(Slow(broker.clients("one"), clock, *slow_topics), clock, AtOnce(handler), pace=pace)


def turn(session: Session, clock: ManualClock) -> None:
    for _ in range(10):
        session.turn()
        clock.advance(2_000)


def test_a_member_stays_in_its_group_while_it_reads_a_long_state(clock: ManualClock) -> None:
    broker, events = FakeBroker(clock), list[str]()
    session = started(broker, clock, events, lambda *_: None, NAMES.state)
    for number in range(30):
        broker.append(NAMES.state, b"%d" % number, encode(TROUBLE), None)
    turn(session, clock)
    assert len(session.loop.owned[0].key_queues) == 30
    assert events == ["intake_not_known", "taken_over"]
    session.abandon()


def test_a_take_over_begins_again_when_the_group_has_revoked_partitions_meanwhile(
    clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker, events = FakeBroker(clock), list[str]()
    session = started(broker, clock, events, lambda *_: None, NAMES.state)
    for number in range(10):
        broker.append(NAMES.state, b"%d" % number, encode(TROUBLE), None)
    run = TakeOver.run

    def run_while_partitions_come_and_go(
        take_over: TakeOver, numbers: Sequence[int], serve: Callable[[], None]
    ) -> dict[int, RetryPartition]:
        monkeypatch.setattr(TakeOver, "run", run)
        places = [(topic, number) for topic in (NAMES.topic, NAMES.retry) for number in numbers]
        session.loop.lost(places)
        session.loop.assigned(places)
        return run(take_over, numbers, serve)

    monkeypatch.setattr(TakeOver, "run", run_while_partitions_come_and_go)
    turn(session, clock)
    assert len(session.loop.owned[0].key_queues) == 10
    assert events == ["intake_not_known", "take_over_refused", "taken_over"]
    session.abandon()


def test_a_member_stays_in_its_group_while_it_looks_for_late_messages(clock: ManualClock) -> None:
    broker, events = FakeBroker(clock), list[str]()
    session = started(broker, clock, events, lambda *_: None, NAMES.intake + RESULTS, missing_after=timedelta(0))
    broker.append(NAMES.state, KEY, encode(TROUBLE), None)
    for _ in range(30):
        broker.append(NAMES.intake + RESULTS, b"id", b"{}", None)
    turn(session, clock)
    assert events == ["intake_not_known", "taken_over", "heads_overdue"]
    session.abandon()


def test_a_member_stays_in_its_group_while_it_handles_many_messages(clock: ManualClock) -> None:
    broker, events = FakeBroker(clock), list[str]()
    session = started(broker, clock, events, lambda *_: clock.advance(100))
    for _ in range(READ_MOST):
        broker.append(NAMES.topic, KEY, b"v", None)
    turn(session, clock)
    assert session.loop.owned[0].positions[NAMES.topic] == READ_MOST
    assert events == ["intake_not_known", "taken_over"]
    session.abandon()


def test_a_partition_whose_dead_letter_is_refused_waits_alone_until_the_letter_is_taken(clock: ManualClock) -> None:
    broker, events = FakeBroker(clock), list[str]()
    broker.make_topic("done", 1)

    def handle(message: RetryMessage, transaction: HandlerTransaction) -> None:
        if message.value == LARGE:
            raise ValueError
        transaction.produce("done", message.value)

    def done() -> list[bytes | None]:
        return [record.value for record in broker.records("done")]

    session = started(broker, clock, events, handle, partitions=2)
    broker.configure(NAMES.dead, max_message_bytes="1000")
    for partition in (0, 1):
        broker.append(NAMES.topic, KEY, b"before", None, partition)
    broker.append(NAMES.topic, KEY, LARGE, None, 0)
    broker.append(NAMES.topic, KEY, b"behind", None, 0)
    turn(session, clock)
    broker.append(NAMES.topic, KEY, b"later", None, 1)
    turn(session, clock)
    assert sorted(session.loop.owned) == [1]
    assert done() == [b"before", b"before", b"later"]
    assert events.count("dead_letter_refused") == 1
    broker.configure(NAMES.dead, max_message_bytes="10000")
    for _ in range(3):
        turn(session, clock)
    assert [record.value for record in broker.records(NAMES.dead)] == [LARGE]
    assert done()[3:] == [b"behind"]
    session.leave()
