"""Parse the headers of a schedule: those that a sender writes, and that of the next records, which the service writes.

    a sender's    tarry-every: 15m                                       occurrence 1 is due 12:15
    the next      tarry-every: 15m, tarry-next: 4711 <12:30> 2           occurrence 2 follows the record at offset 4711
    the next      tarry-every: 15m, tarry-next: 4890 <12:45> 3

A next record carries its due time, so nothing is computed again when it is read.
"""

import re
from collections.abc import Mapping

from tarry.core.request.header_values import HeaderFault, read_window, shown
from tarry.core.request.intake_policy import IntakePolicy
from tarry.core.request.naming import Planned
from tarry.core.request.rule import Rule, read_rule
from tarry.headers import CRON, DELAY_MS, EVERY, NEXT, WINDOW_MS, ZONE, ErrorCode
from tarry.jitter import jitter_ms
from tarry.units import MAX_EPOCH_MS

REPEATS = frozenset({EVERY, CRON, ZONE, NEXT})
"""The headers that only the records of schedules have."""

ROOM_BYTES = 1_024
"""A schedule leaves this much below the largest record of the intake: its next records have more headers."""

_NEXT = re.compile(rb"([0-9]{1,18}) ([0-9]{1,15}) ([0-9]{1,18})")


def next_header(follows: int, due_ms: int, number: int) -> tuple[str, bytes]:
    """Return the header that makes a record the next one of a schedule."""
    return NEXT, b"%d %d %d" % (follows, due_ms, number)


def read_next(value: bytes | None, schedule: bytes) -> Planned | HeaderFault:
    """Parse `tarry-next`.

    Args:
        value: its value.
        schedule: the id of the schedule.
    """
    match = _NEXT.fullmatch(value or b"")
    if match is None or int(match[2]) > MAX_EPOCH_MS:
        return HeaderFault(ErrorCode.BAD_SCHEDULE, f"only the service writes {NEXT}: {shown(value)}")
    return Planned(schedule, int(match[3]), int(match[1]), int(match[2]))


def read_schedule(
    found: Mapping[str, bytes | None],
    following: Planned | HeaderFault | None,
    schedule: bytes,
    record_bytes: int,
    timestamp_ms: int,
    policy: IntakePolicy,
) -> Planned | HeaderFault:
    """Parse the rule of a schedule; return the place of the record in it.

    Args:
        found: the headers.
        following: from `read_next`; None for the record of a sender, which has the first occurrence.
        schedule: the id of the schedule.
        record_bytes: the size of the record on the wire.
        timestamp_ms: of the record; the first occurrence is due after it.
        policy: what the intake accepts.
    """
    if (why := policy.why_no_schedules) is not None:
        return HeaderFault(ErrorCode.SCHEDULES_NOT_ACCEPTED, f"no schedules in {policy.topic}: {why}")
    if DELAY_MS in found:
        return HeaderFault(ErrorCode.TWO_DELAYS, f"a schedule has no {DELAY_MS}")
    rule = read_rule(found)
    if isinstance(rule, HeaderFault):
        return rule
    if following is not None:
        return following
    return _first(found, rule, schedule, record_bytes, timestamp_ms, policy.schedule_bytes or 0)


def _first(
    found: Mapping[str, bytes | None],
    rule: Rule,
    schedule: bytes,
    record_bytes: int,
    timestamp_ms: int,
    limit_bytes: int,
) -> Planned | HeaderFault:
    """Return the first occurrence of a schedule."""
    most = limit_bytes - ROOM_BYTES
    if record_bytes > most:
        detail = f"a schedule has at most {most} bytes here, so that each next record fits; this has {record_bytes}"
        return HeaderFault(ErrorCode.TOO_LARGE, detail)
    if timestamp_ms < 0:
        return HeaderFault(ErrorCode.BAD_SCHEDULE, "the record has no timestamp after which the schedule can begin")
    shift_ms = shift_of(found, schedule)
    if isinstance(shift_ms, HeaderFault):
        return shift_ms
    due_ms = rule.after(timestamp_ms - shift_ms)
    if due_ms is None:
        return HeaderFault(ErrorCode.BAD_SCHEDULE, f"{CRON} names a time that does not come within 50 years")
    return Planned(schedule, 1, None, due_ms + shift_ms)


def shift_of(found: Mapping[str, bytes | None], schedule: bytes) -> int | HeaderFault:
    """Return how much later a message is due than the time that it asks for, or its rule: `tarry-window-ms`.

    Args:
        found: the headers.
        schedule: its id; of an occurrence, that of its schedule.
    """
    if WINDOW_MS not in found:
        return 0
    window_ms = read_window(WINDOW_MS, found[WINDOW_MS])
    return window_ms if isinstance(window_ms, HeaderFault) else jitter_ms(schedule, window_ms)
