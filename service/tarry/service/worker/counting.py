"""Counting for the metrics: once a batch, because its cost for each message must stay far below a microsecond."""

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Final

from confluent_kafka import Message

from tarry.core.message import DeadMessage
from tarry.core.partition import PartitionState
from tarry.headers import ErrorCode, Outcome
from tarry.service.metrics.families import (
    DEAD,
    FILED,
    FIRED,
    NAMED,
    NAMED_ADOPTED,
    PLACED,
    RECEIVED,
    SCHEDULES_CONTINUED,
    SCHEDULES_DEAD,
    TRANSACTION_MESSAGES,
    TRANSACTION_SECONDS,
    TRIM_FAILURES,
    UNREADABLE_PAUSES,
)
from tarry.service.metrics.tally import Tally
from tarry.service.worker.batches import Batches

NAMED_OUTCOMES: Final = (
    Outcome.REPLACED,
    Outcome.SCHEDULED,
    Outcome.SKIPPED,
    Outcome.CANCELLED,
    Outcome.CANCEL_TOO_LATE,
    Outcome.DUPLICATE,
)


def declare_counters(tally: Tally, intakes: Iterable[str]) -> None:
    """Make the counters that have an intake label show 0 from the start.

    Args:
        tally: counts metrics.
        intakes: all topics that are read.
    """
    for intake in intakes:
        for family in (
            *(RECEIVED, PLACED, FILED, FIRED, NAMED_ADOPTED, SCHEDULES_CONTINUED, SCHEDULES_DEAD),
            *(TRIM_FAILURES, UNREADABLE_PAUSES),
        ):
            tally.declare(family, intake)
        for code in ErrorCode:
            tally.declare(DEAD, intake, code)
        for outcome in NAMED_OUTCOMES:
            tally.declare(NAMED, intake, outcome)


def count_received(tally: Tally, intakes: Iterable[str], records: Sequence[Message]) -> None:
    """Count records that were read.

    Args:
        tally: counts metrics.
        intakes: all topics that are read.
        records: the records of one read.
    """
    only, *others = intakes
    counts = Counter(map(Message.topic, records)) if others else {only: len(records)}
    for topic, count in counts.items():
        tally.count(RECEIVED, count, topic or "")


def count_placed(tally: Tally, states: Sequence[PartitionState], held_before: Sequence[int]) -> None:
    """Count the new messages among the records that were read: the growth of the number of held messages.

    Args:
        tally: counts metrics.
        states: all states that took records.
        held_before: how many messages each of them held before.
    """
    for state, before in zip(states, held_before, strict=True):
        tally.count(PLACED, state.held - before, state.intake)


def count_fired(tally: Tally, fired: Batches, now_ms: int, took_ms: int) -> None:
    """Count a firing transaction.

    Args:
        tally: counts metrics.
        fired: the batches that it completed.
        now_ms: when it had committed; wall time.
        took_ms: from its first record to its commit.
    """
    count_delivered(tally, fired, now_ms)
    for state, batch in fired:
        for outcome in (answer.outcome for decision in batch.decisions for answer in decision.answers):
            tally.count(NAMED, 1, state.intake, outcome)
    tally.observe(TRANSACTION_MESSAGES, sum(len(batch) for _, batch in fired))
    tally.observe(TRANSACTION_SECONDS, took_ms / 1000)


def count_delivered(tally: Tally, fired: Batches, now_ms: int) -> None:
    """Count the messages of a transaction, but not the transaction.

    For transactions of parked messages: their duration would only say how long a target was away.

    Args:
        tally: counts metrics.
        fired: the batches that it completed.
        now_ms: when it had committed; wall time.
    """
    for state, batch in fired:
        if complete_from := state.names.complete_from:
            adopted = sum(one.name is not None and one.sequence < complete_from for one in batch.due)
            tally.count(NAMED_ADOPTED, adopted, state.intake)
        if batch.due:
            tally.count(FIRED, len(batch.due), state.intake)
            # They are nearly sorted already: only late ones, and those of an aborted transaction, may be out of place.
            tally.observe_lateness(state.intake, sorted([message.due_ms for message in batch.due]), now_ms)
        if batch.followers:
            tally.count(SCHEDULES_CONTINUED, len(batch.followers), state.intake)
        count_dead(tally, state.intake, batch.dead)


def count_dead(tally: Tally, intake: str, letters: Iterable[DeadMessage]) -> None:
    """Count dead letters that are committed; a stub is none.

    Args:
        tally: counts metrics.
        intake: the intake.
        letters: the letters.
    """
    for letter in letters:
        if not letter.is_stub:
            tally.count(DEAD, 1, intake, letter.code)
            tally.count(SCHEDULES_DEAD, int(letter.ends_schedule), intake)
