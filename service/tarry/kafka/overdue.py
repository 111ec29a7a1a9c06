"""What is overdue, seen from outside: in a bucket that has ended, or among the first offsets that are not done."""

from collections.abc import Sequence
from dataclasses import replace
from itertools import chain

from tarry.core.request.reader import RequestReader
from tarry.kafka.backlog import Backlog
from tarry.kafka.backlog_index import bucket_counts
from tarry.kafka.inspector import Inspector, States
from tarry.kafka.types import Place

OVERDUE_MS = 60_000
"""As the alert `TarryOverdue` has it."""

FIRST_OFFSETS = 1_000
"""How many offsets of the intake and of each level are looked at: the oldest message is mostly among them."""


def overdue(
    inspector: Inspector, backlogs: Sequence[Backlog], states: States, requests: RequestReader, now_ms: int
) -> dict[Place, int]:
    """Return the partitions with a message that has been due for more than a minute, and since when at least.

    Args:
        inspector: reads the first offsets that are not done.
        backlogs: the partitions.
        states: what their journals say.
        requests: reads the intake's records as the service does.
        now_ms: the present time.
    """
    oldest: dict[Place, int] = {}
    for backlog in backlogs:
        ends = [due.until_ms for due, _ in bucket_counts(backlog, states[backlog.place]) if due.until_ms is not None]
        # A bucket that has ended a moment ago may still be read: what may wait in it is an upper bound.
        closed = [end_ms for end_ms in ends if end_ms < now_ms - OVERDUE_MS]
        if closed:
            oldest[backlog.place] = min(closed)
    # The index does not know the ends of the levels' logs yet.
    beginnings = [beginning(backlog, now_ms - OVERDUE_MS) for backlog in backlogs]
    for one in chain(inspector.in_levels(beginnings, states), inspector.in_intake(beginnings, requests, states)):
        if one.kind == "message" and one.due_ms is not None:
            oldest[one.place] = min(one.due_ms, oldest.get(one.place, one.due_ms))
    return {place: since_ms for place, since_ms in oldest.items() if since_ms < now_ms - OVERDUE_MS}


def beginning(backlog: Backlog, late_ms: int) -> Backlog:
    """Return the part of a partition that is looked at: the first offsets that are not done, of each log.

    Args:
        backlog: the partition.
        late_ms: of a level that holds nothing that is due before this time, nothing is looked at.
    """
    lows: dict[int, int] = {}
    if (checkpoint := backlog.checkpoint) is not None:
        levels = enumerate(zip(checkpoint.low, checkpoint.done_ms, strict=True), 1)
        lows = {level: low for level, (low, done_ms) in levels if done_ms < late_ms}
    spans = {
        level: (start, min(end, max(start, lows[level]) + FIRST_OFFSETS))
        for level, (start, end) in backlog.spans.items()
        if level in lows
    }
    return replace(backlog, spans=spans, end=min(backlog.end, backlog.low + FIRST_OFFSETS))
