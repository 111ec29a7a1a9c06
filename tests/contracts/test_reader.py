"""A reader starts where it is told, goes on where it was stopped, and never skips silently."""

import pytest
from confluent_kafka import TIMESTAMP_CREATE_TIME, TIMESTAMP_LOG_APPEND_TIME, KafkaError, TopicPartition

from tests.contracts.steps import CALL_S, Reading, commit
from tests.support.contract import Kafka

MANY = 500


def _many(kafka: Kafka, topic: str, first: int = 0, partition: int = 0) -> list[bytes]:
    values = [b"%d" % number for number in range(first, first + MANY)]
    commit(kafka.producer(), topic, *values, partition=partition)
    kafka.settled_end(topic, partition)
    return values


def _read_some(kafka: Kafka, reading: Reading, number: int) -> None:
    def there() -> bool:
        reading.look(number - len(reading.records))
        return len(reading.records) == number

    kafka.until(there, f"{number} records")


def test_reading_begins_at_the_offset_that_is_given(kafka: Kafka, topic: str) -> None:
    values = _many(kafka, topic)
    assert Reading(kafka, {(topic, 0): 100}).until_end(topic, MANY + 1) == values[100:]


def test_reading_may_begin_at_a_marker_or_at_the_end(kafka: Kafka, topic: str) -> None:
    _many(kafka, topic)
    for start in (MANY, MANY + 1):
        assert Reading(kafka, {(topic, 0): start}).until_end(topic, MANY + 1) == []


def test_a_reader_waits_for_records_as_long_as_it_is_told(kafka: Kafka, topic: str) -> None:
    reading = Reading(kafka, {(topic, 0): 0})
    reading.until_end(topic, 0)
    began_ms = kafka.clock.monotonic_ms()
    assert reading.consumer.consume(10, 0.3) == []
    assert 300 <= kafka.clock.monotonic_ms() - began_ms < 3_000


def test_an_end_is_told_again_each_time_it_is_reached(kafka: Kafka, topic: str) -> None:
    reading = Reading(kafka, {(topic, 0): 0})
    assert reading.until_end(topic, 0) == []
    producer = kafka.producer()
    commit(producer, topic, b"a")
    assert reading.until_end(topic, 2) == [b"a"]
    commit(producer, topic, b"b")
    assert reading.until_end(topic, 4) == [b"a", b"b"]


def test_a_reader_behind_the_end_is_told_that_it_is_off_the_log(kafka: Kafka, topic: str) -> None:
    commit(kafka.producer(), topic, b"a")
    reading = Reading(kafka, {(topic, 0): 100})
    assert reading.until_error().code() == KafkaError._AUTO_OFFSET_RESET
    assert reading.records == []


def test_a_reader_below_the_start_is_told_that_it_is_off_the_log(kafka: Kafka, topic: str) -> None:
    values = _many(kafka, topic)
    trim = kafka.offsets.trim({(topic, 0): 100})
    kafka.until(lambda: trim.done, "the records are deleted")
    assert trim.failures() == []
    reading = Reading(kafka, {(topic, 0): 99})
    assert reading.until_error().code() == KafkaError._AUTO_OFFSET_RESET
    assert reading.records == []
    assert Reading(kafka, {(topic, 0): 100}).until_end(topic, MANY + 1) == values[100:]


def test_an_out_of_range_error_may_come_after_the_reader_has_moved_with_its_former_offset(
    kafka: Kafka, topic: str
) -> None:
    _many(kafka, topic)
    trim = kafka.offsets.trim({(topic, 0): 100})
    kafka.until(lambda: trim.done, "the records are deleted")
    reading = Reading(kafka, {(topic, 0): 50})

    def is_told() -> bool:
        # A question takes as long as a fetch that was sent before it.
        reading.consumer.get_watermark_offsets(TopicPartition(topic, 0), CALL_S)
        reading.shut((topic, 0))
        reading.open({(topic, 0): 150})
        found = [(record.error(), record.offset()) for record in reading.consumer.consume(1_000, 0.5)]
        reading.shut((topic, 0))
        reading.open({(topic, 0): 50})
        return any(
            error is not None and error.code() == KafkaError._AUTO_OFFSET_RESET and at == 50 for error, at in found
        )

    kafka.until(is_told, "an error of where it was before")


def test_a_pause_loses_nothing_and_repeats_nothing(kafka: Kafka, topic: str) -> None:
    values = _many(kafka, topic)
    reading = Reading(kafka, {(topic, 0): 0})
    for number in (10, 20, 300):
        _read_some(kafka, reading, number)
        reading.consumer.pause([TopicPartition(topic, 0)])
        reading.look()
        assert len(reading.records) == number
        reading.consumer.resume([TopicPartition(topic, 0)])
    assert reading.until_end(topic, MANY + 1) == values


def test_a_paused_partition_does_not_stop_another(kafka: Kafka) -> None:
    topic = kafka.make_topic(2)
    paused, other = (_many(kafka, topic, first, partition) for partition, first in ((0, 0), (1, MANY)))
    reading = Reading(kafka, {(topic, 0): 0, (topic, 1): 0})
    reading.consumer.pause([TopicPartition(topic, 0)])
    assert reading.until_end(topic, MANY + 1, partition=1) == other
    reading.consumer.resume([TopicPartition(topic, 0)])
    assert reading.until_end(topic, MANY + 1) == other + paused


def test_a_partition_that_is_assigned_again_elsewhere_gives_nothing_from_before(kafka: Kafka, topic: str) -> None:
    values = _many(kafka, topic)
    reading = Reading(kafka, {(topic, 0): 0})
    _read_some(kafka, reading, 10)
    reading.shut((topic, 0))
    reading.look()
    assert len(reading.records) == 10
    reading.open({(topic, 0): 5})
    assert reading.until_end(topic, MANY + 1) == values[:10] + values[5:]


def test_a_pause_outlives_the_assignment(kafka: Kafka, topic: str) -> None:
    values = _many(kafka, topic)
    reading = Reading(kafka, {(topic, 0): 0})
    _read_some(kafka, reading, 10)
    reading.consumer.pause([TopicPartition(topic, 0)])
    reading.shut((topic, 0))
    reading.open({(topic, 0): 5})
    for _ in range(10):
        reading.look()
    assert len(reading.records) == 10
    reading.consumer.resume([TopicPartition(topic, 0)])
    assert reading.until_end(topic, MANY + 1) == values[:10] + values[5:]


def test_partitions_come_and_go_without_harm_to_others(kafka: Kafka) -> None:
    topic = kafka.make_topic(2)
    first, second = (_many(kafka, topic, start, partition) for partition, start in ((0, 0), (1, MANY)))
    reading = Reading(kafka, {(topic, 0): 0})
    _read_some(kafka, reading, 10)
    reading.open({(topic, 1): 0})
    reading.until_end(topic, MANY + 1)
    reading.until_end(topic, MANY + 1, partition=1)
    reading.shut((topic, 1))
    assert sorted(reading.values, key=lambda value: int(value or b"")) == first + second


def test_an_assigned_partition_cannot_be_assigned_again(kafka: Kafka, topic: str) -> None:
    reading = Reading(kafka, {(topic, 0): 0})
    with pytest.raises(Exception, match="already"):
        reading.open({(topic, 0): 0})


def test_a_record_is_read_as_it_was_written(kafka: Kafka, topic: str) -> None:
    headers: list[tuple[str, str | bytes | None]] = [("a", b"1"), ("b", None), ("a", b""), ("é", b"\xff")]
    at_ms = kafka.clock.now_ms() - 60_000
    producer = kafka.producer()
    producer.begin_transaction()
    producer.produce(topic, b"value", b"key", 0, headers=headers, timestamp=at_ms)
    producer.produce(topic, None, None, 0)
    producer.produce(topic, b"", b"", 0)
    producer.commit_transaction(CALL_S)
    reading = Reading(kafka, {(topic, 0): 0})
    reading.until_end(topic, 4)
    full, null, empty = reading.records
    assert (full.key(), full.value(), full.headers()) == (b"key", b"value", headers)
    assert full.timestamp() == (TIMESTAMP_CREATE_TIME, at_ms)
    assert (null.key(), null.value(), null.headers()) == (None, None, None)
    assert (empty.key(), empty.value(), empty.headers()) == (b"", b"", None)


def test_a_topic_may_stamp_its_records_itself(kafka: Kafka) -> None:
    topic = kafka.make_topic(message_timestamp_type="LogAppendTime")
    before_ms = kafka.clock.now_ms()
    producer = kafka.producer()
    producer.begin_transaction()
    producer.produce(topic, b"a", partition=0, timestamp=before_ms - 60_000)
    producer.commit_transaction(CALL_S)
    reading = Reading(kafka, {(topic, 0): 0})
    reading.until_end(topic, 2)
    kind, at_ms = reading.records[0].timestamp()
    assert kind == TIMESTAMP_LOG_APPEND_TIME
    assert before_ms <= at_ms <= kafka.clock.now_ms()


def test_keys_go_to_the_partitions_that_java_clients_choose(kafka: Kafka) -> None:
    topic = kafka.make_topic(7)
    producer = kafka.producer()
    producer.begin_transaction()
    for key in (b"", b"a", b"ab", b"abc", b"abcd", b"tarry", b"\xff\xfe\xfd"):
        producer.produce(topic, key, key)
    producer.commit_transaction(CALL_S)
    reading = Reading(kafka, {(topic, partition): 0 for partition in range(7)})
    for partition in range(7):
        reading.until_end(topic, kafka.settled_end(topic, partition), partition)
    chosen = {record.key(): record.partition() for record in reading.records}
    # What org.apache.kafka.common.utils.Utils computes: toPositive(murmur2(key)) % 7.
    assert chosen == {b"": 2, b"a": 5, b"ab": 0, b"abc": 4, b"abcd": 5, b"tarry": 5, b"\xff\xfe\xfd": 5}
