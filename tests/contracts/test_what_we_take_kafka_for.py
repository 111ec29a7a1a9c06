"""Rules of Kafka and its client library that the service rests on: where one fails, a comment of ours is wrong."""

import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from confluent_kafka import OFFSET_END, Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from tarry.core.checkpoint import LIMIT
from tarry.kafka.settings import Cluster
from tests.support.brokers import wait_until

DEADLINE_S = 30.0


@pytest.fixture
def topic(bootstrap: str, topic_name: str) -> str:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic(topic_name, 1, 1)])[topic_name].result(30)
    return topic_name


@pytest.fixture
def transactor(bootstrap: str, topic_name: str) -> Producer:
    producer = Producer(Cluster(bootstrap).transactor(topic_name))
    producer.init_transactions(DEADLINE_S)
    return producer


@pytest.fixture
def member(bootstrap: str, topic: str) -> Iterator[Consumer]:
    consumer = Consumer(Cluster(bootstrap).member(f"{topic}.group", "classic", None))
    assigned: list[TopicPartition] = []

    def on_assign(_consumer: Consumer, partitions: list[TopicPartition]) -> None:
        at_end = [TopicPartition(one.topic, one.partition, OFFSET_END) for one in partitions]
        consumer.assign(at_end)
        consumer.pause(at_end)
        assigned.extend(at_end)

    consumer.subscribe([topic], on_assign=on_assign)

    def joined() -> bool:
        consumer.poll(0.1)
        return bool(assigned)

    wait_until(joined, "a member of the group", DEADLINE_S)
    yield consumer
    consumer.close()


def _commit(producer: Producer, member: Consumer, offset: TopicPartition) -> None:
    producer.begin_transaction()
    producer.send_offsets_to_transaction([offset], member.consumer_group_metadata(), DEADLINE_S)
    producer.commit_transaction(DEADLINE_S)


def _ends(bootstrap: str, topic: str, wanted: int) -> tuple[list[bytes | None], int]:
    """What a reader of ours gets from the start, until an end-of-partition event stands at `wanted`."""
    reader = Consumer(Cluster(bootstrap).reader())
    reader.incremental_assign([TopicPartition(topic, 0, 0)])
    values: list[bytes | None] = []
    deadline = time.monotonic() + DEADLINE_S
    try:
        while time.monotonic() < deadline:
            for record in reader.consume(100, 0.1):
                error = record.error()
                if error is None:
                    values.append(record.value())
                elif error.code() == KafkaError._PARTITION_EOF and record.offset() == wanted:
                    return values, wanted
    finally:
        reader.close()
    raise AssertionError(f"no end of {topic} at {wanted}; read {values}")


def test_an_end_of_a_partition_stands_behind_markers_and_aborted_records(
    bootstrap: str, topic: str, transactor: Producer
) -> None:
    for value, keep in ((b"a", True), (b"b", False)):
        transactor.begin_transaction()
        transactor.produce(topic, value, partition=0)
        transactor.flush(DEADLINE_S)
        if keep:
            transactor.commit_transaction(DEADLINE_S)
        else:
            transactor.abort_transaction(DEADLINE_S)
    # a, its marker, the aborted b, its marker
    assert _ends(bootstrap, topic, 4) == ([b"a"], 4)


def test_metadata_of_an_offset_may_have_4095_characters_and_no_more(
    topic: str, transactor: Producer, member: Consumer
) -> None:
    _commit(transactor, member, TopicPartition(topic, 0, 7, metadata="x" * LIMIT))
    found = member.committed([TopicPartition(topic, 0)], DEADLINE_S)[0]
    assert (found.offset, found.metadata) == (7, "x" * LIMIT)
    with pytest.raises(KafkaException) as refused:
        _commit(transactor, member, TopicPartition(topic, 0, 8, metadata="x" * (LIMIT + 2)))
    assert refused.value.args[0].code() == KafkaError.OFFSET_METADATA_TOO_LARGE
    assert refused.value.args[0].txn_requires_abort()


def test_a_commit_by_a_stranger_to_a_group_with_members_is_refused(
    bootstrap: str, topic: str, member: Consumer
) -> None:
    assert member.assignment()
    stranger = Consumer(Cluster(bootstrap).member(f"{topic}.group", "classic", None))
    try:
        with pytest.raises(KafkaException) as refused:
            stranger.commit(offsets=[TopicPartition(topic, 0, 1)], asynchronous=False)
        assert refused.value.args[0].code() == KafkaError.UNKNOWN_MEMBER_ID
    finally:
        stranger.close()


def test_a_member_paused_as_it_is_assigned_reads_nothing(bootstrap: str, topic: str, member: Consumer) -> None:
    producer = Producer({"bootstrap.servers": bootstrap})
    producer.produce(topic, b"a", partition=0)
    assert producer.flush(DEADLINE_S) == 0
    assert _ends(bootstrap, topic, 1) == ([b"a"], 1)  # another reader has it by now
    assert member.poll(1.0) is None


def test_deliveries_are_reported_only_where_they_failed(topic: str, transactor: Producer) -> None:
    reports: list[tuple[str | None, KafkaError | None]] = []

    def report(name: str) -> Callable[[KafkaError | None, Any], None]:
        return lambda error, _record: reports.append((name, error))

    transactor.begin_transaction()
    transactor.produce(topic, b"good", partition=0, on_delivery=report("good"))
    transactor.commit_transaction(DEADLINE_S)
    assert reports == []
    transactor.begin_transaction()
    transactor.produce(topic, b"x" * 2_000_000, partition=0, on_delivery=report("too large"))
    with pytest.raises(KafkaException) as aborted:
        transactor.commit_transaction(DEADLINE_S)
    assert aborted.value.args[0].txn_requires_abort()
    assert [(name, error and error.code()) for name, error in reports] == [("too large", KafkaError.MSG_SIZE_TOO_LARGE)]


def test_the_older_of_two_producers_under_one_id_is_fenced(bootstrap: str, topic: str, transactor: Producer) -> None:
    newer = Producer(Cluster(bootstrap).transactor(topic))
    newer.init_transactions(DEADLINE_S)
    transactor.begin_transaction()
    transactor.produce(topic, b"zombie", partition=0)
    with pytest.raises(KafkaException) as fenced:
        transactor.commit_transaction(DEADLINE_S)
    assert fenced.value.args[0].fatal()
    newer.begin_transaction()
    newer.produce(topic, b"a", partition=0)
    newer.commit_transaction(DEADLINE_S)
    assert _ends(bootstrap, topic, 2) == ([b"a"], 2)
