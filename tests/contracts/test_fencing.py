"""One transactional id, one producer: a newer one, or the brokers' patience, ends what an older one has open."""

from collections.abc import Callable

import pytest
from confluent_kafka import KafkaError, KafkaException, Producer, TopicPartition

from tarry.errors import FatalError
from tarry.kafka.errors import translate
from tests.contracts.steps import CALL_S, Reading, commit, leave_open, refused
from tests.support.contract import Kafka


def test_registering_again_aborts_the_open_transaction(kafka: Kafka, topic: str) -> None:
    name = kafka.name("id")
    leave_open(kafka.producer(name), topic, b"zombie")
    assert kafka.ends(topic) == (0, 1)
    newer = kafka.producer(name)
    # No waiting: the registration is not answered before the marker is written.
    assert kafka.ends(topic) == (2, 2)
    commit(newer, topic, b"a")
    assert Reading(kafka, {(topic, 0): 0}).until_end(topic, 4) == [b"a"]


def _commit(producer: Producer, _kafka: Kafka, _topic: str) -> None:
    producer.commit_transaction(CALL_S)


def _produce_and_commit(producer: Producer, _kafka: Kafka, topic: str) -> None:
    producer.produce(topic, b"zombie", partition=0)
    producer.commit_transaction(CALL_S)


def _abort(producer: Producer, _kafka: Kafka, _topic: str) -> None:
    producer.abort_transaction(CALL_S)


def _send_offsets(producer: Producer, kafka: Kafka, topic: str) -> None:
    stranger = kafka.consumer(kafka.cluster.asker(kafka.name("group")))
    offsets = [TopicPartition(topic, 0, 1)]
    producer.send_offsets_to_transaction(offsets, stranger.consumer_group_metadata(), CALL_S)


@pytest.mark.parametrize("step", [_commit, _produce_and_commit, _abort, _send_offsets])
def test_the_older_of_two_producers_under_one_id_is_fenced(
    kafka: Kafka, topic: str, step: Callable[[Producer, Kafka, str], None]
) -> None:
    name = kafka.name("id")
    older = kafka.producer(name)
    leave_open(older, topic, b"zombie")
    newer = kafka.producer(name)
    error = refused(step, older, kafka, topic)
    assert error.code() == KafkaError._FENCED
    assert isinstance(translate(error, "end it"), FatalError)
    commit(newer, topic, b"a")
    assert Reading(kafka, {(topic, 0): 0}).until_end(topic, 4) == [b"a"]


def test_a_fenced_producer_can_begin_and_produce_but_never_commit(kafka: Kafka, topic: str) -> None:
    name = kafka.name("id")
    older = kafka.producer(name)
    newer = kafka.producer(name)
    older.begin_transaction()
    older.produce(topic, b"zombie", partition=0)
    error = refused(older.commit_transaction, CALL_S)
    assert error.code() == KafkaError._FENCED
    assert error.fatal()
    commit(newer, topic, b"a")
    assert Reading(kafka, {(topic, 0): 0}).until_end(topic, 2) == [b"a"]


def test_a_fenced_producer_does_not_learn_of_it_by_an_empty_transaction(kafka: Kafka) -> None:
    name = kafka.name("id")
    older = kafka.producer(name)
    kafka.producer(name)
    older.begin_transaction()
    older.commit_transaction(CALL_S)


def test_a_producer_is_useless_once_it_was_fenced(kafka: Kafka, topic: str) -> None:
    name = kafka.name("id")
    older = kafka.producer(name)
    leave_open(older, topic, b"zombie")
    kafka.producer(name)
    assert refused(older.commit_transaction, CALL_S).fatal()
    assert refused(older.begin_transaction).fatal()
    assert refused(older.produce, topic, b"zombie").code() == KafkaError._FATAL


def test_the_brokers_abort_a_transaction_that_outlives_its_timeout(kafka: Kafka, topic: str) -> None:
    producer = kafka.producer(transaction_timeout_ms=1_000, message_timeout_ms=1_000)
    leave_open(producer, topic, b"late")
    kafka.until(lambda: kafka.ends(topic) == (2, 2), "the brokers abort it")
    error = refused(producer.commit_transaction, CALL_S)
    assert error.code() == KafkaError._FENCED
    assert isinstance(translate(error, "commit"), FatalError)
    assert Reading(kafka, {(topic, 0): 0}).until_end(topic, 2) == []


def test_the_id_of_a_timed_out_transaction_can_be_registered_again(kafka: Kafka, topic: str) -> None:
    name = kafka.name("id")
    leave_open(kafka.producer(name, transaction_timeout_ms=1_000, message_timeout_ms=1_000), topic, b"late")
    kafka.until(lambda: kafka.ends(topic) == (2, 2), "the brokers abort it")
    commit(kafka.producer(name), topic, b"a")
    assert Reading(kafka, {(topic, 0): 0}).until_end(topic, 4) == [b"a"]


@pytest.mark.parametrize("serve", [Producer.poll.__name__, Producer.flush.__name__])
def test_serving_reports_raises_once_the_producer_is_lost(kafka: Kafka, topic: str, serve: str) -> None:
    name = kafka.name("id")
    older = kafka.producer(name)
    leave_open(older, topic, b"a")
    kafka.producer(name)
    older.produce(topic, b"zombie", partition=0)
    seen: list[KafkaError] = []

    def is_lost() -> bool:
        try:
            getattr(older, serve)(0.05)
        except KafkaException as exception:
            seen.append(exception.args[0])
        return bool(seen)

    kafka.until(is_lost, "it is told")
    assert [(error.code(), error.fatal()) for error in seen] == [(KafkaError._FENCED, True)]
