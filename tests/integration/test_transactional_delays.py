"""Delayed messages in the application's own Kafka transactions, on a real broker."""

from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta

import pytest
from confluent_kafka import Producer

from tarry.client import TransactionalDelays
from tarry.core.murmur2 import partition_of
from tarry.errors import BrokerError, HeaderError, UsageError
from tarry.handle import Handle
from tests.support.receipts import PARTITIONS, make_topic, record_of, request_of
from tests.support.topics import read_topic

_SECOND = timedelta(seconds=1)


@pytest.fixture
def intake(bootstrap: str, topic_name: str) -> str:
    """An intake that nobody serves."""
    return make_topic(bootstrap, topic_name)


@pytest.fixture
def application(bootstrap: str, unique_name: Callable[[str], str]) -> Iterator[Producer]:
    """An application's producer, with librdkafka's own partitioner and a short queue."""
    producer = Producer(
        {
            "bootstrap.servers": bootstrap,
            "transactional.id": unique_name("application"),
            "queue.buffering.max.messages": 100,
        }
    )
    producer.init_transactions(30)
    yield producer
    producer.flush(30)


def _values(bootstrap: str, topic: str, *, decided: bool = True) -> list[bytes | None]:
    return [record.value() for record in read_topic(bootstrap, topic, decided=decided)]


def test_messages_become_visible_with_the_transaction_and_have_their_handles_then(
    bootstrap: str, intake: str, application: Producer
) -> None:
    delays = TransactionalDelays(application, intake, tick_ms=1_000)
    application.begin_transaction()
    by_delay = delays.send("orders", b"v", b"k", delay=_SECOND, headers={"a": b"1"})
    by_time = delays.send("orders", b"v", b"k", at=datetime.now(UTC) + _SECOND)
    with pytest.raises(UsageError, match="no delivery report"):
        by_delay.receipt()
    application.flush(30)
    assert _values(bootstrap, intake, decided=False) == []
    application.commit_transaction(30)
    for pending in (by_delay, by_time):
        receipt = pending.receipt()
        request = request_of(bootstrap, receipt, tick_ms=1_000)
        assert receipt.handle == Handle(intake, receipt.handle.partition, request.due_ms, pending.id)
        assert receipt.id == pending.id == request.id.decode()
    assert (by_time.receipt().offset, record_of(bootstrap, by_delay.receipt()).value()) == (1, b"v")


def test_an_aborted_transaction_leaves_nothing_that_could_be_delivered(
    bootstrap: str, intake: str, application: Producer
) -> None:
    delays = TransactionalDelays(application, intake)
    application.begin_transaction()
    sent = delays.send("orders", b"aborted", b"k", delay=_SECOND)
    application.flush(30)
    handle = sent.receipt().handle
    application.abort_transaction(30)
    application.begin_transaction()
    delays.cancel(handle)
    application.abort_transaction(30)
    application.begin_transaction()
    delays.send("orders", b"committed", b"k", delay=_SECOND)
    application.commit_transaction(30)
    assert _values(bootstrap, intake) == [b"committed"]


def test_a_key_lies_where_java_would_put_it_whatever_partitioner_the_producer_has(
    intake: str, application: Producer
) -> None:
    delays = TransactionalDelays(application, intake)
    keys = [b"", b"a", b"foobar", *(b"key-%d" % number for number in range(20))]
    application.begin_transaction()
    sent = {key: delays.send("orders", b"v", key, delay=_SECOND) for key in keys}
    application.commit_transaction(30)
    places = {key: pending.receipt().handle.partition for key, pending in sent.items()}
    assert places == {key: partition_of(key, PARTITIONS) for key in keys}


def test_more_messages_than_the_queue_takes_wait_for_room(bootstrap: str, intake: str, application: Producer) -> None:
    delays = TransactionalDelays(application, intake)
    values = [b"%d" % number for number in range(1_000)]
    application.begin_transaction()
    sent = [delays.send("orders", value, b"k", delay=_SECOND) for value in values]
    application.commit_transaction(30)
    assert _values(bootstrap, intake) == values
    assert [pending.receipt().offset for pending in sent] == list(range(1_000))


def test_an_undeliverable_message_is_refused_and_the_transaction_continues(
    bootstrap: str, intake: str, application: Producer
) -> None:
    delays = TransactionalDelays(application, intake)
    with pytest.raises(BrokerError, match="could not send") as refusal:
        delays.send("orders", b"no transaction", delay=_SECOND)
    assert refusal.value.code == "_STATE"
    application.begin_transaction()
    with pytest.raises(HeaderError, match="negative"):
        delays.send("orders", b"v", delay=-_SECOND)
    with pytest.raises(HeaderError, match="not a handle"):
        delays.cancel("1.nonsense")
    delays.send("orders", b"good", delay=_SECOND)
    application.commit_transaction(30)
    assert _values(bootstrap, intake) == [b"good"]


def test_an_intake_that_is_not_there_is_refused(topic_name: str, application: Producer) -> None:
    application.begin_transaction()
    with pytest.raises(BrokerError, match=f"could not send to {topic_name}") as refusal:
        TransactionalDelays(application, topic_name).send("orders", b"v", b"k", delay=_SECOND)
    assert refusal.value.code == "UNKNOWN_TOPIC_OR_PART"
    application.abort_transaction(30)
