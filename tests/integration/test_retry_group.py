"""Consumers with ordered retry in a group on a real broker: how they join it, and how a handler ends them."""

import threading
from collections.abc import Callable
from contextlib import ExitStack, closing

import pytest
from confluent_kafka import Consumer, ConsumerGroupState, Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._group import ConsumerGroupDescription
from confluent_kafka.cimpl import NewTopic

from tarry.client.retry import HandlerTransaction, RetryingConsumer, RetryMessage
from tarry.client.retry.halves import WHOLE_WITHIN_MS
from tarry.client.retry.session import Session
from tests.support.brokers import wait_until
from tests.support.topics import delete_topic, read_topic


def make(bootstrap: str, *topics: str) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    for future in admin.create_topics([NewTopic(topic, 2, 1) for topic in topics]).values():
        future.result(30)


def send(bootstrap: str, topic: str, *values: bytes) -> None:
    producer = Producer({"bootstrap.servers": bootstrap})
    for value in values:
        producer.produce(topic, value, b"k")
    assert producer.flush(30) == 0


def described(admin: AdminClient, group: str) -> ConsumerGroupDescription:
    found: ConsumerGroupDescription = admin.describe_consumer_groups([group])[group].result(30)
    return found


def assigned_topics(admin: AdminClient, group: str) -> set[str]:
    """The topics that the group has assigned; empty during a rebalance."""
    found = described(admin, group)
    if found.state is not ConsumerGroupState.STABLE:
        return set()
    return {place.topic for member in found.members for place in member.assignment.topic_partitions}


def turn_until_whole(session: Session) -> None:
    def is_whole() -> bool:
        session.turn()
        return sorted(session.loop.owned) == [0, 1]

    wait_until(is_whole, "it has both halves of its partitions", WHOLE_WITHIN_MS / 1000 + 15)


def test_a_member_that_joined_before_its_topics_were_known_gets_them_soon(
    bootstrap: str, unique_name: Callable[[str], str]
) -> None:
    topic, group = unique_name("tasks"), unique_name("group")
    intake = f"{topic}.in"
    make(bootstrap, topic, intake)
    consumer = RetryingConsumer(bootstrap, topic, group, lambda _message, _transaction: None, intake=intake)
    session = consumer.join()
    admin = AdminClient({"bootstrap.servers": bootstrap})
    try:
        delete_topic(admin, consumer.names.retry)

        def has_joined_without() -> bool:
            session.turn()
            return assigned_topics(admin, group) == {topic}

        wait_until(has_joined_without, "the group has assigned the other topic only", 30.0)
        assert session.loop.owned == {}, "half of its topics is not there"
        make(bootstrap, consumer.names.retry)
        turn_until_whole(session)
    finally:
        session.abandon()


def test_a_leader_that_knew_its_topics_before_the_coordinator_did_gets_them_soon(
    bootstrap: str, unique_name: Callable[[str], str]
) -> None:
    topic, group = unique_name("tasks"), unique_name("group")
    intake = f"{topic}.in"
    make(bootstrap, topic, intake)
    admin = AdminClient({"bootstrap.servers": bootstrap})
    # While this member does not poll, it does not give up its partitions, and nobody else can join.
    first = Consumer({"bootstrap.servers": bootstrap, "group.id": group, "partition.assignment.strategy": "range"})
    with ExitStack() as until_the_end:
        with closing(first):
            first.subscribe([topic], on_revoke=lambda _first, _places: None)

            def is_alone() -> bool:
                first.poll(0)
                return assigned_topics(admin, group) == {topic}

            wait_until(is_alone, "the first member has joined", 30.0)
            consumer = RetryingConsumer(bootstrap, topic, group, lambda _message, _transaction: None, intake=intake)
            session = consumer.join()
            until_the_end.callback(session.abandon)
            wait_until(lambda: len(described(admin, group).members) == 2, "it has found its topics, and joins", 30.0)
            delete_topic(admin, consumer.names.retry)

        def leads() -> bool:
            session.turn()
            return assigned_topics(admin, group) == {topic}

        wait_until(leads, "it leads the group, and has assigned the other topic only", 30.0)
        make(bootstrap, consumer.names.retry)
        turn_until_whole(session)


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
