"""Dead letters that go apart: outside the firing transactions, compressed, each in a batch of its own.

A letter goes apart if it is large, or if the dead-letter topic has recently refused a letter of a firing transaction.
Their side transactions write each letter with its result. If a letter is refused permanently, the next one writes a
stub instead of it. A stub completes nothing: its record does not count as done, and stays where it is.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from confluent_kafka import KafkaError, KafkaException

from tarry.core.batch import Batch
from tarry.core.delivery import dead_headers, dead_result, source_prefix, stub_headers
from tarry.core.message import DeadMessage
from tarry.core.partition import PartitionState
from tarry.core.progress.source import Source
from tarry.core.window.letters import Bundle
from tarry.kafka.clients import Clients
from tarry.kafka.errors import error_of
from tarry.kafka.partition_logs import level_log_of
from tarry.kafka.settings import ALONE_BYTES
from tarry.kafka.topics import DEAD, JOURNAL, RESULTS
from tarry.service.worker.batches import MOST_ALONE, Bound, rotated, take_batches
from tarry.service.worker.connections import GroupProducer
from tarry.service.worker.context import Context
from tarry.service.worker.counting import count_dead
from tarry.service.worker.side_transactions import Attempt, SideTransactions
from tarry.service.worker.verdicts import refusal_of

LETTERS_EVERY_MS = 100
"""The least time from the start of one transaction to the next."""

BACKOFF_MS = 2_000
"""How long to wait before the next transaction, after one failed for a cause that passes."""

KEPT_MS = 60_000
"""How long after a refusal all letters of an intake go apart; afterwards the limits may have been changed back."""


@dataclass(slots=True, kw_only=True)
class _Attempt(Attempt[Bundle]):
    """An open transaction.

    Attributes:
        refused: the places of letters that are refused permanently, by partition.
    """

    refused: dict[PartitionState, set[tuple[Source, int]]] = field(default_factory=dict)

    @property
    def is_refused(self) -> bool:
        return bool(self.refused)


class LetterWriter(SideTransactions[_Attempt]):
    """Writes the dead letters that go apart.

    Args:
        producer: a producer that compresses, and that nothing else uses.
        clients: waits for brokers in the background.
        context: time, the log and the metrics.
    """

    def __init__(self, producer: GroupProducer, clients: Clients, context: Context) -> None:
        producer.transactor.batch_bytes = ALONE_BYTES  # the delivery report must identify a refused letter
        super().__init__(producer, clients, context)
        self._bound = Bound()
        self._apart: dict[str, int] = {}
        self._next_ms = 0
        self._turns = 0

    def separate(self, intake: str, reason: str) -> None:
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
        return state.split_off_letters(batch, every=self.takes_all(state.intake)) if batch.dead else []

    def turn(self, states: Sequence[PartitionState]) -> None:
        """Look after the open transaction, or begin one, without waiting.

        Raises:
            RetriableError: no producer can be built for now.
            FatalError: a transaction's fate is unknown: drop the states and take over again.
        """
        if self._attempt is not None:
            self._look(self._attempt)
            return
        now_ms = self._clock.monotonic_ms()
        waiting = [state for state in states if state.letters.waiting]
        if waiting and now_ms >= self._next_ms and self._producer.is_ready():
            self._next_ms = now_ms + LETTERS_EVERY_MS
            self._take(waiting)

    # -- 1 ----------------------------------------------------------------------------------------------------------

    def _bound_of(self, _attempt: _Attempt) -> Bound:
        return self._bound

    def _fitting_bytes(self) -> int:
        return ALONE_BYTES

    def _take(self, states: Sequence[PartitionState]) -> None:
        self._turns += 1
        letters = take_batches(
            rotated(states, self._turns), MOST_ALONE, self._bound.bytes, lambda state, *room: state.take_letters(*room)
        )
        if letters:
            self._begin(_Attempt(batches=letters))

    def _write(self, attempt: _Attempt, state: PartitionState, batch: Bundle) -> None:
        produce = self._transactor.produce
        prefix, now_ms = source_prefix(*state.place), self._clock.now_ms()
        for letter in batch:
            report = partial(self._not_written, attempt, state, letter)
            source = letter.named_from(prefix)
            if letter.is_stub:
                topic, partition = level_log_of(state.place, letter.source.level)
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
                produce(state.intake + RESULTS, state.partition, letter.id, result, [], attempt.report_own)
        for record in state.journal_of_letters(batch):
            produce(state.intake + JOURNAL, state.partition, None, record, [], attempt.report_own)

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

    def _confirm(self, attempt: _Attempt) -> None:
        for state, letters in attempt.batches:
            state.confirm_letters(letters)
            count_dead(self._tally, state.intake, letters)

    def _on_refusal(self, attempt: _Attempt) -> None:
        self._abort(attempt)

    def _on_failure(self, attempt: _Attempt, reason: str) -> None:
        self._on_event("dead_letters_not_written", reason=reason)
        self._abort(attempt)
        self._next_ms = self._clock.monotonic_ms() + BACKOFF_MS

    def _put_back_batch(self, attempt: _Attempt, state: PartitionState, batch: Bundle) -> None:
        refused = attempt.refused.get(state, set())
        if refused:
            reason = f"raise max.message.bytes of {state.intake}{DEAD}, and restart the service"
            self._on_event("dead_letter_refused", topic=state.intake + DEAD, letters=len(refused), reason=reason)
        state.put_back_letters(batch, refused)
