"""Durations, sizes and instants as text, in configuration, commands and headers.

Inside the program a duration is whole milliseconds, a size is bytes and an instant is milliseconds since the epoch.
Only this module converts between them and text. It refuses a number without a unit: a user who writes `30` may mean
seconds, and a program that takes it as milliseconds would be wrong without a warning.

All functions are pure, and raise `ValueError` with a text of one line.
"""

import re
from datetime import UTC, datetime, timedelta
from fractions import Fraction

#: The last millisecond of the year 9999: later instants have no RFC 3339 text.
MAX_EPOCH_MS = 253_402_300_799_999

_MS_BY_UNIT = {"d": 86_400_000, "h": 3_600_000, "m": 60_000, "s": 1_000, "ms": 1}
_BYTES_BY_UNIT = {
    "b": 1,
    "kb": 10**3,
    "mb": 10**6,
    "gb": 10**9,
    "tb": 10**12,
    "kib": 2**10,
    "mib": 2**20,
    "gib": 2**30,
    "tib": 2**40,
}
_BINARY_UNITS = (("TiB", 2**40), ("GiB", 2**30), ("MiB", 2**20), ("KiB", 2**10), ("B", 1))

# A bounded number of digits: more are never needed, and int() of a very long text is slow or refused.
_NUMBER = r"[0-9]{1,15}(?:\.[0-9]{1,9})?"
_DURATION_PART = re.compile(rf"({_NUMBER})(ms|[dhms])")
_DURATION = re.compile(rf"(?:{_NUMBER}(?:ms|[dhms]))+")
_SIZE = re.compile(rf"({_NUMBER}) ?([kmgt]?i?b)", re.IGNORECASE)
_BARE_NUMBER = re.compile(rf"-?{_NUMBER}")
_INSTANT = re.compile(
    r"([0-9]{4})-([0-9]{2})-([0-9]{2})[Tt ]([0-9]{2}):([0-9]{2}):([0-9]{2})(?:\.([0-9]{1,18}))?"
    r"([Zz]|[+-][0-9]{2}:[0-9]{2})?"
)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_LONGEST_SHOWN = 60


def shown(text: str) -> str:
    """Quote untrusted text for a one-line message: escaped, and cut if it is long."""
    return repr(text if len(text) <= _LONGEST_SHOWN else text[:_LONGEST_SHOWN] + "…")


def parse_duration_ms(text: str) -> int:
    """Parse `250ms`, `5s`, `1h30m`, `30d`: units d, h, m, s, ms, from large to small, each at most once.

    Args:
        text: the duration; a fraction (`1.5s`) is allowed if the result is whole milliseconds.

    Returns:
        Milliseconds, at least 0.

    Raises:
        ValueError: not a duration, negative, without a unit, or finer than a millisecond.
    """
    text = text.strip()
    if text.startswith("-"):
        raise ValueError(f"a duration must not be negative: {shown(text)}")
    if _BARE_NUMBER.fullmatch(text):
        raise ValueError(f"a duration needs a unit (ms, s, m, h, d), such as {text}s: {shown(text)}")
    if not _DURATION.fullmatch(text):
        raise ValueError(f"not a duration such as 250ms, 5s, 1h30m or 30d: {shown(text)}")
    total = Fraction(0)
    last_unit_ms = 0
    for number, unit in _DURATION_PART.findall(text):
        unit_ms = _MS_BY_UNIT[unit]
        if last_unit_ms and unit_ms >= last_unit_ms:
            raise ValueError(f"the units of a duration must go from large to small, each once: {shown(text)}")
        last_unit_ms = unit_ms
        total += Fraction(number) * unit_ms
    if total.denominator != 1:
        raise ValueError(f"a duration must be whole milliseconds: {shown(text)}")
    return int(total)


def format_duration(duration_ms: int) -> str:
    """Format milliseconds as `parse_duration_ms` parses them: 5400000 is `1h30m`, 0 is `0ms`."""
    if duration_ms < 0:
        raise ValueError(f"a duration must not be negative: {duration_ms}")
    parts = []
    rest_ms = duration_ms
    for unit, unit_ms in _MS_BY_UNIT.items():
        count, rest_ms = divmod(rest_ms, unit_ms)
        if count:
            parts.append(f"{count}{unit}")
    return "".join(parts) or "0ms"


def parse_size_bytes(text: str) -> int:
    """Parse `64KiB`, `1GiB`, `500MB`, `100B`: powers of 1024 with an i, of 1000 without, in upper or lower case.

    Returns:
        Bytes, at least 0.

    Raises:
        ValueError: not a size, negative, without a unit, or not whole bytes.
    """
    text = text.strip()
    if text.startswith("-"):
        raise ValueError(f"a size must not be negative: {shown(text)}")
    if _BARE_NUMBER.fullmatch(text):
        raise ValueError(f"a size needs a unit (B, KiB, MiB, GiB, KB, MB, GB): {shown(text)}")
    match = _SIZE.fullmatch(text)
    unit_bytes = _BYTES_BY_UNIT.get(match[2].lower()) if match else None
    if match is None or unit_bytes is None:
        raise ValueError(f"not a size such as 64KiB, 500MB or 1GiB: {shown(text)}")
    size = Fraction(match[1]) * unit_bytes
    if size.denominator != 1:
        raise ValueError(f"a size must be whole bytes: {shown(text)}")
    return int(size)


def format_size(size_bytes: int) -> str:
    """Format bytes in the largest binary unit without a fraction: 1073741824 is `1GiB`, 1500 is `1500B`."""
    if size_bytes < 0:
        raise ValueError(f"a size must not be negative: {size_bytes}")
    if size_bytes == 0:
        return "0B"
    unit, unit_bytes = next(pair for pair in _BINARY_UNITS if size_bytes % pair[1] == 0)
    return f"{size_bytes // unit_bytes}{unit}"


def parse_instant_ms(text: str) -> int:
    """Parse an RFC 3339 time with its offset: `2030-01-31T12:00:00Z`, `2030-01-31T13:00:00.250+01:00`.

    A fraction finer than a millisecond is rounded up, so that a due time is never early. A leap second (`:60`) is the
    instant one second after `:59`.

    Returns:
        Milliseconds since the epoch; negative before 1970.

    Raises:
        ValueError: the text has another form or no offset, or there is no such day or time.
    """
    match = _INSTANT.fullmatch(text)
    if match is None:
        raise ValueError(f"not an RFC 3339 time such as 2030-01-31T12:00:00Z: {shown(text)}")
    year, month, day, hour, minute, second = (int(part) for part in match.groups()[:6])
    fraction, offset = match[7], match[8]
    if offset is None:
        raise ValueError(f"a time needs its offset from UTC, such as Z or +01:00: {shown(text)}")
    leap_ms = 1_000 if second == 60 else 0
    try:
        moment = datetime(year, month, day, hour, minute, 59 if leap_ms else second, tzinfo=UTC)
    except ValueError as error:
        raise ValueError(f"no such time ({error}): {shown(text)}") from error
    epoch_ms = (moment - _EPOCH) // timedelta(milliseconds=1) + leap_ms
    if fraction:
        epoch_ms -= -int(fraction) * 1_000 // 10 ** len(fraction)
    return epoch_ms - _offset_ms(offset, text)


def _offset_ms(offset: str, text: str) -> int:
    """Return `+01:30` in milliseconds; 0 for Z."""
    if offset in "Zz":
        return 0
    hours, minutes = int(offset[1:3]), int(offset[4:6])
    if hours > 23 or minutes > 59:
        raise ValueError(f"no such offset from UTC: {shown(text)}")
    magnitude_ms = (hours * 60 + minutes) * 60_000
    return -magnitude_ms if offset[0] == "-" else magnitude_ms


def format_instant(epoch_ms: int) -> str:
    """Format milliseconds since the epoch as RFC 3339 in UTC with milliseconds.

    Raises:
        ValueError: the instant is outside the years 1 to 9999.
    """
    try:
        moment = _EPOCH + timedelta(milliseconds=epoch_ms)
    except OverflowError as error:
        raise ValueError(f"outside the years 1 to 9999: {epoch_ms} ms") from error
    return moment.replace(tzinfo=None).isoformat(timespec="milliseconds") + "Z"
