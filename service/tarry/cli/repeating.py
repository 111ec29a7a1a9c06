"""The times of schedules, as the service computes them: commands check a rule before they send it, and show its times.

The client does not know them, because it has no cron rules and no zones.
"""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from itertools import islice
from uuid import uuid4

from tarry.client import RepeatedMessage
from tarry.client.record import to_schedule
from tarry.core.request.header_values import HeaderFault
from tarry.core.request.rule import read_rule
from tarry.core.request.schedules import shift_of
from tarry.errors import HeaderError
from tarry.headers import CRON, EVERY, EXPIRES_AT, ZONE
from tarry.units import format_instant


def begun(message: RepeatedMessage, now_ms: int, tick_ms: int) -> tuple[RepeatedMessage, int]:
    """Check a schedule as the service does; return it with its id, and when its first occurrence is due.

    Args:
        message: the schedule.
        now_ms: the timestamp that its record will have.
        tick_ms: due times are rounded up to multiples of this.

    Raises:
        HeaderError: the service would not accept it, or it expires before its first occurrence.
    """
    message = message if message.id is not None else replace(message, id=uuid4())
    record = to_schedule(message, now_ms)
    headers = dict(record.headers)
    for next_ms in times_after(headers, record.id.encode(), now_ms, tick_ms):
        expires_ms = int(headers.get(EXPIRES_AT) or next_ms)
        if expires_ms < next_ms:
            ends, begins = format_instant(expires_ms), format_instant(next_ms)
            raise HeaderError(f"expires_at: {ends} is before the first occurrence ({begins})")
        return message, next_ms
    raise HeaderError(f"cron: it names a time that does not come within 50 years: {message.cron}")


def times_after(found: Mapping[str, bytes | None], schedule: bytes, at_ms: int, tick_ms: int) -> Iterator[int]:
    """Yield the due times of a schedule after a time, in milliseconds since the epoch.

    Args:
        found: the headers of one of its records.
        schedule: its id, 36 ASCII characters.
        at_ms: the time.
        tick_ms: due times are rounded up to multiples of this.

    Raises:
        HeaderError: the headers have no valid rule.
    """
    rule, shift_ms = read_rule(found), shift_of(found, schedule)
    for read in (rule, shift_ms):
        if isinstance(read, HeaderFault):
            raise HeaderError(read.detail.removeprefix("tarry-"))
    while not isinstance(rule, HeaderFault) and not isinstance(shift_ms, HeaderFault):
        due_ms = rule.after(at_ms - shift_ms)
        if due_ms is None:
            return
        at_ms = -(-(due_ms + shift_ms) // tick_ms) * tick_ms
        yield at_ms


def next_times(
    found: Mapping[str, bytes | None], schedule: bytes, at_ms: int, tick_ms: int, count: int
) -> tuple[int, ...]:
    """Return the first due times of a schedule after a time; none if this version of tarry cannot read its rule.

    Args:
        found: as in `times_after`.
        schedule: as in `times_after`.
        at_ms: as in `times_after`.
        tick_ms: as in `times_after`.
        count: how many.
    """
    try:
        return tuple(islice(times_after(found, schedule, at_ms, tick_ms), count))
    except HeaderError:
        return ()


def rule_fields(found: Mapping[str, bytes | None]) -> dict[str, str | None]:
    """Return the rule of a schedule as JSON fields `every`, `cron` and `zone`; what it does not have is null."""
    texts = {name: value.decode("ascii", "replace") for name, value in found.items() if value is not None}
    cron = texts.get(CRON)
    return {
        "every": texts.get(EVERY),
        "cron": None if cron is None else " ".join(cron.split()),
        "zone": texts.get(ZONE, "UTC") if CRON in texts else None,
    }


def rule_text(found: Mapping[str, bytes | None]) -> str:
    """Return the rule of a schedule as text for people."""
    fields = rule_fields(found)
    return f"every {fields['every']}" if fields["every"] is not None else f"{fields['cron']} in {fields['zone']}"
