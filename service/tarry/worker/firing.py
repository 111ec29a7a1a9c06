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
from functools import partial
from typing import Any

from confluent_kafka import KafkaError, KafkaException

from tarry.clock import Clock
from tarry.core.delivery import (
    OutHeaders,
    dead_headers,
    dead_result,
    delivery_headers,
    fired_result,
    source_prefix,
)
from tarry.core.message import HeldMessage
from tarry.core.partition import Batch, PartitionState
from tarry.errors import AbortableError, RetriableError
from tarry.headers import ErrorCode
from tarry.kafka.errors import error_of
from tarry.kafka.membership import Membership
from tarry.kafka.place import OffsetMetadata, Place
from tarry.kafka.topics import DEAD, JOURNAL, RESULTS
from tarry.kafka.transaction import Transactor
from tarry.worker.targets import Targets

BACKOFF_MS = 200
"""How long a batch rests after its transaction aborted for a cause that passes."""

_UNKNOWN = frozenset({KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_TOPIC, KafkaError._UNKNOWN_PARTITION})
_FOR_EVER = {
    KafkaError.MSG_SIZE_TOO_LARGE: ErrorCode.TOO_LARGE,
    KafkaError.RECORD_LIST_TOO_LARGE: ErrorCode.TOO_LARGE,
    KafkaError.TOPIC_EXCEPTION: ErrorCode.BAD_TARGET,
    KafkaError.INVALID_RECORD: ErrorCode.REJECTED_BY_BROKER,
    KafkaError.POLICY_VIOLATION: ErrorCode.REJECTED_BY_BROKER,
}

Fired = list[tuple[PartitionState, Batch]]


class Firing:
    """Fires what is ready.

    Args:
        transactor: the firing producer.
        membership: whose metadata proves that the partitions are still ours.
        clock: wall and monotonic time.
        most: messages a transaction.
        on_event: takes an event's name and fields, for the log.
    """

    def __init__(
        self,
        transactor: Transactor,
        membership: Membership,
        clock: Clock,
        most: int,
        on_event: Callable[..., None],
    ) -> None:
        self._transactor = transactor
        self._membership = membership
        self._clock = clock
        self._most = most
        self._limit = most
        self._on_event = on_event
        self._targets = Targets(lambda topic: transactor.partitions_of(topic, timeout_s=5.0))
        self._verdicts: dict[tuple[Place, int], tuple[str, str]] = {}
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
        room = self._limit
        for state in states:
            if room > 0 and (batch := state.take(room, now_ms)):
                fired.append((state, batch))
                room -= len(batch)
        if not fired:
            return 0
        try:
            self._judge(fired)
        except RetriableError as error:
            self._put_back(fired, error, rest=True)
            return 0
        try:
            self._transact(fired, now_ms)
        except AbortableError as error:
            self._transactor.abort()
            self._put_back(fired, error, rest=not self._learn_from_failures())
            return 0
        for state, batch in fired:
            state.confirm(batch)
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
                self._add(state.intake + JOURNAL, state.partition, None, rest.journal, None)
            self._transactor.send_offsets(offsets, self._membership.metadata())
            self._transactor.commit()
        except AbortableError:
            self._transactor.abort()
            raise

    # -- 2 ----------------------------------------------------------------------------------------------------------

    def _judge(self, fired: Fired) -> None:
        """Turn what can never be delivered into dead letters."""
        wanted = {message.target for _, batch in fired for message in batch.due}
        missing = self._targets.learn(wanted, self._clock.monotonic_ms())
        asked = max((message.target_partition for _, batch in fired for message in batch.due), default=-1)
        if asked < 0 and not missing and not self._verdicts:
            return
        counts = self._targets.partitions
        for state, batch in fired:
            place = (state.intake, state.partition)
            verdicts: dict[int, tuple[str, str]] = {}
            for message in batch.due:
                if message.target in missing:
                    verdicts[message.sequence] = (
                        ErrorCode.UNKNOWN_TARGET,
                        f"no topic of this name: {message.target}",
                    )
                elif message.target_partition >= counts[message.target]:
                    verdicts[message.sequence] = (
                        ErrorCode.BAD_PARTITION,
                        f"{message.target} has {counts[message.target]} partitions, no {message.target_partition}",
                    )
            if self._verdicts:
                for message in batch.due:
                    if (verdict := self._verdicts.get((place, message.sequence))) is not None:
                        verdicts[message.sequence] = verdict
            if verdicts:
                state.give_up(batch, verdicts)

    # -- 3 to 5 -----------------------------------------------------------------------------------------------------

    def _transact(self, fired: Fired, now_ms: int) -> None:
        self._blamed.clear()
        self._transactor.begin()
        offsets: dict[Place, OffsetMetadata] = {}
        for state, batch in fired:
            self._produce(state, batch, now_ms)
            settled = state.settle(batch)
            offsets[state.intake, state.partition] = (settled.low, settled.metadata)
            self._add(state.intake + JOURNAL, state.partition, None, settled.journal, None)
        self._transactor.send_offsets(offsets, self._membership.metadata())
        self._transactor.commit()
        self._verdicts.clear()

    def _produce(self, state: PartitionState, batch: Batch, now_ms: int) -> None:
        place = (state.intake, state.partition)
        prefix = source_prefix(*place)
        results, dead_topic = state.intake + RESULTS, state.intake + DEAD
        counts, produce = self._targets.partitions, self._transactor.produce
        own = state.partition
        refused: dict[int, tuple[str, str]] = {}
        outcomes: list[dict[str, bytes]] = []
        for message in batch.due:
            source = prefix + b"%d" % message.sequence
            to_partition = message.target_partition
            if to_partition < 0 and message.key is None:
                to_partition = own % counts[message.target]
            try:
                produce(
                    message.target,
                    to_partition,
                    message.key,
                    message.value,
                    delivery_headers(message, source),
                    partial(self._blame, place, message),
                )
            except KafkaException as exception:
                verdict = _verdict(error_of(exception), message)
                if verdict is None:
                    raise AbortableError(str(exception), error_of(exception).name()) from exception
                refused[message.sequence] = verdict
                continue
            outcomes.append({"key": message.id, "value": fired_result(message, source, now_ms)})
        if refused:
            state.give_up(batch, refused)
        for dead in batch.dead:
            source = prefix + b"%d" % dead.offset
            self._add(dead_topic, own, dead.key, dead.value, dead_headers(dead))
            outcomes.append({"key": dead.id, "value": dead_result(dead, source, now_ms)})
        self._transactor.produce_all(results, own, outcomes)

    def _add(
        self,
        topic: str,
        partition: int,
        key: bytes | None,
        value: bytes | None,
        headers: OutHeaders | None,
    ) -> None:
        """Produce to a topic of our own; a refusal aborts the transaction."""
        try:
            self._transactor.produce(topic, partition, key, value, headers, _ignore)
        except KafkaException as exception:
            raise AbortableError(f"could not write to {topic}: {exception}", error_of(exception).name()) from exception

    # -- failures ---------------------------------------------------------------------------------------------------

    def _blame(self, place: Place, message: HeldMessage, error: KafkaError | None, record: Any) -> None:
        """A delivery report with an error. Those that only follow from another's are passed over."""
        if error is not None:
            self._blamed.setdefault((record.topic(), record.partition()), []).append((place, message, error))

    def _learn_from_failures(self) -> bool:
        """Find the culprits among the failed deliveries; whether the next try will differ from this one."""
        learned = False
        for blamed in self._blamed.values():
            verdicts = {}
            for place, message, error in blamed:
                if error.code() in _UNKNOWN:
                    self._targets.forget(message.target)
                elif (verdict := _verdict(error, message)) is not None:
                    verdicts[place, message.sequence] = verdict
            if len(verdicts) > 1 and len({code for code, _ in verdicts.values()} & {ErrorCode.TOO_LARGE}):
                # A batch of records was refused as one: smaller transactions find out which of them it is.
                self._limit = max(1, min(self._limit, len(verdicts)) // 2)
                learned = True
            elif verdicts:
                self._verdicts.update(verdicts)
                learned = True
        self._blamed.clear()
        return learned

    def _put_back(self, fired: Fired, error: Exception, *, rest: bool) -> None:
        for state, batch in fired:
            state.put_back(batch)
        if rest:
            self.resting_until_ms = self._clock.monotonic_ms() + BACKOFF_MS
        self._on_event("transaction_aborted", reason=str(error), culprits=len(self._verdicts), limit=self._limit)


def _verdict(error: KafkaError, message: HeldMessage) -> tuple[str, str] | None:
    """What a refusal means for a message: an error code and a text where it is for ever, None where it may pass."""
    code = _FOR_EVER.get(error.code())
    if code is None:
        return None
    if code is ErrorCode.REJECTED_BY_BROKER and message.key is None:
        return ErrorCode.NULL_KEY, f"{message.target} needs a key: {error.str()}"
    return code, f"{message.target}: {error.str()}"


def _ignore(_error: KafkaError | None, _record: Any) -> None:
    """A report about a topic of our own: the transaction's own error says as much."""
