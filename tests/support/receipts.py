"""Intakes that nobody serves, and what stands in them at the place that a receipt names."""

from typing import Any

from confluent_kafka import Consumer, Message, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from tarry.client import Receipt
from tarry.core.request.intake_policy import IntakePolicy
from tarry.core.request.reader import RequestReader
from tarry.core.request.request import Request
from tests.support.brokers import wait_until

PARTITIONS = 3
"""As many as `make_topic` makes."""


def make_topic(bootstrap: str, name: str, **config: str) -> str:
    """Make a topic, with settings whose names have `_` for dots, and wait until it is known."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    settings = {key.replace("_", "."): value for key, value in config.items()}
    admin.create_topics([NewTopic(name, PARTITIONS, 1, config=settings)])[name].result(30)
    wait_until(lambda: name in admin.list_topics(timeout=5).topics, f"topic {name} is known")
    return name


def consume(bootstrap: str, starts: list[TopicPartition], count: int) -> "list[Message[Any, Any]]":
    """At least so many records from there on."""
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
    """The intake record that a receipt speaks of."""
    return consume(bootstrap, [TopicPartition(receipt.handle.topic, receipt.handle.partition, receipt.offset)], 1)[0]


def request_of(bootstrap: str, receipt: Receipt, tick_ms: int = 1) -> Request:
    """The record of a receipt, as the service reads it."""
    record = record_of(bootstrap, receipt)
    reader = RequestReader(IntakePolicy(receipt.handle.topic, tick_ms=tick_ms))
    headers: Any = record.headers()
    decision = reader.read(
        receipt.handle.partition, receipt.offset, record.timestamp()[1], headers, record.timestamp()[1]
    )
    assert isinstance(decision, Request)
    return decision
