"""Consumers with ordered retry in a group on a real broker: how they join it, and how a handler ends them."""

import threading
from collections.abc import Callable

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from tarry.client.retry import HandlerTransaction, RetryingConsumer, RetryMessage
from tarry.client.retry.session import LOOK_FOR_TOPICS_MS
from tests.support.brokers import wait_until
from tests.support.topics import read_topic


def make(bootstrap: str, *topics: str) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    for future in admin.create_topics([NewTopic(topic, 2, 1) for topic in topics]).values():
        future.result(30)


def send(bootstrap: str, topic: str, *values: bytes) -> None:
    producer = Producer({"bootstrap.servers": bootstrap})
    for value in values:
        producer.produce(topic, value, b"k")
    assert producer.flush(30) == 0


def test_a_member_that_joined_before_its_topics_were_known_gets_them_soon(
    bootstrap: str, unique_name: Callable[[str], str]
) -> None:
    topic = unique_name("tasks")
    intake = f"{topic}.in"
    make(bootstrap, topic, intake)
    consumer = RetryingConsumer(bootstrap, topic, "group", lambda _message, _transaction: None, intake=intake)
    session = consumer.join()
    try:
        # It stands for a broker that does not know yet what another one has just made.
        admin = AdminClient({"bootstrap.servers": bootstrap})
        admin.delete_topics([consumer.names.retry])[consumer.names.retry].result(30)
        wait_until(lambda: consumer.names.retry not in admin.list_topics(timeout=10).topics, "it is gone")
        serves = [0]

        def is_joined_without() -> bool:
            session.turn()
            serves[0] += 1
            return serves[0] > 60

        wait_until(is_joined_without, "the group has settled", 30.0)
        assert session.loop.owned == {}, "half of its topics is not there"
        make(bootstrap, consumer.names.retry)

        def is_whole() -> bool:
            session.turn()
            return sorted(session.loop.owned) == [0, 1]

        wait_until(is_whole, "it has both halves of its partitions", LOOK_FOR_TOPICS_MS / 1000 + 15)
    finally:
        session.abandon()


@pytest.mark.parametrize("kind", [SystemExit, KeyboardInterrupt])
def test_a_handler_that_ends_the_program_ends_the_consumer_and_its_message_is_handled_again(
    bootstrap: str, unique_name: Callable[[str], str], kind: type[BaseException]
) -> None:
    topic = unique_name("tasks")
    out, intake = f"{topic}.out", f"{topic}.in"
    make(bootstrap, topic, out, intake)
    send(bootstrap, topic, b"first", b"last", b"behind")
    handled: list[bytes | None] = []

    def handle(message: RetryMessage, transaction: HandlerTransaction) -> None:
        handled.append(message.value)
        transaction.produce(out, message.value)
        if handled.count(b"last") == 1 and message.value == b"last":
            raise kind(3)

    consumer = RetryingConsumer(bootstrap, topic, "group", handle, intake=intake)
    with pytest.raises(kind, match="3"):
        consumer.run()
    assert handled == [b"first", b"last"]
    assert [record.value() for record in read_topic(bootstrap, out)] == [b"first"], "what was done before is written"
    assert read_topic(bootstrap, intake) == [], "it is not sent off"
    second = threading.Thread(target=consumer.run)
    second.start()
    try:
        wait_until(lambda: len(read_topic(bootstrap, out)) == 3, "the others are done", 30.0)
    finally:
        consumer.stop()
        second.join(30)
    assert handled == [b"first", b"last", b"last", b"behind"]
