"""Targets that are set apart: their messages are parked, and sent by a separate producer.

- *Away*: the target cannot be written to at present (no leader, too few in-sync replicas, not authorised).
- *Touchy*: the target has refused a record permanently, and only the broker can tell which of the next records it will
  refuse. A refusal aborts the transaction, so these records are tried where they do not abort other deliveries.
- *Narrow*: the target's limit on a batch is below the batch size of the firing producer.

Messages are parked in the order in which they become due, and tried in transactions of one target each:

    1. begin    take the parked messages of one target, open a transaction, hand the records to the client library
    2. look     every turn, without waiting: delivered → send offsets and commit; failed → abort, park again, try later
    3. back     no message of the target is parked any more: its messages fire like all others

Such a transaction commits no offset of the intake, because other transactions may hold messages of the intake. It
commits an offset of the journal, which no process reads, so that the broker checks our membership. Its journal record
lists the delivered messages, which count as done from its commit on.

If a batch was refused as a whole, it is not known which record was refused. Then the next try sends each record in a
batch of its own.
"""

from collections.abc import Callable, Container, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from confluent_kafka import KafkaError

from tarry.clock import Clock
from tarry.core.message import HeldMessage
from tarry.core.partition import PartitionState
from tarry.core.progress.journal import encode_done
from tarry.errors import AbortableError, RetriableError
from tarry.kafka.clients import Clients
from tarry.kafka.membership import Membership
from tarry.kafka.settings import BATCH_BYTES
from tarry.kafka.topics import DEAD
from tarry.kafka.transaction import Transactor
from tarry.kafka.types import Place
from tarry.service.metrics.tally import Tally
from tarry.service.worker.batches import MOST_ALONE, Batches, rotated, size_of, take_batches
from tarry.service.worker.bound import Bound
from tarry.service.worker.composing import Composer, Reports, is_refusal, verdicts_of
from tarry.service.worker.counting import count_delivered
from tarry.service.worker.letters import LetterWriter
from tarry.service.worker.rereading import Rereading
from tarry.service.worker.side_producer import ALONE_BYTES, SideProducer
from tarry.service.worker.targets import KEPT_MS, Targets
from tarry.service.worker.validation import Verdicts, validate

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
        is_doubtful: whether to ask the brokers about it again, because it could not be written to, or because stale
            knowledge of it says that messages can never be delivered.
        alone: whether each record goes in a batch of its own.
        bound: the most bytes in its next transaction.
    """

    try_at_ms: int
    pause_ms: int = FIRST_RETRY_MS
    stays_until_ms: int = 0
    is_doubtful: bool = False
    alone: bool = False
    bound: Bound = field(default_factory=Bound)


@dataclass(slots=True)
class _Attempt:
    """An open transaction with messages for one target.

    Attributes:
        topic: the target.
        batches: the messages.
        refusals: delivery reports of records that the target refused permanently, or whose batch it refused.
        failure: why it cannot commit.
        is_too_much: whether one of the service's own topics refused a record.
    """

    topic: str
    batches: Batches
    refusals: Reports = field(default_factory=dict)
    failure: str = ""
    is_too_much: bool = False

    @property
    def can_be_less(self) -> bool:
        """Whether the next try can take fewer messages than this one."""
        return self.is_too_much and sum(len(batch) for _, batch in self.batches) > 1


class Parking:
    """Parks the messages of targets that are set apart, and tries to deliver them.

    Args:
        transactor: a producer that nothing else uses.
        membership: its metadata proves that the partitions are still ours.
        targets: the metadata and settings of the target topics.
        letters: takes dead letters that have transactions of their own.
        rereading: keeps parked messages within their share of memory.
        clients: waits for brokers in the background.
        clock: wall and monotonic time.
        most: the most messages in one transaction.
        on_event: takes an event's name and fields, for the log.
        tally: counts metrics.
    """

    def __init__(
        self,
        transactor: Transactor,
        membership: Membership,
        targets: Targets,
        letters: LetterWriter,
        rereading: Rereading,
        clients: Clients,
        clock: Clock,
        most: int,
        on_event: Callable[..., None],
        tally: Tally | None = None,
    ) -> None:
        self._tally = tally or Tally()
        self._producer = SideProducer(transactor, clients, clock, self._fitting_bytes)
        self._membership = membership
        self._targets = targets
        self._rereading = rereading
        self._clock = clock
        self._most = most
        self._on_event = on_event
        self._letters = letters
        self._composer = Composer(transactor, letters.take, self._blame, self._fail)
        self._apart: dict[str, _Apart] = {}
        self._attempt: _Attempt | None = None
        self._tries = 0
        self._verdicts: Verdicts = {}

    @property
    def apart(self) -> Container[str]:
        """The targets that are set apart; messages that become due for them are parked."""
        return self._apart

    def send_away(self, topics: Iterable[str], reason: str) -> None:
        """Set targets apart that cannot be written to at present."""
        for topic in topics:
            if topic not in self._apart:
                self._apart[topic] = _Apart(self._clock.monotonic_ms() + FIRST_RETRY_MS, is_doubtful=True)
                self._on_event("target_away", target=topic, reason=reason)

    def set_apart(self, topics: Iterable[str], reason: str) -> None:
        """Set touchy or narrow targets apart, for at least as long as metadata of a target is trusted (`KEPT_MS`)."""
        now_ms = self._clock.monotonic_ms()
        for topic in topics:
            if topic not in self._apart:
                self._apart[topic] = _Apart(now_ms)
                self._on_event("target_apart", target=topic, reason=reason)
            self._apart[topic].stays_until_ms = now_ms + KEPT_MS

    @property
    def is_open(self) -> bool:
        """Whether a transaction with parked messages is open."""
        return self._attempt is not None

    def turn(self, states: Sequence[PartitionState]) -> None:
        """Look after the open attempt, or begin one that is due, without waiting for a target.

        Raises:
            FatalError: a transaction's fate is unknown: drop the states and take over anew.
            UsageError: a parked message that must be read again is not in its log any more.
        """
        self._rereading.turn()
        if self._attempt is not None:
            self._look(self._attempt)
        elif self._apart and self._producer.is_ready():
            self._try(states)
        self._rereading.shed(states)

    def settle(self) -> None:
        """Wait until no background thread is building a producer: only one at a time may register its id.

        Raises:
            RetriableError: it takes too long, or it failed.
            FatalError: the producer is lost.
        """
        self._producer.settle()

    def stop(self) -> None:
        """Abort the open attempt, so that its partitions can be given up; its messages are parked again.

        Raises:
            FatalError: the producer is lost.
        """
        self._rereading.stop()
        self._verdicts.clear()
        if self._attempt is not None:
            self._park_again(self._attempt)
        self._producer.stop()

    def forget(self) -> None:
        """Forget the open attempt, because the states and the producer were dropped. Targets stay set apart."""
        self._rereading.stop()
        self._producer.forget()
        self._attempt = None
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
            elif self._begin(topic, states, missing, now_ms):
                return

    def _due(self, states: Sequence[PartitionState], now_ms: int) -> list[str]:
        """Return the targets to try now; stop setting targets apart that have no parked message any more."""
        due = []
        for topic in [topic for topic, apart in self._apart.items() if apart.try_at_ms <= now_ms]:
            apart = self._apart[topic]
            if any(topic in state.parked for state in states):
                due.append(topic)
                if apart.is_doubtful:
                    apart.is_doubtful = False
                    self._targets.forget(topic)
            elif now_ms >= apart.stays_until_ms:
                del self._apart[topic]
                self._on_event("target_back", target=topic)
        return due

    def _begin(self, topic: str, states: Sequence[PartitionState], missing: Container[str], now_ms: int) -> bool:
        """Begin an attempt, if there is a message to try; return whether the producer is busy now."""
        if not self._producer.fits():
            self._producer.renew()
            return True
        due_ms, apart = self._clock.now_ms(), self._apart[topic]
        most = min(self._most, MOST_ALONE) if apart.alone else self._most
        batches = take_batches(
            states, most, apart.bound.bytes, lambda state, room, size: state.parked.take(topic, room, due_ms, size)
        )
        if batches:
            attempt = _Attempt(topic, batches)
            if validate(batches, missing, self._targets, now_ms, self._verdicts):
                apart.is_doubtful = True
                self._park_again(attempt)
                return False
            self._send(attempt)
        for state in states:
            self._rereading.want(state, topic)
        return bool(batches)

    def _send(self, attempt: _Attempt) -> None:
        self._attempt = attempt
        now_ms = self._clock.now_ms()
        self._producer.begin()
        try:
            for state, batch in attempt.batches:
                for letter in self._composer.write(state, batch, self._targets.partitions, now_ms):
                    self._verdicts.pop((state.place, letter.sequence), None)
                self._composer.journal(state, encode_done(batch.offsets()))
        except AbortableError as error:
            # This may only be a consequence of a refusal, which the next `_look` finds.
            attempt.failure = str(error)

    def _fitting_bytes(self) -> int:
        """Return the largest batch size, in bytes, that every target that is set apart accepts."""
        limits = [
            ALONE_BYTES if apart.alone else self._targets.max_bytes(topic) for topic, apart in self._apart.items()
        ]
        return min([BATCH_BYTES, *filter(None, limits)])

    # -- 2 ----------------------------------------------------------------------------------------------------------

    def _look(self, attempt: _Attempt) -> None:
        queued = self._producer.transactor.push()
        if attempt.refusals:
            self._keep_verdicts(attempt)
            return
        if attempt.failure:
            self._abort_and_retry(attempt, attempt.failure)
            return
        if queued:
            return
        try:
            self._producer.prove_and_commit((state.place for state, _ in attempt.batches), self._membership)
        except AbortableError as error:
            self._abort_and_retry(attempt, str(error))
            return
        self._attempt = None
        for state, batch in attempt.batches:
            state.confirm_parked(batch)
            for dead in batch.dead:
                self._verdicts.pop((state.place, dead.sequence), None)
        count_delivered(self._tally, attempt.batches, self._clock.now_ms())
        apart = self._apart[attempt.topic]
        apart.try_at_ms, apart.pause_ms = self._clock.monotonic_ms(), FIRST_RETRY_MS
        apart.bound.grow(size_of(attempt.batches))

    def _keep_verdicts(self, attempt: _Attempt) -> None:
        """Records were refused permanently: keep the verdicts on those that are known, and try again at once."""
        apart = self._apart[attempt.topic]
        verdicts = verdicts_of(attempt.refusals, alone=apart.alone)
        self._verdicts.update(verdicts)
        if not verdicts:
            apart.alone = True
        apart.try_at_ms = self._clock.monotonic_ms()  # after all other due targets
        apart.stays_until_ms = apart.try_at_ms + KEPT_MS
        self._park_again(attempt)
        self._producer.renew()

    def _abort_and_retry(self, attempt: _Attempt, reason: str) -> None:
        apart = self._apart[attempt.topic]
        apart.is_doubtful = True
        apart.bound.shrink(size_of(attempt.batches))
        self._park_again(attempt)
        if attempt.can_be_less:
            apart.try_at_ms = self._clock.monotonic_ms()
        else:
            self._try_later(attempt.topic, reason)
        self._producer.renew()

    def _park_again(self, attempt: _Attempt) -> None:
        self._attempt = None
        for state, batch in attempt.batches:
            state.parked.park_again(attempt.topic, batch)

    def _try_later(self, topic: str, reason: str) -> None:
        apart = self._apart[topic]
        apart.try_at_ms = self._clock.monotonic_ms() + apart.pause_ms
        apart.pause_ms = min(apart.pause_ms * 2, LAST_RETRY_MS)
        self._on_event("target_still_away", target=topic, reason=reason, next_try_ms=apart.pause_ms)

    def _blame(self, place: Place, message: HeldMessage, error: KafkaError | None, record: Any) -> None:
        if error is None or self._attempt is None:
            return
        if is_refusal(error):
            self._attempt.refusals.setdefault(record.partition(), []).append((place, message, error))
        else:
            self._attempt.failure = error.str()

    def _fail(self, place: Place, error: KafkaError) -> None:
        if place[0].endswith(DEAD) and is_refusal(error):
            self._letters.set_apart(place[0].removesuffix(DEAD), error.str())
        if self._attempt is not None:
            self._attempt.failure = f"{place[0]}/{place[1]}: {error.str()}"
            self._attempt.is_too_much = self._attempt.is_too_much or is_refusal(error)
