"""Parsers for the values of request headers: a time, a delay, a partition.

A header may hold any bytes, or null. Each parser returns the value, or a `HeaderFault` that says what is wrong; none
raises.
"""

import re
from collections.abc import Iterable
from typing import NamedTuple, final

from tarry.core.expiry import NO_EXPIRY_MS
from tarry.headers import EXPIRES_AT, ErrorCode
from tarry.units import MAX_EPOCH_MS, format_instant, parse_instant_ms

#: A smaller number of milliseconds would be before September 2001: it is refused as probably seconds.
_LEAST_PLAUSIBLE_MS = 10**12
#: This number of seconds, or more, would be after the year 5138: it is refused as probably milliseconds.
_LEAST_IMPLAUSIBLE_S = 10**11
_MAX_PARTITION = 2**31 - 1
#: No valid number has more digits; int() is slow for thousands of digits, and refuses even more.
_MAX_DIGITS = 18
_LONGEST_SHOWN = 60

_NEGATIVE = re.compile(rb"-[0-9]+")


@final
class HeaderFault(NamedTuple):
    """A fault in one part of a record: the error code and a line for people."""

    code: ErrorCode
    detail: str


def counted(timestamp_ms: int, delay_ms: int) -> int | HeaderFault:
    """Return the due time for a delay that is counted from the record's timestamp."""
    if timestamp_ms < 0:
        return HeaderFault(ErrorCode.BAD_DELAY, "the record has no timestamp to count a delay from")
    return timestamp_ms + delay_ms


def read_delay(name: str, value: bytes | None, timestamp_ms: int) -> int | HeaderFault:
    """Parse a delay in milliseconds; return the due time."""
    if value is not None and value.isdigit():
        if len(value) <= _MAX_DIGITS:
            # The same as `counted`, without a call: this runs once per message.
            return timestamp_ms + int(value) if timestamp_ms >= 0 else counted(timestamp_ms, 0)
        return HeaderFault(ErrorCode.BEYOND_MAX_DELAY, f"{name} is longer than any delay: {shown(value)}")
    if value is not None and _NEGATIVE.fullmatch(value):
        return HeaderFault(ErrorCode.NEGATIVE_DELAY, f"{name} is negative: {shown(value)}")
    return HeaderFault(ErrorCode.BAD_DELAY, f"{name} is not a decimal integer: {shown(value)}")


def read_delay_or_none(name: str, value: bytes | None, timestamp_ms: int) -> int | HeaderFault:
    """Parse a delay in milliseconds; return the due time. A negative delay counts as 0."""
    is_negative = value is not None and _NEGATIVE.fullmatch(value)
    return counted(timestamp_ms, 0) if is_negative else read_delay(name, value, timestamp_ms)


def read_window(name: str, value: bytes | None) -> int | HeaderFault:
    """Parse the length of a window in milliseconds, at least 1."""
    if value is not None and value.isdigit() and value.strip(b"0"):
        if len(value) <= _MAX_DIGITS:
            return int(value)
        return HeaderFault(ErrorCode.BEYOND_MAX_DELAY, f"{name} is longer than any delay: {shown(value)}")
    return HeaderFault(ErrorCode.BAD_DELAY, f"{name} is not a decimal integer of at least 1: {shown(value)}")


def read_epoch_ms_or_rfc3339(name: str, value: bytes | None) -> int | HeaderFault:
    """Parse a time in epoch milliseconds, or as RFC 3339 text."""
    if value is None or not value.isdigit():
        return _rfc3339(name, value, "epoch milliseconds or an RFC 3339 time")
    due_ms = int(value) if len(value) <= _MAX_DIGITS else MAX_EPOCH_MS + 1
    if due_ms < _LEAST_PLAUSIBLE_MS:
        return HeaderFault(
            ErrorCode.LOOKS_LIKE_SECONDS,
            f"{name} is in milliseconds, and this would lie before 2001-09-09: {shown(value)}",
        )
    if due_ms > MAX_EPOCH_MS:
        return HeaderFault(
            ErrorCode.BAD_TIME, f"{name} is in milliseconds, and this would lie after the year 9999: {shown(value)}"
        )
    return due_ms


def expiry_in(headers: Iterable[tuple[str, bytes | None]]) -> int:
    """Return the expiry among the original headers of a message that was accepted; `NO_EXPIRY_MS` if it has none."""
    for name, value in headers:
        if name == EXPIRES_AT:
            expires_ms = read_epoch_ms_or_rfc3339(name, value)
            return NO_EXPIRY_MS if isinstance(expires_ms, HeaderFault) else expires_ms
    return NO_EXPIRY_MS


def read_epoch_s(name: str, value: bytes | None, _timestamp_ms: int) -> int | HeaderFault:
    """Parse a due time in epoch seconds; return milliseconds."""
    if value is None or not value.isdigit():
        return HeaderFault(ErrorCode.BAD_TIME, f"{name} is not epoch seconds: {shown(value)}")
    if len(value) > _MAX_DIGITS or int(value) >= _LEAST_IMPLAUSIBLE_S:
        return HeaderFault(
            ErrorCode.BAD_TIME, f"{name} is in seconds, and this looks like milliseconds: {shown(value)}"
        )
    return int(value) * 1_000


def read_rfc3339(name: str, value: bytes | None, _timestamp_ms: int) -> int | HeaderFault:
    """Parse a due time as RFC 3339 text."""
    return _rfc3339(name, value, "an RFC 3339 time")


def _rfc3339(name: str, value: bytes | None, form: str) -> int | HeaderFault:
    try:
        due_ms = -1 if value is None else parse_instant_ms(value.decode("ascii"))
    except ValueError:
        return HeaderFault(ErrorCode.BAD_TIME, f"{name} is not {form} with its offset: {shown(value)}")
    if due_ms < 0 or due_ms > MAX_EPOCH_MS:
        return HeaderFault(ErrorCode.BAD_TIME, f"{name} is not between 1970 and 9999: {shown(value)}")
    return due_ms


def read_partition(name: str, value: bytes | None) -> int | HeaderFault:
    """Parse the number of the target's partition. Whether the partition exists is checked later, by the service."""
    if value is not None and value.isdigit() and len(value) <= _MAX_DIGITS:
        number = int(value)
        if number <= _MAX_PARTITION:
            return number
    return HeaderFault(ErrorCode.BAD_PARTITION, f"{name} is not a partition's number: {shown(value)}")


def instant(epoch_ms: int) -> str:
    """Format an instant for an error detail, also one that RFC 3339 cannot express."""
    return format_instant(epoch_ms) if 0 <= epoch_ms <= MAX_EPOCH_MS else f"at {epoch_ms} ms"


def shown(value: bytes | None) -> str:
    """Format a header's value for an error detail: on one line, escaped, cut if it is long."""
    if value is None:
        return "null"
    text = value[:_LONGEST_SHOWN].decode("utf-8", "backslashreplace")
    return repr(text) + ("…" if len(value) > _LONGEST_SHOWN else "")
