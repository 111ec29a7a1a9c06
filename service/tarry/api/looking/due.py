"""Counting what waits by due time, from what index and journal say; pure.

A bucket of the overflow wheel says in which range of time its messages are due, not when. So a count in rows narrower
than a bucket is spread evenly over its range, and a row says by how wide a range its messages are known:

    bucket                 |  320 s, at most 40       |
    rows             ... 10 |  10  |  10  |  10        |      resolution 320 s
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from http import HTTPStatus
from itertools import pairwise
from typing import Final, NamedTuple

from tarry.api.problems import ProblemError
from tarry.kafka.backlog_index import DueRange
from tarry.units import MAX_EPOCH_MS, parse_instant_ms

_S, _M, _H, _D = 1_000, 60_000, 3_600_000, 86_400_000
STEPS_MS: Final = (10 * _S, _M, 10 * _M, _H, 6 * _H, _D, 7 * _D, 30 * _D, 365 * _D)
"""The ends of the rows of the widest view, from now on."""

_NICE_MS: Final = (
    *(_S, 2 * _S, 5 * _S, 10 * _S, 15 * _S, 30 * _S),
    *(_M, 2 * _M, 5 * _M, 10 * _M, 15 * _M, 30 * _M),
    *(_H, 2 * _H, 3 * _H, 6 * _H, 12 * _H),
    *(_D, 2 * _D, 7 * _D, 14 * _D, 30 * _D, 90 * _D, 365 * _D),
)
ROWS: Final = 24
"""About how many rows a zoomed view has."""

FOREVER_MS: Final = 4_102_444_800_000 * 10
"""Behind the due time of any message that a service accepts."""


def time_of(name: str, text: str | None) -> int | None:
    """Read a time of a query or a form; None if it was left out, or left empty.

    Raises:
        ProblemError: it is none, or outside the years 1970 to 9999.
    """
    if text is None or not text.strip():
        return None
    try:
        # A plus sign in a URL is a space.
        found = parse_instant_ms(text.strip().replace(" ", "+") if "T" in text else text.strip())
    except ValueError as error:
        raise ProblemError(HTTPStatus.UNPROCESSABLE_ENTITY, f"{name}: {error}") from error
    if not 0 <= found <= MAX_EPOCH_MS:
        raise ProblemError(HTTPStatus.UNPROCESSABLE_ENTITY, f"{name}: a time outside the years 1970 to 9999")
    return found


class Row(NamedTuple):
    """How many messages wait that are due in a range of time.

    Attributes:
        from_ms: the start of the range; None: all that are due before its end.
        until_ms: the end of the range; None: all that are due later.
        at_most: how many.
        resolution_ms: the widest range by which their due times are known; 0: exactly.
    """

    from_ms: int | None
    until_ms: int | None
    at_most: int
    resolution_ms: int = 0


def bounds(now_ms: int, from_ms: int | None = None, until_ms: int | None = None) -> list[int | None]:
    """Return the bounds of rows: of the widest view, or of a range of time in equal steps.

    Args:
        now_ms: the present time.
        from_ms: the start of the range; None: the beginning.
        until_ms: the end of the range; None: without one.
    """
    if from_ms is None or until_ms is None:
        steps = [now_ms, *(now_ms + step for step in STEPS_MS)]
        return [from_ms, *(one for one in steps if (from_ms or 0) < one < (until_ms or FOREVER_MS)), until_ms]
    step_ms = next((one for one in _NICE_MS if (until_ms - from_ms) <= one * ROWS), -(-(until_ms - from_ms) // ROWS))
    first = from_ms // step_ms * step_ms + step_ms
    return [from_ms, *range(first, until_ms, step_ms), until_ms]


def rows(
    counts: Mapping[DueRange, int], in_memory: int, hot_until_ms: int, now_ms: int, edges: Sequence[int | None]
) -> list[Row]:
    """Count by due time.

    Args:
        counts: what waits in the levels, by bucket.
        in_memory: what waits in the intake; it is due before `hot_until_ms`, or was not read yet.
        hot_until_ms: the end of the hot window.
        now_ms: the present time.
        edges: the bounds of the rows, ascending; None at the ends: without a bound.
    """
    found: list[tuple[int, int, int]] = [(one.from_ms, _end(one, now_ms), count) for one, count in counts.items()]
    if in_memory:
        found.append((min(now_ms, hot_until_ms - 1), hot_until_ms, in_memory))
    spans = [(start or 0, FOREVER_MS if end is None else end) for start, end in pairwise(edges)]
    totals, resolutions = [0.0] * len(spans), [0] * len(spans)
    for start, end, count in found:
        # What is overdue is due before now, whatever its bucket says of the time after.
        for number, share in _spread(start, max(end, start + 1), spans):
            totals[number] += count * share
            if share < 1:
                resolutions[number] = max(resolutions[number], end - start)
    whole = _rounded(totals)
    return [
        Row(start, end, count, resolution)
        for start, end, count, resolution in zip(edges, edges[1:], whole, resolutions, strict=False)
    ]


def _end(due: DueRange, now_ms: int) -> int:
    """Return the end of a range; one without an end is of the end of a log, which was filed just now."""
    return due.until_ms if due.until_ms is not None else max(now_ms, due.from_ms) + STEPS_MS[-2]


def _spread(start: int, end: int, spans: Iterable[tuple[int, int]]) -> Iterator[tuple[int, float]]:
    for number, (first, last) in enumerate(spans):
        covered = min(end, last) - max(start, first)
        if covered > 0:
            yield number, covered / (end - start)


def _rounded(totals: Sequence[float]) -> list[int]:
    """Round so that the sum stays: what a row loses goes to the next one."""
    found, rest = [], 0.0
    for total in totals:
        whole = round(total + rest)
        rest += total - whole
        found.append(max(whole, 0))
    return found


class Window(NamedTuple):
    """A span of due times that is read at once, and how many offsets that takes, at most."""

    from_ms: int
    until_ms: int
    at_most: int


def windows(counts: Mapping[DueRange, int], after_ms: int, until_ms: int, most: int) -> Iterator[Window]:
    """Divide the levels' buckets into spans that are read one after the other, each of about `most` records.

    A span ends where a bucket does, unless a wider bucket of a higher level goes on.

    Args:
        counts: what waits in the levels, by bucket.
        after_ms: nothing that is due before counts.
        until_ms: nothing that is due from then on counts.
        most: how many records a span should have.
    """
    known = sorted((one.until_ms, one.from_ms, count) for one, count in counts.items() if one.until_ms is not None)
    start, size = after_ms, 0
    for end, begin, count in known:
        if end <= after_ms:
            continue
        if start >= until_ms:
            return
        if size + count > most and begin > start:
            yield Window(start, min(begin, until_ms), size)
            start, size = begin, 0
        size += count
        if size > most and end > start:
            yield Window(start, min(end, until_ms), size)
            start, size = end, 0
    if start < until_ms:
        yield Window(start, until_ms, size)
