"""Writing a copy of a checkpoint, or what is parked, into a journal while no process serves the partition.

The owner of a partition writes copies in its transactions.
"""

from collections.abc import Mapping, Sequence

from confluent_kafka import KafkaError

from tarry.core.progress.journal import ParkedRow, encode_copy, encode_parked, whole
from tarry.core.progress.recovery import Kept
from tarry.errors import UsageError
from tarry.kafka.partition_logs import journal_of
from tarry.kafka.settings import Cluster
from tarry.kafka.types import Place

FLUSH_TIMEOUT_S = 30.0
"""How long writing the copies may take."""


def write_copies(cluster: Cluster, copies: Mapping[Place, Kept]) -> None:
    """Write a copy into the journal of each partition.

    Raises:
        UsageError: a journal cannot be written.
    """
    _write(cluster, {place: [encode_copy(low, found.encode())] for place, (low, found) in copies.items()})


def write_parked(cluster: Cluster, parked: Mapping[Place, Sequence[ParkedRow]]) -> None:
    """Write what the parked logs hold into the journal of each partition: nothing else is parked from then on.

    Raises:
        UsageError: a journal cannot be written.
    """
    _write(cluster, {place: list(map(encode_parked, whole(rows))) for place, rows in parked.items()})


def _write(cluster: Cluster, records: Mapping[Place, Sequence[bytes]]) -> None:
    if not records:
        return
    failures: list[str] = []

    def report(error: KafkaError | None, _record: object) -> None:
        if error is not None:
            failures.append(error.str())

    producer = cluster.clients.producer(cluster.client(enable_idempotence=True, acks="all"))
    for place, of_place in records.items():
        topic, partition = journal_of(place)
        for value in of_place:
            producer.produce(topic, value=value, partition=partition, on_delivery=report)
    left = producer.flush(FLUSH_TIMEOUT_S)
    producer.close()
    if failures or left:
        reason = failures[0] if failures else "no answer"
        raise UsageError(f"could not write checkpoints of {next(iter(records))[0]} into its journal: {reason}")
