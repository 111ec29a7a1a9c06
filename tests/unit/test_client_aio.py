"""The client for coroutines, on the cluster that the client library makes up for tests."""

import asyncio
import threading
from datetime import timedelta

import pytest

from tarry.client.aio import AsyncDelayedProducer
from tarry.errors import BrokerError, RetriableError
from tests.support.brokers import wait_until

_NOWHERE = "127.0.0.1:1"


def test_a_message_sent_before_the_cluster_was_found_unreachable_gets_its_own_report(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def send() -> None:
        async with AsyncDelayedProducer(_NOWHERE, "in", {"test.mock.num.brokers": 1}) as producer:
            connection = producer._connection

            def reach() -> None:
                """The brokers refuse the record, for they have no such topic, and what was asked has no answer."""
                wait_until(
                    lambda: not connection.producer.poll(0.01) and not len(connection.producer), "it has its report"
                )
                raise RetriableError("nothing was ever connected")

            monkeypatch.setattr(connection, "reach", reach)
            await producer.send("orders", b"1", delay=timedelta(0))

    with pytest.raises(RetriableError, match="Unknown topic or partition"):
        asyncio.run(send())


def test_if_no_broker_answers_waiting_calls_fail_with_that_error(monkeypatch: pytest.MonkeyPatch) -> None:
    async def send() -> None:
        async with AsyncDelayedProducer(_NOWHERE, "in") as producer:

            def reach() -> None:
                raise RetriableError("nothing was ever connected")

            monkeypatch.setattr(producer._connection, "reach", reach)
            await producer.send("orders", b"1", delay=timedelta(0))

    with pytest.raises(RetriableError, match="nothing was ever connected"):
        asyncio.run(send())


# The library gives up by itself, before the question is: for the message's time is over, or the topic's.
@pytest.mark.parametrize(("timeout_s", "topic_ms"), [(1.0, 5_000), (2.5, 1_000)])
def test_an_intake_that_is_missing_is_told_as_such(timeout_s: float, topic_ms: int) -> None:
    async def send() -> None:
        async with _to_missing_intake(timeout_s, topic_ms) as producer:
            await producer.send("orders", b"1", delay=timedelta(0))

    with pytest.raises(BrokerError, match="there is no topic in: check the name of the intake") as failure:
        asyncio.run(send())
    assert type(failure.value) is BrokerError


def test_a_cancel_to_a_missing_intake_reports_that_it_is_missing() -> None:
    async def cancel() -> None:
        async with _to_missing_intake(2.5, 1_000) as producer:
            await producer.cancel("1.in.0.1767225600000.8e8c5b0c-0f5d-4b3e-9a55-0c6b1a3f4d21")

    with pytest.raises(BrokerError, match="there is no topic in: check the name of the intake"):
        asyncio.run(cancel())


def _to_missing_intake(timeout_s: float, topic_ms: int) -> AsyncDelayedProducer:
    options = {"test.mock.num.brokers": 1, "topic.metadata.propagation.max.ms": topic_ms}
    return AsyncDelayedProducer(_NOWHERE, "in", options, timeout_s=timeout_s)


@pytest.mark.parametrize("timeout_s", [0.5, 2.0])
def test_an_address_without_a_broker_is_reported_as_such_even_with_a_short_timeout(timeout_s: float) -> None:
    async def send() -> None:
        async with AsyncDelayedProducer(_NOWHERE, "in", timeout_s=timeout_s) as producer:
            await producer.send("orders", b"1", delay=timedelta(0))

    with pytest.raises(RetriableError, match=r"could not reach Kafka.*nothing was ever connected"):
        asyncio.run(send())


def test_waiting_calls_fail_before_the_cluster_is_asked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = 0
    is_asked_again = threading.Event()

    async def send() -> None:
        async with AsyncDelayedProducer(_NOWHERE, "in") as producer:
            loop = asyncio.get_running_loop()

            def reach() -> None:
                nonlocal asked
                asked += 1
                if asked > 1:
                    is_asked_again.set()
                loop.call_soon_threadsafe(is_asked_again.wait, 0.5)  # the loop is busy
                raise RetriableError("nothing was ever connected")

            monkeypatch.setattr(producer._connection, "reach", reach)
            await producer.send("orders", b"1", delay=timedelta(0))

    with pytest.raises(RetriableError, match="nothing was ever connected"):
        asyncio.run(send())
    assert asked == 1
