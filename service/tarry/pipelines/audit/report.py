"""The report: one self-contained HTML page."""

from collections.abc import Iterable, Mapping, Sequence
from html import escape
from typing import Any, Final

from tarry.pipelines.audit import plots
from tarry.pipelines.audit.summary import Summary
from tarry.pipelines.faults import FAULTS, NO_FAULTS
from tarry.units import format_instant

_STYLE: Final = """
body { font: 15px/1.45 system-ui, sans-serif; margin: 2em auto; max-width: 62em; padding: 0 1em; color: #222 }
table { border-collapse: collapse; margin: .6em 0 1.6em } td, th { padding: .2em .8em; border-bottom: 1px solid #ddd }
th { text-align: left } td.n { text-align: right; font-variant-numeric: tabular-nums }
.bad { color: #b00020; font-weight: 600 } .good { color: #1b6e2f; font-weight: 600 }
svg { max-width: 100%; height: auto }
.wide { overflow-x: auto; font-size: 13px } footer { color: #666; margin-top: 3em }
"""

_FATES: Final = {
    "delivered": "at the target",
    "dead": "it can never be delivered",
    "cancelled": "a cancel cancelled it",
    "replaced": "another message of its name took its place",
    "skipped": "it met a message of its name, or none, as it must not",
    "repeated": "its id was already known",
    "waiting": "not due yet: the next run judges it",
    "lost": "a fault",
    "still lost": "an earlier run reported it as lost",
    "unjudged": "the records that would show it were deleted",
}


def page(
    summary: Summary,
    *,
    by_target: Sequence[Mapping[str, Any]],
    over_time: Sequence[Mapping[str, Any]],
    histogram: Mapping[int, int],
    faults: Sequence[Mapping[str, Any]],
) -> str:
    """Render the page.

    Args:
        summary: the figures of the run.
        by_target: lateness of each intake and target.
        over_time: lateness in bins of due times.
        histogram: the number of messages by range of lateness.
        faults: some faults of each kind.
    """
    is_clean = not any(summary.faults.values())
    verdict = '<p class="good">No fault was found.</p>' if is_clean else '<p class="bad">Faults were found.</p>'
    parts = [
        "<h1>Audit</h1>",
        verdict,
        f"<p>Messages that were due before {format_instant(summary.horizon_ms)} were judged.</p>",
        "<h2>Faults</h2>",
        _table(("", "messages", ""), ((kind, count, FAULTS[kind]) for kind, count in summary.faults.items())),
        "<h2>Messages</h2>",
        _table(
            ("", "messages", ""),
            [
                ("accepted", summary.accepted, f"{summary.carried:,} of them carried over from earlier runs"),
                *((fate, summary.fates.get(fate, 0), meaning) for fate, meaning in _FATES.items()),
                *((f"unjudged: {why}", count, "") for why, count in summary.unjudged.items()),
                ("order judged", summary.order["judged"], "accepted before it was due, so it has a place in the order"),
                ("order not judged", summary.order["unjudged"], "perhaps accepted too late to have a place"),
                ("unread", summary.unread, "offsets of intakes that were deleted before a run read them"),
            ],
        ),
        "<h2>Records at the targets</h2>",
        _table(
            ("", "records", ""),
            [
                *((kind, count, (NO_FAULTS | FAULTS).get(kind, "")) for kind, count in summary.accounted.items()),
                ("all", summary.records, "counted before they were processed: it equals the sum"),
            ],
        ),
        "<h2>Lateness</h2>",
    ]
    if by_target:
        figures = ("count", "p50_ms", "p90_ms", "p99_ms", "max_ms")
        rows = [("all", "", *(summary.lateness[name] for name in figures))]
        rows += [(row["intake"], row["target"], *(row[name] for name in figures)) for row in by_target]
        parts += [
            _table(("intake", "target", "messages", "p50 ms", "p90 ms", "p99 ms", "max ms"), rows),
            plots.lateness_histogram(histogram),
            plots.plot_lateness(over_time),
        ]
    else:
        parts.append("<p>Nothing was delivered.</p>")
    if summary.dead:
        parts += [
            "<h2>Dead, by code</h2>",
            _table(("code", "messages"), sorted(summary.dead.items())),
            plots.dead_by_code(summary.dead),
        ]
    if faults:
        names = ("kind", "message", "id", "target", "due", "arrived", "at", "beside", "detail")
        parts += ["<h2>Some of the faults</h2>", '<div class="wide">', _table(names, map(_fault, faults)), "</div>"]
    body = "\n".join(parts)
    return (
        '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8"><title>Audit</title>'
        f"<style>{_STYLE}</style></head>\n<body>\n{body}\n"
        "<footer>tarry spark audit. The tables beside this page hold every message and every fault.</footer>\n"
        "</body></html>\n"
    )


def _fault(row: Mapping[str, Any]) -> tuple[object, ...]:
    place = None if row["intake"] is None else "/".join(str(row[name]) for name in ("intake", "partition", "offset"))
    times = (None if row[name] is None else _instant(row[name]) for name in ("due_ms", "arrived_ms"))
    return (row["kind"], place, row["id"], row["target"], *times, row["at"], row["beside"], row["detail"])


def _instant(at_ms: int) -> str:
    """A time in readable form; the number itself if it is no valid time, as may be in a forged header."""
    try:
        return format_instant(at_ms)
    except ValueError:
        return str(at_ms)


def _table(names: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    head = "".join(f"<th>{escape(name)}</th>" for name in names)
    body = "".join(f"<tr>{''.join(map(_cell, row))}</tr>\n" for row in rows)
    return f"<table><thead><tr>{head}</tr></thead>\n<tbody>{body}</tbody></table>"


def _cell(value: object) -> str:
    if isinstance(value, int):
        return f'<td class="n">{value:,}</td>'
    return f"<td>{'' if value is None else escape(str(value))}</td>"
