"""Committed offsets: what is told of them while a transaction is open and after it, and what their metadata may be."""

import pytest
from confluent_kafka import KafkaError, Producer, TopicPartition

from tarry.core.progress.checkpoint import LIMIT
from tarry.errors import AbortableError, FatalError, RetriableError
from tarry.kafka.errors import translate, translate_group
from tests.contracts.members import Group, Member
from tests.contracts.steps import CALL_S, refused
from tests.support.contract import Kafka


@pytest.fixture
def group(kafka: Kafka) -> Group:
    return Group(kafka, "classic")


@pytest.fixture
def member(group: Group) -> Member:
    return group.joined()


def _send(producer: Producer, member: Member, offset: int, metadata: str = "") -> None:
    """Begin a transaction, and send an offset of partition 0 in it."""
    producer.begin_transaction()
    offsets = [TopicPartition(member.topic, 0, offset, metadata)]
    producer.send_offsets_to_transaction(offsets, member.consumer.consumer_group_metadata(), CALL_S)


def test_a_request_during_an_open_transaction_gets_the_offset_from_before_it(
    kafka: Kafka, group: Group, member: Member
) -> None:
    producer = kafka.producer()
    member.commit(1, metadata="before")
    _send(producer, member, 2, "after")
    assert group.asked() == (1, "before")
    producer.commit_transaction(CALL_S)
    # The commit is answered before its marker reaches the offsets.
    kafka.until(lambda: group.asked() == (2, "after"), "the offset is there")


def test_a_read_committed_client_gets_no_offset_while_a_transaction_may_change_it(kafka: Kafka, member: Member) -> None:
    member.commit(1)
    _send(kafka.producer(), member, 2)
    error = refused(member.committed, 0, 1.0)
    assert error.code() == KafkaError._TIMED_OUT
    assert isinstance(translate_group(error, "ask"), RetriableError)


def test_an_open_transaction_does_not_hold_back_offsets_of_other_partitions(kafka: Kafka, member: Member) -> None:
    member.commit(1, partition=1)
    _send(kafka.producer(), member, 2)
    assert member.committed(partition=1)[0] == 1


def test_a_read_committed_client_gets_the_offset_as_soon_as_the_commit_is_answered(
    kafka: Kafka, member: Member
) -> None:
    producer = kafka.producer()
    for offset in range(1, 20):
        _send(producer, member, offset)
        producer.commit_transaction(CALL_S)
        assert member.committed()[0] == offset


def test_an_aborted_offset_is_never_seen(kafka: Kafka, group: Group, member: Member) -> None:
    producer = kafka.producer()
    member.commit(1)
    _send(producer, member, 2)
    producer.abort_transaction(CALL_S)
    assert member.committed()[0] == 1
    assert group.asked()[0] == 1


def test_registering_again_frees_the_offsets_of_the_open_transaction(
    kafka: Kafka, group: Group, member: Member
) -> None:
    name = kafka.name("id")
    member.commit(1)
    _send(kafka.producer(name), member, 2)
    kafka.producer(name)
    assert member.committed()[0] == 1
    assert group.asked()[0] == 1


def test_the_offsets_of_a_transaction_that_timed_out_are_free(kafka: Kafka, member: Member) -> None:
    member.commit(1)
    producer = kafka.producer(transaction_timeout_ms=1_000, message_timeout_ms=1_000)
    _send(producer, member, 2)
    assert member.committed()[0] == 1
    assert isinstance(translate(refused(producer.commit_transaction, CALL_S), "commit"), FatalError)


def test_a_plain_commit_under_an_open_transaction_wins_over_it(kafka: Kafka, group: Group, member: Member) -> None:
    producer = kafka.producer()
    _send(producer, member, 2)
    member.commit(3)
    assert group.asked()[0] == 3
    producer.commit_transaction(CALL_S)
    assert member.committed()[0] == 3


def test_records_and_offsets_of_a_transaction_stand_or_fall_together(kafka: Kafka, member: Member) -> None:
    producer = kafka.producer()
    for keep in (True, False):
        _send(producer, member, 1 if keep else 2)
        producer.produce(member.topic, b"a", partition=0)
        producer.flush(CALL_S)
        if keep:
            producer.commit_transaction(CALL_S)
        else:
            producer.abort_transaction(CALL_S)
    assert kafka.settled_end(member.topic) == 4
    assert member.committed()[0] == 1


@pytest.mark.parametrize("length", [LIMIT - 1, LIMIT])
def test_metadata_may_be_as_long_as_our_limit(kafka: Kafka, group: Group, member: Member, length: int) -> None:
    producer = kafka.producer()
    _send(producer, member, 1, "x" * length)
    producer.commit_transaction(CALL_S)
    assert member.committed() == (1, "x" * length)
    member.commit(2, metadata="y" * length)
    assert group.asked() == (2, "y" * length)


def test_metadata_of_4096_characters_is_refused(kafka: Kafka, group: Group, member: Member) -> None:
    producer = kafka.producer()
    member.commit(1)
    error = refused(_send, producer, member, 2, "x" * 4096)
    assert error.code() == KafkaError.OFFSET_METADATA_TOO_LARGE
    assert isinstance(translate(error, "send offsets"), AbortableError)
    producer.abort_transaction(CALL_S)
    error = refused(lambda: member.commit(2, metadata="x" * 4096))
    assert error.code() == KafkaError.OFFSET_METADATA_TOO_LARGE
    assert isinstance(translate_group(error, "commit"), FatalError)
    assert group.asked()[0] == 1
    _send(producer, member, 2, "x" * LIMIT)
    producer.commit_transaction(CALL_S)


def test_an_offset_without_metadata_replaces_one_with_metadata(kafka: Kafka, member: Member) -> None:
    producer = kafka.producer()
    member.commit(1, metadata="some")
    _send(producer, member, 2)
    producer.commit_transaction(CALL_S)
    assert member.committed() == (2, "")


def test_offsets_outlive_the_group_s_members(kafka: Kafka, group: Group, member: Member) -> None:
    member.commit(1, metadata="some")
    member.leave()
    assert group.asked() == (1, "some")
    assert group.joined().committed() == (1, "some")
