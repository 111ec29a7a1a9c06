"""The message that takes the place of one that is moved to another time; pure."""

from datetime import UTC, datetime, timedelta
from typing import Final

from tarry.client import DelayedMessage
from tarry.headers import EXPIRES_AT, NAME, PARTITION, REPLACED_HEADERS, REQUEST_HEADERS
from tarry.kafka.inspector import Content, Waiting
from tarry.units import MAX_EPOCH_MS, parse_instant_ms

EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


def moved_message(waiting: Waiting, content: Content, at_ms: int) -> DelayedMessage:
    """Return the message that takes the place of a waiting one."""
    found = dict(content.headers)
    name, partition, expires = found.get(NAME), found.get(PARTITION), found.get(EXPIRES_AT)
    hidden = REQUEST_HEADERS | REPLACED_HEADERS
    return DelayedMessage(
        waiting.target or "",
        content.value,
        content.key,
        at=EPOCH + timedelta(milliseconds=min(at_ms, MAX_EPOCH_MS)),
        id=waiting.id,
        headers=[(header, value) for header, value in content.headers if header not in hidden],
        partition=None if partition is None else int(partition),
        name=name,
        only_if=None if name is None else "present",
        expires_at=None if expires is None else EPOCH + timedelta(milliseconds=_instant_ms(expires)),
    )


def _instant_ms(value: bytes) -> int:
    text = value.decode()
    return int(text) if text.isdecimal() else parse_instant_ms(text)
