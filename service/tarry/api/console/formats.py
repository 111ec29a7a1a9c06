"""How pages write times, durations, numbers and sizes; pure."""

import re
from datetime import UTC, datetime
from typing import Final
from zoneinfo import ZoneInfo

from markupsafe import Markup, escape

from tarry.units import format_instant, parse_instant_ms

_UNITS: Final = (("y", 31_536_000_000), ("mo", 2_592_000_000), ("d", 86_400_000), ("h", 3_600_000), ("min", 60_000))
_SIZES: Final = (("GiB", 2**30), ("MiB", 2**20), ("KiB", 2**10))
_BRIEF: Final = ((1_000_000_000, "G"), (1_000_000, "M"), (1_000, "k"))
_INSTANT: Final = re.compile(r"\d{4}-\d{2}-\d{2}T\d{2}:\d{2}:\d{2}\.\d{3}Z")


def utc(ms: int) -> str:
    """Return an instant in UTC, to the second."""
    return format_instant(ms)[:19].replace("T", " ") + " UTC"


def instant_as(ms: int, form: str) -> str:
    """Return a part of an instant in UTC: its `clock`, to the minute or `second`, its `day` or its `month`."""
    text = format_instant(ms)
    return {"month": text[:7], "day": text[5:10], "clock": text[11:16]}.get(form, text[11:19])


def in_zone(ms: int, zone: str) -> str:
    """Return an instant as the clocks of a zone show it."""
    return datetime.fromtimestamp(ms / 1_000, UTC).astimezone(ZoneInfo(zone)).strftime("%H:%M")


def ago(ms: int, now_ms: int) -> str:
    """Return how far an instant is from now, in one unit, as the script of the pages does."""
    ahead_ms = ms - now_ms
    size = abs(ahead_ms)
    if size < 1_500:
        return "now"
    word, unit = next(((word, unit) for word, unit in _UNITS if size >= unit), ("s", 1_000))
    text = f"{size // unit} {word}"
    return f"in {text}" if ahead_ms > 0 else f"{text} ago"


def span(ms: float | None) -> str:
    """Return a duration in one unit: `130 ms`, `1.2 s`, `22 h`; a dash for None."""
    if ms is None:
        return "\N{EN DASH}"
    if ms < 1_000:
        return f"{round(ms)} ms"
    if ms < 60_000:
        return f"{ms / 1_000:.2g} s" if ms < 10_000 else f"{round(ms / 1_000)} s"
    word, unit = next((word, unit) for word, unit in _UNITS if ms >= unit)
    return f"{round(ms / unit)} {word}"


def skew(ahead_ms: int) -> str:
    """Return how far a clock is ahead."""
    if not ahead_ms:
        return "is exact"
    return f"{span(abs(ahead_ms))} {'ahead' if ahead_ms > 0 else 'behind'}"


def number(count: int) -> str:
    """Return a number with thin spaces between thousands."""
    return f"{count:,}".replace(",", "\u202f")


def brief(count: int) -> str:
    """Return a number in four characters or fewer."""
    for size, word in _BRIEF:
        if count >= size:
            value = count / size
            return f"{value:.1f}{word}" if value < 10 else f"{round(value)}{word}"
    return str(count)


def rate(per_s: float) -> str:
    """Return messages a second with at most three figures."""
    if not per_s:
        return "0"
    if per_s >= 100:
        return number(round(per_s))
    return f"{per_s:.1f}" if per_s >= 1 else f"{per_s:.2f}"


def size(count: int) -> str:
    """Return bytes in one unit."""
    for word, unit in _SIZES:
        if count >= unit:
            return f"{count / unit:.3g} {word}"
    return "1 byte" if count == 1 else f"{count} bytes"


def times(text: str) -> Markup:
    """Return a text whose instants are elements, which the script writes in the viewer's zone."""
    parts, end = [], 0
    for found in _INSTANT.finditer(text):
        ms = parse_instant_ms(found[0])
        parts += [
            escape(text[end : found.start()]),
            Markup('<time datetime="{}" data-ms="{}">{}</time>').format(found[0], ms, utc(ms)),
        ]
        end = found.end()
    return Markup("").join([*parts, escape(text[end:])])


FILTERS: Final = {
    "utc": utc,
    "rfc3339": format_instant,
    "instant_as": instant_as,
    "in_zone": in_zone,
    "ago": ago,
    "span": span,
    "skew": skew,
    "n": number,
    "brief": brief,
    "rate": rate,
    "size": size,
    "times": times,
}
