"""The rows that `tarry pending` prints, as text and as JSON objects."""

from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

from tarry.cli.inspect import instants
from tarry.core.progress.source import PARKED, Source
from tarry.handle import Handle
from tarry.kafka.backlog import PARKED_SHOWN, Backlog
from tarry.kafka.inspector import EntryKind, Waiting
from tarry.units import format_duration, format_instant, shown

_S, _M, _H, _D = 1_000, 60_000, 3_600_000, 86_400_000
STEPS_MS = (10 * _S, _M, 10 * _M, _H, 6 * _H, _D, 7 * _D, 30 * _D)
"""The upper bounds of the rows of an exact count, in milliseconds from now."""

_OTHERS: tuple[tuple[EntryKind, str], ...] = (
    ("cancel", "cancels"),
    ("purge", "purges"),
    ("dead", "to be dead letters"),
)


def level_shown(source: Source) -> int:
    """Return the level of a source as commands print it: 0 for the intake, `PARKED_SHOWN` for the parked log."""
    return PARKED_SHOWN if source.level == PARKED else source.level


class PendingRow(NamedTuple):
    """One row.

    Attributes:
        size: number of messages.
        text: description of these messages.
        fields: the row as a JSON object.
    """

    size: int
    text: str
    fields: dict[str, Any]


def at_most(backlogs: Iterable[Backlog]) -> Iterator[PendingRow]:
    """Count by offsets, which gives an upper bound.

    Returns:
        A row for the records that are in memory or not read yet, then a row for each level that may hold messages, and
        a row for the parked log.
    """
    in_memory = parked = 0
    counts: Counter[int] = Counter()
    from_ms: dict[int, int] = {}
    for backlog in backlogs:
        in_memory += max(backlog.end - backlog.low, 0)
        parked += backlog.parked_at_most
        for stretch in backlog.stretches():
            if not stretch.at_most:
                continue
            counts[stretch.level] += stretch.at_most
            from_ms[stretch.level] = min(stretch.from_ms, from_ms.get(stretch.level, stretch.from_ms))
    if in_memory:
        yield PendingRow(in_memory, "in memory, or not read yet", {"at_most": in_memory, "level": 0})
    for level, count in sorted(counts.items()):
        fields = {"at_most": count, "level": level, **instants(**{"from": from_ms[level]})}
        yield PendingRow(count, f"level {level}, due from {format_instant(from_ms[level])} on", fields)
    if parked:
        yield PendingRow(
            parked, "parked: overdue, because their targets are away", {"at_most": parked, "level": PARKED_SHOWN}
        )


def by_due_time(waiting: Iterable[Waiting], now_ms: int) -> Iterator[PendingRow]:
    """Count exactly, by the time until the messages are due (`STEPS_MS`).

    Args:
        waiting: all waiting records.
        now_ms: the time now.

    Returns:
        The rows of messages by due time, then a row for cancels and a row for records that will be dead letters.
    """
    ends_ms = [now_ms, *(now_ms + step for step in STEPS_MS)]
    steps: Counter[int] = Counter()
    others: Counter[EntryKind] = Counter()
    for found in waiting:
        if found.kind != "message" or found.due_ms is None:
            others[found.kind] += 1
        else:
            due_ms = found.due_ms
            steps[next((number for number, end in enumerate(ends_ms) if due_ms <= end), len(ends_ms))] += 1
    for number, count in sorted(steps.items()):
        start_ms = ends_ms[number - 1] if number else None
        until_ms = ends_ms[number] if number < len(ends_ms) else None
        fields = {"count": count, "kind": "message", **instants(**{"from": start_ms, "until": until_ms})}
        yield PendingRow(count, _step(number), fields)
    for kind, text in _OTHERS:
        if others[kind]:
            yield PendingRow(others[kind], text, {"count": others[kind], "kind": kind})


def _step(number: int) -> str:
    if not number:
        return "overdue"
    if number > len(STEPS_MS):
        return f"due in more than {format_duration(STEPS_MS[-1])}"
    since = f"{format_duration(STEPS_MS[number - 2])} to " if number > 1 else "up to "
    return f"due in {since}{format_duration(STEPS_MS[number - 1])}"


def listed(found: Waiting) -> tuple[str, dict[str, Any]]:
    """Return one message of a bucket as a line of text and as a JSON object."""
    key = None if found.key is None else found.key.decode("utf-8", "backslashreplace")
    due_ms = found.due_ms
    fields = {
        "id": found.id,
        "handle": None if due_ms is None else str(Handle(*found.place, due_ms, found.id)),
        "kind": found.kind,
        "key": key,
        "target": found.target,
        **instants(due=due_ms),
        "level": level_shown(found.source),
    }
    due = "no due time" if due_ms is None else format_instant(due_ms)
    target = found.target if found.kind == "message" else f"({found.kind})"
    return f"{due}  {found.id}  {target}  {'null' if key is None else shown(key)}", fields
