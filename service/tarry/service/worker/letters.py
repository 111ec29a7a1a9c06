"""Dead letters that go apart: outside the firing transactions, compressed, each in a batch of its own.

    1. begin    take letters, open a transaction, hand them to the client library, each with its result
    2. look     every turn, without waiting: delivered → send offsets and commit; failed → abort, and try again later;
                refused permanently → abort, and write a stub instead of that letter

A letter goes apart if it is large, or if the dead-letter topic has recently refused a letter of a firing transaction.
Like filing, these transactions commit no offset of the intake; they commit one of the journal, so that the broker
checks our membership. A stub completes nothing: its record does not count as done, and stays where it is.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from confluent_kafka import KafkaError, KafkaException

from tarry.clock import Clock
from tarry.core.batch import Batch
from tarry.core.delivery import dead_headers, dead_result, source_prefix, stub_headers
from tarry.core.message import DeadMessage
from tarry.core.partition import PartitionState
from tarry.core.progress.journal import encode_done
from tarry.core.progress.source import Source
from tarry.core.window.letters import Bundle
from tarry.errors import AbortableError
from tarry.kafka.clients import Clients
from tarry.kafka.errors import error_of
from tarry.kafka.membership import Membership
from tarry.kafka.partition_logs import log_of
from tarry.kafka.topics import DEAD, JOURNAL, RESULTS
from tarry.kafka.transaction import Transactor
from tarry.service.metrics.families import DEAD as DEAD_LETTERS
from tarry.service.metrics.tally import Tally
from tarry.service.worker.batches import MOST_ALONE, rotated, size_of, take_batches
from tarry.service.worker.bound import Bound
from tarry.service.worker.composing import refusal_of
from tarry.service.worker.side_producer import ALONE_BYTES, SideProducer

LETTERS_EVERY_MS = 100
"""The least time from the start of one transaction to the next."""

BACKOFF_MS = 2_000
"""How long to wait before the next transaction, after one failed for a cause that passes."""

KEPT_MS = 60_000
"""How long after a refusal all letters of an intake go apart; afterwards the limits may have been changed back."""


@dataclass(slots=True)
class _Attempt:
    """An open transaction.

    Attributes:
        letters: the letters that it writes, by partition.
        failure: why it must be aborted, for a cause that passes.
        refused: the places of letters that are refused permanently, by partition.
    """

    letters: list[tuple[PartitionState, Bundle]]
    failure: str = ""
    refused: dict[PartitionState, set[tuple[Source, int]]] = field(default_factory=dict)


class LetterWriter:
    """Writes the dead letters that go apart.

    Args:
        transactor: a producer that compresses, and that nothing else uses.
        clients: waits for brokers in the background.
        membership: its metadata proves that the partitions are still ours.
        clock: wall and monotonic time.
        on_event: takes an event's name and fields, for the log.
        tally: counts metrics.
    """

    def __init__(
        self,
        transactor: Transactor,
        clients: Clients,
        membership: Membership,
        clock: Clock,
        on_event: Callable[..., None],
        tally: Tally | None = None,
    ) -> None:
        transactor.batch_bytes = ALONE_BYTES  # the delivery report must identify a refused letter
        self._producer = SideProducer(transactor, clients, clock, lambda: ALONE_BYTES)
        self._transactor = transactor
        self._membership = membership
        self._clock = clock
        self._on_event = on_event
        self._tally = tally or Tally()
        self._attempt: _Attempt | None = None
        self._bound = Bound()
        self._apart: dict[str, int] = {}
        self._next_ms = 0
        self._turns = 0

    def set_apart(self, intake: str, reason: str) -> None:
        """Write all letters of an intake apart for `KEPT_MS`, because its dead-letter topic has refused one."""
        if not self.takes_all(intake):
            self._on_event("dead_letters_apart", intake=intake, reason=reason)
        self._apart[intake] = self._clock.monotonic_ms() + KEPT_MS

    def takes_all(self, intake: str) -> bool:
        """Return whether all letters of an intake go apart, not only the large ones."""
        return self._apart.get(intake, 0) > self._clock.monotonic_ms()

    def take(self, state: PartitionState, batch: Batch) -> list[DeadMessage]:
        """Remove the letters that go apart from a batch, before the batch is written.

        Returns:
            These letters.
        """
        return state.set_aside(batch, every=self.takes_all(state.intake)) if batch.dead else []

    @property
    def is_open(self) -> bool:
        """Whether a transaction with letters is open."""
        return self._attempt is not None

    def turn(self, states: Sequence[PartitionState]) -> None:
        """Look after the open transaction, or begin one, without waiting.

        Raises:
            RetriableError: no producer can be built for now.
            FatalError: a transaction's fate is unknown: drop the states and take over anew.
        """
        if self._attempt is not None:
            self._look(self._attempt)
            return
        now_ms = self._clock.monotonic_ms()
        waiting = [state for state in states if state.letters.waiting]
        if waiting and now_ms >= self._next_ms and self._producer.is_ready():
            self._next_ms = now_ms + LETTERS_EVERY_MS
            self._begin(waiting)

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
        self._producer.forget()

    # -- 1 ----------------------------------------------------------------------------------------------------------

    def _begin(self, states: Sequence[PartitionState]) -> None:
        self._turns += 1
        letters = take_batches(
            rotated(states, self._turns), MOST_ALONE, self._bound.bytes, lambda state, *room: state.letters.take(*room)
        )
        attempt = self._attempt = _Attempt(letters)
        self._producer.begin()
        try:
            for state, of_state in letters:
                self._write(attempt, state, of_state)
        except AbortableError as error:
            attempt.failure = str(error)
        except KafkaException as exception:
            attempt.failure = error_of(exception).str()

    def _write(self, attempt: _Attempt, state: PartitionState, letters: Bundle) -> None:
        produce, failed = self._transactor.produce, partial(self._failed, attempt)
        prefix, now_ms = source_prefix(*state.place), self._clock.now_ms()
        for letter in letters:
            report = partial(self._not_written, attempt, state, letter)
            source = letter.named_from(prefix)
            if letter.is_stub:
                topic, partition = log_of(state, letter.source)
                headers = stub_headers(letter, source, f"{topic}/{partition}/{letter.offset}")
            else:
                headers = dead_headers(letter)
            try:
                produce(
                    state.intake + DEAD,
                    state.partition,
                    letter.key,
                    letter.value,
                    headers,
                    report,
                )
            except KafkaException as exception:
                error = error_of(exception)
                if refusal_of(error) is None:
                    raise
                report(error, None)
                continue
            if not letter.is_stub:
                result = dead_result(letter, source, now_ms)
                produce(state.intake + RESULTS, state.partition, letter.id, result, [], failed)
        record = encode_done(letters.offsets)
        produce(state.intake + JOURNAL, state.partition, None, record, [], failed)

    @staticmethod
    def _failed(attempt: _Attempt, error: KafkaError | None, record: Any) -> None:
        """Take the delivery report of a result, or of a journal record."""
        if error is not None:
            attempt.failure = attempt.failure or f"{record.topic()}/{record.partition()}: {error.str()}"

    @staticmethod
    def _not_written(
        attempt: _Attempt, state: PartitionState, letter: DeadMessage, error: KafkaError | None, _record: Any
    ) -> None:
        """Take the delivery report of a letter, or of a stub."""
        if error is None:
            return
        if refusal_of(error) is None:
            attempt.failure = attempt.failure or f"{state.intake}{DEAD}/{state.partition}: {error.str()}"
        else:
            attempt.refused.setdefault(state, set()).add(letter.location)

    # -- 2 ----------------------------------------------------------------------------------------------------------

    def _look(self, attempt: _Attempt) -> None:
        queued = self._transactor.push()
        if attempt.refused:
            self._put_back(attempt)
            self._producer.renew()
            return
        if attempt.failure:
            self._give_up(attempt, attempt.failure)
            return
        if queued:
            return
        try:
            self._producer.prove_and_commit((state.place for state, _ in attempt.letters), self._membership)
        except AbortableError as error:
            self._give_up(attempt, str(error))
            return
        self._attempt = None
        self._bound.grow(size_of(attempt.letters))
        for state, letters in attempt.letters:
            state.confirm_letters(letters)
            self._count(state.intake, letters)

    def _count(self, intake: str, letters: Iterable[DeadMessage]) -> None:
        for letter in letters:
            if not letter.is_stub:
                self._tally.count(DEAD_LETTERS, 1, intake, letter.code)

    def _give_up(self, attempt: _Attempt, reason: str) -> None:
        self._on_event("dead_letters_not_written", reason=reason)
        self._bound.shrink(size_of(attempt.letters))
        self._put_back(attempt)
        self._next_ms = self._clock.monotonic_ms() + BACKOFF_MS
        self._producer.renew()

    def _put_back(self, attempt: _Attempt) -> None:
        self._attempt = None
        for state, letters in attempt.letters:
            refused = attempt.refused.get(state, set())
            if refused:
                reason = f"raise max.message.bytes of {state.intake}{DEAD}, and restart the service"
                self._on_event("dead_letter_refused", topic=state.intake + DEAD, letters=len(refused), reason=reason)
            state.letters.put_back(letters, refused)
