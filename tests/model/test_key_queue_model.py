"""Ordered retry against what it promises: the messages of a key are settled once each, in the order of the topic.

The topic, what the service holds, what came back and the keys in trouble are lists here that change at commits alone,
as Kafka's transactions change them. The two sources are read in any interleaving, what is due comes back in any order,
and a consumer dies at any moment.
"""

from dataclasses import dataclass, field
from random import Random

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from tarry.client.retry.core.key_queue import (
    Decision,
    HandleNow,
    KeyQueues,
    SendOff,
    Skip,
    Ticket,
    ToDeadLetters,
    Trouble,
    decode_trouble,
    encode,
)

START_MS = 1_700_000_000_000
LEAST_MS = 50
KEYS = (b"a", b"b", b"c")
RESULTS = st.sampled_from((*["failed"] * 6, *["done"] * 4, "dead", "stop"))


@dataclass(frozen=True, slots=True)
class OnItsWay:
    """A message that was sent off."""

    due_ms: int
    key: bytes
    offset: int
    ticket: Ticket


@dataclass(slots=True)
class Open:
    """The changes of an open transaction."""

    read: int
    came_back: int
    sent: list[OnItsWay] = field(default_factory=list)
    settled: list[tuple[bytes, int]] = field(default_factory=list)
    buried: list[tuple[bytes, int, Ticket]] = field(default_factory=list)
    early: list[tuple[bytes, int]] = field(default_factory=list)


class OrderedRetry(RuleBasedStateMachine):
    """The rules are what can happen; the oracle is the topic itself."""

    def __init__(self) -> None:
        super().__init__()
        self.now_ms = START_MS
        self.topic: list[bytes] = []
        self.waiting: list[OnItsWay] = []
        self.back: list[OnItsWay] = []
        self.store: dict[bytes, Trouble] = {}
        self.settled: list[tuple[bytes, int]] = []
        self.buried: list[tuple[bytes, int, Ticket]] = []
        self.early: list[tuple[bytes, int]] = []
        self.committed = (0, 0)
        self.begin_anew()

    def begin_anew(self) -> None:
        self.key_queues = KeyQueues(LEAST_MS, self.store)
        self.open = Open(*self.committed)

    @rule(key=st.sampled_from(KEYS))
    def produce(self, key: bytes) -> None:
        self.topic.append(key)

    @rule(ms=st.integers(1, 400), choose=st.randoms(use_true_random=False))
    def time_passes(self, ms: int, choose: Random) -> None:
        self.now_ms += ms
        due = [message for message in self.waiting if message.due_ms <= self.now_ms]
        self.waiting = [message for message in self.waiting if message.due_ms > self.now_ms]
        choose.shuffle(due)
        self.back.extend(due)

    @precondition(lambda self: self.open.read < len(self.topic))
    @rule(result=RESULTS, wait_ms=st.integers(LEAST_MS, 300))
    def read_one(self, result: str, wait_ms: int) -> None:
        offset = self.open.read
        self.open.read += 1
        key = self.topic[offset]
        self.act(self.key_queues.read(key, self.now_ms), key, offset, result, wait_ms)

    @precondition(lambda self: self.open.came_back < len(self.back))
    @rule(result=RESULTS, wait_ms=st.integers(LEAST_MS, 300))
    def take_one_back(self, result: str, wait_ms: int) -> None:
        message, decision = self.come_back()
        self.act(decision, message.key, message.offset, result, wait_ms)

    @precondition(lambda self: self.open.came_back < len(self.back))
    @rule()
    def take_one_back_that_cannot_be_sent_again(self) -> None:
        message, decision = self.come_back()
        if isinstance(decision, SendOff):
            self.key_queues.give_up_early(message.key, decision.ticket)
            self.open.early.append((message.key, message.offset))
        else:
            self.act(decision, message.key, message.offset, "done", LEAST_MS)

    def come_back(self) -> tuple[OnItsWay, Decision]:
        message = self.back[self.open.came_back]
        self.open.came_back += 1
        return message, self.key_queues.came_back(message.key, message.ticket, self.now_ms)

    def act(self, decision: object, key: bytes, offset: int, result: str, wait_ms: int) -> None:
        match decision:
            case HandleNow(ticket) if result == "failed":
                self.send(self.key_queues.again(key, offset, ticket, self.now_ms + wait_ms, self.now_ms), key, offset)
            case HandleNow(ticket) if result == "stop":
                self.open.buried.append((key, offset, self.key_queues.stop(key, offset, ticket, self.now_ms)))
            case HandleNow(ticket):  # dead letters take their turn as well
                self.key_queues.done(key, ticket)
                self.open.settled.append((key, offset))
            case SendOff():
                self.send(decision, key, offset)
            case ToDeadLetters(ticket):
                self.open.buried.append((key, offset, ticket))
            case Skip():
                raise AssertionError(f"{key!r} {offset}: nothing comes twice here")

    def send(self, sent: SendOff, key: bytes, offset: int) -> None:
        assert sent.due_ms >= self.now_ms + LEAST_MS
        self.open.sent.append(OnItsWay(sent.due_ms, key, offset, sent.ticket))

    @rule()
    def commit(self) -> None:
        for key, trouble in self.key_queues.changed().items():
            if trouble is None:
                self.store.pop(key, None)
            else:
                self.store[key] = decode_trouble(encode(trouble))
        self.key_queues.commit()
        self.waiting += self.open.sent
        self.settled += self.open.settled
        self.buried += self.open.buried
        self.early += self.open.early
        self.committed = (self.open.read, self.open.came_back)
        self.open = Open(*self.committed)

    @rule()
    def the_transaction_aborts(self) -> None:
        self.key_queues.abort()
        self.open = Open(*self.committed)

    @rule()
    def the_consumer_dies(self) -> None:
        self.begin_anew()

    @invariant()
    def what_is_settled_is_so_once_and_in_order(self) -> None:
        for key in KEYS:
            offsets = [offset for settled, offset in self.settled if settled == key]
            produced = [offset for offset, of in enumerate(self.topic) if of == key and (of, offset) not in self.early]
            assert offsets == produced[: len(offsets)]

    @invariant()
    def no_message_is_lost(self) -> None:
        read, came_back = self.committed
        known = [offset for _, offset in (*self.settled, *self.early)]
        known += [offset for _, offset, _ in self.buried]
        known += [message.offset for message in (*self.waiting, *self.back[came_back:])]
        assert sorted(known) == list(range(read))

    @invariant()
    def what_was_buried_has_the_order_of_the_topic_by_its_tickets(self) -> None:
        for key in KEYS:
            by_ticket = sorted((ticket, offset) for of, offset, ticket in self.buried if of == key)
            offsets = [offset for _, offset in by_ticket]
            assert offsets == sorted(offsets)

    def teardown(self) -> None:
        self.the_consumer_dies()
        while self.open.read < len(self.topic) or self.open.came_back < len(self.back) or self.waiting:
            self.time_passes(400, Random(0))
            while self.open.came_back < len(self.back):
                self.take_one_back("done", LEAST_MS)
            while self.open.read < len(self.topic):
                self.read_one("done", LEAST_MS)
            self.commit()
        self.what_is_settled_is_so_once_and_in_order()
        self.no_message_is_lost()
        assert all(trouble.stopped for trouble in self.store.values()), self.store
        assert len(self.settled) + len(self.buried) + len(self.early) == len(self.topic)


TestOrderedRetry = OrderedRetry.TestCase
