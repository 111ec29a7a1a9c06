"""Adding records to a transaction, and waiting until they are there, or one is refused."""

from collections.abc import Iterable
from typing import Any, NamedTuple

from confluent_kafka import KafkaError, KafkaException, Message

from tarry.client.retry.core.message import Record
from tarry.kafka.errors import error_of
from tarry.kafka.transaction import Transactor


class Refused(NamedTuple):
    """A record was not taken.

    Attributes:
        topic: where it was to go.
        error: why not.
    """

    topic: str
    error: KafkaError


def deliver(transactor: Transactor, records: Iterable[Record]) -> Refused | None:
    """Add records to the open transaction, and wait for all of them.

    Returns:
        The first that was refused: `abort` is the next call. None: all are there.

    Raises:
        AbortableError: no room for too long.
        FatalError: the producer is lost.
    """
    refused: list[Refused] = []

    def note(error: KafkaError | None, record: Message) -> None:
        if error is not None:
            refused.append(Refused(record.topic() or "", error))

    for record in records:
        headers: Any = record.headers
        try:
            transactor.produce(record.topic, record.partition, record.key, record.value, headers, note)
        except KafkaException as exception:
            refused.append(Refused(record.topic, error_of(exception)))
    transactor.deliver(lambda: bool(refused))
    return refused[0] if refused else None
