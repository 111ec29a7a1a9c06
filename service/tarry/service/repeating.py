"""Checks a schedule as the service does, before a command sends it.

The client cannot, because it has no cron rules and no zones.
"""

from dataclasses import replace
from uuid import uuid4

from tarry.client import RepeatedMessage
from tarry.client.record import to_schedule
from tarry.core.request.schedule_times import times_after
from tarry.errors import HeaderError
from tarry.headers import EXPIRES_AT
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
