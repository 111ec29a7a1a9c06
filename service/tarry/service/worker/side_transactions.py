"""Side transactions: filing, parked messages and large dead letters have their own, beside the firing transactions.

    1. begin    take messages, open a transaction, hand the records to the client library
    2. look     every turn, without waiting: delivered → send offsets and commit; failed, or a record was refused
                permanently, or a named record replaces or cancels a message → abort, put the messages back, and try
                again

Such a transaction commits no offset of the intake, because other transactions may hold messages of the intake. It
commits an offset of the journal, which no process reads, so that the broker checks our membership. Its journal record
lists the messages that it completes, which count as done from its commit on.
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from confluent_kafka import KafkaError, KafkaException

from tarry.core.partition import PartitionState
from tarry.errors import AbortableError
from tarry.kafka.clients import Clients
from tarry.kafka.errors import error_of
from tarry.kafka.settings import BATCH_BYTES
from tarry.service.worker.batches import TakenMessages
from tarry.service.worker.connections import GroupProducer
from tarry.service.worker.context import Context
from tarry.service.worker.side_producer import SideProducer

WANTED_BACK_AFTER_MS = 1_000
"""How long a named record waits for a transaction that has the message that it replaces or cancels."""

_Taken = TypeVar("_Taken", bound=TakenMessages)


@dataclass(slots=True, kw_only=True)
class Attempt(ABC, Generic[_Taken]):
    """An open transaction.

    Attributes:
        batches: the messages that it completes, with their partitions.
        failure: why it must be aborted, for a cause that passes.
    """

    batches: list[tuple[PartitionState, _Taken]]
    failure: str = ""

    @property
    @abstractmethod
    def is_refused(self) -> bool:
        """Whether it must be aborted, because a record is refused permanently."""

    def report_own(self, error: KafkaError | None, record: Any) -> None:
        """Take the delivery report of a result, or of a journal record."""
        if error is not None:
            self.failure = self.failure or f"{record.topic()}/{record.partition()}: {error.str()}"


_Attempt = TypeVar("_Attempt", bound=Attempt[Any])


class SideTransactions(ABC, Generic[_Attempt]):
    """Runs the side transactions of one kind, one at a time.

    Args:
        producer: a producer that nothing else uses.
        clients: waits for brokers in the background.
        context: time, the log and the metrics.
    """

    def __init__(self, producer: GroupProducer, clients: Clients, context: Context) -> None:
        self._transactor = producer.transactor
        self._membership = producer.membership
        self._clock = context.clock
        self._on_event = context.on_event
        self._tally = context.tally
        self._producer = SideProducer(producer.transactor, clients, context.clock, self._fitting_bytes)
        self._attempt: _Attempt | None = None
        self._began_ms = 0
        """When the open transaction began; monotonic."""

    @property
    def is_open(self) -> bool:
        """Whether a transaction is open."""
        return self._attempt is not None

    def is_handling(self, state: PartitionState) -> bool:
        """Whether the open transaction has messages of a partition."""
        return self._attempt is not None and any(one is state for one, _ in self._attempt.batches)

    def settle(self) -> None:
        """Wait until no background thread is building a producer: only one at a time may register its id.

        Raises:
            RetriableError: it takes too long, or it failed.
            FatalError: the producer is lost.
        """
        self._producer.settle()

    def stop(self) -> None:
        """Abort the open transaction, so that its partitions can be given up; its messages are put back.

        Raises:
            FatalError: the producer is lost.
        """
        if self._attempt is not None:
            self._put_back(self._attempt)
        self._producer.stop()

    def forget(self) -> None:
        """Forget the open transaction, because the states and the producer were dropped."""
        self._attempt = None
        self._producer.forget()

    # -- 1 ----------------------------------------------------------------------------------------------------------

    def _begin(self, attempt: _Attempt) -> None:
        self._attempt = attempt
        self._began_ms = self._clock.monotonic_ms()
        self._producer.begin()
        try:
            for state, batch in attempt.batches:
                self._write(attempt, state, batch)
        except AbortableError as error:
            # This may only be a consequence of a refusal, which the next `_look` finds.
            attempt.failure = str(error)
        except KafkaException as exception:
            attempt.failure = error_of(exception).str()

    def _fitting_bytes(self) -> int:
        """Return the largest batch that the next producer may send, in bytes."""
        return BATCH_BYTES

    @abstractmethod
    def _write(self, attempt: _Attempt, state: PartitionState, batch: Any) -> None:
        """Hand a partition's records to the client library.

        Raises:
            AbortableError: a record cannot be written, for a cause that passes.
            KafkaException: the same, from the client library.
        """

    def _write_last(self, _attempt: _Attempt) -> bool:
        """Hand over records that must not be written before all others are delivered; return whether there are any.

        Raises:
            AbortableError: a record cannot be written, for a cause that passes.
            KafkaException: the same, from the client library.
        """
        return False

    # -- 2 ----------------------------------------------------------------------------------------------------------

    def _look(self, attempt: _Attempt) -> None:
        queued = self._transactor.push()
        if self._is_wanted_back(attempt):
            # What a named record replaces or cancels must not be delivered, so this is tried again without it.
            self._abort(attempt)
        elif attempt.is_refused:
            self._on_refusal(attempt)
        elif attempt.failure:
            self._on_failure(attempt, attempt.failure)
        elif not queued and not self._has_written_last(attempt):
            self._commit(attempt)

    def _has_written_last(self, attempt: _Attempt) -> bool:
        try:
            return self._write_last(attempt)
        except AbortableError as error:
            attempt.failure = str(error)
        except KafkaException as exception:
            attempt.failure = error_of(exception).str()
        return True

    def _is_wanted_back(self, attempt: _Attempt) -> bool:
        """Whether a named record waits for the end of this transaction, which takes too long to wait for it.

        Most are over within milliseconds. If each was aborted, a steady stream of records of its names would stop it.
        """
        return self._is_late() and any(state.wants_back() for state, _ in attempt.batches)

    def _is_late(self) -> bool:
        """Whether the open transaction takes longer than others wait for its end."""
        return self._clock.monotonic_ms() - self._began_ms >= WANTED_BACK_AFTER_MS

    def _commit(self, attempt: _Attempt) -> None:
        try:
            self._producer.prove_and_commit((state.place for state, _ in attempt.batches), self._membership)
        except AbortableError as error:
            self._on_failure(attempt, str(error))
            return
        self._attempt = None
        self._confirm(attempt)

    def _abort(self, attempt: _Attempt) -> None:
        """Put the messages back, and build the next producer: that ends the transaction."""
        self._put_back(attempt)
        self._producer.renew()

    def _put_back(self, attempt: _Attempt) -> None:
        self._attempt = None
        for state, batch in attempt.batches:
            self._put_back_batch(attempt, state, batch)

    @abstractmethod
    def _confirm(self, attempt: _Attempt) -> None:
        """The transaction committed: its messages are done."""

    @abstractmethod
    def _on_refusal(self, attempt: _Attempt) -> None:
        """A record was refused permanently: put the messages back, and build the next producer."""

    @abstractmethod
    def _on_failure(self, attempt: _Attempt, reason: str) -> None:
        """It must be aborted for a cause that passes: put the messages back, and build the next producer."""

    @abstractmethod
    def _put_back_batch(self, attempt: _Attempt, state: PartitionState, batch: Any) -> None:
        """Put a partition's messages back: the transaction is aborted."""
