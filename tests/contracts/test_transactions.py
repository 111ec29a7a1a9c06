"""The records of a transaction become readable by its commit and never before; an empty one costs nothing."""

import pytest
from confluent_kafka import KafkaError

from tests.contracts.steps import CALL_S, Reading, abort, commit, leave_open, refused
from tests.support.contract import Kafka


def test_records_are_read_after_the_commit_and_not_before(kafka: Kafka, topic: str) -> None:
    producer = kafka.producer()
    leave_open(producer, topic, b"a", b"b")
    reading = Reading(kafka, {(topic, 0): 0})
    assert reading.until_end(topic, 0) == []
    producer.commit_transaction(CALL_S)
    assert reading.until_end(topic, 3) == [b"a", b"b"]


def test_aborted_records_are_never_read(kafka: Kafka, topic: str) -> None:
    producer = kafka.producer()
    abort(producer, topic, b"aborted")
    commit(producer, topic, b"a")
    assert Reading(kafka, {(topic, 0): 0}).until_end(topic, 4) == [b"a"]


def test_the_end_of_a_partition_is_after_markers_and_aborted_records(kafka: Kafka, topic: str) -> None:
    producer = kafka.producer()
    commit(producer, topic, b"a")
    abort(producer, topic, b"b", b"c")
    # a, its marker, the aborted two, their marker
    assert Reading(kafka, {(topic, 0): 0}).until_end(topic, 5) == [b"a"]


def test_a_control_record_takes_one_offset(kafka: Kafka, topic: str) -> None:
    producer = kafka.producer()
    for value in (b"a", b"b", b"c"):
        commit(producer, topic, value)
    reading = Reading(kafka, {(topic, 0): 0})
    reading.until_end(topic, 6)
    assert reading.offsets == [0, 2, 4]


def test_an_open_transaction_holds_the_last_stable_offset_below_the_high_watermark(kafka: Kafka, topic: str) -> None:
    producer = kafka.producer()
    leave_open(producer, topic, b"a", b"b")
    assert kafka.ends(topic) == (0, 2)
    producer.commit_transaction(CALL_S)
    # The commit is answered before its markers are written.
    kafka.until(lambda: kafka.ends(topic) == (3, 3), "the marker is written")


def test_an_open_transaction_hides_what_others_commit_behind_it(kafka: Kafka, topic: str) -> None:
    slow, quick = kafka.producer(), kafka.producer()
    leave_open(slow, topic, b"a")
    commit(quick, topic, b"b")
    reading = Reading(kafka, {(topic, 0): 0})
    assert reading.until_end(topic, 0) == []
    slow.commit_transaction(CALL_S)
    assert reading.until_end(topic, 4) == [b"a", b"b"]


def test_a_transaction_is_committed_in_all_its_partitions(kafka: Kafka) -> None:
    topic = kafka.make_topic(3)
    producer = kafka.producer()
    producer.begin_transaction()
    for partition in range(3):
        producer.produce(topic, b"%d" % partition, partition=partition)
    producer.commit_transaction(CALL_S)
    reading = Reading(kafka, {(topic, partition): 0 for partition in range(3)})
    for partition in range(3):
        reading.until_end(topic, 2, partition)
    assert sorted(reading.values, key=str) == [b"0", b"1", b"2"]


def test_transactions_may_follow_each_other_at_once(kafka: Kafka, topic: str) -> None:
    producer = kafka.producer()
    values = [b"%d" % number for number in range(20)]
    for value in values:
        commit(producer, topic, value)
    assert Reading(kafka, {(topic, 0): 0}).until_end(topic, 40) == values


def test_an_empty_transaction_commits_and_leaves_no_trace(kafka: Kafka, topic: str) -> None:
    producer = kafka.producer()
    producer.begin_transaction()
    producer.commit_transaction(CALL_S)
    commit(producer, topic, b"a")
    assert Reading(kafka, {(topic, 0): 0}).until_end(topic, 2) == [b"a"]


def test_an_empty_transaction_aborts_and_leaves_no_trace(kafka: Kafka, topic: str) -> None:
    producer = kafka.producer()
    producer.begin_transaction()
    producer.abort_transaction(CALL_S)
    commit(producer, topic, b"a")
    assert Reading(kafka, {(topic, 0): 0}).until_end(topic, 2) == [b"a"]


def test_records_not_sent_yet_are_dropped_by_an_abort(kafka: Kafka, topic: str) -> None:
    producer = kafka.producer()
    producer.begin_transaction()
    for _ in range(100):
        producer.produce(topic, b"aborted", partition=0)
    producer.abort_transaction(CALL_S)
    commit(producer, topic, b"a")
    assert Reading(kafka, {(topic, 0): 0}).until_end(topic, kafka.settled_end(topic)) == [b"a"]


@pytest.mark.parametrize("call", ["begin_transaction", "commit_transaction", "abort_transaction"])
def test_a_call_out_of_turn_is_refused_and_harms_nothing(kafka: Kafka, topic: str, call: str) -> None:
    producer = kafka.producer()
    if call == "begin_transaction":
        producer.begin_transaction()
    assert refused(getattr(producer, call)).code() == KafkaError._STATE
    if call != "begin_transaction":
        producer.begin_transaction()
    producer.produce(topic, b"a", partition=0)
    producer.commit_transaction(CALL_S)
    assert Reading(kafka, {(topic, 0): 0}).until_end(topic, 2) == [b"a"]
