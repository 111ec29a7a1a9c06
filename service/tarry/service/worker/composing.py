"""Writing one partition's records into a transaction: deliveries, results, dead letters, and the journal record."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from confluent_kafka import KafkaError, KafkaException

from tarry.core.batch import Batch, Settlement
from tarry.core.delivery import (
    OutHeaders,
    answer_result,
    dead_headers,
    dead_result,
    delivery_headers,
    fired_result,
    resolution_results,
    source_prefix,
)
from tarry.core.message import DeadMessage, HeldMessage
from tarry.core.partition import PartitionState
from tarry.errors import AbortableError
from tarry.kafka.errors import error_of
from tarry.kafka.topics import DEAD, JOURNAL, RESULTS
from tarry.kafka.transaction import Transactor
from tarry.kafka.types import OffsetMetadata, Place
from tarry.service.worker.verdicts import verdict_of

Blame = Callable[[Place, HeldMessage, KafkaError | None, Any], None]
"""Takes the delivery report of a message: its place, the message, the error or None, the record."""

SplitOff = Callable[[PartitionState, Batch], Sequence[DeadMessage]]
"""Removes from a batch the dead letters that go apart, before the batch is written; returns them."""

OwnFailure = Callable[[Place, KafkaError], None]
"""Takes the failed delivery of a record to one of our own topics: the partition, and the error."""


class Composer:
    """Writes batches into the open transaction of a producer.

    Args:
        transactor: the producer.
        split_off: removes the dead letters of a batch that go apart.
        blame: takes the delivery report of a message.
        on_own_failure: takes the failed delivery of a record to one of our own topics.
    """

    def __init__(self, transactor: Transactor, split_off: SplitOff, blame: Blame, on_own_failure: OwnFailure) -> None:
        self._transactor = transactor
        self._split_off = split_off
        self._blame = blame
        self._on_own_failure = on_own_failure

    def write(
        self, state: PartitionState, batch: Batch, counts: Mapping[str, int], now_ms: int
    ) -> Sequence[DeadMessage]:
        """Write a batch's deliveries, results and dead letters.

        A message that has expired, or that the client library refuses at once, becomes a dead letter of the batch.

        Args:
            state: the partition.
            batch: taken from it.
            counts: how many partitions each target has.
            now_ms: wall time, for the results, and to judge what has expired.

        Returns:
            The dead letters that go apart, and are not part of the batch any more.

        Raises:
            AbortableError: a record cannot be written, for a cause that passes.
        """
        place = state.place
        prefix = source_prefix(*place)
        produce, blame = self._transactor.produce, self._blame
        own = state.partition
        batch.expire(now_ms)
        state.end_unfollowed(batch)
        refused: dict[int, tuple[str, str]] = {}
        # First of all: what was decided, was decided before any of the others left.
        outcomes = [
            {"key": answer.id, "value": answer_result(answer, prefix, now_ms)}
            for decision in batch.decisions
            for answer in decision.answers
        ]
        for message in batch.due:
            source = prefix + b"%d" % message.sequence
            to_partition = message.target_partition
            if to_partition < 0 and message.key is None:
                to_partition = own % counts[message.target]
            headers = delivery_headers(message, source)
            report = partial(blame, place, message)
            try:
                produce(message.target, to_partition, message.key, message.value, headers, report)
            except KafkaException as exception:
                verdict = verdict_of(error_of(exception), message)
                if verdict is None:
                    raise AbortableError(str(exception), error_of(exception).name()) from exception
                refused[message.sequence] = verdict
                continue
            outcomes.append({"key": message.id, "value": fired_result(message, source, now_ms)})
        if refused:
            batch.give_up(refused)
        apart = self._split_off(state, batch)
        for dead in batch.dead:
            source = dead.named_from(prefix)
            self.add(state.intake + DEAD, own, dead.key, dead.value, dead_headers(dead))
            outcomes.append({"key": dead.id, "value": dead_result(dead, source, now_ms)})
        outcomes += [
            {"key": key, "value": result}
            for resolved in batch.resolutions
            for key, result in resolution_results(resolved, prefix, now_ms)
        ]
        self._transactor.produce_all(state.intake + RESULTS, own, outcomes, self._report_own)
        state.follow(batch, now_ms)
        return apart

    def follow(self, state: PartitionState, batch: Batch) -> None:
        """Write the next records of the schedules whose occurrences a batch delivers; raises like `add`.

        As long as the transaction is open, nobody reads the intake beyond them. So write them last.
        """
        for message, follower in batch.followers:
            self.add(state.intake, state.partition, message.key, message.value, follower.headers)

    def settle(self, state: PartitionState, settlement: Settlement) -> OffsetMetadata:
        """Write the journal's records of a settlement; return the offset to commit with them, with its metadata."""
        for record in (*settlement.before, settlement.journal):
            self.journal(state, record)
        return settlement.low, settlement.metadata

    def journal(self, state: PartitionState, record: bytes) -> None:
        """Write a record to the partition's journal."""
        self.add(state.intake + JOURNAL, state.partition, None, record, [])

    def add(self, topic: str, partition: int, key: bytes | None, value: bytes | None, headers: OutHeaders) -> None:
        """Write to one of the service's own topics.

        Raises:
            AbortableError: the client library refuses the record at once.
        """
        try:
            self._transactor.produce(topic, partition, key, value, headers, self._report_own)
        except KafkaException as exception:
            raise AbortableError(f"could not write to {topic}: {exception}", error_of(exception).name()) from exception

    def _report_own(self, error: KafkaError | None, record: Any) -> None:
        if error is not None:
            self._on_own_failure((record.topic(), record.partition()), error)
