"""The faces of the client on the fake service: all of a producer's, for coroutines too, and consumers with retry."""

import asyncio
import inspect
from datetime import timedelta
from typing import Any

import pytest

from tarry.client import AsyncDelayedProducer, DelayedMessage, DelayedProducer
from tarry.client.retry import HandlerTransaction, OnError, RetryingConsumer, RetryMessage, RetryPolicy
from tarry.errors import ConfigError, HeaderError, UsageError
from tarry.testing import FakeService, ManualClock
from tarry.testing.fake_sending import AsyncFakeSending

MINUTE_MS = 60_000
HOUR_MS = 60 * MINUTE_MS
POLICY = RetryPolicy(first_ms=1_000, factor=2, jitter=0, attempts=4)


def values(fake: FakeService, topic: str) -> list[bytes | None]:
    return [record.value for record in fake.delivered(topic)]


# -- producers --------------------------------------------------------------------------------------------------------


def face(kind: type) -> dict[str, list[tuple[str, Any, Any]]]:
    """Public methods, and their parameters but for the annotations."""
    methods = {
        name: method
        for name, method in inspect.getmembers(kind, inspect.isfunction)
        if not name.startswith("_") or name in {"__enter__", "__exit__", "__aenter__", "__aexit__"}
    }
    return {
        name: [(one.name, one.kind, one.default) for one in inspect.signature(method).parameters.values()]
        for name, method in methods.items()
    }


@pytest.mark.parametrize(
    ("real", "fake"), [(DelayedProducer, FakeService), (AsyncDelayedProducer, AsyncFakeSending)], ids=["sync", "async"]
)
def test_the_fake_has_all_methods_of_a_producer(real: type, fake: type) -> None:
    wanted, there = face(real), face(fake)
    assert {name: there.get(name) for name in wanted} == wanted
    for name in wanted:
        assert inspect.iscoroutinefunction(getattr(fake, name)) == inspect.iscoroutinefunction(getattr(real, name))


def test_many_are_sent_as_receipts_are_taken(tarry_fake: FakeService, tarry_clock: ManualClock) -> None:
    tarry_fake.make_topic("orders")
    messages = [DelayedMessage("orders", b"%d" % n, b"k", delay=timedelta(seconds=n)) for n in range(3)]
    receipts = list(tarry_fake.send_many(messages))
    assert [receipt.offset for receipt in receipts] == [0, 1, 2]
    tarry_clock.advance(2_000)
    assert values(tarry_fake, "orders") == [b"0", b"1", b"2"]


def test_a_message_that_cannot_be_sent_raises_after_the_receipts_of_earlier_messages(tarry_fake: FakeService) -> None:
    tarry_fake.make_topic("orders")
    good = DelayedMessage("orders", b"v", delay=timedelta(0))
    receipts = tarry_fake.send_many([good, DelayedMessage("orders", b"v", delay=timedelta(seconds=-1))])
    assert next(receipts).offset == 0
    with pytest.raises(HeaderError, match="negative"):
        next(receipts)


def test_a_message_is_re_scheduled(tarry_fake: FakeService, tarry_clock: ManualClock) -> None:
    tarry_fake.make_topic("orders")
    with tarry_fake as producer:
        receipt = producer.send("orders", b"early", b"k", delay=timedelta(minutes=1))
        later = DelayedMessage("orders", b"late", b"k", delay=timedelta(minutes=2), id=receipt.id)
        moved = producer.reschedule(receipt.handle, later)
    assert (moved.cancel.handle, moved.sent.id) == (receipt.handle, receipt.id)
    tarry_clock.advance(MINUTE_MS)
    assert values(tarry_fake, "orders") == []
    tarry_clock.advance(MINUTE_MS)
    assert values(tarry_fake, "orders") == [b"late"]
    assert [one["outcome"] for one in tarry_fake.outcomes()] == ["cancelled", "fired"]


def test_a_re_scheduling_to_the_same_id_and_time_is_refused(tarry_fake: FakeService) -> None:
    tarry_fake.make_topic("orders")
    same = DelayedMessage("orders", b"v", delay=timedelta(minutes=1), id="8e8c5b0c-0f5d-4b3e-9a55-0c6b1a3f4d21")
    [receipt] = tarry_fake.send_many([same])
    with pytest.raises(HeaderError, match="the same id and due time as the message to cancel"):
        tarry_fake.reschedule(receipt.handle, same)


def test_coroutines_send_cancel_and_re_schedule(tarry_fake: FakeService, tarry_clock: ManualClock) -> None:
    tarry_fake.make_topic("orders")

    async def run() -> None:
        async with tarry_fake.aio as producer:
            first, second, third = await asyncio.gather(
                *(producer.send("orders", b"%d" % n, b"k", delay=timedelta(minutes=1)) for n in range(3))
            )
            await producer.cancel(first.handle)
            await producer.reschedule(second.handle, DelayedMessage("orders", b"2nd", delay=timedelta(minutes=2)))
            assert third.handle.topic == tarry_fake.intake

    asyncio.run(run())
    tarry_clock.advance(2 * MINUTE_MS)
    assert values(tarry_fake, "orders") == [b"2", b"2nd"]


def test_a_handle_of_another_intake_is_refused(tarry_fake: FakeService) -> None:
    handle = "1.orders.0.1767225600000.8e8c5b0c-0f5d-4b3e-9a55-0c6b1a3f4d21"
    with pytest.raises(HeaderError, match="handle: its message is in"):
        tarry_fake.cancel(handle)
    assert tarry_fake.outcomes() == []


# -- consumers --------------------------------------------------------------------------------------------------------


class Work:
    """A handler that fails as often as a message's value says, and sends on what it has done."""

    def __init__(self, clock: ManualClock, error: type[BaseException] = OSError) -> None:
        self.handled: list[tuple[bytes | None, int]] = []
        self._clock = clock
        self._began_ms = clock.now_ms()
        self._error = error

    def begin(self) -> None:
        self._began_ms = self._clock.now_ms()

    def __call__(self, message: RetryMessage, transaction: HandlerTransaction) -> None:
        self.handled.append((message.value, self._clock.now_ms() - self._began_ms))
        if message.attempt <= int((message.value or b"0").split(b":")[-1]):
            raise self._error(f"attempt {message.attempt}")
        transaction.produce("done", message.value, message.key)


def consumer(work: Any, policy: RetryPolicy = POLICY, **settings: Any) -> RetryingConsumer:
    return RetryingConsumer("nowhere:9092", "orders", "billing", work, policy, **settings)


@pytest.fixture
def work(tarry_fake: FakeService, tarry_clock: ManualClock) -> Work:
    tarry_fake.make_topic("orders", 2)
    tarry_fake.make_topic("done")
    return Work(tarry_clock)


def test_a_handler_is_tried_again_when_the_policy_says_and_its_key_waits(
    tarry_fake: FakeService, tarry_clock: ManualClock, work: Work
) -> None:
    tarry_fake.start(consumer(work))
    work.begin()
    tarry_fake.produce("orders", b"a:2", b"k")
    tarry_fake.produce("orders", b"b:0", b"k")
    tarry_fake.produce("orders", b"c:0", b"other")
    assert work.handled == [(b"a:2", 0), (b"c:0", 0)]
    tarry_clock.advance(999)
    assert len(work.handled) == 2
    tarry_clock.advance(1)
    assert work.handled[2:] == [(b"a:2", 1_000)]
    tarry_clock.advance(2_000)
    assert work.handled[3:] == [(b"a:2", 3_000), (b"b:0", 3_000)]
    assert values(tarry_fake, "done") == [b"c:0", b"a:2", b"b:0"]


def test_messages_that_are_given_up_are_in_the_dead_letters(
    tarry_fake: FakeService, tarry_clock: ManualClock, work: Work
) -> None:
    tarry_fake.start(consumer(work, RetryPolicy(first_ms=1_000, jitter=0, attempts=2, when_exhausted=OnError.DEAD)))
    tarry_fake.produce("orders", b"a:9", b"k")
    tarry_clock.advance(HOUR_MS)
    [dead] = tarry_fake.delivered("orders.billing.dead")
    assert dict(dead.headers or [])["tarry-error"] == b"out-of-attempts"
    assert len(work.handled) == 2


def test_a_handler_may_send_through_the_fake_and_be_a_coroutine(
    tarry_fake: FakeService, tarry_clock: ManualClock
) -> None:
    tarry_fake.make_topic("orders")
    tarry_fake.make_topic("reminders")

    async def handle(message: RetryMessage, _transaction: HandlerTransaction) -> None:
        await tarry_fake.aio.send("reminders", message.value, message.key, delay=timedelta(hours=1))

    tarry_fake.start(consumer(handle))
    tarry_fake.produce("orders", b"v", b"k")
    tarry_clock.advance(HOUR_MS)
    assert values(tarry_fake, "reminders") == [b"v"]


@pytest.mark.parametrize("group_protocol", ["classic", "consumer"])
def test_consumers_of_a_group_share_its_partitions_and_another_goes_on_where_one_stops(
    tarry_fake: FakeService, tarry_clock: ManualClock, work: Work, group_protocol: str
) -> None:
    first, second = consumer(work, group_protocol=group_protocol), consumer(work, group_protocol=group_protocol)
    tarry_fake.start(first)
    tarry_fake.start(second)
    for number in range(20):
        tarry_fake.produce("orders", b"%d:%d" % (number, number % 2), b"k%d" % number)
    first.stop()
    tarry_clock.advance(MINUTE_MS)
    assert len(values(tarry_fake, "done")) == 20
    assert len(work.handled) == 30


def test_consumers_of_different_topics_may_share_a_group(tarry_fake: FakeService, work: Work) -> None:
    tarry_fake.make_topic("bills", 2)
    tarry_fake.start(consumer(work))
    tarry_fake.start(RetryingConsumer("nowhere:9092", "bills", "billing", work, POLICY))
    tarry_fake.produce("orders", b"o:0", b"k")
    tarry_fake.produce("bills", b"b:0", b"k")
    assert values(tarry_fake, "done") == [b"o:0", b"b:0"]


@pytest.mark.parametrize("kind", [SystemExit, KeyboardInterrupt])
def test_a_handler_that_ends_the_program_ends_its_consumer_and_its_message_is_the_next_one_s(
    tarry_fake: FakeService, tarry_clock: ManualClock, work: Work, kind: type[BaseException]
) -> None:
    ending = Work(tarry_clock, kind)
    tarry_fake.start(consumer(ending))
    with pytest.raises(kind, match="attempt 1"):
        tarry_fake.produce("orders", b"a:1", b"k")
    assert ending.handled == [(b"a:1", ending.handled[0][1])]
    tarry_fake.start(consumer(work, RetryPolicy(first_ms=1_000, jitter=0)))
    tarry_clock.advance(1_000)
    assert [value for value, _ in work.handled] == [b"a:1", b"a:1"], "it was never sent off: this is attempt 1 again"
    assert values(tarry_fake, "done") == [b"a:1"]


def test_an_error_that_cannot_be_described_is_retried_like_any_other(
    tarry_fake: FakeService, tarry_clock: ManualClock, work: Work
) -> None:
    class MuteError(OSError):
        def __str__(self) -> str:
            raise ValueError

        __repr__ = __str__

    mute = Work(tarry_clock, MuteError)
    events: list[tuple[str, dict[str, Any]]] = []
    tarry_fake.start(consumer(mute, on_event=lambda name, **fields: events.append((name, fields))))
    tarry_fake.produce("orders", b"a:1", b"k")
    tarry_clock.advance(1_000)
    assert values(tarry_fake, "done") == [b"a:1"]
    [error] = [fields["error"] for name, fields in events if name == "handler_failed"]
    assert error.endswith("MuteError: (no text: ValueError)")


def test_a_handler_that_changes_the_headers_of_its_message_changes_no_later_attempt(
    tarry_fake: FakeService, tarry_clock: ManualClock
) -> None:
    tarry_fake.make_topic("orders")
    seen: list[list[tuple[str, bytes | None]]] = []

    def handle(message: RetryMessage, _transaction: HandlerTransaction) -> None:
        seen.append(list(message.headers))
        message.headers[:] = [("number", 5)]  # type: ignore[list-item]  # nothing that can be sent
        if message.attempt == 1:
            raise OSError

    tarry_fake.start(consumer(handle))
    tarry_fake.produce("orders", b"v", b"k", headers=[("own", b"1")])
    tarry_clock.advance(MINUTE_MS)
    assert seen == [[("own", b"1")]] * 2


def test_a_message_that_the_intake_refuses_does_not_hold_up_its_key_for_ever() -> None:
    # The consumer was started when the target was allowed; the service has been configured anew since.
    fake = FakeService(targets=["orders.billing.retry"])
    fake.make_topic("orders")
    fake.make_topic("done")
    work = Work(fake.clock)
    fake.start(consumer(work))
    fake.configure(targets=["done"])
    fake.produce("orders", b"a:1", b"k")
    fake.produce("orders", b"b:0", b"k")
    fake.clock.advance(5 * MINUTE_MS)
    letters = [(one.value, dict(one.headers or [])) for one in fake.delivered("orders.billing.dead")]
    assert [value for value, _ in letters] == [b"a:1", b"b:0"], "what followed it was sent off, and refused as well"
    for _, headers in letters:
        assert headers["tarry-error"] == b"never-came-back"
        assert headers["tarry-error-detail"] == b"dead target-not-allowed"
    fake.produce("orders", b"c:0", b"k")
    assert values(fake, "done") == [b"c:0"], "the key is healthy again"


def test_a_message_that_comes_back_early_and_cannot_be_sent_again_does_not_hold_up_its_key_for_ever(
    tarry_fake: FakeService, tarry_clock: ManualClock, work: Work
) -> None:
    tarry_fake.start(consumer(work))
    tarry_fake.produce("orders", b"a:2", b"k")
    tarry_fake.produce("orders", b"b" * 2_000 + b":0", b"k")
    tarry_fake.produce("orders", b"c:0", b"k")
    tarry_fake.broker.configure(tarry_fake.intake, max_message_bytes="1500")
    tarry_clock.advance(5 * MINUTE_MS)
    assert values(tarry_fake, "done") == [b"a:2", b"c:0"]
    [dead] = tarry_fake.delivered("orders.billing.dead")
    headers = dict(dead.headers or [])
    assert (dead.value, headers["tarry-error"]) == (b"b" * 2_000 + b":0", b"unsendable")
    tarry_fake.produce("orders", b"d:0", b"k")
    assert values(tarry_fake, "done")[2:] == [b"d:0"], "the key is healthy again"


def test_records_of_a_handler_that_fit_into_a_topic_only_one_by_one_are_written(
    tarry_fake: FakeService, tarry_clock: ManualClock, work: Work
) -> None:
    def send_three(message: RetryMessage, transaction: HandlerTransaction) -> None:
        for part in (b"1", b"2", b"3"):
            transaction.produce("done", part * 1_000, message.key)

    tarry_fake.broker.configure("done", max_message_bytes="1500")
    tarry_fake.start(consumer(send_three))
    for key in (b"k", b"l"):
        tarry_fake.produce("orders", b"v", key)
    tarry_clock.advance(MINUTE_MS)
    assert values(tarry_fake, "done") == [part * 1_000 for part in (b"1", b"2", b"3")] * 2
    assert tarry_fake.delivered("orders.billing.dead") == []


@pytest.mark.parametrize(
    ("service", "policy", "why"),
    [
        ({"targets": ["done"]}, POLICY, "does not allow the target orders.billing.retry"),
        ({"max_delay": timedelta(minutes=1)}, POLICY, "takes delays of up to 60000 ms"),
    ],
    ids=["target", "delay"],
)
def test_an_intake_from_which_nothing_would_come_back_is_refused_at_the_start(
    service: dict[str, Any], policy: RetryPolicy, why: str
) -> None:
    fake = FakeService(**service)
    fake.make_topic("orders")
    with pytest.raises(UsageError, match=why):
        fake.start(consumer(Work(fake.clock), policy))


def test_a_broker_is_no_address(tarry_fake: FakeService, work: Work) -> None:
    with pytest.raises(ConfigError, match="bootstrap_servers: must be text"):
        RetryingConsumer(tarry_fake.broker, "orders", "billing", work)  # type: ignore[arg-type]  # that is what is tested
    with pytest.raises(ConfigError, match="bootstrap_servers: must be text"):
        DelayedProducer(tarry_fake.broker)  # type: ignore[arg-type]
