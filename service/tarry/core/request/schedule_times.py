"""The times and the rule of a schedule, from the headers of one of its records; pure."""

from collections.abc import Iterator, Mapping
from itertools import islice

from tarry.core.request.header_values import HeaderFault
from tarry.core.request.rule import read_rule
from tarry.core.request.schedules import shift_of
from tarry.errors import HeaderError
from tarry.headers import CRON, EVERY, ZONE


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
