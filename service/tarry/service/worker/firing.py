"""The firing transaction: deliveries, results, dead letters, journal, offsets with checkpoints; all of it or nothing.

    1. take       from each partition the messages that are ready
    2. validate   a message that can never be delivered becomes a dead letter of the same batch; a message for a target
                  that is set apart is parked
    3. produce    each delivery and its result; each dead letter and its result; what was decided on named records;
                  one journal record a partition, and more about names
    4. offsets    of the intakes, with their checkpoints, with the member's group metadata taken right before
    5. commit     and only then count the batches as done

A record that the broker refuses aborts the whole transaction. Whatever the cause, its target is set apart (`parking`),
so the next transaction is without it. Parking finds out whether to wait, or which of its records the broker refuses.
"""

from collections.abc import Container, Sequence
from itertools import chain, filterfalse
from typing import Any

from confluent_kafka import KafkaError

from tarry.core.message import HeldMessage
from tarry.core.partition import PartitionState
from tarry.errors import AbortableError, RetriableError
from tarry.kafka.errors import is_caused_by_another, is_refusal
from tarry.kafka.settings import BATCH_BYTES
from tarry.kafka.topics import DEAD
from tarry.kafka.types import OffsetMetadata, Place
from tarry.service.metrics.families import ABORTED
from tarry.service.worker.batches import Batches, Bound, rotated, size_of, take_batches
from tarry.service.worker.composing import Composer
from tarry.service.worker.connections import GroupProducer
from tarry.service.worker.context import Context
from tarry.service.worker.counting import count_fired
from tarry.service.worker.letters import LetterWriter
from tarry.service.worker.parking import Parking
from tarry.service.worker.targets import Targets
from tarry.service.worker.verdicts import (
    end_refused_schedules,
    intakes_of,
    is_unknown_target,
    may_condemn,
    validate,
)

BACKOFF_MS = 200
"""How long to wait before the next transaction, after one aborted for a cause that passes."""

REPLAY_REST_MS = 1_000
"""The least time between two firing transactions that include partitions in replay.

Such partitions have only messages ready that need no delivery. A transaction in each turn would delay the replay, and
so all overdue messages, by one commit a turn.
"""

REPORT_WAIT_S = 0.05
"""How long to wait, after a failure, for the delivery report that identifies the failing record."""

_UNAUTHORIZED = KafkaError(KafkaError.TOPIC_AUTHORIZATION_FAILED).name()


class Firing:
    """Fires the messages that are ready.

    Args:
        producer: the firing producer.
        targets: the metadata and settings of the target topics.
        parking: takes the messages for targets that are set apart.
        letters: takes dead letters that have transactions of their own.
        most: the most messages in one transaction.
        interval_ms: the least time from the start of one transaction to the next.
        context: time, the log and the metrics.
    """

    def __init__(
        self,
        producer: GroupProducer,
        targets: Targets,
        parking: Parking,
        letters: LetterWriter,
        most: int,
        interval_ms: int,
        context: Context,
    ) -> None:
        self._tally = context.tally
        self._deliveries = context.deliveries
        self._transactor = producer.transactor
        self._membership = producer.membership
        self._clock = context.clock
        self._most = most
        self._interval_ms = interval_ms
        self._on_event = context.on_event
        self._targets = targets
        self._parking = parking
        self._letters = letters
        self._bound = Bound()
        self._composer = Composer(producer.transactor, letters.take, self._blame, self._fail)
        self._own_failures: dict[Place, list[KafkaError]] = {}
        self._blamed: dict[str, list[KafkaError]] = {}
        self._turns = 0
        self._next_ms = 0
        self._next_in_replay_ms = 0
        self._resting_until_ms = 0
        """Monotonic time before which nothing is tried, after a failure that passes."""

    @property
    def not_before_ms(self) -> int:
        """Monotonic time before which no transaction begins."""
        return max(self._next_ms, self._resting_until_ms)

    def turn(self, states: Sequence[PartitionState]) -> None:
        """Advance the wheels to the present time, and run a transaction if anything is ready; raises like `fire`."""
        now_ms = self._clock.now_ms()
        monotonic_ms = self._clock.monotonic_ms()
        is_resting = monotonic_ms < self._next_in_replay_ms
        # A decision on a named record must not wait: a replay has many of them, and what they complete takes memory.
        ready = [
            state
            for state in states
            if state.collect(now_ms) and not (is_resting and state.is_gated and not state.names.has_pending)
        ]
        if not ready or monotonic_ms < self.not_before_ms:
            return
        self._next_ms = monotonic_ms + self._interval_ms
        if any(state.is_gated for state in ready):
            self._next_in_replay_ms = monotonic_ms + REPLAY_REST_MS
        self._turns += 1
        self.fire(rotated(ready, self._turns))

    def fire(self, states: Sequence[PartitionState]) -> int:
        """Run one transaction over the partitions that have something ready.

        Returns:
            How many messages it completed; 0 if it aborted: the batches are ready again.

        Raises:
            RetriableError: no producer can be built for now.
            FatalError: the transaction's fate is unknown: drop the states and take over again.
        """
        self._make_ready()
        now_ms = self._clock.now_ms()
        apart_in = self._parking.apart_in
        fired = take_batches(
            states,
            self._most,
            self._bound.bytes,
            lambda state, room, size: state.take(room, now_ms, apart_in(state.intake), size),
        )
        if not fired:
            return 0
        try:
            self._validate(fired)
        except RetriableError as error:
            self._put_back(fired, error, backs_off=True)
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
            self._put_back(fired, error, backs_off=not learned)
            self._give_up()
            if learned and not self._transactor.is_stuck:
                # A refused record leaves a gap in the sequence that the next transaction would wait for.
                self._transactor.renew()
            return 0
        if self._bound.is_shrunk:  # adding up sizes is a considerable part of the cost of a delivery
            self._bound.grow(size_of(fired))
        for state, batch in fired:
            state.confirm(batch)
        committed_ms = self._clock.now_ms()
        count_fired(self._tally, fired, committed_ms, self._clock.monotonic_ms() - began_ms)
        self._deliveries.note(fired, committed_ms)
        return sum(len(batch) for _, batch in fired)

    def commit_checkpoints(
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
                settled = state.settle_checkpoint(released=released, sums_up=state in summed_up)
                offsets[state.place] = self._composer.settle(state, settled)
            self._transactor.send_offsets(offsets, self._membership.metadata())
            self._transactor.commit()
        except AbortableError:
            if not self._has_failed():
                self._transactor.poll(REPORT_WAIT_S)
            self._give_up()
            raise
        for state in states:
            state.confirm_checkpoint()
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

    def _validate(self, fired: Batches) -> None:
        """Park messages for targets that must be set apart; turn undeliverable messages into dead letters."""
        now_ms = self._clock.monotonic_ms()
        topics = _targets_of(fired)
        missing = self._learn(topics, fired)
        asked = max((message.target_partition for _, batch in fired for message in batch.due), default=-1)
        if asked < 0 and not missing and not may_condemn(fired, topics, self._targets):
            return
        while doubtful := validate(fired, missing, self._targets, now_ms):
            for topic in doubtful:
                self._targets.forget(topic)
            # Ask for all of them again: while the service asks for some, its knowledge of others may grow stale.
            missing = self._learn(_targets_of(fired), fired)

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
            self._composer.follow(state, batch)
            offsets[state.place] = self._composer.settle(state, state.settle(batch))
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
        learned = end_refused_schedules(fired, self._own_failures)
        learned = self._learn_from_our_own(fired) or learned
        if aborted_by.code == _UNAUTHORIZED:
            # The client library does not name the record here: ask the brokers which targets we may not write to.
            learned = self._learn_what_is_denied(fired) or learned
        own = [error for errors in self._own_failures.values() for error in errors]
        cluster_is_away = any(not is_caused_by_another(error) and not is_refusal(error) for error in own)
        for topic, errors in self._blamed.items():
            if refusal := next(filter(is_refusal, errors), None):
                # Its cached settings did not predict this refusal, so they are out of date.
                self._targets.forget(topic)
                self._parking.set_apart([topic], refusal.str())
                learned = True
            elif any(map(is_unknown_target, errors)):
                self._targets.forget(topic)
            elif not cluster_is_away and (cause := next(filterfalse(is_caused_by_another, errors), None)):
                self._parking.send_away([topic], cause.str())
                learned = True
        if not learned:
            # A deleted target fails the transaction as a whole, and no report names it. So does an intake to which we
            # may not write.
            self._targets.forget_all()
            denied = self._targets.denied(intakes_of(fired), self._clock.monotonic_ms())
            learned = end_refused_schedules(fired, {}, denied)
        return learned

    def _learn_from_our_own(self, fired: Batches) -> bool:
        """Learn from failed records to our own topics; return whether the next try will differ.

        Dead letters that their topic refuses get transactions of their own. If another topic refused a record (too
        much was written at once), or a record timed out, the next transactions are smaller.
        """
        learned = is_too_much = False
        intakes = {state.place for state, _ in fired}
        for (topic, partition), errors in self._own_failures.items():
            if (refusal := next(filter(is_refusal, errors), None)) and topic.endswith(DEAD):
                self._letters.separate(topic.removesuffix(DEAD), refusal.str())
                learned = True
            elif refusal is not None and (topic, partition) not in intakes:
                is_too_much = True
        if is_too_much or self._has_timed_out():
            learned = learned or (is_too_much and self._bound.bytes > 1)
            self._bound.shrink(size_of(fired))
        return learned

    def _learn_what_is_denied(self, fired: Batches) -> bool:
        self._targets.forget_all()
        try:
            _, obstacles = self._targets.learn(_targets_of(fired), self._clock.monotonic_ms())
        except RetriableError:
            return False
        for topic, reason in obstacles.items():
            self._parking.send_away([topic], reason)
        return bool(obstacles)

    def _put_back(self, fired: Batches, error: Exception, *, backs_off: bool) -> None:
        for state, batch in fired:
            state.put_back(batch, self._parking.apart_in(state.intake))
        self._tally.count(ABORTED)
        if backs_off:
            self._resting_until_ms = self._clock.monotonic_ms() + BACKOFF_MS
        self._on_event("transaction_aborted", reason=str(error))


def _targets_of(batches: Batches) -> set[str]:
    """Return the target topics of the batches."""
    return {message.target for _, batch in batches for message in batch.due}
