"""A producer beside its transactions: its queue, its delivery reports, and what it leaves when it is dropped."""

import pytest
from confluent_kafka import KafkaError, Producer

from tests.contracts.steps import CALL_S, Reading, Reports, leave_open, refused
from tests.support.contract import Kafka

ROOM = 10


@pytest.fixture
def narrow(kafka: Kafka) -> Producer:
    """A producer with room for ten records, in an open transaction."""
    producer = kafka.producer(queue_buffering_max_messages=ROOM, linger_ms=200)
    producer.begin_transaction()
    return producer


def _until_sent(kafka: Kafka, producer: Producer) -> None:
    """Poll, as a parked transaction does, until nothing is queued: no flush, no commit."""

    def sent() -> bool:
        producer.poll(0)
        return len(producer) == 0

    kafka.until(sent, "the queue is empty")


def test_records_go_out_while_a_transaction_is_only_polled(kafka: Kafka, topic: str) -> None:
    producer = kafka.producer(linger_ms=200)
    producer.begin_transaction()
    for _ in range(3):
        producer.produce(topic, b"a", partition=0)
    assert len(producer) == 3
    _until_sent(kafka, producer)
    assert kafka.ends(topic) == (0, 3)
    producer.commit_transaction(CALL_S)
    assert Reading(kafka, {(topic, 0): 0}).until_end(topic, 4) == [b"a"] * 3


def test_a_refusal_is_reported_while_a_transaction_is_only_polled(kafka: Kafka) -> None:
    topic = kafka.make_topic(max_message_bytes=1_000)
    reports = Reports()
    producer = kafka.producer()
    producer.begin_transaction()
    producer.produce(topic, b"x" * 2_000, partition=0, on_delivery=reports)
    _until_sent(kafka, producer)
    assert reports == [(b"x" * 2_000, KafkaError.MSG_SIZE_TOO_LARGE)]
    producer.abort_transaction(CALL_S)


def test_a_partition_that_a_known_topic_does_not_have_is_refused_at_once(kafka: Kafka, topic: str) -> None:
    producer = kafka.producer()
    producer.list_topics(topic, CALL_S)
    producer.begin_transaction()
    assert refused(producer.produce, topic, b"b", None, 7).code() == KafkaError._UNKNOWN_PARTITION
    producer.produce(topic, b"a", partition=0)
    producer.commit_transaction(CALL_S)
    assert Reading(kafka, {(topic, 0): 0}).until_end(topic, 2) == [b"a"]


def test_a_flush_serves_reports_and_tells_how_many_records_are_left(kafka: Kafka) -> None:
    topic = kafka.make_topic(max_message_bytes=1_000)
    reports = Reports()
    producer = kafka.producer()
    producer.begin_transaction()
    producer.produce(topic, b"x" * 2_000, partition=0, on_delivery=reports)
    kafka.until(lambda: producer.flush(0.05) == 0, "nothing is left")
    assert reports == [(b"x" * 2_000, KafkaError.MSG_SIZE_TOO_LARGE)]


def test_an_abort_reports_what_it_drops(kafka: Kafka, topic: str) -> None:
    reports = Reports()
    producer = kafka.producer(linger_ms=1_000)
    producer.begin_transaction()
    producer.produce(topic, b"a", partition=0, on_delivery=reports)
    producer.abort_transaction(CALL_S)
    assert reports == [(b"a", KafkaError._PURGE_QUEUE)]


def test_a_full_queue_refuses_records_until_it_has_room_again(kafka: Kafka, topic: str, narrow: Producer) -> None:
    for _ in range(ROOM):
        narrow.produce(topic, b"a", partition=0)
    with pytest.raises(BufferError):
        narrow.produce(topic, b"b", partition=0)
    _until_sent(kafka, narrow)
    narrow.produce(topic, b"b", partition=0)
    narrow.commit_transaction(CALL_S)
    assert Reading(kafka, {(topic, 0): 0}).until_end(topic, ROOM + 2) == [b"a"] * ROOM + [b"b"]


def test_a_batch_is_written_in_its_order(kafka: Kafka, topic: str) -> None:
    producer = kafka.producer()
    producer.begin_transaction()
    records = [{"key": b"key", "value": b"%d" % number} for number in range(100)]
    assert producer.produce_batch(topic, records, 0) == 100
    producer.commit_transaction(CALL_S)
    reading = Reading(kafka, {(topic, 0): 0})
    assert reading.until_end(topic, 101) == [record["value"] for record in records]
    assert {record.key() for record in reading.records} == {b"key"}


def test_a_batch_for_a_transaction_that_has_failed_is_marked_with_its_state(kafka: Kafka, topic: str) -> None:
    small = kafka.make_topic(max_message_bytes=1_000)
    producer = kafka.producer()
    producer.begin_transaction()
    producer.produce(small, b"x" * 2_000, partition=0)
    _until_sent(kafka, producer)
    records = [{"value": b"a"}, {"value": b"b"}]
    assert producer.produce_batch(topic, records, 0) == 0
    assert [record["_error"].code() for record in records] == [KafkaError._STATE] * 2  # type: ignore[attr-defined]
    producer.abort_transaction(CALL_S)


def test_a_batch_marks_those_that_find_no_room(kafka: Kafka, topic: str, narrow: Producer) -> None:
    records = [{"value": b"%d" % number} for number in range(ROOM + 5)]
    added = narrow.produce_batch(topic, records, 0)
    assert added == ROOM
    left = [record for record in records if "_error" in record]
    assert left == records[ROOM:]
    _until_sent(kafka, narrow)
    assert narrow.produce_batch(topic, [{"value": record["value"]} for record in left], 0) == 5
    narrow.commit_transaction(CALL_S)
    values = [record["value"] for record in records]
    assert Reading(kafka, {(topic, 0): 0}).until_end(topic, ROOM + 6) == values


def test_a_batch_reports_its_refusals(kafka: Kafka) -> None:
    topic = kafka.make_topic(max_message_bytes=1_000)
    reports = Reports()
    producer = kafka.producer()
    producer.begin_transaction()
    assert producer.produce_batch(topic, [{"value": b"x" * 2_000}], 0, reports) == 1
    assert refused(producer.commit_transaction, CALL_S).txn_requires_abort()
    assert reports == [(b"x" * 2_000, KafkaError.MSG_SIZE_TOO_LARGE)]


def test_a_producer_that_is_dropped_leaves_its_transaction_open(kafka: Kafka, topic: str) -> None:
    producer = kafka.producer()
    leave_open(producer, topic, b"a")
    producer.produce(topic, b"b", partition=0)
    producer.purge(in_flight=True, blocking=False)
    del producer
    for _ in range(10):
        kafka.clock.sleep(0.05)
        assert kafka.ends(topic)[0] == 0


def test_closing_a_registered_producer_leaves_no_trace(kafka: Kafka, topic: str) -> None:
    name = kafka.name("id")
    leave_open(kafka.producer(name), topic, b"a")
    fencing = kafka.cluster.clients.producer(kafka.cluster.transactor(name))
    fencing.init_transactions(CALL_S)
    fencing.close()
    assert kafka.ends(topic) == (2, 2)


def test_an_idempotent_producer_without_transactions_writes_at_once(kafka: Kafka, topic: str) -> None:
    reports = Reports()
    producer = kafka.cluster.clients.producer(kafka.cluster.client(enable_idempotence=True, acks="all"))
    producer.produce(topic, b"a", partition=0, on_delivery=reports)
    assert producer.flush(CALL_S) == 0
    producer.close()
    assert reports == [(b"a", 0)]
    assert Reading(kafka, {(topic, 0): 0}).until_end(topic, 1) == [b"a"]
