"""Convert instants and delays of a table, of several types, to due times in milliseconds since the epoch.

Each value becomes a struct of `due_ms`, `code` and `detail`: a due time, or an error code of the header convention with
its detail. Text is parsed in the same way as by `tarry.units`; fractions of a millisecond round up.
"""

from typing import Final

from pyspark.sql import Column
from pyspark.sql import functions as f
from pyspark.sql.types import (
    DataType,
    DayTimeIntervalType,
    FractionalType,
    IntegralType,
    StringType,
    TimestampType,
)

from tarry.errors import UsageError
from tarry.headers import ErrorCode
from tarry.units import MAX_EPOCH_MS

_NUMBER: Final = r"[0-9]{1,15}(?:\.[0-9]{1,9})?"
_UNITS_MS: Final = (("d", 86_400_000), ("h", 3_600_000), ("m", 60_000), ("s", 1_000), ("ms", 1))
# \z, because Java's $ also matches before a final line feed.
_DURATION: Final = "^" + "".join(rf"(?:({_NUMBER}){unit})?" for unit, _ in _UNITS_MS) + r"\z"
_NEGATIVE: Final = r"^-\s*[0-9]"
_DIGITS: Final = r"^[0-9]+\z"
_INSTANT: Final = (
    r"^(\d{4}-\d\d-\d\d)[Tt ](\d\d:\d\d):(\d\d)(?:\.(\d{1,18}))?(?:[Zz]|([+-])([01]\d|2[0-3]):([0-5]\d))\z"
)
_LEAST_EPOCH_MS: Final = 10**12
_LONGEST_SHOWN: Final = 60


def due_at(value: Column, kind: DataType, option: str = "--due") -> Column:
    """The due time of an instant: a timestamp, a number of milliseconds since the epoch, or text.

    Args:
        value: the instant; null gives null.
        kind: its type.
        option: the option that gives it, for the error.

    Returns:
        A struct of `due_ms`, `code` and `detail`.

    Raises:
        UsageError: an instant cannot have this type.
    """
    read: Column
    if isinstance(kind, TimestampType):
        read = _in_time(_up(value), value)
    elif isinstance(kind, IntegralType | FractionalType):
        read = _in_time(_plausible(_whole(value, kind)), value, _whole(value, kind))
    elif isinstance(kind, StringType):
        text = f.trim(value)
        digits = f.coalesce(text.rlike(_DIGITS), f.lit(False))
        number = f.when(digits & (f.length(text) <= 18), text).try_cast("long")
        read = f.when(digits, _in_time(_plausible(number), value, number)).otherwise(_in_time(_instant(text), value))
    else:
        raise UsageError(
            f"{option} is of type {kind.simpleString()}: it must be a timestamp with a zone, epoch milliseconds or RFC"
            " 3339 text; for a time without a zone, give the zone: to_utc_timestamp(x, 'Europe/Berlin')"
        )
    return f.when(value.isNotNull(), read)


def due_after(value: Column, kind: DataType, base_ms: int) -> Column:
    """The due time of a delay: an interval, a number of milliseconds, or text.

    Args:
        value: the delay; null gives null.
        kind: its type.
        base_ms: the base time, from which delays count.

    Returns:
        A struct of `due_ms`, `code` and `detail`.

    Raises:
        UsageError: a delay cannot have this type.
    """
    is_delay = f.lit(True)
    if isinstance(kind, DayTimeIntervalType):
        delay = _up(f.timestamp_seconds(f.lit(0)) + value)
        is_negative = delay < 0
    elif isinstance(kind, IntegralType | FractionalType):
        delay = _whole(value, kind)
        is_negative = delay < 0
        is_delay = delay.isNotNull()
    elif isinstance(kind, StringType):
        text = f.trim(value)
        delay, is_delay = _duration(text)
        is_negative = f.coalesce(text.rlike(_NEGATIVE), f.lit(False))
    else:
        raise UsageError(
            f"--delay is of type {kind.simpleString()}: it must be milliseconds, an interval of days and time, or text"
            " such as 5s or 1h30m"
        )
    return f.when(
        value.isNotNull(),
        f.when(is_negative, _fault(ErrorCode.NEGATIVE_DELAY, "a negative delay: ", value))
        .when(~is_delay, _fault(ErrorCode.BAD_DELAY, "not a delay such as 5s or 1h30m: ", value))
        .when(
            delay.isNull() | (delay > MAX_EPOCH_MS - base_ms),
            _fault(ErrorCode.BEYOND_MAX_DELAY, "due after the year 9999: ", value),
        )
        .otherwise(_due(delay + f.lit(base_ms))),
    )


def one_of(at: Column | None, after: Column | None) -> Column:
    """The due time of a row that must have exactly one of instant and delay.

    Args:
        at: the result of `due_at`; None: the job has no instants.
        after: the result of `due_after`; None: the job has no delays.
    """
    given = [one for one in (at, after) if one is not None]
    none = _fault(ErrorCode.NO_DELAY, "due and delay are null")
    if len(given) == 1:
        return f.coalesce(given[0], none)
    both = given[0].isNotNull() & given[1].isNotNull()
    return f.when(both, _fault(ErrorCode.TWO_DELAYS, "due and delay exclude each other")).otherwise(
        f.coalesce(*given, none)
    )


def _in_time(due_ms: Column, value: Column, number: Column | None = None) -> Column:
    """A due time, which must be between 1970 and 9999. A number below 10^12 looks like seconds."""
    is_low = f.lit(False) if number is None else (number >= 0) & (number < _LEAST_EPOCH_MS)
    return (
        f.when(is_low, _fault(ErrorCode.LOOKS_LIKE_SECONDS, "as milliseconds this is before 2001-09-09: ", value))
        .when(due_ms.between(0, MAX_EPOCH_MS), _due(due_ms))
        .otherwise(_fault(ErrorCode.BAD_TIME, "not a time between 1970 and 9999 with its offset from UTC: ", value))
    )


def _plausible(number: Column) -> Column:
    return f.when(number >= _LEAST_EPOCH_MS, number)


def _whole(value: Column, kind: DataType) -> Column:
    """A number as a long, rounded up; null if it is too large for a long, or is not a number."""
    if isinstance(kind, IntegralType):
        return value.cast("long")
    # Infinities, NaN, and numbers that do not fit into a long become null.
    return f.ceil(value.try_cast("decimal(38,9)")).try_cast("long")


def _up(timestamp: Column) -> Column:
    """Milliseconds since the epoch, rounded up."""
    is_between = f.pmod(f.unix_micros(timestamp), f.lit(1_000)) > 0
    return f.unix_millis(timestamp) + f.when(is_between, 1).otherwise(0)


def _instant(text: Column) -> Column:
    """The milliseconds of an RFC 3339 time with its offset, or null. A leap second is the instant after :59."""
    is_instant = f.coalesce(text.rlike(_INSTANT), f.lit(False))
    day, minute, second, fraction, sign, hours, minutes = (
        f.regexp_extract(text, _INSTANT, number) for number in range(1, 8)
    )
    is_leap = second == "60"
    till_second = f.concat(day, f.lit("T"), minute, f.lit(":"), f.when(is_leap, f.lit("59")).otherwise(second))
    seconds = f.unix_seconds(f.try_to_timestamp(f.concat(till_second, f.lit("Z")))) + f.when(is_leap, 1).otherwise(0)
    millis = f.rpad(f.substring(fraction, 1, 3), 3, "0").try_cast("int")
    finer = f.when(fraction.rlike(r"^\d{3}\d*[1-9]"), 1).otherwise(0)
    offset = (hours.try_cast("int") * 60 + minutes.try_cast("int")) * 60_000
    signed = f.when(sign == "-", -offset).when(sign == "+", offset).otherwise(0)
    return f.when(is_instant, seconds * 1_000 + millis + finer - signed)


def _duration(text: Column) -> tuple[Column, Column]:
    """The milliseconds of a duration, null if they exceed a long; and whether the text is a duration."""
    parts = [
        f.coalesce(f.regexp_extract(text, _DURATION, number).try_cast("decimal(24,9)"), f.lit(0).cast("decimal(24,9)"))
        * f.lit(unit_ms).cast("decimal(8,0)")
        for number, (_, unit_ms) in enumerate(_UNITS_MS, start=1)
    ]
    total = parts[0] + parts[1] + parts[2] + parts[3] + parts[4]
    is_duration = f.coalesce(text.rlike(_DURATION) & (text != "") & (f.floor(total) == total), f.lit(False))
    return f.when(is_duration, f.floor(total).try_cast("long")), is_duration


def _due(due_ms: Column) -> Column:
    nothing = f.lit(None).cast("string")
    return f.struct(due_ms.cast("long").alias("due_ms"), nothing.alias("code"), nothing.alias("detail"))


def _fault(code: ErrorCode, detail: str, value: Column | None = None) -> Column:
    said = f.lit(detail)
    if value is not None:
        said = f.concat(said, f.coalesce(f.substring(value.cast("string"), 1, _LONGEST_SHOWN), f.lit("?")))
    return f.struct(f.lit(None).cast("long").alias("due_ms"), f.lit(code.value).alias("code"), said.alias("detail"))
