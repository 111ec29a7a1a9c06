"""Records that came back and are settled do not stay in the retry topic."""

from collections.abc import Callable

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from tarry.client.retry.trimming import AGAIN_MS, EVERY_MS, Trimming
from tarry.kafka.offsets import Offsets
from tarry.kafka.settings import Cluster
from tarry.testing import ManualClock
from tests.support.brokers import wait_until

SETTLED = 6


@pytest.fixture
def topic(bootstrap: str, unique_name: Callable[[str], str]) -> str:
    """Ten records in each of two partitions."""
    name = unique_name("trimming")
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic(name, 2, 1)])[name].result(30)
    producer = Producer({"bootstrap.servers": bootstrap})
    for partition in (0, 1):
        for _ in range(10):
            producer.produce(name, b"came back", partition=partition)
    assert producer.flush(30) == 0
    return name


def starts(bootstrap: str, topic: str) -> list[int]:
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "tests.trimming"})
    try:
        return [consumer.get_watermark_offsets(TopicPartition(topic, number), timeout=30)[0] for number in (0, 1)]
    finally:
        consumer.close()


def test_settled_records_are_deleted_periodically_and_no_others(bootstrap: str, topic: str) -> None:
    cluster, clock, said = Cluster(bootstrap), ManualClock(), list[str]()
    offsets = Offsets(cluster.clients.admin(cluster.admin()), "tests", cluster)
    trimming = Trimming(offsets, topic, clock, lambda name, **_: said.append(name))
    trimming.committed(0, SETTLED)
    trimming.committed(1, 0)
    trimming.turn()
    assert starts(bootstrap, topic) == [0, 0], "it is not time to"
    clock.advance(EVERY_MS)
    trimming.turn()
    wait_until(lambda: starts(bootstrap, topic) == [SETTLED, 0], "it is trimmed")
    assert said == []


def test_where_it_is_refused_it_is_said_and_not_tried_for_an_hour(bootstrap: str, topic: str) -> None:
    cluster, clock, said = Cluster(bootstrap), ManualClock(), list[str]()
    offsets = Offsets(cluster.clients.admin(cluster.admin()), "tests", cluster)
    trimming = Trimming(offsets, topic, clock, lambda name, **_: said.append(name))

    def has_said(times: int) -> bool:
        trimming.turn()
        return len(said) == times

    trimming.committed(0, 1_000)  # behind the end: the broker refuses
    clock.advance(EVERY_MS)
    wait_until(lambda: has_said(1), "it says so")
    trimming.committed(0, SETTLED)
    clock.advance(AGAIN_MS - 1)
    trimming.turn()
    assert starts(bootstrap, topic) == [0, 0]
    clock.advance(1)
    trimming.turn()
    wait_until(lambda: starts(bootstrap, topic) == [SETTLED, 0], "it is trimmed")
    assert said == ["trim_failed"]
