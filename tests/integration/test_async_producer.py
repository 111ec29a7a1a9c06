"""The delayed producer for asyncio, on a real broker."""

import asyncio
import threading
from collections import defaultdict
from datetime import timedelta
from typing import Any

import pytest

from tarry.client import AsyncDelayedProducer, DelayedMessage, Receipt
from tarry.core.murmur2 import partition_of
from tarry.errors import BrokerError, FatalError, HeaderError, RetriableError, UsageError
from tests.support.brokers import wait_until
from tests.support.receipts import PARTITIONS, make_topic, request_of
from tests.support.topics import read_topic

_SECOND = timedelta(seconds=1)
_MANY = 1_000
_NOWHERE = "127.0.0.1:1"


@pytest.fixture
def intake(bootstrap: str, topic_name: str) -> str:
    """An intake that nobody serves."""
    return make_topic(bootstrap, topic_name)


@pytest.fixture
def small_intake(bootstrap: str, topic_name: str) -> str:
    """One that takes small batches only."""
    return make_topic(bootstrap, topic_name, max_message_bytes="10000")


def _threads() -> list[str]:
    """The names of the client's threads."""
    return [thread.name for thread in threading.enumerate() if thread.name.startswith("tarry-")]


async def _send_many_at_once(producer: AsyncDelayedProducer) -> list[Receipt]:
    return await asyncio.gather(
        *(producer.send("orders", b"%d" % number, b"k%d" % (number % 7), delay=_SECOND) for number in range(_MANY))
    )


# With room for ten, most of them wait for their turn.
@pytest.mark.parametrize("queue", [20_000, 10])
def test_a_thousand_sends_at_once_keep_the_order_of_each_key_with_one_more_thread(
    bootstrap: str, intake: str, queue: int
) -> None:
    async def run() -> tuple[list[Receipt], list[str]]:
        options = {"queue.buffering.max.messages": queue}
        async with AsyncDelayedProducer(bootstrap, intake, options) as producer:
            receipts = await _send_many_at_once(producer)
            return receipts, _threads()

    receipts, threads = asyncio.run(run())
    assert threads == ["tarry-reports"]
    records = {(record.partition(), record.offset()): record for record in read_topic(bootstrap, intake)}
    assert len(records) == _MANY
    found = [records[receipt.handle.partition, receipt.offset] for receipt in receipts]
    assert [record.value() for record in found] == [b"%d" % number for number in range(_MANY)]
    offsets: dict[Any, list[int]] = defaultdict(list)
    for record in found:
        offsets[record.key()].append(record.offset() or 0)
    assert len(offsets) == 7
    assert all(places == sorted(places) for places in offsets.values())
    assert request_of(bootstrap, receipts[0]).due_ms == receipts[0].handle.due_ms


def test_a_cancel_goes_to_the_partition_of_its_handle_and_a_reschedule_behind_it(bootstrap: str, intake: str) -> None:
    async def run() -> tuple[str, str]:
        async with AsyncDelayedProducer(bootstrap, intake) as producer:
            first = await producer.send("orders", b"v", b"k", delay=_SECOND)
            cancel = await producer.cancel(str(first.handle))
            moved = await producer.reschedule(first.handle, DelayedMessage("orders", b"v", b"k", 2 * _SECOND))
            assert (cancel.offset, moved.cancel.offset, moved.sent.offset) == (1, 2, 3)
            return cancel.source, f"{intake}/{first.handle.partition}/1"

    found, expected = asyncio.run(run())
    assert found == expected


def test_a_refusal_of_one_tasks_message_does_not_affect_other_tasks(bootstrap: str, small_intake: str) -> None:
    # The broker refuses whole batches, so what it finds too large goes to a partition of its own.
    assert partition_of(b"large", PARTITIONS) != partition_of(b"k", PARTITIONS)

    async def run() -> None:
        async with AsyncDelayedProducer(bootstrap, small_intake) as producer:
            await producer.send("orders", b"the intake is known", b"k", delay=_SECOND)
            results = await asyncio.gather(
                producer.send("orders", b"v", b"k", delay=_SECOND),
                producer.send("orders", b"v", b"k", delay=-_SECOND),
                producer.send("orders", b"x" * 20_000, b"large", delay=_SECOND),
                producer.send("orders", b"x" * 2_000_000, b"k", delay=_SECOND),
                producer.cancel("1.nonsense"),
                producer.reschedule("1.nonsense", DelayedMessage("orders", b"v", delay=_SECOND)),
                producer.send("orders", b"v", b"k", delay=_SECOND),
                return_exceptions=True,
            )
        kinds = [type(result) for result in results]
        assert kinds == [Receipt, HeaderError, BrokerError, BrokerError, HeaderError, HeaderError, Receipt]

    asyncio.run(run())


def test_its_exit_waits_for_what_is_on_its_way(bootstrap: str, intake: str) -> None:
    async def run() -> list[Receipt]:
        async with AsyncDelayedProducer(bootstrap, intake) as producer:
            sends = [asyncio.create_task(producer.send("orders", b"v", delay=_SECOND)) for _ in range(100)]
            await asyncio.sleep(0)
        assert all(send.done() for send in sends)
        return await asyncio.gather(*sends)

    assert len(asyncio.run(run())) == len(read_topic(bootstrap, intake)) == 100


def test_a_producer_that_is_lost_says_so_to_all_who_wait(bootstrap: str, small_intake: str) -> None:
    async def run() -> None:
        # A gap is fatal then: the client library's own way to lose a producer.
        options = {"enable.gapless.guarantee": True}
        async with AsyncDelayedProducer(bootstrap, small_intake, options, timeout_s=10) as producer:
            await producer.send("orders", b"v", b"k", delay=_SECOND)
            with pytest.raises(BrokerError):
                await producer.send("orders", b"x" * 20_000, b"k", delay=_SECOND)
            with pytest.raises(FatalError):
                await producer.send("orders", b"v", b"k", delay=_SECOND)

    asyncio.run(run())


def test_a_send_that_is_cancelled_while_it_waits_for_its_turn_is_not_sent_and_the_next_one_is() -> None:
    async def run() -> list[BaseException | Receipt]:
        options = {"queue.buffering.max.messages": 1}
        async with AsyncDelayedProducer(_NOWHERE, options=options, timeout_s=1) as producer:
            first, second, third = (
                asyncio.create_task(producer.send("orders", b"v", b"k", delay=_SECOND)) for _ in range(3)
            )
            await asyncio.sleep(0)  # each takes its first step: the first is with Kafka, the second waits for room
            second.cancel()
            return [*await asyncio.gather(first, second, third, return_exceptions=True)]

    first, second, third = asyncio.run(run())
    assert isinstance(first, RetriableError)
    assert isinstance(second, asyncio.CancelledError)
    assert isinstance(third, RetriableError)


def test_a_send_that_is_cancelled_while_it_waits_for_kafka_leaves_nothing_behind(bootstrap: str, intake: str) -> None:
    async def run() -> None:
        async with AsyncDelayedProducer(bootstrap, intake) as producer:
            send = asyncio.create_task(producer.send("orders", b"cancelled", b"k", delay=_SECOND))
            await asyncio.sleep(0)
            send.cancel()
            with pytest.raises(asyncio.CancelledError):
                await send
            await producer.send("orders", b"next", b"k", delay=_SECOND)

    asyncio.run(run())
    assert [record.value() for record in read_topic(bootstrap, intake)] == [b"cancelled", b"next"]


def test_a_closed_producer_sends_nothing_fails_waiting_calls_and_may_be_closed_again() -> None:
    async def run() -> None:
        producer = AsyncDelayedProducer(_NOWHERE, options={"queue.buffering.max.messages": 1}, timeout_s=0.5)
        sends = [asyncio.create_task(producer.send("orders", b"v", delay=_SECOND)) for _ in range(3)]
        await asyncio.sleep(0)
        await producer.close()
        await producer.close()
        results = await asyncio.gather(*sends, return_exceptions=True)
        assert [type(result) for result in results] == [RetriableError, FatalError, FatalError]
        with pytest.raises(FatalError, match="closed"):
            await producer.send("orders", b"v", delay=_SECOND)
        with pytest.raises(FatalError, match="closed"):
            await producer.reschedule("1.nonsense", DelayedMessage("orders", b"v", delay=_SECOND))

    asyncio.run(run())


def test_a_producer_belongs_to_one_event_loop_and_its_thread_ends_with_that() -> None:
    producer = AsyncDelayedProducer(_NOWHERE, timeout_s=0.5)

    async def send() -> None:
        await producer.send("orders", b"v", delay=_SECOND)

    with pytest.raises(RetriableError, match="nothing was ever connected"):
        asyncio.run(send())
    with pytest.raises(UsageError, match="another event loop"):
        asyncio.run(send())
    wait_until(lambda: not _threads(), "the thread has ended")


def test_a_producer_that_was_never_used_is_closed_at_once() -> None:
    async def run() -> None:
        async with AsyncDelayedProducer(_NOWHERE):
            pass

    asyncio.run(run())
    assert not _threads()


def test_a_message_for_which_there_will_never_be_room_is_refused_and_holds_up_no_other(
    bootstrap: str, intake: str
) -> None:
    async def run() -> Receipt:
        async with AsyncDelayedProducer(bootstrap, intake, {"queue.buffering.max.kbytes": 100}) as producer:
            huge = asyncio.create_task(producer.send("orders", bytes(200_000), b"k", delay=_SECOND))
            small = asyncio.create_task(producer.send("orders", b"small", b"k", delay=_SECOND))
            with pytest.raises(BrokerError, match="larger than the producer's whole queue"):
                await huge
            return await small

    receipt = asyncio.run(run())
    [record] = read_topic(bootstrap, intake)
    assert (record.value(), record.offset()) == (b"small", receipt.offset)
