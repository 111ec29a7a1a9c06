"""Filing: messages that are due beyond the hot window go to buckets of the overflow wheel, in separate transactions.

    1. begin    take messages that wait to be filed, open a transaction, hand the records to the client library
    2. look     every turn, without waiting: delivered → send offsets and commit; failed → abort, and try again later;
                a record refused permanently → abort, find out which one, and try again without it

A broker refuses a batch as a whole, and does not name the record that it refuses. So after a refusal the records of the
transaction are sent again, each in a batch of its own. A record that is refused then becomes a dead letter of the next
firing transaction. If a level cannot be written to at present (no leader, too few in-sync replicas, no right to write),
the service waits for it, and no message becomes a dead letter for that.

A filing transaction commits no offset of the intake, because other transactions may hold messages of the intake. It
commits an offset of the journal, which no process reads, so that the broker checks our membership. Its journal record
lists the moved messages, which count as done from its commit on.

A bucket is closed only between two filings of its partition. So its end is certain, and nothing is filed to a closed
bucket.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

from confluent_kafka import KafkaError, KafkaException

from tarry.clock import Clock
from tarry.core.batch import Filing
from tarry.core.delivery import filed_cancel_result, source_prefix
from tarry.core.message import FiledMessage, HeldCancel
from tarry.core.partition import PartitionState
from tarry.core.progress.journal import encode_done
from tarry.core.progress.source import INTAKE, Source
from tarry.core.wheel.filed import filed_headers
from tarry.errors import AbortableError
from tarry.headers import ErrorCode
from tarry.kafka.clients import Clients
from tarry.kafka.errors import error_of
from tarry.kafka.membership import Membership
from tarry.kafka.partition_logs import log_of
from tarry.kafka.settings import BATCH_BYTES
from tarry.kafka.topics import JOURNAL, RESULTS
from tarry.kafka.transaction import OnFailure, Transactor
from tarry.service.metrics.families import FILED
from tarry.service.metrics.tally import Tally
from tarry.service.worker.batches import MOST_ALONE, rotated, size_of, take_batches
from tarry.service.worker.bound import Bound
from tarry.service.worker.composing import refusal_of
from tarry.service.worker.side_producer import ALONE_BYTES, SideProducer
from tarry.service.worker.validation import Verdict

if TYPE_CHECKING:
    from tarry.kafka.types import Place

FILE_EVERY_MS = 50
"""The least time from the start of one filing to the next: a message that waits longer than a minute is not urgent."""

BACKOFF_MS = 500
"""How long to wait before the next filing, after one failed for a cause that passes."""


@dataclass(slots=True)
class _Attempt:
    """An open transaction.

    Attributes:
        filings: the messages that it files, with their partitions.
        alone: whether each record goes in a batch of its own.
        failure: why it must be aborted, for a cause that passes.
        refusal: why it must be aborted, because a record is refused permanently.
        verdicts: why records are refused, for those that are known, by partition and offset in the intake.
    """

    filings: list[tuple[PartitionState, Filing]]
    alone: bool
    failure: str = ""
    refusal: str = ""
    verdicts: dict[PartitionState, dict[int, Verdict]] = field(default_factory=dict)

    def __len__(self) -> int:
        return sum(len(filing) for _, filing in self.filings)


class Filer:
    """Files messages.

    Args:
        transactor: a producer that nothing else uses.
        clients: waits for brokers in the background.
        membership: its metadata proves that the partitions are still ours.
        clock: wall and monotonic time.
        most: the most messages in one transaction.
        on_event: takes an event's name and fields, for the log.
        tally: counts metrics.
    """

    def __init__(
        self,
        transactor: Transactor,
        clients: Clients,
        membership: Membership,
        clock: Clock,
        most: int,
        on_event: Callable[..., None],
        tally: Tally,
    ) -> None:
        self._producer = SideProducer(
            transactor, clients, clock, lambda: ALONE_BYTES if self._suspects > 0 else BATCH_BYTES
        )
        self._transactor = transactor
        self._membership = membership
        self._clock = clock
        self._most = most
        self._on_event = on_event
        self._tally = tally
        self._attempt: _Attempt | None = None
        self._suspects = 0
        """How many messages at the head of the queue were in a refused transaction, and must be sent one a batch."""
        self._bound = Bound()
        self._next_ms = 0
        self._turns = 0

    def is_filing(self, state: PartitionState) -> bool:
        """Whether the open transaction files messages of this partition."""
        return self._attempt is not None and any(one is state for one, _ in self._attempt.filings)

    @property
    def is_open(self) -> bool:
        """Whether a filing transaction is open."""
        return self._attempt is not None

    def turn(self, states: Sequence[PartitionState], held_up: Sequence[PartitionState]) -> None:
        """Look after the open transaction, or begin one, without waiting.

        Args:
            states: all partitions.
            held_up: the partitions whose messages must not be filed now.

        Raises:
            RetriableError: no producer can be built for now.
            FatalError: a transaction's fate is unknown: drop the states and take over anew.
        """
        if self._attempt is not None:
            self._look(self._attempt)
            return
        now_ms = self._clock.monotonic_ms()
        waiting = [state for state in states if state.placing.to_file and state not in held_up]
        if waiting and now_ms >= self._next_ms and self._producer.is_ready():
            self._next_ms = now_ms + FILE_EVERY_MS
            if self._producer.fits():
                self._begin(waiting)
            else:
                self._producer.renew()

    def settle(self) -> None:
        """Wait until no background thread is building a producer.

        Raises:
            RetriableError: it takes too long, or it failed.
            FatalError: the producer is lost.
        """
        self._producer.settle()

    def stop(self) -> None:
        """Abort the open transaction, so that its partitions can be given up.

        Raises:
            FatalError: the producer is lost.
        """
        if self._attempt is not None:
            self._put_back(self._attempt)
        self._producer.stop()

    def forget(self) -> None:
        """Forget the open transaction, because the states and the producer were dropped."""
        self._attempt = None
        self._suspects = 0
        self._producer.forget()

    # -- 1 ----------------------------------------------------------------------------------------------------------

    def _begin(self, states: Sequence[PartitionState]) -> None:
        self._turns += 1
        now_ms = self._clock.now_ms()
        alone = self._suspects > 0
        most = min(self._most, self._suspects, MOST_ALONE) if alone else self._most
        filings = take_batches(
            rotated(states, self._turns),
            most,
            self._bound.bytes,
            lambda state, room, size: state.placing.take_to_file(room, now_ms, size),
        )
        if not filings:
            return
        attempt = self._attempt = _Attempt(filings, alone)
        self._producer.begin()
        try:
            for state, filing in filings:
                self._write(attempt, state, filing)
        except AbortableError as error:
            attempt.failure = str(error)
        except KafkaException as exception:
            attempt.failure = error_of(exception).str()

    def _write(self, attempt: _Attempt, state: PartitionState, filing: Filing) -> None:
        produce, failed = self._transactor.produce, self._failed
        logs: dict[Source, tuple[Place, OnFailure]] = {}
        for message, source in filing.records:
            log = logs.get(source)
            if log is None:
                place = log_of(state, source)
                log = logs[source] = place, partial(self._not_filed, attempt, place[0], None)
            place, report = log
            if attempt.alone:
                report = partial(self._not_filed, attempt, place[0], (state, message))
            try:
                produce(*place, message.original_key, message.value, filed_headers(message), report)
            except KafkaException as exception:
                error = error_of(exception)
                if refusal_of(error) is None:
                    raise
                report(error, None)
        prefix, now_ms = source_prefix(*state.place), self._clock.now_ms()
        for message, _ in filing.records:
            if type(message) is HeldCancel and message.source == INTAKE:  # one result, not one at each level
                result = filed_cancel_result(message, prefix, now_ms)
                produce(state.intake + RESULTS, state.partition, message.id, result, [], failed)
        record = encode_done(filing.offsets)
        produce(state.intake + JOURNAL, state.partition, None, record, [], failed)

    def _failed(self, error: KafkaError | None, record: Any) -> None:
        """Take the delivery report of a result, or of a journal record."""
        if error is not None and self._attempt is not None:
            self._attempt.failure = self._attempt.failure or f"{record.topic()}/{record.partition()}: {error.str()}"

    def _not_filed(
        self,
        attempt: _Attempt,
        topic: str,
        alone: tuple[PartitionState, FiledMessage] | None,
        error: KafkaError | None,
        _record: Any,
    ) -> None:
        """Take the delivery report of a record to a level; `alone` is its message, if it had a batch of its own."""
        if error is None:
            return
        code, reason = refusal_of(error), f"{topic}: {error.str()}"
        if code is None or code is ErrorCode.BAD_TARGET:  # the topic is our own, so its name is not the message's fault
            attempt.failure = attempt.failure or reason
            return
        attempt.refusal = attempt.refusal or reason
        if alone is not None:
            state, message = alone
            attempt.verdicts.setdefault(state, {})[message.sequence] = (code, reason)

    # -- 2 ----------------------------------------------------------------------------------------------------------

    def _look(self, attempt: _Attempt) -> None:
        queued = self._transactor.push()
        if attempt.refusal:
            self._condemn(attempt)
            return
        if attempt.failure:
            self._give_up(attempt, attempt.failure)
            return
        if queued:
            return
        try:
            self._producer.prove_and_commit((state.place for state, _ in attempt.filings), self._membership)
        except AbortableError as error:
            self._give_up(attempt, str(error))
            return
        self._attempt = None
        self._clear(len(attempt))
        self._bound.grow(size_of(attempt.filings))
        for state, filing in attempt.filings:
            state.confirm_filed(filing)
            self._tally.count(FILED, len(filing), state.intake)

    def _condemn(self, attempt: _Attempt) -> None:
        """A record was refused permanently: try again at once, without it if it is known, else to find out which."""
        if attempt.alone:  # the dead letter reports the refusal, so no event does
            self._clear(sum(map(len, attempt.verdicts.values())))
        else:
            self._on_event("filing_aborted", reason=attempt.refusal)
            self._suspects = len(attempt)
        self._put_back(attempt)
        self._producer.renew()

    def _give_up(self, attempt: _Attempt, reason: str) -> None:
        self._on_event("filing_aborted", reason=reason)
        self._bound.shrink(size_of(attempt.filings))
        self._put_back(attempt)
        self._next_ms = self._clock.monotonic_ms() + BACKOFF_MS
        self._producer.renew()

    def _clear(self, messages: int) -> None:
        """Count this many suspects as filed or dead."""
        self._suspects = max(0, self._suspects - messages)

    def _put_back(self, attempt: _Attempt) -> None:
        self._attempt = None
        for state, filing in attempt.filings:
            state.put_back_filed(filing, attempt.verdicts.get(state, {}))
