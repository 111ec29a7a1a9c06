"""Targets whose messages go apart from all others: they are parked, and sent by a producer of their own.

- *Away*: it can't be written to at present (no leader, too few replicas, not authorised).
- *Touchy*: it has refused a record for ever, and only the broker can tell which of the next ones it will refuse. A
  refusal aborts a transaction, so they are tried where they abort nobody else's.
- *Narrow*: its limit on a batch is below what the firing producer sends.

Messages are parked as they become due, behind each other, and tried in transactions of one target each:

    1. begin    take what is parked for one target, open a transaction, hand the records to the client library
    2. look     every turn, without waiting: delivered → offsets and commit; failed → abort, park again, try later
    3. back     nothing of the target is parked any more: its messages fire as all others do

A parked transaction commits no offset of the intake: it may not say anything about what others hold. It commits one of
the journal, which nobody reads, so that the broker checks our membership; what it delivered is in the journal's record
and counts as done from its commit on.

Where it is not sure which record was refused, because a batch was refused as one, the next try sends each record in a
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
from tarry.service.worker.validation import Verdicts, judge

FIRST_RETRY_MS = 500
LAST_RETRY_MS = 10_000

LOOK_MS = 1_000
"""How often it is asked whether a target can be written to again, where the brokers say that it can't."""


@dataclass(slots=True)
class _Apart:
    """A target whose messages go apart.

    Attributes:
        bound: how much its next transaction takes.
        try_at_ms: when that is due, monotonic.
        pause_ms: how long after a failure the next one is.
        stays_until_ms: it is not back before, monotonic.
        is_doubtful: whether it is to be asked for anew, because it could not be written to, or because what is known of
            it condemns messages and is no longer fresh.
        alone: whether each record goes in a batch of its own.
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
        refusals: by the target, for ever.
        failure: why it can't commit.
        is_too_much: whether a topic of ours refused what was written to it.
    """

    topic: str
    batches: Batches
    refusals: Reports = field(default_factory=dict)
    failure: str = ""
    is_too_much: bool = False

    @property
    def can_be_less(self) -> bool:
        """Whether the next try with less differs from this one."""
        return self.is_too_much and sum(len(batch) for _, batch in self.batches) > 1


class Parking:
    """Keeps the messages of targets that are set apart, and tries them.

    Args:
        transactor: a producer of its own.
        membership: whose metadata proves that the partitions are still ours.
        targets: what is known of targets.
        letters: takes dead letters that go apart.
        rereading: keeps what is parked within its share of memory.
        clients: who waits for brokers in the background.
        clock: wall and monotonic time.
        most: messages a transaction.
        on_event: takes an event's name and fields, for the log.
        tally: counts.
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
        """The targets that are set apart: what is due for them is parked."""
        return self._apart

    def send_away(self, topics: Iterable[str], reason: str) -> None:
        """Set targets apart that can't be written to at present."""
        for topic in topics:
            if topic not in self._apart:
                self._apart[topic] = _Apart(self._clock.monotonic_ms() + FIRST_RETRY_MS, is_doubtful=True)
                self._on_event("target_away", target=topic, reason=reason)

    def set_apart(self, topics: Iterable[str], reason: str) -> None:
        """Set targets apart that are touchy or narrow, for as long as what is known of a target is trusted."""
        now_ms = self._clock.monotonic_ms()
        for topic in topics:
            if topic not in self._apart:
                self._apart[topic] = _Apart(now_ms)
                self._on_event("target_apart", target=topic, reason=reason)
            self._apart[topic].stays_until_ms = now_ms + KEPT_MS

    @property
    def is_open(self) -> bool:
        """Whether a transaction of it is open."""
        return self._attempt is not None

    def turn(self, states: Sequence[PartitionState]) -> None:
        """Look after the attempt that is open, or begin one that is due; never waits for a target.

        Raises:
            FatalError: a transaction's fate is not known: drop the states and take over anew.
            UsageError: what is to be read again is not there any more.
        """
        self._rereading.turn()
        if self._attempt is not None:
            self._look(self._attempt)
        elif self._apart and self._producer.is_ready():
            self._try(states)
        self._rereading.shed(states)

    def settle(self) -> None:
        """Wait until no producer is being built beside the loop: its id is to be registered by one at a time.

        Raises:
            RetriableError: it takes too long, or did not succeed.
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
        """The states and the producer are gone: nothing is open. Who was set apart still is."""
        self._rereading.stop()
        self._producer.forget()
        self._attempt = None
        self._verdicts.clear()

    # -- 1 ----------------------------------------------------------------------------------------------------------

    def _try(self, states: Sequence[PartitionState]) -> None:
        """Begin an attempt for the target that has waited longest, or one with much to send would keep others waiting.

        All that are due are asked for together, so that many that are away cost no more than one.
        """
        now_ms = self._clock.monotonic_ms()
        due = self._due(states, now_ms)
        if not due:
            return
        try:
            missing, obstacles = self._targets.learn(due, now_ms)
        except RetriableError as error:
            for topic in due:
                self._later(topic, str(error))
            return
        self._tries += 1
        states = rotated(states, self._tries)
        for topic in sorted(due, key=lambda topic: self._apart[topic].try_at_ms):
            if topic in obstacles:
                # All at the same moments, so that they are asked for together.
                self._apart[topic].try_at_ms = (now_ms // LOOK_MS + 1) * LOOK_MS
            elif self._begin(topic, states, missing, now_ms):
                return

    def _due(self, states: Sequence[PartitionState], now_ms: int) -> list[str]:
        """The targets to try now; those of which nothing is parked any more are back."""
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
        """Begin an attempt, if there is something to try; whether the producer is busy now."""
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
            if judge(batches, missing, self._targets, now_ms, self._verdicts):
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
            # It may only follow from a refusal, which the next look finds.
            attempt.failure = str(error)

    def _fitting_bytes(self) -> int:
        """The largest batch that none refuses for its size of all targets that are set apart."""
        limits = [
            ALONE_BYTES if apart.alone else self._targets.max_bytes(topic) for topic, apart in self._apart.items()
        ]
        return min([BATCH_BYTES, *filter(None, limits)])

    # -- 2 ----------------------------------------------------------------------------------------------------------

    def _look(self, attempt: _Attempt) -> None:
        queued = self._producer.transactor.push()
        if attempt.refusals:
            self._learn(attempt)
            return
        if attempt.failure:
            self._give_back(attempt, attempt.failure)
            return
        if queued:
            return
        try:
            self._producer.prove_and_commit((state.place for state, _ in attempt.batches), self._membership)
        except AbortableError as error:
            self._give_back(attempt, str(error))
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

    def _learn(self, attempt: _Attempt) -> None:
        """Records were refused for ever: keep the verdicts on those that are named, and try again at once."""
        apart = self._apart[attempt.topic]
        verdicts = verdicts_of(attempt.refusals, alone=apart.alone)
        self._verdicts.update(verdicts)
        if not verdicts:
            apart.alone = True
        apart.try_at_ms = self._clock.monotonic_ms()  # behind all others that are due
        apart.stays_until_ms = apart.try_at_ms + KEPT_MS
        self._park_again(attempt)
        self._producer.renew()

    def _give_back(self, attempt: _Attempt, reason: str) -> None:
        apart = self._apart[attempt.topic]
        apart.is_doubtful = True
        apart.bound.shrink(size_of(attempt.batches))
        self._park_again(attempt)
        if attempt.can_be_less:
            apart.try_at_ms = self._clock.monotonic_ms()
        else:
            self._later(attempt.topic, reason)
        self._producer.renew()

    def _park_again(self, attempt: _Attempt) -> None:
        self._attempt = None
        for state, batch in attempt.batches:
            state.parked.park_again(attempt.topic, batch)

    def _later(self, topic: str, reason: str) -> None:
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
