"""Whether brokers answer: what is asked of the API while none does."""

import asyncio
from concurrent.futures import Future
from contextlib import suppress

import pytest
from confluent_kafka import KafkaError, KafkaException

from tarry.api.brokers import SILENT_MS, Brokers
from tarry.errors import BrokerError
from tarry.testing import ManualClock


class Cluster:
    """A cluster that answers, or not."""

    def __init__(self) -> None:
        self.asked: Future[None] = Future()

    def describe(self) -> Future[None]:
        return self.asked


async def asking(brokers: Brokers) -> None:
    task = asyncio.ensure_future(brokers.ask())
    demand = asyncio.ensure_future(brokers.demand())
    try:
        await asyncio.wait_for(asyncio.wait({demand}), 20)
        demand.result()
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


def refused() -> KafkaException:
    return KafkaException(KafkaError(KafkaError._TIMED_OUT))


def test_a_request_before_the_first_answer_waits_for_it() -> None:
    cluster, clock = Cluster(), ManualClock(0)

    async def run() -> None:
        brokers = Brokers(cluster.describe, clock)
        asyncio.get_running_loop().call_later(0.01, cluster.asked.set_result, None)
        assert not brokers.have_answered
        await asking(brokers)
        assert brokers.have_answered

    asyncio.run(run())


def test_without_an_answer_requests_are_refused_at_once() -> None:
    cluster = Cluster()
    cluster.asked.set_exception(refused())

    async def run() -> None:
        brokers = Brokers(cluster.describe, ManualClock(0))
        with pytest.raises(BrokerError, match="does not answer"):
            await asking(brokers)
        assert not brokers.have_answered

    asyncio.run(run())


def test_a_short_silence_refuses_nothing_and_a_long_one_does() -> None:
    cluster, clock = Cluster(), ManualClock(0)

    async def run() -> None:
        brokers = Brokers(cluster.describe, clock)
        cluster.asked.set_result(None)
        await asking(brokers)
        cluster.asked = Future()
        cluster.asked.set_exception(refused())
        clock.advance(SILENT_MS)
        await asking(brokers)
        clock.advance(1)
        with pytest.raises(BrokerError):
            await asking(brokers)
        cluster.asked = Future()
        cluster.asked.set_result(None)
        cluster.asked = Future()
        cluster.asked.set_result(None)
        task = asyncio.ensure_future(brokers.ask())
        for _ in range(10):  # turns of the loop until the answer has been taken
            await asyncio.sleep(0)
        await brokers.demand()
        task.cancel()

    asyncio.run(run())
