"""Sending a purge: a record in each partition of the intake. It makes dead letters of what is parked for a target."""

from collections.abc import Iterable
from datetime import UTC, datetime, timedelta

from confluent_kafka import KafkaError, Message

from tarry.client.receipt import Receipt
from tarry.errors import BrokerError, RetriableError
from tarry.handle import Handle
from tarry.headers import PURGE, derived_id
from tarry.kafka.settings import Cluster

_EPOCH = datetime.fromtimestamp(0, UTC)

SENT_WITHIN_S = 30.0
"""How long sending may take."""


def send_purges(cluster: Cluster, intake: str, partitions: Iterable[int], target: str) -> list[Receipt]:
    """Send a purge to partitions of an intake, and wait until the brokers have acknowledged all of them.

    Returns:
        The receipts. `OutcomeReader.outcome` waits for the answers.

    Raises:
        RetriableError: no acknowledgement in time. Some may have been sent; sending them again does no harm.
        BrokerError: Kafka refused one.
    """
    sent: list[Receipt] = []
    refused: list[KafkaError] = []

    def report(error: KafkaError | None, record: Message) -> None:
        if error is not None:
            refused.append(error)
            return
        partition, offset, (_, at_ms) = record.partition() or 0, record.offset() or 0, record.timestamp()
        id_ = derived_id(intake, partition, offset).decode()
        due = _EPOCH + timedelta(milliseconds=at_ms)
        sent.append(Receipt(id_, Handle(intake, partition, max(0, at_ms), id_), due, offset))

    producer = cluster.clients.producer(cluster.client(enable_idempotence=True, acks="all"))
    for partition in partitions:
        headers: list[tuple[str, str | bytes | None]] = [(PURGE, target)]
        producer.produce(intake, partition=partition, headers=headers, on_delivery=report)
    left = producer.flush(SENT_WITHIN_S)
    producer.close()
    if refused:
        raise BrokerError(f"could not send to {intake}: {refused[0].str()}")
    if left:
        raise RetriableError(f"could not send to {intake}: no acknowledgement within {SENT_WITHIN_S:g} s")
    return sent
