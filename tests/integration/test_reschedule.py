"""Re-scheduling: in a running service, and what is left of it where it fails."""

import asyncio
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer

from tarry.client import (
    AsyncDelayedProducer,
    DelayedMessage,
    DelayedProducer,
    OutcomeReader,
    RescheduleReceipt,
    TransactionalDelays,
)
from tarry.errors import BrokerError, FatalError, HeaderError
from tests.support.brokers import wait_until
from tests.support.processes import Serve, ServeConfig
from tests.support.receipts import make_topic
from tests.support.topics import read_topic

_SOON = timedelta(milliseconds=1_500)
_LATE = timedelta(seconds=50)


def _outcome_of_cancel(outcomes: OutcomeReader, receipt: RescheduleReceipt) -> Any:
    return list(outcomes.of_cancel(receipt.cancel, 30))[-1]["outcome"]


def test_a_running_service_delivers_the_message_that_takes_the_place_and_both_where_it_is_too_late(
    bootstrap: str, unique_name: Callable[[str], str], tmp_path: Path
) -> None:
    config = ServeConfig(bootstrap, unique_name("in"), 2, group=unique_name("group"))
    target = make_topic(bootstrap, unique_name("out"))
    serve = Serve(config, tmp_path)
    try:
        serve.start().wait_serving()
        with DelayedProducer(bootstrap, config.intake) as producer, OutcomeReader(bootstrap, config.intake) as outcomes:
            waiting = [producer.send(target, b"%d: cancelled" % number, b"k", delay=_LATE) for number in range(3)]

            moved = producer.reschedule(waiting[0].handle, DelayedMessage(target, b"sync", b"k", _SOON))
            assert _outcome_of_cancel(outcomes, moved) == "cancelled"
            assert outcomes.await_outcome(moved.sent, 60.0)["outcome"] == "fired"

            late = producer.reschedule(
                moved.sent.handle, DelayedMessage(target, b"again", b"k", timedelta(0), id=moved.sent.id)
            )
            assert _outcome_of_cancel(outcomes, late) == "cancel-too-late"
            assert outcomes.await_outcome(late.sent, 60.0)["outcome"] == "fired"

            async def reschedule() -> RescheduleReceipt:
                async with AsyncDelayedProducer(bootstrap, config.intake) as producer:
                    return await producer.reschedule(
                        str(waiting[1].handle), DelayedMessage(target, b"async", b"k", _SOON)
                    )

            moved = asyncio.run(reschedule())
            assert _outcome_of_cancel(outcomes, moved) == "cancelled"
            assert outcomes.await_outcome(moved.sent, 60.0)["outcome"] == "fired"

            application = Producer({"bootstrap.servers": bootstrap, "transactional.id": unique_name("application")})
            application.init_transactions(30)
            delays = TransactionalDelays(application, config.intake)
            application.begin_transaction()
            delays.send(target, b"aborted", b"k", delay=timedelta(0))
            application.flush(30)
            application.abort_transaction(30)
            application.begin_transaction()
            cancel = delays.cancel(waiting[2].handle)
            sent = delays.send(target, b"application", b"k", delay=_SOON)
            application.commit_transaction(30)
            assert list(outcomes.of_cancel(cancel.receipt(), 30))[-1]["outcome"] == "cancelled"
            assert outcomes.await_outcome(sent.receipt(), 60.0)["outcome"] == "fired"
        assert serve.stop() == 0
        values = [record.value() for record in read_topic(bootstrap, target, decided=True)]
        assert values == [b"sync", b"again", b"async", b"application"]
    finally:
        serve.close()


@pytest.fixture
def intake(bootstrap: str, topic_name: str) -> str:
    """An intake that nobody serves, for small records."""
    return make_topic(bootstrap, topic_name, max_message_bytes="10000")


@pytest.fixture
def producer(bootstrap: str, intake: str, unique_name: Callable[[str], str]) -> Iterator[DelayedProducer]:
    with DelayedProducer(bootstrap, intake, transactional_id=unique_name("client")) as producer:
        yield producer


def _values(bootstrap: str, intake: str) -> list[bytes | None]:
    return sorted(
        (record.value() for record in read_topic(bootstrap, intake, decided=True)), key=lambda value: value or b""
    )


@pytest.mark.parametrize("size", [20_000, 2_000_000], ids=["by the broker", "by the client library"])
def test_where_the_message_is_refused_the_cancel_is_not_sent_either(
    bootstrap: str, intake: str, producer: DelayedProducer, size: int
) -> None:
    first = producer.send("orders", b"first", b"k", delay=_LATE)
    with pytest.raises(BrokerError, match="could not send") as refusal:
        producer.reschedule(first.handle, DelayedMessage("orders", b"x" * size, b"k", _SOON))
    assert refusal.value.code == "MSG_SIZE_TOO_LARGE"
    assert _values(bootstrap, intake) == [b"first"]
    receipt = producer.reschedule(first.handle, DelayedMessage("orders", b"second", b"k", _SOON))
    assert _values(bootstrap, intake) == [None, b"first", b"second"]
    # The cancel stands in the partition of what it cancels, before the message of the same key.
    assert receipt.cancel.handle == first.handle
    assert (receipt.sent.handle.partition, receipt.sent.offset) == (first.handle.partition, receipt.cancel.offset + 1)


def test_a_message_that_its_own_cancel_would_hit_is_refused_and_another_due_time_is_not(
    producer: DelayedProducer,
) -> None:
    first = producer.send("orders", b"v", b"k", delay=_LATE)
    with pytest.raises(HeaderError, match="the same id and due time as the message to cancel"):
        producer.reschedule(first.handle, DelayedMessage("orders", b"v", b"k", at=first.due, id=first.id))
    moved = producer.reschedule(first.handle, DelayedMessage("orders", b"v", b"k", at=first.due + _SOON, id=first.id))
    assert moved.sent.id == first.id
    assert moved.sent.handle.due_ms == first.handle.due_ms + 1_500


def test_a_message_that_cannot_be_sent_is_refused_before_a_transaction_begins() -> None:
    with DelayedProducer("127.0.0.1:1") as producer:
        handle = "1.tarry.delayed.0.1767225600000.8e8c5b0c-0f5d-4b3e-9a55-0c6b1a3f4d21"
        with pytest.raises(HeaderError, match="not a handle"):
            producer.reschedule("1.nonsense", DelayedMessage("orders", b"v", delay=_SOON))
        with pytest.raises(HeaderError, match="negative"):
            producer.reschedule(handle, DelayedMessage("orders", b"v", delay=-_SOON))


def test_a_producer_whose_transactional_id_is_taken_says_so_and_may_take_it_back(
    bootstrap: str, intake: str, unique_name: Callable[[str], str]
) -> None:
    name = unique_name("shared")
    message = DelayedMessage("orders", b"v", b"k", _SOON)
    with (
        DelayedProducer(bootstrap, intake, transactional_id=name) as one,
        DelayedProducer(bootstrap, intake, transactional_id=name) as other,
    ):
        handle = one.send("orders", b"v", b"k", delay=_LATE).handle
        one.reschedule(handle, message)
        other.reschedule(handle, message)
        with pytest.raises(FatalError) as refusal:
            one.reschedule(handle, message)
        assert refusal.value.code == "_FENCED"
        one.reschedule(handle, message)
    wait_until(
        lambda: len(_values(bootstrap, intake)) == 7, "three cancels and three messages are there, and the first"
    )
