"""Transactions of one producer that follow each other at once, into the same partitions and the same group.

The brokers answer the next one with CONCURRENT_TRANSACTIONS until the markers of the last one are written: the client
asks again by itself, and none of it reaches us.
"""

import pytest

from tarry.kafka.transaction import Transactor
from tests.contracts.members import Group, Protocol, both_protocols
from tests.contracts.steps import Reading
from tests.support.contract import Kafka

MANY = 30
PARTITIONS = 3


@pytest.fixture
def transactor(kafka: Kafka) -> Transactor:
    """The service's own producer, registered; whatever it cannot get over by itself it raises."""
    transactor = Transactor(kafka.cluster, kafka.name("id"))
    kafka.at_the_end(transactor.close)
    transactor.renew()
    return transactor


def _write(transactor: Transactor, topic: str, number: int) -> None:
    """Begin, and write one record to each partition."""
    transactor.begin()
    for partition in range(PARTITIONS):
        transactor.produce(topic, partition, b"key", b"%d" % number, None, lambda _error, _record: None)


def _read(kafka: Kafka, topic: str) -> list[list[bytes | None]]:
    """The values of each partition."""
    reading = Reading(kafka, {(topic, partition): 0 for partition in range(PARTITIONS)})
    for partition in range(PARTITIONS):
        reading.until_end(topic, kafka.settled_end(topic, partition), partition)
    return [
        [record.value() for record in reading.records if record.partition() == partition]
        for partition in range(PARTITIONS)
    ]


@both_protocols
def test_small_transactions_with_offsets_may_follow_each_other_at_once(
    kafka: Kafka, transactor: Transactor, protocol: Protocol
) -> None:
    group, topic = Group(kafka, protocol), kafka.make_topic(PARTITIONS)
    member = group.joined()
    for number in range(MANY):
        _write(transactor, topic, number)
        transactor.send_offsets({(group.topic, 0): (number + 1, "")}, member.consumer.consumer_group_metadata())
        transactor.commit()
    assert member.committed()[0] == MANY
    assert _read(kafka, topic) == [[b"%d" % number for number in range(MANY)]] * PARTITIONS


def test_a_transaction_may_follow_an_aborted_one_at_once(kafka: Kafka, transactor: Transactor) -> None:
    topic = kafka.make_topic(PARTITIONS)
    for number in range(MANY):
        _write(transactor, topic, number)
        if number % 3:
            transactor.deliver(lambda: False)
            transactor.abort()
        else:
            transactor.commit()
    assert _read(kafka, topic) == [[b"%d" % number for number in range(0, MANY, 3)]] * PARTITIONS
