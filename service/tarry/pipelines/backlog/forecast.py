"""`forecast`: count which messages will fire when, by target and step of time."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as f

from tarry.units import format_duration, format_instant

STEPS_MS: Final = (1_000, 10_000, 60_000, 300_000, 900_000, 3_600_000, 21_600_000, 86_400_000, 604_800_000)
MOST_STEPS: Final = 60
"""Without `--step`, the job takes the smallest step that makes no more rows than this."""

MOST_TARGETS: Final = 8
"""Groups of targets in the plot and in the text. If there are more targets, the last group joins the smallest."""

UNSURE: Final = "(unread)"
"""Target of records that the service has not read yet and whose target or due time this reader is not sure of."""

_OTHERS: Final = "(others)"


@dataclass(frozen=True, slots=True)
class ForecastRow:
    """The number of messages that fire within a step.

    Attributes:
        intake: the intake in which they wait.
        target: their target.
        due_ms: the start of the step; None if the due time is not known yet.
        count: the number of messages.
    """

    intake: str
    target: str
    due_ms: int | None
    count: int


def forecast(messages: DataFrame, step_ms: int) -> DataFrame:
    """Count waiting messages by intake, target and step.

    Columns: intake, target, due (timestamp) and due_ms, both the start of the step, and null if the due time is not
    known yet; count.

    Args:
        messages: a table of waiting messages (`tarry.pipelines.backlog.waiting`).
        step_ms: the length of a step; steps begin at its multiples.
    """
    due_ms = f.col("due_ms") - f.pmod("due_ms", f.lit(step_ms))
    return (
        messages.groupBy("intake", f.coalesce("target", f.lit(UNSURE)).alias("target"), due_ms.alias("due_ms"))
        .agg(f.count("*").alias("count"))
        .select("intake", "target", f.timestamp_millis("due_ms").alias("due"), "due_ms", "count")
    )


def step_of(messages: DataFrame) -> int:
    """The smallest step that shows waiting messages in at most `MOST_STEPS` rows, in milliseconds."""
    span = messages.agg(f.min("due_ms").alias("first"), f.max("due_ms").alias("last")).head()
    if span is None or span.first is None:
        return STEPS_MS[0]
    fitting = (step for step in STEPS_MS if span.last // step - span.first // step < MOST_STEPS)
    return next(fitting, STEPS_MS[-1])


def rows_of(counted: DataFrame) -> list[ForecastRow]:
    """The rows of `forecast`, ordered by due time, intake and target."""
    columns = counted.select("intake", "target", "due_ms", "count").orderBy("due_ms", "intake", "target")
    return [ForecastRow(*row) for row in columns.collect()]


def text(rows: Sequence[ForecastRow], step_ms: int) -> list[str]:
    """The table as lines of text: a row for each step in which a message fires, a column for each target."""
    names, steps = _grouped(rows)
    if not rows:
        return ["nothing waits"]
    heads = ["due from", *names, "all"]
    lines = [
        [_shown(due_ms), *[f"{counts.get(name, 0):,}" for name in names], f"{sum(counts.values()):,}"]
        for due_ms, counts in steps.items()
    ]
    totals = [f"{sum(counts.get(name, 0) for counts in steps.values()):,}" for name in names]
    lines.append(["all", *totals, f"{sum(row.count for row in rows):,}"])
    widths = [max(len(line[at]) for line in [heads, *lines]) for at in range(len(heads))]
    shown = [
        "  ".join(
            [line[0].ljust(widths[0]), *[cell.rjust(width) for cell, width in zip(line[1:], widths[1:], strict=True)]]
        )
        for line in [heads, *lines]
    ]
    return [f"in steps of {format_duration(step_ms)}", *shown]


def plot(rows: Sequence[ForecastRow], step_ms: int, now_ms: int) -> bytes:
    """The table as an SVG plot, with a bar for each step, a colour for each target, and a line at the current time.

    Args:
        rows: as `rows_of` returns them; the title counts those without a due time.
        step_ms: the length of a step.
        now_ms: the current time.
    """
    # Not pyplot: it would look for a display.
    from io import BytesIO  # noqa: PLC0415 (importing matplotlib takes a second, and only this function needs it)

    from matplotlib.dates import AutoDateLocator, ConciseDateFormatter, date2num  # noqa: PLC0415
    from matplotlib.figure import Figure  # noqa: PLC0415

    names, steps = _grouped(rows)
    known = {due_ms: counts for due_ms, counts in steps.items() if due_ms is not None}
    figure = Figure(figsize=(11, 5), layout="constrained")
    axes = figure.add_subplot()
    at: Any = [date2num(_instant(due_ms)) for due_ms in known]  # type: ignore[no-untyped-call]
    bottoms = [0] * len(known)
    for name in names:
        heights = [counts.get(name, 0) for counts in known.values()]
        axes.bar(at, heights, width=step_ms / 86_400_000, bottom=bottoms, align="edge", label=name)
        bottoms = [bottom + height for bottom, height in zip(bottoms, heights, strict=True)]
    axes.axvline(date2num(_instant(now_ms)), color="black", linewidth=1, linestyle=":", label="now")  # type: ignore[no-untyped-call]
    locator = AutoDateLocator(tz=UTC)  # type: ignore[no-untyped-call]
    axes.xaxis.set_major_locator(locator)
    axes.xaxis.set_major_formatter(ConciseDateFormatter(locator, tz=UTC))  # type: ignore[no-untyped-call]
    total, unsure = sum(row.count for row in rows), sum(row.count for row in rows if row.due_ms is None)
    beside = f", {unsure:,} of them not read yet" if unsure else ""
    axes.set_title(f"{total:,} messages wait at {format_instant(now_ms)}{beside}")
    axes.set_xlabel("due (UTC)")
    axes.set_ylabel(f"messages in {format_duration(step_ms)}")
    axes.legend()
    picture = BytesIO()
    figure.savefig(picture, format="svg", metadata={"Date": None})
    return picture.getvalue()


def _grouped(rows: Sequence[ForecastRow]) -> tuple[list[str], dict[int | None, dict[str, int]]]:
    """The names of the groups, the largest first, and their counts by step; unknown due times come last."""
    totals: dict[str, int] = {}
    for row in rows:
        totals[row.target] = totals.get(row.target, 0) + row.count
    ranked = sorted(totals, key=lambda name: (-totals[name], name))
    names = ranked if len(ranked) <= MOST_TARGETS else [*ranked[: MOST_TARGETS - 1], _OTHERS]
    steps: dict[int | None, dict[str, int]] = {}
    for row in sorted(rows, key=lambda row: (row.due_ms is None, row.due_ms or 0)):
        counts = steps.setdefault(row.due_ms, {})
        name = row.target if row.target in names else _OTHERS
        counts[name] = counts.get(name, 0) + row.count
    return names, steps


def _shown(due_ms: int | None) -> str:
    return "not read yet" if due_ms is None else format_instant(due_ms)


def _instant(at_ms: int) -> datetime:
    return datetime.fromtimestamp(at_ms / 1_000, UTC)
