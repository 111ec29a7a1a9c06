"""`tarry spark schedule`."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Event
from types import FrameType
from typing import Annotated, Literal

import typer

from tarry.cli.inspect import policy
from tarry.cli.options import default_intake, value_of
from tarry.cli.spark.job import Session, job, pairs, with_results, with_session
from tarry.clock import SystemClock
from tarry.progress_output import tell
from tarry.service.supervisor import handled
from tarry.units import parse_duration_ms, parse_instant_ms


@with_session
def schedule(
    table: Annotated[
        str, typer.Option(metavar="PATH", help="A file, a directory, a glob, or a JDBC URL.", show_default=False)
    ],
    name: Annotated[str, typer.Option("--job", metavar="NAME", help="Ids are made of it and of row keys.")],
    row_key: Annotated[str, typer.Option(metavar="EXPR", help="What names a row; each key once in the table.")],
    target: Annotated[str, typer.Option(metavar="EXPR", help="The topic to deliver to; one for all: \"'orders'\".")],
    *,
    due: Annotated[
        str | None, typer.Option(metavar="EXPR", help="When: a timestamp, epoch milliseconds, or RFC 3339 text.")
    ] = None,
    delay: Annotated[
        str | None,
        typer.Option(metavar="EXPR", help="After the base time: milliseconds, an interval, or text such as 1h30m."),
    ] = None,
    key: Annotated[str | None, typer.Option(metavar="EXPR", help="The message's key; by default null.")] = None,
    value: Annotated[
        str | None, typer.Option(metavar="EXPR", help="Its value; by default all columns as JSON.")
    ] = None,
    header: Annotated[
        list[str] | None, typer.Option("--header", "-H", metavar="NAME=EXPR", help="A header, as often as needed.")
    ] = None,
    where: Annotated[str | None, typer.Option(metavar="EXPR", help="Which rows; by default all.")] = None,
    order_by: Annotated[
        list[str] | None,
        typer.Option(metavar="EXPR", help="The order of a key's messages with equal due times, as often as needed."),
    ] = None,
    table_format: Annotated[
        Literal["parquet", "csv", "json", "jdbc"] | None,
        typer.Option("--format", help="Of the table; by default what its name ends with."),
    ] = None,
    jdbc_table: Annotated[
        str | None, typer.Option(metavar="T", help="With JDBC: a table, or (a query) with a name behind it.")
    ] = None,
    schema: Annotated[
        str | None, typer.Option(metavar="DDL", help="Of CSV or JSON lines: 'id long, at timestamp'.")
    ] = None,
    read_option: Annotated[
        list[str] | None, typer.Option(metavar="K=V", help="An option of Spark's reader, as often as needed.")
    ] = None,
    intake: Annotated[
        str | None, typer.Option(metavar="I", help="By default the first one without a fixed delay or dialect.")
    ] = None,
    state: Annotated[str, typer.Option(metavar="DIR", help="Where jobs keep their base time.")] = "tarry-jobs",
    rejects: Annotated[
        str | None, typer.Option(metavar="DIR", help="Where bad rows go; by default NAME.rejects in --state.")
    ] = None,
    base: Annotated[
        str | None, typer.Option(metavar="TIME", help="What delays count from, RFC 3339; by default the first run.")
    ] = None,
    spread: Annotated[
        str, typer.Option(metavar="2h", help="Put messages off by up to so long, those of one key all the same.")
    ] = "0s",
    rate: Annotated[float | None, typer.Option(metavar="N", min=0.001, help="Rows a second, at most.")] = None,
    refuse_past: Annotated[
        bool, typer.Option("--refuse-past", help="Reject rows whose due time has passed; else they go at once.")
    ] = False,
    session: Session,
) -> None:
    r"""Send the rows of a table as delayed messages, each once however often this runs.

    A run sends what the intake does not know, by ids made of the job's name and row keys: neither waiting nor in its
    results. Expressions are Spark's SQL over the table's columns. A JSON summary goes to stdout; bad rows go to a
    Parquet table, with a reason. Ctrl-C ends after the slice that is being sent, a second one at once; the next run
    goes on.

    Examples:
      tarry spark schedule --table orders.parquet --job reminders \
        --row-key order_id --key customer --target "'reminders'" \
        --due 'ordered_at + interval 3 days'
      tarry spark schedule --table campaign.csv --job spring \
        --row-key email --key email --target "'mail'" \
        --delay "'1h'" --spread 2h --rate 5000 -H campaign="'spring'"
    """
    from tarry.pipelines.schedule.job import Plan
    from tarry.pipelines.schedule.job import schedule as run
    from tarry.pipelines.schedule.messages import Expressions
    from tarry.pipelines.schedule.tables import Table

    asked = Expressions(
        row_key,
        target,
        key,
        value,
        due,
        delay,
        [pair for one in header or () for pair in pairs("--header", [one]).items()],
        order_by or (),
    )
    source = Table(table, table_format, jdbc_table, schema, pairs("--read-option", read_option))
    source.format_or_suffix()
    spread_ms = value_of("--spread", parse_duration_ms, spread)
    base_ms = None if base is None else value_of("--base", parse_instant_ms, base)
    with (
        job("schedule", session, lambda config: with_results([intake or default_intake(config)])) as running,
        _ending_between_slices() as (stop, ended_by),
    ):
        plan = Plan(
            name,
            source,
            asked,
            policy(running.config, intake or default_intake(running.config)),
            state,
            rejects or f"{state.rstrip('/')}/{name}.rejects",
            where,
            base_ms,
            spread_ms,
            rate,
            refuse_past,
        )
        summary = run(running.spark, running.topics, plan, clock=SystemClock(), stop=stop, on_progress=tell)
        typer.echo(json.dumps(summary))
        if "left" in summary:
            raise SystemExit(128 + ended_by[-1])


@contextmanager
def _ending_between_slices() -> Iterator[tuple[Event, list[int]]]:
    """The first SIGTERM or Ctrl-C sets an event, a second one ends at once."""
    stop = Event()
    came: list[int] = []

    def end(number: int, _frame: FrameType | None) -> None:
        came.append(number)
        stop.set()
        tell("ends after the slice that is being sent; once more to end at once")

    with handled(end, once=True):
        yield stop, came
