"""Copies of checkpoints in a journal: which of them counts, and writing one while no process serves the partition.

The owner of a partition writes copies in its transactions.
"""

from collections.abc import Mapping

from confluent_kafka import KafkaError

from tarry.core.progress.checkpoint import Checkpoint
from tarry.core.progress.journal import encode_copy
from tarry.errors import UsageError
from tarry.kafka.partition_logs import journal_of
from tarry.kafka.settings import Cluster
from tarry.kafka.types import Place

FLUSH_TIMEOUT_S = 30.0
"""How long writing the copies may take."""

Kept = tuple[int, Checkpoint]
"""A low watermark, and the checkpoint that goes with it."""


def is_later(copy: Kept, other: Kept | None) -> bool:
    """Return whether a copy that comes after another one in the journal replaces it.

    When an intake is adopted, the low watermark goes back; the pointer never does. The order in the journal alone does
    not decide: a first checkpoint (`birth`) may be written late, by a process that began before the partition had any
    owner.
    """
    return other is None or (copy[1].pointer, copy[0]) >= (other[1].pointer, other[0])


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
