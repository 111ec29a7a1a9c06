"""`tarry spark schedule`."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Event
from types import FrameType
from typing import Annotated, Literal

import typer

from tarry.cli.options import default_intake, value_of
from tarry.cli.spark.job import SparkOptions, job, pairs, with_results, with_session
from tarry.clock import SystemClock
from tarry.progress_output import tell
from tarry.service.app import policy_at
from tarry.service.supervisor import handled
from tarry.units import parse_duration_ms, parse_instant_ms


@with_session
def schedule(
    table: Annotated[
        str, typer.Option(metavar="PATH", help="A file, a directory, a glob, or a JDBC URL.", show_default=False)
    ],
    name: Annotated[str, typer.Option("--job", metavar="NAME", help="The job's name; part of the messages' ids.")],
    row_key: Annotated[str, typer.Option(metavar="EXPR", help="The row's unique key; part of the message's id.")],
    target: Annotated[
        str, typer.Option(metavar="EXPR", help="The target topic: a column, or the same for all rows: \"'orders'\".")
    ],
    *,
    due: Annotated[
        str | None, typer.Option(metavar="EXPR", help="Due time: a timestamp, epoch milliseconds, or RFC 3339 text.")
    ] = None,
    delay: Annotated[
        str | None,
        typer.Option(metavar="EXPR", help="Delay after the base time: milliseconds, an interval, or text like 1h30m."),
    ] = None,
    key: Annotated[str | None, typer.Option(metavar="EXPR", help="The message's key; default: null.")] = None,
    value: Annotated[
        str | None, typer.Option(metavar="EXPR", help="The message's value; default: all columns as JSON.")
    ] = None,
    header: Annotated[
        list[str] | None, typer.Option("--header", "-H", metavar="NAME=EXPR", help="A header; repeatable.")
    ] = None,
    where: Annotated[str | None, typer.Option(metavar="EXPR", help="Send only rows that match; default: all.")] = None,
    order_by: Annotated[
        list[str] | None,
        typer.Option(metavar="EXPR", help="Order of messages with equal key and due time; repeatable."),
    ] = None,
    message_name: Annotated[
        str | None,
        typer.Option(
            "--name",
            metavar="EXPR",
            help="The message's name: the message replaces a waiting one with the same key and name. Needs --key.",
        ),
    ] = None,
    only_if: Annotated[
        Literal["absent", "present"] | None,
        typer.Option(
            "--if",
            help="With --name: send a message only if no message with its key and name waits (absent), or only if one "
            "waits (present). The service skips the others.",
        ),
    ] = None,
    expires_at: Annotated[
        str | None,
        typer.Option(
            metavar="EXPR", help="Do not deliver after this time (as --due): the message then becomes a dead letter."
        ),
    ] = None,
    table_format: Annotated[
        Literal["parquet", "csv", "json", "jdbc"] | None,
        typer.Option("--format", help="The table's format; default: from the file name."),
    ] = None,
    jdbc_table: Annotated[
        str | None, typer.Option(metavar="T", help="With a JDBC URL: a table, or '(query) as name'.")
    ] = None,
    schema: Annotated[
        str | None, typer.Option(metavar="DDL", help="Schema of CSV or JSON lines: 'id long, at timestamp'.")
    ] = None,
    read_option: Annotated[
        list[str] | None, typer.Option(metavar="K=V", help="An option of Spark's reader; repeatable.")
    ] = None,
    intake: Annotated[
        str | None, typer.Option(metavar="I", help="The intake; default: the first without a fixed delay or dialect.")
    ] = None,
    state: Annotated[str, typer.Option(metavar="DIR", help="Directory of the jobs' state (base time).")] = "tarry-jobs",
    rejects: Annotated[
        str | None, typer.Option(metavar="DIR", help="Directory of rejected rows; default: NAME.rejects in --state.")
    ] = None,
    base: Annotated[
        str | None,
        typer.Option(
            metavar="TIME",
            help="The time from which --delay counts (RFC 3339). Default: the time of the job's first run.",
        ),
    ] = None,
    spread: Annotated[
        str,
        typer.Option(
            metavar="2h",
            help="Make each due time later by a time from 0 up to this. It is computed from the key (or from the id, "
            "if there is no key): all messages of a key are moved by the same time.",
        ),
    ] = "0s",
    rate: Annotated[float | None, typer.Option(metavar="N", min=0.001, help="Maximum rows a second.")] = None,
    refuse_past: Annotated[
        bool, typer.Option("--refuse-past", help="Reject rows whose due time has passed; otherwise send them.")
    ] = False,
    session: SparkOptions,
) -> None:
    r"""Send the rows of a table as delayed messages. A repeated run sends no row again that an earlier run sent.

    The id of a message is derived from the job's name and the row key. A run skips a row whose id is already in the
    intake, its overflow wheel, its parked log or its results. Results are kept for 7 days by default: a run that comes
    later sends the row again. Expressions are Spark SQL over the table's columns. A
    JSON summary goes to stdout; rejected rows go to a Parquet table, with a reason. Ctrl-C ends the run after the
    current slice, a second Ctrl-C ends it at once; the next run sends the rest.

    Examples:
      tarry spark schedule --table orders.parquet --job reminders \
        --row-key order_id --key customer --target "'reminders'" \
        --due 'ordered_at + interval 3 days'
      tarry spark schedule --table campaign.csv --job spring \
        --row-key email --key email --target "'mail'" \
        --delay "'1h'" --spread 2h --rate 5000 -H campaign="'spring'"
    """
    from tarry.pipelines.schedule.job import ScheduleParameters
    from tarry.pipelines.schedule.job import schedule as run
    from tarry.pipelines.schedule.messages import Expressions
    from tarry.pipelines.schedule.tables import TableSource

    asked = Expressions(
        row_key,
        target,
        key,
        value,
        due,
        delay,
        [pair for one in header or () for pair in pairs("--header", [one]).items()],
        order_by or (),
        message_name,
        only_if,
        expires_at,
    )
    source = TableSource(table, table_format, jdbc_table, schema, pairs("--read-option", read_option))
    source.format_or_suffix()
    spread_ms = value_of("--spread", parse_duration_ms, spread)
    base_ms = None if base is None else value_of("--base", parse_instant_ms, base)
    with (
        job("schedule", session, lambda config: with_results([intake or default_intake(config)])) as running,
        _ending_between_slices() as (stop, ended_by),
    ):
        plan = ScheduleParameters(
            name,
            source,
            asked,
            policy_at(running.config, intake or default_intake(running.config)),
            state,
            rejects or f"{state.rstrip('/')}/{name}.rejects",
            where,
            base_ms,
            spread_ms,
            rate,
            refuse_past,
        )
        summary = run(running.topics, plan, clock=SystemClock(), stop=stop, on_progress=tell)
        typer.echo(json.dumps(summary))
        if "left" in summary:
            raise SystemExit(128 + ended_by[-1])


@contextmanager
def _ending_between_slices() -> Iterator[tuple[Event, list[int]]]:
    """The first SIGTERM or Ctrl-C sets an event, a second one ends the process at once."""
    stop = Event()
    came: list[int] = []

    def end(number: int, _frame: FrameType | None) -> None:
        came.append(number)
        stop.set()
        tell("ending after the current slice; send the signal again to end at once")

    with handled(end, once=True):
        yield stop, came
