"""`tarry spark apply`."""

import json
from contextlib import ExitStack
from enum import StrEnum
from importlib.util import find_spec
from typing import TYPE_CHECKING, Annotated

import typer

from tarry.cli.options import positive_duration_ms, value_of
from tarry.cli.spark.job import EveryOption, SparkOptions, job, with_session
from tarry.errors import ConfigError, UsageError
from tarry.pipelines.unknown_column import OnUnknownColumn
from tarry.progress_output import tell
from tarry.units import parse_duration_ms

if TYPE_CHECKING:
    from tarry.pipelines.apply.batch import ChangeTarget, Total


class ZeroDates(StrEnum):
    """How `apply` treats MySQL's zero dates."""

    REJECT = "reject"
    NULL = "null"


class To(StrEnum):
    """Kind of target."""

    POSTGRES = "postgres"
    LAKE = "lake"


@with_session
def apply(
    topic: Annotated[list[str], typer.Option(metavar="T", help="A topic with a change log; repeatable.")],
    to: Annotated[To, typer.Option(help="Kind of target.")],
    *,
    conninfo: Annotated[
        str, typer.Option(metavar="C", help="PostgreSQL's libpq connection string; prefer PGPASSWORD for the password.")
    ] = "",
    jdbc: Annotated[
        str | None, typer.Option(metavar="URL", help="PostgreSQL's JDBC URL; default: derived from --conninfo.")
    ] = None,
    schema: Annotated[str, typer.Option(metavar="S", help="PostgreSQL schema of the target tables.")] = "public",
    lake: Annotated[
        str | None,
        typer.Option(
            metavar="DIR", help="Directory of the Delta tables DATABASE/TABLE; any path that Spark can write."
        ),
    ] = None,
    key: Annotated[
        list[str] | None, typer.Option(metavar="TABLE=COL[,COL]", help="The primary key of a Delta table; repeatable.")
    ] = None,
    tables: Annotated[
        list[str] | None,
        typer.Option(metavar="GLOB", help="Apply only these tables, as DATABASE.TABLE; repeatable; default: all."),
    ] = None,
    checkpoint: Annotated[
        str | None, typer.Option(metavar="DIR", help="Directory of the stream's position; default: in the lake.")
    ] = None,
    name: Annotated[
        str | None, typer.Option("--job", metavar="NAME", help="The job's name; default: the names of its topics.")
    ] = None,
    ids_for: Annotated[str, typer.Option(metavar="7d", help="How long to remember the ids of records.")] = "7d",
    batch: Annotated[int, typer.Option(min=1, metavar="N", help="Maximum records in a batch.")] = 100_000,
    on_unknown_column: Annotated[
        OnUnknownColumn,
        typer.Option(help="A column that the table lacks: end the run, ignore the column, or add it as text."),
    ] = OnUnknownColumn.FAIL,
    zero_dates: Annotated[
        ZeroDates, typer.Option(help="MySQL's 0000-00-00 in a date column: reject the record, or write null.")
    ] = ZeroDates.REJECT,
    merge_databases: Annotated[
        bool,
        typer.Option("--merge-databases", help="Write same-named tables of several databases to one PostgreSQL table."),
    ] = False,
    max_rejects: Annotated[
        int | None, typer.Option(min=0, metavar="N", help="End the run if it rejects more records than this.")
    ] = None,
    rejected: Annotated[
        bool, typer.Option("--rejected", help="Apply rejected records and later changes of their rows again, and end.")
    ] = False,
    every: EveryOption = None,
    session: SparkOptions,
) -> None:
    """Apply a change log to database tables: the changes of each row in order, each change once.

    Applies change records in Maxwell's format for MySQL to existing tables in PostgreSQL or Delta. After a killed run,
    the next run continues. Records that cannot be applied are kept in tarry_apply_rejects, or in the lake's
    tarry_apply/rejects: fix the cause and apply them again with --rejected. A JSON summary goes to stdout.

    Examples:
      tarry spark apply --topic maxwell --to postgres --conninfo postgresql://me@db/shop --checkpoint /var/apply
      tarry spark apply --topic maxwell --to lake --lake /lake --key shop.orders=id --every 10s
      tarry spark apply --topic maxwell --to lake --lake /lake --key shop.orders=id --rejected
    """
    if rejected and every is not None:
        raise ConfigError("--rejected and --every exclude each other: a run with --rejected ends by itself")
    job_name = name or "+".join(topic)
    ids_for_ms = value_of("--ids-for", parse_duration_ms, ids_for)
    every_ms = None if every is None else value_of("--every", positive_duration_ms, every)
    keys = _keys(key)
    if to is To.POSTGRES:
        if not (conninfo and checkpoint):
            raise ConfigError("--to postgres needs --conninfo and --checkpoint")
        if find_spec("psycopg") is None:
            raise UsageError("--to postgres needs psycopg: pip install 'tarry[postgres]'")
    elif lake is None:
        raise ConfigError("--to lake needs --lake")
    with (
        job("apply", session, lambda _config: topic) as running,
        ExitStack() as until_the_end,
    ):
        from tarry.pipelines.apply import ApplyJob, ApplyRules

        as_null = zero_dates is ZeroDates.NULL
        target: ChangeTarget
        if lake is not None and to is To.LAKE:
            from tarry.pipelines.apply.lake import Lake

            target = Lake(running.spark, lake, job_name, keys, ids_for_ms=ids_for_ms, zero_dates_as_null=as_null)
        else:
            from tarry.pipelines.apply.postgres import Postgres

            opened = Postgres(
                conninfo,
                job_name,
                schema=schema,
                jdbc=jdbc,
                ids_for_ms=ids_for_ms,
                merge_databases=merge_databases,
                zero_dates_as_null=as_null,
            )
            target = until_the_end.enter_context(opened)

        def say(total: "Total") -> None:
            typer.echo(json.dumps({"job": job_name, **total.summary()}))

        rules = ApplyRules(tables or ["*"], on_unknown_column, max_rejects)
        work = ApplyJob(running.topics, topic, target, tell, rules)
        if rejected:
            say(work.run_rejected())
            return
        work.run(
            checkpoint or f"{str(lake).rstrip('/')}/_checkpoints/apply-{job_name}",
            rows_a_batch=batch,
            every_ms=every_ms,
            on_end=say,
        )


def _keys(options: list[str] | None) -> dict[str, list[str]]:
    keys = {}
    for option in options or ():
        table, equals, columns = option.partition("=")
        names = columns.split(",")
        if not (table and equals and all(names)):
            raise ConfigError(f"--key: must be TABLE=COLUMN[,COLUMN]: {option}")
        keys[table] = names
    return keys
