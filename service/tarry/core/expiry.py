"""The time until which a message may be delivered: `tarry-expires-at`.

A message expires when it is later than that time. This is judged when the message fires, by the time that its result
has. So an expiry changes no due time and no order: where the delivery would be, there is a dead letter.

    due 10, expires 12      fires at 11: delivered      at 12: delivered      at 13: dead
    due 10, expires 9       dead when it is read: it could only be dead
"""

from tarry.headers import ErrorCode
from tarry.units import format_instant

NO_EXPIRY_MS = (1 << 62) - 1
"""The expiry of a message that has none: so one comparison judges each message."""


def expired(expires_ms: int, now_ms: int) -> tuple[str, str]:
    """Return error code and detail of a message that fires too late."""
    return ErrorCode.EXPIRED, f"expired {format_instant(expires_ms)}, and was to be delivered {format_instant(now_ms)}"
