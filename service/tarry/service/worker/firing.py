"""The firing transaction: deliveries, results, dead letters, journal, offsets with checkpoints; all of it or nothing.

    1. take       from each partition the messages that are ready
    2. judge      a message that can never be delivered becomes a dead letter of the same batch; a message for a target
                  that is set apart is parked
    3. produce    each delivery and its result; each dead letter and its result; one journal record a partition
    4. offsets    of the intakes, with their checkpoints, with the member's group metadata taken right before
    5. commit     and only then count the batches as done

A record that the broker refuses aborts the whole transaction. Whatever the cause, its target is set apart (`parking`),
so the next transaction is without it. Parking finds out whether to wait, or which of its records the broker refuses.
"""

from collections.abc import Callable, Container, Sequence
from itertools import chain
from typing import Any

from confluent_kafka import KafkaError

from tarry.clock import Clock
from tarry.core.message import HeldMessage
from tarry.core.partition import PartitionState
from tarry.errors import AbortableError, RetriableError
from tarry.kafka.membership import Membership
from tarry.kafka.settings import BATCH_BYTES
from tarry.kafka.topics import DEAD
from tarry.kafka.transaction import Transactor
from tarry.kafka.types import OffsetMetadata, Place
from tarry.service.metrics.families import ABORTED
from tarry.service.metrics.tally import Tally
from tarry.service.worker.batches import Batches, size_of, take_batches, targets_of
from tarry.service.worker.bound import Bound
from tarry.service.worker.composing import Composer, is_refusal
from tarry.service.worker.counting import count_fired
from tarry.service.worker.letters import LetterWriter
from tarry.service.worker.parking import Parking
from tarry.service.worker.targets import Targets
from tarry.service.worker.validation import may_condemn, validate

BACKOFF_MS = 200
"""How long to wait before the next transaction, after one aborted for a cause that passes."""

REPORT_WAIT_S = 0.05
"""How long to wait, after a failure, for the delivery report that identifies the failing record."""

_UNKNOWN = frozenset({KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_TOPIC, KafkaError._UNKNOWN_PARTITION})
_CAUSED_BY_ANOTHER = frozenset(
    {
        KafkaError._PURGE_QUEUE,
        KafkaError._PURGE_INFLIGHT,
        KafkaError._FENCED,
        KafkaError.OUT_OF_ORDER_SEQUENCE_NUMBER,
        KafkaError.INVALID_PRODUCER_EPOCH,
        KafkaError.INVALID_TXN_STATE,
    }
)
"""Errors of records that failed because another record did. Any other error is the target's own: it is set apart."""

_UNAUTHORIZED = KafkaError(KafkaError.TOPIC_AUTHORIZATION_FAILED).name()


class Firing:
    """Fires the messages that are ready.

    Args:
        transactor: the firing producer.
        membership: its metadata proves that the partitions are still ours.
        targets: the metadata and settings of the target topics.
        parking: takes the messages for targets that are set apart.
        letters: takes dead letters that have transactions of their own.
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
        parking: Parking,
        letters: LetterWriter,
        clock: Clock,
        most: int,
        on_event: Callable[..., None],
        tally: Tally | None = None,
    ) -> None:
        self._tally = tally or Tally()
        self._transactor = transactor
        self._membership = membership
        self._clock = clock
        self._most = most
        self._on_event = on_event
        self._targets = targets
        self._parking = parking
        self._letters = letters
        self._bound = Bound()
        self._composer = Composer(transactor, letters.take, self._blame, self._fail)
        self._own_failures: dict[Place, list[KafkaError]] = {}
        self._blamed: dict[str, list[KafkaError]] = {}
        self.resting_until_ms = 0
        """Monotonic time before which nothing is tried, after a failure that passes."""

    def fire(self, states: Sequence[PartitionState]) -> int:
        """Run one transaction over the partitions that have something ready.

        Returns:
            How many messages it completed; 0 if it aborted: the batches are ready again.

        Raises:
            RetriableError: no producer can be built for now.
            FatalError: the transaction's fate is unknown: drop the states and take over anew.
        """
        self._make_ready()
        now_ms = self._clock.now_ms()
        apart = self._parking.apart
        fired = take_batches(
            states, self._most, self._bound.bytes, lambda state, room, size: state.take(room, now_ms, apart, size)
        )
        if not fired:
            return 0
        try:
            self._judge(fired)
        except RetriableError as error:
            self._put_back(fired, error, rest=True)
            return 0
        fired = [(state, batch) for state, batch in fired if len(batch)]
        if not fired:
            return 0
        began_ms = self._clock.monotonic_ms()
        try:
            self._transact(fired, now_ms)
        except AbortableError as error:
            if not self._has_failed():
                self._transactor.poll(REPORT_WAIT_S)
            learned = self._learn_from_failures(fired, error)
            self._put_back(fired, error, rest=not learned)
            self._give_up()
            if learned and not self._transactor.is_stuck:
                # A refused record leaves a gap in the sequence that the next transaction would wait behind.
                self._transactor.renew()
            return 0
        if self._bound.is_shrunk:  # adding up sizes is a considerable part of the cost of a delivery
            self._bound.grow(size_of(fired))
        for state, batch in fired:
            state.confirm(batch)
        count_fired(self._tally, fired, self._clock.now_ms(), self._clock.monotonic_ms() - began_ms)
        return sum(len(batch) for _, batch in fired)

    def commit_rest(
        self,
        states: Sequence[PartitionState],
        *,
        released: bool,
        summed_up: Container[PartitionState] = (),
    ) -> dict[Place, OffsetMetadata]:
        """Commit the checkpoints of partitions, and copies of them in their journals, without firing anything.

        Args:
            states: of the partitions.
            released: whether this commit releases them.
            summed_up: those whose journals also get a summary of the done offsets; no transaction with messages of
                these partitions is open.

        Returns:
            The committed offsets, with their metadata.

        Raises:
            AbortableError: refused, and aborted.
            RetriableError: no producer can be built for now.
            FatalError: refused, and the producer is lost.
        """
        self._make_ready()
        self._blamed.clear()
        self._own_failures.clear()
        self._transactor.begin()
        try:
            offsets: dict[Place, OffsetMetadata] = {}
            for state in states:
                rest = state.rest(released=released, sums_up=state in summed_up)
                offsets[state.place] = (rest.low, rest.metadata)
                for record in rest.summary:
                    self._composer.journal(state, record)
                self._composer.journal(state, rest.journal)
            self._transactor.send_offsets(offsets, self._membership.metadata())
            self._transactor.commit()
        except AbortableError:
            if not self._has_failed():
                self._transactor.poll(REPORT_WAIT_S)
            self._give_up()
            raise
        for state in states:
            state.confirm_rest()
        return offsets

    def _give_up(self) -> None:
        """Abort. If a record timed out, its partition may have no leader: treat the transactional id as stuck."""
        self._transactor.give_up()
        if self._has_timed_out():
            self._transactor.is_stuck = True
            self._transactor.close()

    def _make_ready(self) -> None:
        """Build the producer that could not be built after the last failure."""
        if not self._transactor.started:
            self._transactor.renew()

    # -- 2 ----------------------------------------------------------------------------------------------------------

    def _judge(self, fired: Batches) -> None:
        """Park messages for targets that must be set apart; turn undeliverable messages into dead letters."""
        now_ms = self._clock.monotonic_ms()
        topics = targets_of(fired)
        missing = self._learn(topics, fired)
        asked = max((message.target_partition for _, batch in fired for message in batch.due), default=-1)
        if asked < 0 and not missing and not may_condemn(fired, topics, self._targets):
            return
        while doubtful := validate(fired, missing, self._targets, now_ms):
            for topic in doubtful:
                self._targets.forget(topic)
            # Ask for all of them again: while the service asks for some, its knowledge of others may grow stale.
            missing = self._learn(targets_of(fired), fired)

    def _learn(self, topics: set[str], fired: Batches) -> set[str]:
        """Refresh stale knowledge of targets, park messages for those that must be set apart.

        Returns:
            The targets that do not exist.
        """
        missing, obstacles = self._targets.learn(topics, self._clock.monotonic_ms())
        for topic, reason in obstacles.items():
            self._parking.send_away([topic], reason)
        narrow = {topic for topic in topics if (self._targets.max_bytes(topic) or BATCH_BYTES) < BATCH_BYTES}
        self._parking.set_apart(narrow, "its max.message.bytes is small")
        if apart := narrow.union(obstacles):
            for state, batch in fired:
                state.parked.park_from(batch, apart)
        return missing

    # -- 3 to 5 -----------------------------------------------------------------------------------------------------

    def _transact(self, fired: Batches, now_ms: int) -> None:
        self._blamed.clear()
        self._own_failures.clear()
        self._transactor.begin()
        offsets: dict[Place, OffsetMetadata] = {}
        for state, batch in fired:
            self._composer.write(state, batch, self._targets.partitions, now_ms)
            settled = state.settle(batch)
            offsets[state.place] = (settled.low, settled.metadata)
            self._composer.journal(state, settled.journal)
        self._transactor.send_offsets(offsets, self._membership.metadata())
        self._transactor.deliver(self._has_failed)
        if self._has_failed():
            raise AbortableError("not all records could be delivered")
        self._transactor.commit()

    # -- failures ---------------------------------------------------------------------------------------------------

    def _blame(self, _place: Place, message: HeldMessage, error: KafkaError | None, _record: Any) -> None:
        """Take the delivery report of a record to a target."""
        if error is not None:
            self._blamed.setdefault(message.target, []).append(error)

    def _fail(self, place: Place, error: KafkaError) -> None:
        """Take a delivery report with an error, of a record to one of the service's own topics."""
        self._own_failures.setdefault(place, []).append(error)

    def _has_failed(self) -> bool:
        return bool(self._blamed or self._own_failures)

    def _has_timed_out(self) -> bool:
        failures = chain(*self._own_failures.values(), *self._blamed.values())
        return any(error.code() == KafkaError._MSG_TIMED_OUT for error in failures)

    def _learn_from_failures(self, fired: Batches, aborted_by: AbortableError) -> bool:
        """Find the targets that caused the failure; return whether the next try will differ from this one."""
        learned = self._learn_from_our_own(fired)
        if aborted_by.code == _UNAUTHORIZED:
            # The client library does not name the record here: ask the brokers which targets we may not write to.
            learned = self._learn_what_is_denied(targets_of(fired))
        own = [error for errors in self._own_failures.values() for error in errors]
        cluster_is_away = any(error.code() not in _CAUSED_BY_ANOTHER and not is_refusal(error) for error in own)
        for topic, errors in self._blamed.items():
            codes = {error.code() for error in errors}
            if refusal := next(filter(is_refusal, errors), None):
                # Its cached settings did not predict this refusal, so they are out of date.
                self._targets.forget(topic)
                self._parking.set_apart([topic], refusal.str())
                learned = True
            elif codes & _UNKNOWN:
                self._targets.forget(topic)
            elif not cluster_is_away and (
                cause := next((e for e in errors if e.code() not in _CAUSED_BY_ANOTHER), None)
            ):
                self._parking.send_away([topic], cause.str())
                learned = True
        if not learned:
            # A deleted target fails the transaction as a whole, and no report names it.
            self._targets.forget_all()
        return learned

    def _learn_from_our_own(self, fired: Batches) -> bool:
        """Learn from failed records to our own topics; return whether the next try will differ.

        Dead letters that their topic refuses get transactions of their own. If another topic refused a record (too
        much was written at once), or a record timed out, the next transactions are smaller.
        """
        learned = is_too_much = False
        for (topic, _), errors in self._own_failures.items():
            if (refusal := next(filter(is_refusal, errors), None)) and topic.endswith(DEAD):
                self._letters.set_apart(topic.removesuffix(DEAD), refusal.str())
                learned = True
            elif refusal is not None:
                is_too_much = True
        if is_too_much or self._has_timed_out():
            learned = learned or (is_too_much and self._bound.bytes > 1)
            self._bound.shrink(size_of(fired))
        return learned

    def _learn_what_is_denied(self, topics: set[str]) -> bool:
        self._targets.forget_all()
        try:
            _, obstacles = self._targets.learn(topics, self._clock.monotonic_ms())
        except RetriableError:
            return False
        for topic, reason in obstacles.items():
            self._parking.send_away([topic], reason)
        return bool(obstacles)

    def _put_back(self, fired: Batches, error: Exception, *, rest: bool) -> None:
        for state, batch in fired:
            state.put_back(batch, self._parking.apart)
        self._tally.count(ABORTED)
        if rest:
            self.resting_until_ms = self._clock.monotonic_ms() + BACKOFF_MS
        self._on_event("transaction_aborted", reason=str(error))
