"""Adds records to a transaction, and waits until all are acknowledged or one is refused."""

from collections.abc import Iterable
from typing import Any, NamedTuple

from confluent_kafka import KafkaError, KafkaException, Message

from tarry.client.retry.core.message import OutgoingRecord
from tarry.kafka.errors import error_of
from tarry.kafka.transaction import Transactor


class RefusedRecord(NamedTuple):
    """A record that Kafka or the producer refused.

    Attributes:
        topic: the topic of the record.
        error: the reason.
    """

    topic: str
    error: KafkaError


def deliver(transactor: Transactor, records: Iterable[OutgoingRecord]) -> RefusedRecord | None:
    """Add records to the open transaction, and wait until all are acknowledged.

    Returns:
        The first refused record; then the caller must abort. None: all are acknowledged.

    Raises:
        AbortableError: the producer's queue had no room in time.
        FatalError: the producer is lost.
    """
    refused: list[RefusedRecord] = []

    def note(error: KafkaError | None, record: Message) -> None:
        if error is not None:
            refused.append(RefusedRecord(record.topic() or "", error))

    for record in records:
        headers: Any = record.headers
        try:
            transactor.produce(record.topic, record.partition, record.key, record.value, headers, note)
        except KafkaException as exception:
            refused.append(RefusedRecord(record.topic, error_of(exception)))
    transactor.deliver(lambda: bool(refused))
    return refused[0] if refused else None
