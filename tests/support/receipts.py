"""Intakes that no service serves, and their records at the offsets that receipts name."""

from typing import Any

from confluent_kafka import Consumer, Message, TopicPartition
from confluent_kafka.admin import AdminClient

from tarry.client import Receipt
from tarry.core.request.intake_policy import IntakePolicy
from tarry.core.request.reader import RequestReader
from tarry.core.request.request import Request
from tests.support.brokers import wait_until
from tests.support.topics import make_topics

PARTITIONS = 3
"""The number of partitions of topics from `make_topic`."""


def make_topic(bootstrap: str, name: str, **config: str) -> str:
    """Create a topic and wait until the broker knows it; names of settings have `_` for dots."""
    make_topics(AdminClient({"bootstrap.servers": bootstrap}), [name], PARTITIONS, **config)
    return name


def consume(bootstrap: str, starts: list[TopicPartition], count: int) -> "list[Message[Any, Any]]":
    """Read at least a number of records from an offset on."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "test", "auto.offset.reset": "error"})
    found: list[Message[Any, Any]] = []

    def has_all() -> bool:
        found.extend(consumer.consume(1_000, 0.1))
        return len(found) >= count

    try:
        consumer.assign(starts)
        wait_until(has_all, f"{count} records are read")
    finally:
        consumer.close()
    assert all(record.error() is None for record in found)
    return found


def record_of(bootstrap: str, receipt: Receipt) -> "Message[Any, Any]":
    """Return the intake record that a receipt names."""
    return consume(bootstrap, [TopicPartition(receipt.handle.topic, receipt.handle.partition, receipt.offset)], 1)[0]


def request_of(bootstrap: str, receipt: Receipt, tick_ms: int = 1) -> Request:
    """Return the request that the service reads from a receipt's record."""
    record = record_of(bootstrap, receipt)
    reader = RequestReader(IntakePolicy(receipt.handle.topic, tick_ms=tick_ms))
    headers: Any = record.headers()
    decision = reader.read(
        receipt.handle.partition, receipt.offset, record.timestamp()[1], headers, record.timestamp()[1]
    )
    assert isinstance(decision, Request)
    return decision
