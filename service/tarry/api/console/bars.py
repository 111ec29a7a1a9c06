"""Counts over time as the bars of a chart, each a link that zooms in; pure."""

from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

from tarry.api.console.formats import number, span, utc
from tarry.api.looking.due import STEPS_MS
from tarry.api.looking.models import DeadHour, DueRow

LEAST_HEIGHT: Final = 2.5
"""The height of a bar with a count, of 100: one message among a million is seen, too."""

MOST_LABELS: Final = 6
"""How many labels a chart with many bars has, so that they fit on a phone."""

HOURS: Final = 48
LABELS: Final = ("10s", "1m", "10m", "1h", "6h", "1d", "7d", "30d", "1y")
"""Below the bars of the widest view, for `STEPS_MS`: short, for phones."""

_HOUR_MS: Final = 3_600_000
_DAY_MS: Final = 86_400_000
LEAST_SPAN_MS: Final = 1_000


class Bar(NamedTuple):
    """One bar.

    Attributes:
        messages: how many it counts.
        height: of 100.
        label: what is written below it; empty: nothing.
        title: all about it, in a line.
        href: where it leads; empty: nowhere.
        is_late: whether what it counts is due already.
        is_spread: whether it is a share of a wider range.
        label_ms: the instant that the label is; None if it is none.
        form: how the instant is written: `clock`, `second`, `day` or `month`.
    """

    messages: int
    height: float
    label: str
    title: str
    href: str = ""
    is_late: bool = False
    is_spread: bool = False
    label_ms: int | None = None
    form: str = ""


def due_bars(rows: Sequence[DueRow], link: Callable[[int, int], str], *, is_late: bool) -> list[Bar]:
    """Return what waits by due time as bars.

    Args:
        rows: the counts.
        link: returns where a range of due times leads.
        is_late: whether something is late, so that what is due by now is not just being delivered.
    """
    heights = _heights([row.at_most for row in rows])
    is_whole = len(rows) == len(STEPS_MS) + 2
    every = -(-len(rows) // MOST_LABELS)
    form = "" if is_whole else _form(rows)
    bars = []
    for place, (row, height) in enumerate(zip(rows, heights, strict=True)):
        start, end = row.due_from, row.due_until
        # What is due by now is listed from the beginning; what is later than all steps, to some years ahead.
        first = start if start is not None else 0
        last = end if end is not None else first + 10 * STEPS_MS[-1]
        label = _label(place) if is_whole else ""
        text = _text(place) if is_whole else f"due from {utc(first)} to {utc(last)}"
        spread = f", spread evenly over {span(row.resolution_ms)}" if row.resolution_ms else ""
        title = f"{number(row.at_most)} at most {text}{spread}"
        href = link(first, last) if row.at_most and place and last - first > LEAST_SPAN_MS else ""
        is_spread = end is not None and start is not None and row.resolution_ms * 2 > end - start
        label_ms = None if is_whole or place % every else first
        bars.append(Bar(row.at_most, height, label, title, href, is_late and not start, is_spread, label_ms, form))
    return bars


def _label(place: int) -> str:
    """Return what is written below a bar of the widest view."""
    if not place:
        return "now"
    return LABELS[place - 1] if place <= len(STEPS_MS) else "later"


def _text(place: int) -> str:
    if not place:
        return "due by now"
    if place > len(STEPS_MS):
        return f"due in more than {span(STEPS_MS[-1])}"
    return f"due within {span(STEPS_MS[place - 1])}"


def _form(rows: Sequence[DueRow]) -> str:
    """Return how the instants below bars are written: as short as their neighbours allow."""
    width = (rows[-1].due_until or 0) - (rows[0].due_from or 0) if rows else 0
    if width > 400 * _DAY_MS:
        return "month"
    return "day" if width > 3 * _DAY_MS else "clock" if width > _HOUR_MS // 3 else "second"


def hour_bars(hours: Sequence[DeadHour], now_ms: int) -> list[Bar]:
    """Return dead letters of the last `HOURS` hours as bars; what is older is in the first one."""
    last = now_ms // _HOUR_MS
    counts = [0] * HOURS
    for one in hours:
        counts[max(min(one.hour // _HOUR_MS - last + HOURS - 1, HOURS - 1), 0)] += one.count
    bars = []
    for place, (count, height) in enumerate(zip(counts, _heights(counts), strict=True)):
        hour = (last - HOURS + 1 + place) * _HOUR_MS
        when = f"before {utc(hour + _HOUR_MS)}" if not place else f"from {utc(hour)}, one hour"
        back = HOURS - 1 - place
        label = ("now" if not back else f"{back} h ago") if back % 12 == 0 else "older" if not place else ""
        bars.append(Bar(count, height, label, f"{number(count)} {when}"))
    return bars


def _heights(counts: Sequence[int]) -> list[float]:
    most = max(counts, default=0)
    return [round(max(100 * count / most, LEAST_HEIGHT), 2) if count else 0 for count in counts]
