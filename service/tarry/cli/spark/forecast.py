"""`tarry spark forecast`."""

import json
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from tarry.cli.options import JsonOption, positive_duration_ms, value_of
from tarry.cli.spark.job import SparkOptions, job, named_or_all, of_intakes, with_session
from tarry.clock import SystemClock
from tarry.errors import ConfigError
from tarry.progress_output import tell
from tarry.service.app import policy_at
from tarry.units import format_instant


@with_session
def forecast(
    *,
    out: Annotated[
        str | None, typer.Option("--out", metavar="DIR", help="Write forecast.parquet and forecast.svg to it.")
    ] = None,
    step: Annotated[
        str | None, typer.Option(metavar="1h", help="Length of a step; default: a length that makes 60 rows at most.")
    ] = None,
    where: Annotated[
        str | None, typer.Option(metavar="SQL", help="Count only messages that match; see tarry spark shift.")
    ] = None,
    intake: Annotated[
        list[str] | None, typer.Option(metavar="I", help="An intake; repeatable; default: all configured intakes.")
    ] = None,
    as_json: JsonOption = False,
    session: SparkOptions,
) -> None:
    """Count waiting messages by due time and target: which messages will fire when.

    Messages with a pending cancel are left out.

    Examples:
      tarry spark forecast --step 1h --out forecast
      tarry spark forecast --where "target = 'campaign'" --json
    """
    step_ms = None if step is None else value_of("--step", positive_duration_ms, step)
    if out is not None and Path(out).exists():
        raise ConfigError(f"--out: {out} exists already")
    with job("forecast", session, of_intakes(intake)) as running:
        from tarry.pipelines.backlog import forecast as counting
        from tarry.pipelines.backlog.waiting import matching_messages, refuse_bad, waiting

        settings = running.config
        if where is not None:
            refuse_bad(running.spark, where)
        now_ms = SystemClock().now_ms()
        found = None
        for topic in named_or_all(settings, intake):
            one = waiting(running.topics, settings.service.group, policy_at(settings, topic), on_progress=tell)
            chosen = one if where is None else matching_messages(one, where)
            found = chosen if found is None else found.unionByName(chosen)
        if found is None:
            raise ConfigError("no intake is configured")
        messages = found.select("intake", "target", "due_ms").localCheckpoint()
        step_ms = counting.step_of(messages) if step_ms is None else step_ms
        counted = counting.forecast(messages, step_ms).localCheckpoint()
        rows = counting.rows_of(counted)
        if out is not None:
            counted.repartition(1).write.parquet(f"{out}/forecast.parquet")
            Path(out, "forecast.svg").write_bytes(counting.plot(rows, step_ms, now_ms))
    if as_json:
        for row in rows:
            due = None if row.due_ms is None else format_instant(row.due_ms)
            typer.echo(json.dumps({**asdict(row), "due": due, "step_ms": step_ms}))
        return
    for line in counting.text(rows, step_ms):
        typer.echo(line)
