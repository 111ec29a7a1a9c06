"""Writing a copy of a checkpoint into a journal while no process serves the partition.

The owner of a partition writes copies in its transactions.
"""

from collections.abc import Mapping

from confluent_kafka import KafkaError

from tarry.core.progress.journal import encode_copy
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
    if not copies:
        return
    failures: list[str] = []

    def report(error: KafkaError | None, _record: object) -> None:
        if error is not None:
            failures.append(error.str())

    producer = cluster.clients.producer(cluster.client(enable_idempotence=True, acks="all"))
    for place, (low, checkpoint) in copies.items():
        topic, partition = journal_of(place)
        value = encode_copy(low, checkpoint.encode())
        producer.produce(topic, value=value, partition=partition, on_delivery=report)
    left = producer.flush(FLUSH_TIMEOUT_S)
    producer.close()
    if failures or left:
        reason = failures[0] if failures else "no answer"
        raise UsageError(f"could not write checkpoints of {next(iter(copies))[0]} into its journal: {reason}")
