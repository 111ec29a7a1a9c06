"""Targets that are away: their messages wait here, and only theirs.

A delivery that fails for a cause that passes (no leader, too few replicas, not authorised yet) aborts the firing
transaction once. From then on the target is *away*: its messages are parked as they become due, behind each other,
and tried by a producer and transactions of their own, so that no other target waits for them.

    1. begin    take what is parked for one target, open a transaction, hand the records to the client library
    2. look     every turn, without waiting: delivered → offsets and commit; failed → abort, park again, try later
    3. back     nothing of the target is parked any more: its messages fire as all others do

A parked transaction commits no offset of the intake: it may not say anything about what others hold. It commits one of
the journal, which nobody reads, so that the broker checks our membership; what it delivered is in the journal's record
and counts as done from its commit on.
"""

from collections.abc import Callable, Container, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from confluent_kafka import KafkaError

from tarry.clock import Clock
from tarry.core.message import HeldMessage
from tarry.core.partition import Batch, PartitionState
from tarry.errors import AbortableError, RetriableError
from tarry.kafka.membership import Membership
from tarry.kafka.place import Place
from tarry.kafka.topics import JOURNAL
from tarry.kafka.transaction import Transactor
from tarry.metrics.tally import Tally
from tarry.worker.composing import Composer, verdict_of
from tarry.worker.counting import count_delivered
from tarry.worker.judging import Verdicts, judge
from tarry.worker.targets import Targets

FIRST_RETRY_MS = 500
LAST_RETRY_MS = 10_000


@dataclass(slots=True)
class _Away:
    """A target that is away: when it is tried next, and how long after that again."""

    try_at_ms: int
    pause_ms: int = FIRST_RETRY_MS


@dataclass(slots=True)
class _Attempt:
    """An open transaction with messages for one target."""

    topic: str
    batches: list[tuple[PartitionState, Batch]]
    failures: list[KafkaError] = field(default_factory=list)
    verdicts: Verdicts = field(default_factory=dict)


class Parking:
    """Keeps the messages of targets that are away, and tries them.

    Args:
        transactor: a producer of its own.
        membership: whose metadata proves that the partitions are still ours.
        targets: what is known of targets.
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
        clock: Clock,
        most: int,
        on_event: Callable[..., None],
        tally: Tally | None = None,
    ) -> None:
        self._tally = tally or Tally()
        self._transactor = transactor
        self._membership = membership
        self._targets = targets
        self._clock = clock
        self._most = most
        self._on_event = on_event
        self._composer = Composer(transactor, self._blame, self._fail)
        self._away: dict[str, _Away] = {}
        self._attempt: _Attempt | None = None
        self._verdicts: Verdicts = {}

    @property
    def away(self) -> Container[str]:
        """The targets that are away: what is due for them is parked."""
        return self._away

    def send_away(self, topics: Iterable[str], reason: str) -> None:
        """Park the messages of these targets from now on."""
        for topic in topics:
            if topic not in self._away:
                self._away[topic] = _Away(self._clock.monotonic_ms() + FIRST_RETRY_MS)
                self._on_event("target_away", target=topic, reason=reason)

    def turn(self, states: Sequence[PartitionState]) -> None:
        """Look after the attempt that is open, or begin one that is due; never waits for a target.

        Raises:
            FatalError: a transaction's fate is not known: drop the states and take over anew.
        """
        if self._attempt is not None:
            self._look(self._attempt)
            return
        now_ms = self._clock.monotonic_ms()
        for topic, away in list(self._away.items()):
            if away.try_at_ms <= now_ms:
                self._begin(topic, states)
                return

    def stop(self) -> None:
        """Abort the open attempt, so that its partitions can be given up; its messages are parked again.

        Raises:
            FatalError: the producer is lost.
        """
        if self._attempt is not None:
            self._give_back(self._attempt, "stopped")

    def forget(self) -> None:
        """The states and the producer are gone: nothing is open. Who was away still is."""
        self._attempt = None
        self._verdicts.clear()

    # -- 1 ----------------------------------------------------------------------------------------------------------

    def _begin(self, topic: str, states: Sequence[PartitionState]) -> None:
        now_ms = self._clock.now_ms()
        try:
            missing, not_now = self._targets.learn([topic], self._clock.monotonic_ms())
        except RetriableError as error:
            self._later(topic, str(error))
            return
        if not_now:
            self._later(topic, "its metadata is not there yet")
            return
        batches: list[tuple[PartitionState, Batch]] = []
        room = self._most
        for state in states:
            if room > 0 and (batch := state.take_parked(topic, room, now_ms)):
                batches.append((state, batch))
                room -= len(batch)
        if not batches:
            if not any(state.has_parked(topic) for state in states):  # a clock set back makes some wait again
                del self._away[topic]
                self._on_event("target_back", target=topic)
            return
        judge(batches, missing, self._targets.partitions, self._verdicts)
        self._verdicts.clear()
        attempt = self._attempt = _Attempt(topic, batches)
        self._transactor.begin()
        try:
            for state, batch in batches:
                self._composer.write(state, batch, self._targets.partitions, now_ms)
                self._composer.journal(state, state.journal_of(batch))
        except AbortableError as error:
            self._give_back(attempt, str(error))

    # -- 2 ----------------------------------------------------------------------------------------------------------

    def _look(self, attempt: _Attempt) -> None:
        self._transactor.poll()
        if attempt.failures or attempt.verdicts:
            self._verdicts.update(attempt.verdicts)
            self._give_back(attempt, attempt.failures[0].str() if attempt.failures else "refused")
            return
        if self._transactor.queued:
            return
        places = {(state.intake + JOURNAL, state.partition): (0, "") for state, _ in attempt.batches}
        try:
            self._transactor.send_offsets(places, self._membership.metadata())
            self._transactor.commit()
        except AbortableError as error:
            self._give_back(attempt, str(error))
            return
        for state, batch in attempt.batches:
            state.confirm_parked(batch)
        count_delivered(self._tally, attempt.batches, self._clock.now_ms())
        self._attempt = None
        away = self._away[attempt.topic]
        away.try_at_ms, away.pause_ms = self._clock.monotonic_ms(), FIRST_RETRY_MS

    def _give_back(self, attempt: _Attempt, reason: str) -> None:
        self._attempt = None
        for state, batch in attempt.batches:
            state.park_again(attempt.topic, batch)
        self._transactor.abort()
        if attempt.verdicts:
            self._transactor.renew()  # a refused record leaves a gap that the next transaction would wait behind
        if attempt.verdicts and not attempt.failures:
            self._away[attempt.topic].try_at_ms = self._clock.monotonic_ms()
        else:
            self._later(attempt.topic, reason)

    def _later(self, topic: str, reason: str) -> None:
        away = self._away[topic]
        away.try_at_ms = self._clock.monotonic_ms() + away.pause_ms
        away.pause_ms = min(away.pause_ms * 2, LAST_RETRY_MS)
        self._on_event("target_still_away", target=topic, reason=reason, next_try_ms=away.pause_ms)

    def _blame(self, place: Place, message: HeldMessage, error: KafkaError | None, _record: Any) -> None:
        if error is None or self._attempt is None:
            return
        verdict = verdict_of(error, message)
        if verdict is None:
            self._attempt.failures.append(error)
        else:
            self._attempt.verdicts[place, message.sequence] = verdict

    def _fail(self, error: KafkaError) -> None:
        if self._attempt is not None:
            self._attempt.failures.append(error)
