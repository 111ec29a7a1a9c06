"""Verdicts on due messages: which of them can never be delivered, and why. Such a message becomes a dead letter.

A record that the brokers refuse aborts the whole transaction. So the service predicts refusals where it can
(`validate`). It learns of the other refusals from errors, mostly delivery
reports (`verdicts_of`, `verdict_of`).
"""

from collections.abc import Container, Iterable, Mapping
from typing import TYPE_CHECKING

from confluent_kafka import KafkaError

from tarry.core.delivery import delivery_headers, source_prefix
from tarry.core.message import HeldMessage
from tarry.core.wire import batch_bytes
from tarry.headers import ErrorCode
from tarry.kafka.errors import ANOTHER_IS_INVALID, REFUSALS, is_refusal
from tarry.kafka.types import Place
from tarry.service.worker.batches import Batches
from tarry.service.worker.targets import Targets

if TYPE_CHECKING:
    from tarry.core.batch import Batch

Verdict = tuple[str, str]
"""An error code and a line of text that explains it."""

Verdicts = dict[tuple[Place, int], Verdict]
"""The messages that the brokers have refused permanently, by place and offset."""

_NONE: Verdicts = {}

_UNKNOWN_TARGET = frozenset(
    {KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_TOPIC, KafkaError._UNKNOWN_PARTITION}
)

Reports = dict[int, list[tuple[Place, HeldMessage, KafkaError]]]
"""Delivery reports of records that were refused permanently, or whose batch was, by partition of their target."""


def validate(
    batches: Batches,
    missing: Container[str],
    targets: Targets,
    now_ms: int,
    refused: Mapping[tuple[Place, int], Verdict] = _NONE,
) -> set[str]:
    """Turn messages that can never be delivered into dead letters.

    Args:
        batches: taken, and not settled.
        missing: targets that do not exist.
        targets: the metadata and settings of the others.
        now_ms: monotonic time, taken before `Targets.learn`.
        refused: messages that the brokers have refused before.

    Returns:
        Targets that the brokers must be asked about again first, because stale knowledge of them condemns messages. If
        there are any, nothing was changed.
    """
    doubtful: set[str] = set()
    condemned: list[tuple[Batch, dict[int, Verdict]]] = []
    for state, batch in batches:
        place = state.place
        prefix = source_prefix(*place)
        verdicts: dict[int, Verdict] = {}
        for message in batch.due:
            target = message.target
            if (verdict := refused.get((place, message.sequence))) is None:
                if target in missing:
                    verdict = ErrorCode.UNKNOWN_TARGET, f"no topic of this name: {target}"
                elif (verdict := _on_target(message, prefix, targets)) and not targets.is_fresh(target, now_ms):
                    doubtful.add(target)
            if verdict is not None:
                verdicts[message.sequence] = verdict
        if verdicts:
            condemned.append((batch, verdicts))
    if not doubtful:
        for batch, verdicts in condemned:
            batch.give_up(verdicts)
    return doubtful


def may_condemn(batches: Batches, topics: Iterable[str], targets: Targets) -> bool:
    """Return whether `validate` may find an undeliverable message: a cheap check that mostly saves looking at each one.

    Args:
        batches: taken, and not settled. Messages that ask for a partition are not checked: they need `validate` anyway.
        topics: all targets in them.
        targets: the metadata and settings of these.
    """
    largest = max((state.largest_bytes for state, _ in batches), default=0)
    return any(targets.needs_keys(topic) or largest >= (targets.refuses_from(topic) or largest + 1) for topic in topics)


def _on_target(message: HeldMessage, prefix: bytes, targets: Targets) -> Verdict | None:
    target = message.target
    count = targets.partitions[target]
    if message.target_partition >= count:
        return ErrorCode.BAD_PARTITION, f"{target} has {count} partitions, no {message.target_partition}"
    if message.key is None and targets.needs_keys(target):
        return ErrorCode.NULL_KEY, f"{target} is compacted, and takes no record without a key"
    refuses_from = targets.refuses_from(target)
    if refuses_from is not None and message.size_bytes >= refuses_from:
        # The held size is cheap to read, and never below the size on the wire.
        headers = delivery_headers(message, prefix + b"%d" % message.sequence)
        size = batch_bytes(message.key, message.value, headers)
        if size >= refuses_from:
            return ErrorCode.TOO_LARGE, f"{target} takes no more than {refuses_from - 1} bytes, and this is {size}"
    return None


def end_refused_schedules(
    batches: Batches, failures: Mapping[Place, Iterable[KafkaError]], not_allowed: Container[str] = ()
) -> bool:
    """End the schedules whose next records an intake refuses, so that they do not hold up all else.

    Args:
        batches: of the transaction that failed, before they are put back.
        failures: the errors of records to the service's own topics.
        not_allowed: the intakes to which the service has no right to write.

    Returns:
        Whether there are any, so that the next try differs from this one.
    """
    found = False
    for state, batch in batches:
        denied = state.intake in not_allowed
        refusal: KafkaError | None = None
        for error in failures.get(state.place, ()):
            denied = denied or error.code() == KafkaError.TOPIC_AUTHORIZATION_FAILED
            refusal = error if is_refusal(error) else refusal
        if not batch.followers or not (denied or refusal is not None):
            continue
        found = True
        if denied:
            why = f"the service has no right to write to {state.intake} (WRITE), as it must for each next occurrence"
            state.end_schedules(ErrorCode.SCHEDULES_NOT_ACCEPTED, why)
        elif refusal is not None:
            code = refusal_of(refusal) or ErrorCode.REJECTED_BY_BROKER
            state.refuse_next(batch, code, f"the intake refuses its next occurrence: {refusal.str()}")
    return found


def intakes_of(batches: Batches) -> set[str]:
    """Return the intakes to which a transaction writes the next records of schedules."""
    return {state.intake for state, batch in batches if batch.followers}


def is_unknown_target(error: KafkaError) -> bool:
    """Return whether a delivery report says that the record's topic or partition does not exist."""
    return error.code() in _UNKNOWN_TARGET


def refusal_of(error: KafkaError) -> ErrorCode | None:
    """Return the error code of a dead letter for a permanent refusal of this very record; None for other errors."""
    return REFUSALS.get(error.code())


def verdicts_of(reports: Reports, *, alone: bool) -> Verdicts:
    """Return verdicts on the records that caused a refusal, as far as they are certain.

    If a batch is refused as a whole (because it is too large, or by a broker that names no record), no single record of
    it is proved invalid. If the broker has named the invalid records, the client library reports another error for the
    valid ones.

    Args:
        reports: of one target.
        alone: whether each record had a batch of its own.
    """
    verdicts = {}
    for of_partition in reports.values():
        sure = alone or len(of_partition) == 1
        some_named = any(error.code() == ANOTHER_IS_INVALID for _, _, error in of_partition)
        for place, message, error in of_partition:
            if not sure and not (some_named and error.code() == KafkaError.INVALID_RECORD):
                continue
            verdict = verdict_of(error, message)
            if verdict is not None:
                verdicts[place, message.sequence] = verdict
    return verdicts


def verdict_of(error: KafkaError, message: HeldMessage) -> tuple[str, str] | None:
    """Return the verdict on a message after an error: a code and a text if it is permanent, None if it may pass."""
    code = refusal_of(error)
    if code is None:
        return None
    if code is ErrorCode.REJECTED_BY_BROKER and message.key is None:
        return ErrorCode.NULL_KEY, f"{message.target} needs a key: {error.str()}"
    return code, f"{message.target}: {error.str()}"
