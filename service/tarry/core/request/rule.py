"""The rule of a schedule: at which times its occurrences are due.

An interval counts from the epoch, or from `tarry-deliver-at`. So it does not drift, and a schedule that is sent again
is due at the same times. A cron rule has five fields, and works as Debian's cron does, in a zone:

    a local time that is left out      the occurrence is due at the first moment behind the gap
    a local time that comes twice      the occurrence is due at the first of the two
    minute or hour begins with *       due by the length of time: each hour that passes counts

Everything follows from the rule and a time, so each process computes the same. Zones are those of the package tzdata,
and not of the machine.
"""

import re
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from importlib.resources import files
from zoneinfo import ZoneInfo

from cronsim import CronSim, CronSimError

from tarry.core.request.header_values import HeaderFault, read_epoch_ms_or_rfc3339, shown
from tarry.headers import CRON, DELIVER_AT, EVERY, ZONE, ErrorCode
from tarry.units import parse_duration_ms

LEAST_EVERY_MS = 1_000
"""The shortest interval."""

LONGEST_EVERY_MS = 18_300 * 86_400_000
"""The longest interval, 50 years: so the time after an occurrence is before the year 9999."""

LONGEST_CRON = 200
"""The longest cron expression, in characters."""

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MS = timedelta(milliseconds=1)
_ZONE = re.compile(r"[A-Za-z0-9_+-]{1,40}(?:/[A-Za-z0-9_+-]{1,40}){0,3}")


class Rule:
    """The times of a schedule.

    Args:
        every_ms: the interval; 0 for a cron rule.
        first_ms: the first time of an interval that counts from it; None if it counts from the epoch.
        cron: five fields; empty for an interval.
        zone: the zone of a cron rule.
    """

    __slots__ = ("_cron", "_every_ms", "_first_ms", "_zone")

    def __init__(self, every_ms: int, first_ms: int | None, cron: str, zone: str) -> None:
        self._every_ms = every_ms
        self._first_ms = first_ms
        self._cron = cron
        self._zone = zone

    def after(self, at_ms: int) -> int | None:
        """Return the first time after another one, in milliseconds since the epoch; None if none comes in 50 years."""
        if self._cron:
            return _next_of_cron(self._cron, self._zone, at_ms)
        first_ms, every_ms = self._first_ms or 0, self._every_ms
        if self._first_ms is not None and at_ms < first_ms:
            return first_ms
        return first_ms + ((at_ms - first_ms) // every_ms + 1) * every_ms


def _next_of_cron(cron: str, zone: str, at_ms: int) -> int | None:
    try:
        at = (_EPOCH + at_ms * _MS).astimezone(zone_of(zone))
        for moment in CronSim(cron, at):
            next_ms = (moment - _EPOCH) // _MS
            # In an hour that comes twice, CronSim names the first one also when that is over.
            if next_ms > at_ms:
                return next_ms
    except OverflowError:  # after the year 9999
        return None
    return None


@lru_cache(maxsize=1024)
def zone_of(name: str) -> ZoneInfo:
    """Return a zone of the package tzdata.

    Raises:
        ValueError: there is none of this name.
    """
    try:
        if _ZONE.fullmatch(name) is None:
            raise FileNotFoundError(name)
        with files("tzdata").joinpath("zoneinfo", *name.split("/")).open("rb") as file:
            return ZoneInfo.from_file(file, key=name)
    except (OSError, ValueError) as error:
        raise ValueError(f"no zone of this name: {name}") from error


def read_rule(found: Mapping[str, bytes | None]) -> Rule | HeaderFault:
    """Parse the rule of a schedule.

    Args:
        found: the record's headers; it has `tarry-every`, `tarry-cron` or `tarry-zone`.
    """
    if EVERY in found and CRON in found:
        return HeaderFault(ErrorCode.BAD_SCHEDULE, f"{EVERY} and {CRON} exclude each other")
    if CRON in found:
        return _read_cron(found)
    if ZONE in found:
        return HeaderFault(ErrorCode.BAD_SCHEDULE, f"{ZONE} needs {CRON}")
    return _read_every(found)


def _read_every(found: Mapping[str, bytes | None]) -> Rule | HeaderFault:
    value = found.get(EVERY)
    try:
        every_ms = parse_duration_ms((value or b"").decode("ascii"))
    except ValueError as error:
        detail = "it is not ASCII" if isinstance(error, UnicodeDecodeError) else str(error)
        return HeaderFault(ErrorCode.BAD_SCHEDULE, f"{EVERY}: {detail}")
    if every_ms < LEAST_EVERY_MS:
        return HeaderFault(ErrorCode.BAD_SCHEDULE, f"{EVERY} is less than 1s: {shown(value)}")
    if every_ms > LONGEST_EVERY_MS:
        return HeaderFault(ErrorCode.BAD_SCHEDULE, f"{EVERY} is more than 50 years (18300d): {shown(value)}")
    if DELIVER_AT not in found:
        return Rule(every_ms, None, "", "")
    first_ms = read_epoch_ms_or_rfc3339(DELIVER_AT, found[DELIVER_AT])
    return first_ms if isinstance(first_ms, HeaderFault) else Rule(every_ms, first_ms, "", "")


def _read_cron(found: Mapping[str, bytes | None]) -> Rule | HeaderFault:
    if DELIVER_AT in found:
        return HeaderFault(ErrorCode.TWO_DELAYS, f"{CRON} and {DELIVER_AT} exclude each other")
    value, zone_value = found[CRON] or b"", found.get(ZONE, b"UTC") or b""
    zone = zone_value.decode("ascii", "replace")
    try:
        zone_of(zone)
    except ValueError:
        return HeaderFault(ErrorCode.BAD_SCHEDULE, f"{ZONE}: not a zone such as Europe/Berlin: {shown(zone_value)}")
    cron = value.decode("ascii", "replace")
    # CronSim takes a sixth field for seconds.
    if len(cron) > LONGEST_CRON or len(cron.split()) != 5:
        return HeaderFault(
            ErrorCode.BAD_SCHEDULE, f"{CRON}: needs five fields (minute, hour, day, month, weekday): {shown(value)}"
        )
    try:
        CronSim(cron, _EPOCH)
    except (CronSimError, ValueError) as error:
        return HeaderFault(ErrorCode.BAD_SCHEDULE, f"{CRON}: {str(error).lower()}: {shown(value)}")
    return Rule(0, None, " ".join(cron.split()), zone)
