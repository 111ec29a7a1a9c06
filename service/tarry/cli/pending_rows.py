"""The rows that `tarry pending` prints, as text and as JSON objects."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from tarry.cli.inspect import instants
from tarry.core.progress.source import INTAKE, PARKED, Source
from tarry.handle import Handle
from tarry.kafka.backlog import PARKED_SHOWN, Backlog
from tarry.kafka.backlog_index import DueRange, bucket_counts, parked_at_most
from tarry.kafka.inspector import EntryKind, States, Waiting
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


def at_most(backlogs: Iterable[Backlog], states: States, *, by_bucket: bool = False) -> Iterator[PendingRow]:
    """Count from offsets and journals, without reading messages, which gives an upper bound.

    Args:
        backlogs: the partitions.
        states: what their journals say.
        by_bucket: whether the messages of each bucket have a row of their own.

    Returns:
        A row for the records that are in memory or not read yet, then a row for each level or bucket that may hold
        messages, and a row for the parked log.
    """
    in_memory = parked = 0
    counts: Counter[DueRange] = Counter()
    for backlog in backlogs:
        state = states[backlog.place]
        in_memory += max(backlog.end - backlog.low - len(state.done[INTAKE]), 0)
        parked += parked_at_most(backlog, state)
        for due, count in bucket_counts(backlog, state):
            counts[due] += count
    if in_memory:
        yield PendingRow(in_memory, "in memory, or not read yet", {"at_most": in_memory, "level": 0})
    for due, count in sorted((counts if by_bucket else _by_level(counts)).items(), key=_in_order):
        span = instants(**{"from": due.from_ms}) | (instants(until=due.until_ms) if by_bucket else {})
        yield PendingRow(count, _due_text(due), {"at_most": count, "level": due.level, **span})
    if parked:
        yield PendingRow(
            parked,
            "parked: due, but their targets are paused or cannot be written to",
            {"at_most": parked, "level": PARKED_SHOWN},
        )


def _due_text(due: DueRange) -> str:
    since = f"level {due.level}, due from {format_instant(due.from_ms)}"
    return f"{since} on" if due.until_ms is None else f"{since} to {format_instant(due.until_ms)}"


def _by_level(counts: Mapping[DueRange, int]) -> Counter[DueRange]:
    from_ms: dict[int, int] = {}
    for due in counts:
        from_ms[due.level] = min(due.from_ms, from_ms.get(due.level, due.from_ms))
    levels: Counter[DueRange] = Counter()
    for due, count in counts.items():
        levels[DueRange(due.level, from_ms[due.level], None)] += count
    return levels


def _in_order(row: tuple[DueRange, int]) -> tuple[int, int, int]:
    due, _ = row
    return due.level, due.from_ms, due.until_ms or 0


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
