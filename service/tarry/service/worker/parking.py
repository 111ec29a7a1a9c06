"""Targets that are set apart: their messages are parked, and sent in side transactions.

- *Away*: the target cannot be written to at present (no leader, too few in-sync replicas, not authorised).
- *Touchy*: the target has refused a record permanently, and only the broker can tell which of the next records it will
  refuse. A refusal aborts the transaction, so these records are tried where they do not abort other deliveries.
- *Narrow*: the target's limit on a batch is below the batch size of the firing producer.
- *Paused*: an operator has paused it (`pausing`). Then nothing is tried.

Messages are parked in the order in which they become due, and tried in transactions of one target each. When no
message of the target is parked any more, its messages fire like all others. What is parked for long is filed to the
parked log (`filing`), and read from there again.

A purge makes dead letters of a target's parked messages. That has transactions of its own too, which need not wait for
the target. They take turns with the tries.

If a batch was refused as a whole, it is not known which record was refused. Then the next try sends each record in a
batch of its own.
"""

from collections.abc import Callable, Container, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from confluent_kafka import KafkaError

from tarry.core.batch import Batch
from tarry.core.message import HeldMessage
from tarry.core.partition import PartitionState
from tarry.errors import LogError, RetriableError
from tarry.kafka.clients import Clients
from tarry.kafka.errors import is_refusal
from tarry.kafka.partition_logs import proof_of
from tarry.kafka.settings import ALONE_BYTES, BATCH_BYTES
from tarry.kafka.topics import DEAD
from tarry.kafka.types import Place
from tarry.service.worker.batches import MOST_ALONE, Bound, rotated, take_batches
from tarry.service.worker.composing import Composer
from tarry.service.worker.connections import GroupProducer
from tarry.service.worker.context import Context
from tarry.service.worker.counting import count_delivered
from tarry.service.worker.letters import LetterWriter
from tarry.service.worker.parked_reading import ParkedReading
from tarry.service.worker.side_transactions import Attempt, SideTransactions
from tarry.service.worker.targets import KEPT_MS, Targets
from tarry.service.worker.verdicts import (
    Reports,
    Verdicts,
    end_refused_schedules,
    intakes_of,
    validate,
    verdicts_of,
)

FIRST_RETRY_MS = 500
"""The pause before the first retry; each failure doubles it."""

LAST_RETRY_MS = 10_000
"""The longest pause before a retry."""

LOOK_MS = 1_000
"""How often to ask whether a target can be written to again, while the brokers say that it cannot."""


@dataclass(slots=True)
class _Apart:
    """A target that is set apart.

    Attributes:
        try_at_ms: when its next transaction is due; monotonic.
        pause_ms: how long to wait after the next failure.
        stays_until_ms: it stays set apart until then; monotonic.
        reason: why it is set apart, as the log says.
        is_doubtful: whether to ask the brokers about it again, because it could not be written to, or because stale
            knowledge of it says that messages can never be delivered.
        alone: whether each record goes in a batch of its own.
        bound: the most bytes in its next transaction.
    """

    try_at_ms: int
    pause_ms: int = FIRST_RETRY_MS
    stays_until_ms: int = 0
    reason: str = ""
    is_doubtful: bool = False
    alone: bool = False
    bound: Bound = field(default_factory=Bound)


@dataclass(slots=True, kw_only=True)
class _Attempt(Attempt[Batch]):
    """An open transaction with messages for one target.

    Attributes:
        topic: the target.
        is_purge: whether its messages become dead letters, because of a purge.
        is_followed: whether the next records of its schedules are written.
        own_failures: the errors of records to the service's own topics.
        refusals: delivery reports of records that the target refused permanently, or whose batch it refused.
        is_too_much: whether one of the service's own topics refused a record.
    """

    topic: str
    is_purge: bool = False
    is_followed: bool = False
    own_failures: dict[Place, list[KafkaError]] = field(default_factory=dict)
    refusals: Reports = field(default_factory=dict)
    is_too_much: bool = False

    @property
    def is_refused(self) -> bool:
        return bool(self.refusals)

    @property
    def can_be_less(self) -> bool:
        """Whether the next try can take fewer messages than this one."""
        return self.is_too_much and sum(len(batch) for _, batch in self.batches) > 1


class Parking(SideTransactions[_Attempt]):
    """Parks the messages of targets that are set apart, and tries to deliver them.

    Args:
        producer: a producer that nothing else uses.
        clients: waits for brokers in the background.
        targets: the metadata and settings of the target topics.
        letters: takes dead letters that have transactions of their own.
        reading: reads parked messages again from the parked log.
        most: the most messages in one transaction.
        context: time, the log and the metrics.
        paused: returns the targets of an intake that are paused now.
    """

    def __init__(
        self,
        producer: GroupProducer,
        clients: Clients,
        targets: Targets,
        letters: LetterWriter,
        reading: ParkedReading,
        most: int,
        context: Context,
        paused: Callable[[str], frozenset[str]] = lambda _intake: frozenset(),
    ) -> None:
        super().__init__(producer, clients, context)
        self._targets = targets
        self._reading = reading
        self._most = most
        self._letters = letters
        self._composer = Composer(producer.transactor, letters.take, self._blame, self._fail)
        self._deliveries = context.deliveries
        self._paused = paused
        self._held: set[str] = set()
        """The targets with messages that are parked because of a pause."""
        self._apart: dict[str, _Apart] = {}
        self._tries = 0
        self._is_turn_of_purges = False
        self._purges = _Apart(0)
        """When purges are tried again, and how much at once."""
        self._verdicts: Verdicts = {}

    def apart_in(self, intake: str) -> Container[str]:
        """Return the targets that are set apart in an intake; messages that become due for them are parked."""
        paused = self._paused(intake)
        return self._apart.keys() | paused if paused else self._apart

    def is_trying(self, state: PartitionState, topics: Container[str]) -> bool:
        """Whether the open transaction may deliver messages of a partition to one of these targets."""
        attempt = self._attempt
        return attempt is not None and not attempt.is_purge and attempt.topic in topics and self.is_handling(state)

    def send_away(self, topics: Iterable[str], reason: str) -> None:
        """Set targets apart that cannot be written to at present."""
        for topic in topics:
            if topic not in self._apart:
                try_at_ms = self._clock.monotonic_ms() + FIRST_RETRY_MS
                self._apart[topic] = _Apart(try_at_ms, reason=reason, is_doubtful=True)
                self._on_event("target_away", target=topic, reason=reason)

    def set_apart(self, topics: Iterable[str], reason: str) -> None:
        """Set touchy or narrow targets apart, for at least as long as metadata of a target is trusted (`KEPT_MS`)."""
        now_ms = self._clock.monotonic_ms()
        for topic in topics:
            if topic not in self._apart:
                self._apart[topic] = _Apart(now_ms)
                self._on_event("target_apart", target=topic, reason=reason)
            self._apart[topic].stays_until_ms = now_ms + KEPT_MS

    def turn(self, states: Sequence[PartitionState]) -> None:
        """Look after the open attempt, or begin one that is due, without waiting for a target.

        Raises:
            FatalError: a transaction's fate is unknown: drop the states and take over again.
            LogError: a parked message that must be read again is not in the parked log any more.
        """
        self._reading.share(states)
        try:
            self._reading.turn()
        except LogError:
            # Perhaps a new owner has trimmed the log, and we do not know yet that we lost it: then this raises.
            self._membership.commit(proof_of(state.place for state in states))
            raise
        self._learn(states)
        if self._attempt is not None:
            self._look(self._attempt)
        elif (self._apart or self._held) and self._producer.is_ready():
            self._is_turn_of_purges = not self._is_turn_of_purges
            if not (self._is_turn_of_purges and self._purge(states)):
                self._try(states)

    def _learn(self, states: Sequence[PartitionState]) -> None:
        """Set apart the targets that have parked messages since before a take-over, or since a pause that has ended."""
        held, self._held = self._held, set()
        for state in states:
            if not state.knows_pauses:
                continue
            paused = self._paused(state.intake)
            for topic in state.parked.targets:
                if topic in paused:
                    self._held.add(topic)
                    state.parked.leave(topic)
                elif topic not in self._apart and topic in held:
                    self._apart[topic] = _Apart(self._clock.monotonic_ms())
                elif topic not in self._apart:
                    self.send_away([topic], "messages for it are parked")

    def _may_try(self, topic: str, states: Iterable[PartitionState]) -> list[PartitionState]:
        """Return the partitions that have parked messages of a target, and in which it is not paused."""
        return [state for state in states if topic in state.parked and topic not in self._paused(state.intake)]

    def _end_early(self, attempt: _Attempt) -> None:
        is_paused = any(attempt.topic in self._paused(state.intake) for state, _ in attempt.batches)
        if is_paused and not attempt.is_purge:
            self._abort(attempt)  # its size is not the cause, so the bound stays
        else:
            super()._end_early(attempt)

    def stop(self) -> None:
        """Abort the open attempt, so that its partitions can be given up; its messages are parked again.

        Raises:
            FatalError: the producer is lost.
        """
        self._reading.stop()
        self._verdicts.clear()
        super().stop()

    def forget(self) -> None:
        """Forget the open attempt, because the states and the producer were dropped. Targets stay set apart."""
        self._reading.stop()
        super().forget()
        self._verdicts.clear()

    # -- 1 ----------------------------------------------------------------------------------------------------------

    def _try(self, states: Sequence[PartitionState]) -> None:
        """Begin an attempt for the target that has waited longest: one with many messages must not delay the others.

        The brokers are asked about all due targets in one request, so many targets that are away cost no more than one.
        """
        now_ms = self._clock.monotonic_ms()
        due = self._due(states, now_ms)
        if not due:
            return
        try:
            missing, obstacles = self._targets.learn(due, now_ms)
        except RetriableError as error:
            for topic in due:
                self._try_later(topic, str(error))
            return
        self._tries += 1
        states = rotated(states, self._tries)
        for topic in sorted(due, key=lambda topic: self._apart[topic].try_at_ms):
            if topic in obstacles:
                # All such targets are due at the same moment, so that one request asks about all of them.
                self._apart[topic].try_at_ms = (now_ms // LOOK_MS + 1) * LOOK_MS
                self._say_why(topic, obstacles[topic], now_ms)
                self._leave(topic, states)
            elif self._take(topic, states, missing, now_ms):
                return

    def _purge(self, states: Sequence[PartitionState]) -> bool:
        """Begin to make dead letters of purged messages, if there are any; return whether the producer is busy now."""
        if self._purges.try_at_ms > self._clock.monotonic_ms():
            return False
        # Letters that go apart are not written yet: a purge must not be done before they are, nor fill the memory.
        states = [state for state in states if not (state.letters.waiting or self._letters.is_handling(state))]
        topics = sorted({topic for state in states for topic in state.parked.purged})
        return any(self._take_purged(topic, states) for topic in topics)

    def _take_purged(self, topic: str, states: Sequence[PartitionState]) -> bool:
        if not self._producer.fits():
            self._producer.renew()
            return True
        batches = take_batches(
            states,
            self._most,
            self._purges.bound.bytes,
            lambda state, room, size: state.take_purged(topic, room, size),
        )
        if batches:
            self._begin(_Attempt(topic=topic, batches=batches, is_purge=True))
        for state in states:
            if topic in state.parked.purged:
                self._reading.want(state, topic)
        return bool(batches)

    def _due(self, states: Sequence[PartitionState], now_ms: int) -> list[str]:
        """Return the targets to try now; stop setting targets apart that have no parked message any more."""
        due = []
        for topic in [topic for topic, apart in self._apart.items() if apart.try_at_ms <= now_ms]:
            apart = self._apart[topic]
            if self._may_try(topic, states):
                due.append(topic)
                if apart.is_doubtful:
                    apart.is_doubtful = False
                    self._targets.forget(topic)
            elif now_ms >= apart.stays_until_ms:
                del self._apart[topic]
                if topic not in self._held:
                    self._on_event("target_back", target=topic)
        return due

    def _take(self, topic: str, states: Sequence[PartitionState], missing: Container[str], now_ms: int) -> bool:
        """Begin an attempt, if there is a message to try; return whether the producer is busy now."""
        if not self._producer.fits():
            self._producer.renew()
            return True
        states = self._may_try(topic, states)
        due_ms, apart = self._clock.now_ms(), self._apart[topic]
        most = min(self._most, MOST_ALONE) if apart.alone else self._most
        batches = take_batches(
            states, most, apart.bound.bytes, lambda state, room, size: state.take_parked(topic, room, due_ms, size)
        )
        if batches:
            attempt = _Attempt(topic=topic, batches=batches)
            if validate(batches, missing, self._targets, now_ms, self._verdicts):
                apart.is_doubtful = True
                self._put_back(attempt)
                return False
            self._begin(attempt)
        for state in states:
            self._reading.want(state, topic)
        return bool(batches)

    def _bound_of(self, attempt: _Attempt) -> Bound:
        return self._purges.bound if attempt.is_purge else self._apart[attempt.topic].bound

    def _write(self, _attempt: _Attempt, state: PartitionState, batch: Batch) -> None:
        for letter in self._composer.write(state, batch, self._targets.partitions, self._clock.now_ms()):
            self._verdicts.pop((state.place, letter.sequence), None)
        for record in state.journal_of_parked(batch):
            self._composer.journal(state, record)

    def _write_last(self, attempt: _Attempt) -> bool:
        if attempt.is_followed:
            return False
        attempt.is_followed = True
        for state, batch in attempt.batches:
            self._composer.follow(state, batch)
        return any(batch.followers for _, batch in attempt.batches)

    def _fitting_bytes(self) -> int:
        """Return the largest batch size, in bytes, that every target that is set apart accepts."""
        limits = [
            ALONE_BYTES if apart.alone else self._targets.max_bytes(topic) for topic, apart in self._apart.items()
        ]
        return min([BATCH_BYTES, *filter(None, limits)])

    # -- 2 ----------------------------------------------------------------------------------------------------------

    def _confirm(self, attempt: _Attempt) -> None:
        for state, batch in attempt.batches:
            state.confirm_parked(batch)
            for dead in batch.dead:
                self._verdicts.pop((state.place, dead.sequence), None)
        committed_ms = self._clock.now_ms()
        count_delivered(self._tally, attempt.batches, committed_ms)
        self._deliveries.note(attempt.batches, committed_ms)
        if attempt.is_purge:
            for state, batch in attempt.batches:
                if batch.resolutions:
                    self._on_event("purged", target=attempt.topic, topic=state.intake, partition=state.partition)
            return
        apart = self._apart[attempt.topic]
        apart.try_at_ms, apart.pause_ms = self._clock.monotonic_ms(), FIRST_RETRY_MS

    def _on_refusal(self, attempt: _Attempt) -> None:
        """Keep the verdicts on the refused records, as far as they are certain, and try again at once."""
        apart = self._apart[attempt.topic]
        verdicts = verdicts_of(attempt.refusals, alone=apart.alone)
        self._verdicts.update(verdicts)
        if not verdicts:
            apart.alone = True
        apart.try_at_ms = self._clock.monotonic_ms()  # after all other due targets
        apart.stays_until_ms = apart.try_at_ms + KEPT_MS
        self._abort(attempt)

    def _on_failure(self, attempt: _Attempt, reason: str) -> None:
        if attempt.is_purge:
            self._on_event("purge_aborted", target=attempt.topic, reason=reason)
            self._purges.try_at_ms = self._clock.monotonic_ms() + FIRST_RETRY_MS
            self._abort(attempt)
            return
        apart = self._apart[attempt.topic]
        intakes = intakes_of(attempt.batches) if attempt.is_followed else set()
        denied = self._targets.denied(intakes, self._clock.monotonic_ms()) if intakes else ()
        is_known = end_refused_schedules(attempt.batches, attempt.own_failures, denied)
        apart.is_doubtful = not is_known
        self._put_back(attempt)
        if attempt.can_be_less or is_known:
            apart.try_at_ms = self._clock.monotonic_ms()
        else:
            self._try_later(attempt.topic, reason)
            self._leave(attempt.topic, [state for state, _ in attempt.batches])
        self._producer.renew()

    def _put_back_batch(self, attempt: _Attempt, state: PartitionState, batch: Batch) -> None:
        state.park_again(attempt.topic, batch)

    def _leave(self, topic: str, states: Sequence[PartitionState]) -> None:
        """Free the memory of messages that were read for a target that is still away: others need it."""
        for state in states:
            state.parked.leave(topic)

    def _try_later(self, topic: str, reason: str) -> None:
        apart = self._apart[topic]
        apart.try_at_ms = self._clock.monotonic_ms() + apart.pause_ms
        apart.pause_ms = min(apart.pause_ms * 2, LAST_RETRY_MS)
        self._on_event("target_still_away", target=topic, reason=reason, next_try_ms=apart.pause_ms)

    def _say_why(self, topic: str, reason: str, now_ms: int) -> None:
        """Log why a target is still away, if the log does not say so yet: a new owner learns it by the first try."""
        apart = self._apart[topic]
        if apart.reason != reason:
            apart.reason = reason
            self._on_event("target_still_away", target=topic, reason=reason, next_try_ms=apart.try_at_ms - now_ms)

    def _blame(self, place: Place, message: HeldMessage, error: KafkaError | None, record: Any) -> None:
        if error is None or self._attempt is None:
            return
        if is_refusal(error):
            self._attempt.refusals.setdefault(record.partition(), []).append((place, message, error))
        else:
            self._attempt.failure = error.str()

    def _fail(self, place: Place, error: KafkaError) -> None:
        if place[0].endswith(DEAD) and is_refusal(error):
            self._letters.separate(place[0].removesuffix(DEAD), error.str())
        if self._attempt is not None:
            self._attempt.failure = f"{place[0]}/{place[1]}: {error.str()}"
            self._attempt.is_too_much = self._attempt.is_too_much or is_refusal(error)
            self._attempt.own_failures.setdefault(place, []).append(error)
