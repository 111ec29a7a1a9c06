"""Adds records to a transaction, and waits until all are acknowledged or one is refused."""

from collections.abc import Iterable
from typing import Any, NamedTuple

from confluent_kafka import KafkaError, KafkaException, Message

from tarry.client.retry.core.message import OutgoingRecord
from tarry.kafka.errors import error_of, is_caused_by_another
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
        A refused record; then the caller must abort. It is the first one that did not fail because of another, if there
        is one: what is queued behind a refused record may be reported before it. None: all are acknowledged.

    Raises:
        AbortableError: the producer's queue had no room in time.
        FatalError: the producer is lost.
    """
    refused: list[RefusedRecord] = []

    def cause() -> RefusedRecord | None:
        return next((one for one in refused if not is_caused_by_another(one.error)), None)

    def note(error: KafkaError | None, record: Message) -> None:
        if error is not None:
            refused.append(RefusedRecord(record.topic() or "", error))

    for record in records:
        headers: Any = record.headers
        try:
            transactor.produce(record.topic, record.partition, record.key, record.value, headers, note)
        except KafkaException as exception:
            refused.append(RefusedRecord(record.topic, error_of(exception)))
    transactor.deliver(lambda: cause() is not None)
    return cause() or next(iter(refused), None)
