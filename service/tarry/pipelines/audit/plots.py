"""Plots for the report; each is a self-contained SVG element."""

import io
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Final

from matplotlib import rc_context
from matplotlib.figure import Figure

from tarry.pipelines.audit.summary import EDGES_MS
from tarry.units import format_duration

_PERCENTILES: Final = ("p50_ms", "p90_ms", "p99_ms", "max_ms")
_SIZE: Final = (9, 3)
_BARE: Final = dict.fromkeys(("Creator", "Date", "Format", "Type"))
"""Suppresses all metadata, because it contains URLs."""


def lateness_histogram(counts: Mapping[int, int]) -> str:
    """A histogram of lateness, by the ranges of `EDGES_MS`."""
    figure = Figure(_SIZE, layout="constrained")
    axes = figure.subplots()
    bars = range(min(counts, default=0), max(counts, default=0) + 1)
    names = [f"< {format_duration(EDGES_MS[bar])}" if bar < len(EDGES_MS) else "later" for bar in bars]
    axes.bar(names, [counts.get(bar, 0) for bar in bars])
    axes.set_ylabel("messages")
    axes.set_xlabel("late by")
    axes.tick_params("x", rotation=45)
    return _svg(figure, "histogram")


def plot_lateness(rows: Sequence[Mapping[str, Any]]) -> str:
    """Percentiles of lateness over due times: rows of `at_ms` and percentiles."""
    figure = Figure(_SIZE, layout="constrained")
    axes = figure.subplots()
    at: list[Any] = [datetime.fromtimestamp(row["at_ms"] / 1_000, UTC) for row in rows]
    for name in _PERCENTILES:
        # Half a millisecond stands for zero, which a logarithmic axis cannot show.
        axes.plot(at, [max(row[name], 0.5) for row in rows], marker=".", label=name.removesuffix("_ms"))
    axes.set_yscale("log")
    axes.set_ylabel("late, ms")
    axes.set_xlabel("due (UTC)")
    axes.legend(loc="upper right")
    figure.autofmt_xdate()
    return _svg(figure, "over-time")


def dead_by_code(counts: Mapping[str, int]) -> str:
    """The number of dead messages by code."""
    figure = Figure((9, 0.8 + 0.3 * len(counts)), layout="constrained")
    axes = figure.subplots()
    ordered = sorted(counts.items(), key=lambda pair: pair[1])
    axes.barh([code for code, _ in ordered], [count for _, count in ordered])
    axes.set_xlabel("messages")
    return _svg(figure, "dead")


def _svg(figure: Figure, name: str) -> str:
    """The figure as an SVG element. Its ids are unique, because one page contains several figures."""
    text = io.StringIO()
    with rc_context({"svg.fonttype": "none", "svg.hashsalt": name, "svg.id": name}):
        figure.savefig(text, format="svg", metadata=_BARE)
    whole = text.getvalue()
    return whole[whole.index("<svg") :]
