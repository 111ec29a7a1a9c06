"""Side transactions: filing, parked messages and large dead letters have their own, beside the firing transactions.

    1. begin    take messages, open a transaction, hand the records to the client library
    2. look     every turn, without waiting: delivered → send offsets and commit; failed, or a record was refused
                permanently, or a named record waits to replace or cancel a message → abort, put the messages back, and
                try again

A named record never makes two transactions in a row abort. The next one takes half as much, and may end, so there is
progress however long a target takes, and however often its messages are replaced.

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
from tarry.service.worker.batches import Bound, TakenMessages, size_of
from tarry.service.worker.connections import GroupProducer
from tarry.service.worker.context import Context
from tarry.service.worker.side_producer import SideProducer

WANTED_BACK_AFTER_MS = 1_000
"""How long a named record waits for records of a transaction that has the message that it replaces or cancels.

If that transaction was aborted, it waits for the next one until that has ended: at most until its records time out.
"""

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
        self._written_ms = 0
        """When the last records of the open transaction were handed over; monotonic."""

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
        self._written_ms = self._clock.monotonic_ms()
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
    def _bound_of(self, attempt: _Attempt) -> Bound:
        """Return the bound by which the messages of a transaction were taken."""

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
        if attempt.is_refused:
            self._on_refusal(attempt)
        elif attempt.failure:
            self._fail_attempt(attempt, attempt.failure)
        elif queued:
            if self._is_late():
                self._end_early(attempt)
        elif not self._has_written_last(attempt):
            self._commit(attempt)

    def _has_written_last(self, attempt: _Attempt) -> bool:
        try:
            if not self._write_last(attempt):
                return False
        except AbortableError as error:
            attempt.failure = str(error)
        except KafkaException as exception:
            attempt.failure = error_of(exception).str()
        self._written_ms = self._clock.monotonic_ms()
        return True

    def _end_early(self, attempt: _Attempt) -> None:
        """Abort a transaction that takes long if a named record waits for it, and the last one was not for that."""
        bound = self._bound_of(attempt)
        if not bound.has_given_way and any(state.wants_back() for state, _ in attempt.batches):
            bound.give_way(size_of(attempt.batches))
            self._abort(attempt)

    def _is_late(self) -> bool:
        """Whether the records of the open transaction take longer than others wait for them.

        Most take milliseconds. If each transaction was aborted at once, many would be for nothing.
        """
        return self._clock.monotonic_ms() - self._written_ms >= WANTED_BACK_AFTER_MS

    def _commit(self, attempt: _Attempt) -> None:
        try:
            self._producer.prove_and_commit((state.place for state, _ in attempt.batches), self._membership)
        except AbortableError as error:
            self._fail_attempt(attempt, str(error))
            return
        self._attempt = None
        self._bound_of(attempt).grow(size_of(attempt.batches))
        self._confirm(attempt)

    def _fail_attempt(self, attempt: _Attempt, reason: str) -> None:
        self._bound_of(attempt).shrink(size_of(attempt.batches))
        self._on_failure(attempt, reason)

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
