"""The firing transaction: deliveries, results, dead letters, journal, offsets with checkpoints; all of it or nothing.

    1. take       from each partition what is ready, up to the limit
    2. judge      targets that do not exist, partitions that they do not have: dead letters of the same batch
    3. produce    each delivery and its result; each dead letter and its result; one journal record a partition
    4. offsets    of the intakes, with their checkpoints, under the member's metadata taken right before
    5. commit     and only then count the batches as done

A record that the broker refuses aborts the whole transaction; its delivery report names it. Where the cause is for
ever it becomes a dead letter, where it passes the batch is tried again later. Where one report blames a whole batch of
records, the transactions shrink until it blames one.
"""

from collections.abc import Callable, Sequence
from typing import Any

from confluent_kafka import KafkaError

from tarry.clock import Clock
from tarry.core.message import HeldMessage
from tarry.core.partition import Batch, PartitionState
from tarry.errors import AbortableError, RetriableError
from tarry.headers import ErrorCode
from tarry.kafka.membership import Membership
from tarry.kafka.place import OffsetMetadata, Place
from tarry.kafka.transaction import Transactor
from tarry.metrics.families import ABORTED
from tarry.metrics.tally import Tally
from tarry.worker.composing import Composer, verdict_of
from tarry.worker.counting import count_fired
from tarry.worker.judging import Verdicts, judge
from tarry.worker.parking import Parking
from tarry.worker.targets import Targets

BACKOFF_MS = 200
"""How long a batch rests after its transaction aborted for a cause that passes."""

_UNKNOWN = frozenset({KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_TOPIC, KafkaError._UNKNOWN_PARTITION})
_PASSING = frozenset(
    {
        KafkaError._MSG_TIMED_OUT,
        KafkaError._TIMED_OUT_QUEUE,
        KafkaError.LEADER_NOT_AVAILABLE,
        KafkaError.NOT_LEADER_FOR_PARTITION,
        KafkaError.NOT_ENOUGH_REPLICAS,
        KafkaError.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
        KafkaError.REPLICA_NOT_AVAILABLE,
        KafkaError.KAFKA_STORAGE_ERROR,
        KafkaError.REQUEST_TIMED_OUT,
        KafkaError.TOPIC_AUTHORIZATION_FAILED,
    }
)
"""What a target that is away answers: its messages wait, apart from the others."""

_UNAUTHORIZED = KafkaError(KafkaError.TOPIC_AUTHORIZATION_FAILED).name()

Fired = list[tuple[PartitionState, Batch]]


class Firing:
    """Fires what is ready.

    Args:
        transactor: the firing producer.
        membership: whose metadata proves that the partitions are still ours.
        targets: what is known of targets.
        parking: keeps the messages of those that are away.
        denied: which of these topics we may not write to.
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
        parking: Parking,
        denied: Callable[[set[str]], set[str]],
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
        self._limit = most
        self._on_event = on_event
        self._targets = targets
        self._parking = parking
        self._denied = denied
        self._composer = Composer(transactor, self._blame, self._fail)
        self._own_failed = False
        self._verdicts: Verdicts = {}
        self._blamed: dict[tuple[str, int], list[tuple[Place, HeldMessage, KafkaError]]] = {}
        self.resting_until_ms = 0
        """Monotonic: before it nothing is tried, after a failure that passes."""

    def fire(self, states: Sequence[PartitionState]) -> int:
        """Run one transaction over the partitions that have something ready.

        Returns:
            How many messages it completed; 0 where it aborted, and the batches are ready again.

        Raises:
            FatalError: the transaction's fate is not known: drop the states and take over anew.
        """
        now_ms = self._clock.now_ms()
        fired: Fired = []
        away = self._parking.away
        room = self._limit
        for state in states:
            if room > 0 and (batch := state.take(room, now_ms, away)):
                fired.append((state, batch))
                room -= len(batch)
        if not fired:
            return 0
        try:
            self._judge(fired)
        except RetriableError as error:
            self._put_back(fired, error, rest=True)
            return 0
        began_ms = self._clock.monotonic_ms()
        try:
            self._transact(fired, now_ms)
        except AbortableError as error:
            learned = self._learn_from_failures(fired, error)
            self._put_back(fired, error, rest=not learned)
            self._transactor.abort()
            if learned:
                # A refused record leaves a gap in the sequence that the next transaction would wait behind.
                self._transactor.renew()
            return 0
        for state, batch in fired:
            state.confirm(batch)
        count_fired(self._tally, fired, self._clock.now_ms(), self._clock.monotonic_ms() - began_ms)
        self._limit = min(self._limit * 2, self._most)
        return sum(len(batch) for _, batch in fired)

    def commit_rest(self, states: Sequence[PartitionState], *, released: bool) -> None:
        """Commit the checkpoints of partitions, and copies of them in their journals, where nothing fires.

        Raises:
            AbortableError: refused, and aborted.
            FatalError: refused, and the producer is lost.
        """
        self._transactor.begin()
        try:
            offsets: dict[Place, OffsetMetadata] = {}
            for state in states:
                rest = state.rest(released=released)
                offsets[state.intake, state.partition] = (rest.low, rest.metadata)
                self._composer.journal(state, rest.journal)
            self._transactor.send_offsets(offsets, self._membership.metadata())
            self._transactor.commit()
        except AbortableError:
            self._transactor.abort()
            raise

    # -- 2 ----------------------------------------------------------------------------------------------------------

    def _judge(self, fired: Fired) -> None:
        """Turn what can never be delivered into dead letters."""
        missing = self._learn({message.target for _, batch in fired for message in batch.due})
        asked = max((message.target_partition for _, batch in fired for message in batch.due), default=-1)
        if asked < 0 and not missing and not self._verdicts:
            return
        missing |= self._learn_anew(fired)
        judge(fired, missing, self._targets.partitions, self._verdicts)

    def _learn_anew(self, fired: Fired) -> set[str]:
        """Ask once more where a partition seems not to exist: it may have been added since; what is gone now."""
        counts = self._targets.partitions
        doubtful = {
            message.target
            for _, batch in fired
            for message in batch.due
            if message.target_partition >= counts.get(message.target, message.target_partition + 1)
        }
        for topic in doubtful:
            self._targets.forget(topic)
        return self._learn(doubtful)

    def _learn(self, topics: set[str]) -> set[str]:
        """Make sure of targets; those that do not exist. One that can't be told of now is away."""
        missing, not_now = self._targets.learn(topics, self._clock.monotonic_ms())
        if not_now:
            self._parking.send_away(not_now, "its metadata is not there yet")
            raise RetriableError(f"no metadata of {', '.join(sorted(not_now))}")
        return missing

    # -- 3 to 5 -----------------------------------------------------------------------------------------------------

    def _transact(self, fired: Fired, now_ms: int) -> None:
        self._blamed.clear()
        self._own_failed = False
        self._transactor.begin()
        offsets: dict[Place, OffsetMetadata] = {}
        for state, batch in fired:
            self._composer.write(state, batch, self._targets.partitions, now_ms)
            settled = state.settle(batch)
            offsets[state.intake, state.partition] = (settled.low, settled.metadata)
            self._composer.journal(state, settled.journal)
        self._transactor.send_offsets(offsets, self._membership.metadata())
        self._transactor.commit()
        for state, batch in fired if self._verdicts else ():
            for dead in batch.dead:
                self._verdicts.pop(((state.intake, state.partition), dead.offset), None)

    # -- failures ---------------------------------------------------------------------------------------------------

    def _blame(self, place: Place, message: HeldMessage, error: KafkaError | None, record: Any) -> None:
        """A delivery report with an error. Those that only follow from another's are passed over."""
        if error is not None:
            self._blamed.setdefault((record.topic(), record.partition()), []).append((place, message, error))

    def _fail(self, error: KafkaError) -> None:
        """A delivery report with an error, of a record to a topic of our own."""
        self._own_failed = self._own_failed or error.code() in _PASSING

    def _learn_from_failures(self, fired: Fired, aborted_by: AbortableError) -> bool:
        """Find the culprits; whether the next try will differ from this one."""
        learned = False
        if aborted_by.code == _UNAUTHORIZED:
            # Here the client library names no record: the brokers say what we may not write to.
            denied = self._denied({message.target for _, batch in fired for message in batch.due})
            self._parking.send_away(denied, str(aborted_by))
            learned = bool(denied)
        for (topic, _), blamed in self._blamed.items():
            verdicts = {}
            for place, message, error in blamed:
                if error.code() in _UNKNOWN:
                    self._targets.forget(topic)
                elif error.code() in _PASSING and not self._own_failed:
                    # Where our own topics fail as well it is not the target that is away, but the cluster.
                    self._parking.send_away([topic], error.str())
                    learned = True
                elif (verdict := verdict_of(error, message)) is not None:
                    verdicts[place, message.sequence] = verdict
            if len(verdicts) > 1 and ErrorCode.TOO_LARGE in {code for code, _ in verdicts.values()}:
                # A batch of records was refused as one: smaller transactions find out which of them it is.
                self._limit = max(1, min(self._limit, len(verdicts)) // 2)
                learned = True
            elif verdicts:
                self._verdicts.update(verdicts)
                learned = True
        self._blamed.clear()
        if not learned:
            # A target that was deleted fails the transaction as a whole, and is not named.
            self._targets.forget_all()
        return learned

    def _put_back(self, fired: Fired, error: Exception, *, rest: bool) -> None:
        for state, batch in fired:
            state.put_back(batch)
        self._tally.count(ABORTED)
        if rest:
            self.resting_until_ms = self._clock.monotonic_ms() + BACKOFF_MS
        self._on_event("transaction_aborted", reason=str(error), culprits=len(self._verdicts), limit=self._limit)
