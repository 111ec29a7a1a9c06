"""Arguments that the clients refuse at once, without a broker."""

import asyncio
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from confluent_kafka import KafkaError, Producer

from tarry.client import AsyncDelayedProducer, DelayedMessage, DelayedProducer, TransactionalDelays
from tarry.client.connection import ProducerSettings
from tarry.client.pending import IntakeTopic, refusal
from tarry.client.retry.handling import HandlerTransaction
from tarry.client.sending import Sender
from tarry.errors import BrokerError, ConfigError, HeaderError, RetriableError
from tarry.handle import Handle

NOBODY = "127.0.0.1:1"
ID = "8e8c5b0c-0f5d-4b3e-9a55-0c6b1a3f4d21"
MESSAGE = DelayedMessage("orders", b"v", delay=timedelta(seconds=1))
FOREIGN = [
    "1.orders.0.1767225600000." + ID,
    Handle("tarry.delayed.dead", 0, 1_767_225_600_000, ID),
    "1.__consumer_offsets.0.1767225600000." + ID,
]


def _cancel(handle: Any) -> None:
    with DelayedProducer(NOBODY) as producer:
        producer.cancel(handle)


def _reschedule(handle: Any) -> None:
    with DelayedProducer(NOBODY) as producer:
        producer.reschedule(handle, MESSAGE)


def _cancel_in_a_transaction(handle: Any) -> None:
    TransactionalDelays(Producer({"bootstrap.servers": NOBODY, "log_level": 0})).cancel(handle)


def _reschedule_async(handle: Any) -> None:
    async def run() -> None:
        async with AsyncDelayedProducer(NOBODY, timeout_s=0.5) as producer:
            await producer.reschedule(handle, MESSAGE)

    asyncio.run(run())


FACES = pytest.mark.parametrize("face", [_cancel, _reschedule, _cancel_in_a_transaction, _reschedule_async])


@FACES
@pytest.mark.parametrize("handle", FOREIGN, ids=str)
def test_a_handle_of_another_topic_is_refused(face: Callable[[Any], None], handle: Handle | str) -> None:
    with pytest.raises(
        HeaderError, match=r"^handle: its message is in .*, but this producer's intake is tarry.delayed"
    ):
        face(handle)


@FACES
@pytest.mark.parametrize("handle", [None, 5, b"1.tarry.delayed.0.1767225600000." + ID.encode(), {}, "none"], ids=repr)
def test_a_malformed_handle_is_refused(face: Callable[[Any], None], handle: Any) -> None:
    with pytest.raises(HeaderError, match=r"not a handle|neither a Handle nor text"):
        face(handle)


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ({"bootstrap_servers": ["localhost:9092"]}, "bootstrap_servers: must be text"),
        ({"bootstrap_servers": None}, "bootstrap_servers: must be text"),
        ({"bootstrap_servers": " "}, "bootstrap_servers: must be text"),
        ({"intake": b"tarry.delayed"}, "intake: a topic name must be text: bytes"),
        ({"options": "linger.ms=5"}, "options: not a mapping"),
        ({"options": {"linger.ms": None}}, "options: linger.ms is neither"),
        ({"options": {5: "x"}}, "options: 5 is neither"),
        ({"tick_ms": "1"}, "tick_ms: must be a whole number"),
        ({"tick_ms": 0}, "tick_ms: must be a whole number"),
        ({"timeout_s": "30"}, "timeout_s: must be a number of seconds"),
        ({"timeout_s": timedelta(seconds=30)}, "timeout_s: must be a number of seconds"),
        ({"timeout_s": 0}, "timeout_s: must be a number of seconds"),
        ({"timeout_s": float("nan")}, "timeout_s: must be a number of seconds"),
        ({"transactional_id": 5}, "transactional_id: must be non-empty text"),
        ({"transactional_id": ""}, "transactional_id: must be non-empty text"),
    ],
)
@pytest.mark.parametrize("kind", [DelayedProducer, AsyncDelayedProducer])
def test_an_argument_of_another_type_is_one_line(kind: Any, arguments: dict[str, Any], says: str) -> None:
    with pytest.raises((ConfigError, HeaderError), match=says) as refused:
        kind(**{"bootstrap_servers": NOBODY, **arguments})
    assert "\n" not in str(refused.value)


def test_a_handlers_transaction_takes_what_send_takes() -> None:
    transaction = HandlerTransaction()
    transaction.produce("invoices", "värde", "k", {"a": "b", "c": None}, partition=2)
    [record] = transaction.records
    assert (record.value, record.key, record.partition) == ("värde".encode(), b"k", 2)
    assert record.headers == [("a", b"b"), ("c", None)]


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ((b"invoices", b"v"), "topic: a topic name must be text"),
        (("a b", b"v"), "topic: not a legal topic name"),
        (("invoices", 5), "value: neither text nor bytes nor None"),
        (("invoices", b"v", 5), "key: neither text nor bytes nor None"),
        (("invoices", b"v", b"k", [b"a"]), "headers: not a pair"),
        (("invoices", "\udc80"), "value: text that UTF-8 cannot encode"),
    ],
)
def test_a_handlers_transaction_refuses_what_cannot_be_sent(arguments: Any, says: str) -> None:
    with pytest.raises(HeaderError, match=says):
        HandlerTransaction().produce(*arguments)
    with pytest.raises(HeaderError, match="partition: not a number"):
        HandlerTransaction().produce("invoices", b"v", partition=-2)


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        (KafkaError.KAFKA_STORAGE_ERROR, RetriableError),
        (KafkaError.NETWORK_EXCEPTION, RetriableError),
        (KafkaError.THROTTLING_QUOTA_EXCEEDED, RetriableError),
        (KafkaError.NOT_ENOUGH_REPLICAS, RetriableError),
        (KafkaError.TOPIC_AUTHORIZATION_FAILED, BrokerError),
        (KafkaError.MSG_SIZE_TOO_LARGE, BrokerError),
    ],
)
def test_of_a_records_refusal_what_passes_is_retriable(code: int, kind: type[BrokerError]) -> None:
    assert type(refusal(KafkaError(code), "tarry.delayed")) is kind


def test_a_partition_of_the_target_may_be_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[DelayedMessage] = []

    def take(_sender: Sender, message: DelayedMessage) -> None:
        asked.append(message)
        raise HeaderError("taken")

    async def send() -> None:
        await AsyncDelayedProducer(NOBODY).send("orders", b"v", delay=timedelta(0), partition=3)

    monkeypatch.setattr(Sender, "send", take)
    with pytest.raises(HeaderError, match="taken"):
        DelayedProducer(NOBODY).send("orders", b"v", delay=timedelta(0), partition=3)
    with pytest.raises(HeaderError, match="taken"):
        asyncio.run(send())
    assert [message.partition for message in asked] == [3, 3]


def test_the_arguments_of_a_producer_show_no_password() -> None:
    settings = ProducerSettings(NOBODY, IntakeTopic("tarry.delayed", 1), {"sasl.password": "hidden"}, 1.0, None, None)
    assert "hidden" not in repr(settings)
