"""The last outcomes of schedules: a bounded search of the last results of their partitions.

Results have no index by schedule. So of each partition the last `MOST_READ` offsets are read, once for all its
schedules.
"""

import json
from collections import defaultdict, deque
from collections.abc import Collection, Iterable, Mapping
from typing import Any, Final, NamedTuple

from tarry.kafka.inspector import Inspector
from tarry.kafka.topics import RESULTS

MOST_READ: Final = 2_000
"""How many offsets of the results of a partition are read."""

KEPT: Final = 3
"""How many outcomes of a schedule are shown."""

ScheduleKey = tuple[int, str]
"""The partition, and the id of a schedule."""


class LastOutcome(NamedTuple):
    """The outcome of an occurrence.

    Attributes:
        outcome: as in its result.
        due_ms: when it was due.
        at_ms: when it was decided.
        occurrence: its number.
    """

    outcome: str
    due_ms: int
    at_ms: int
    occurrence: int


def last_outcomes(
    inspector: Inspector, intake: str, schedules: Collection[ScheduleKey]
) -> dict[ScheduleKey, tuple[LastOutcome, ...]]:
    """Return the last outcomes of schedules, the newest first; those without one among the last results are left out.

    Raises:
        BrokerError: Kafka does not answer.
    """
    logs = inspector.offsets.existing([(intake + RESULTS, number) for number in sorted({one for one, _ in schedules})])
    if not logs:
        return {}
    starts, ends = inspector.offsets.starts(logs), inspector.offsets.ends(logs, committed=True)
    begin = {log: max(starts[log], ends[log] - MOST_READ) for log in logs}
    values = ((log[1], record.value()) for log, record in inspector.records(begin, ends))
    return outcomes_among(values, schedules)


def outcomes_among(
    values: Iterable[tuple[int, bytes | None]], schedules: Collection[ScheduleKey]
) -> dict[ScheduleKey, tuple[LastOutcome, ...]]:
    """Return the last outcomes of schedules among results, each with its partition, in the order of their logs."""
    found: Mapping[ScheduleKey, deque[LastOutcome]] = defaultdict(lambda: deque(maxlen=KEPT))
    for partition, value in values:
        try:
            result: Any = json.loads(value or b"null")
        except ValueError:  # not the service's
            continue
        match result:
            case {
                "outcome": str(outcome),
                "schedule": str(schedule),
                "occurrence": int(number),
                "due_ms": int(due_ms),
                "at_ms": int(at_ms),
            } if (partition, schedule) in schedules:
                found[partition, schedule].appendleft(LastOutcome(outcome, due_ms, at_ms, number))
    return {key: tuple(last) for key, last in found.items()}
