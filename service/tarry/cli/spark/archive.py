"""`tarry spark archive`."""

import json
from dataclasses import asdict
from typing import Annotated

import typer

from tarry.cli.options import positive_duration_ms, value_of
from tarry.cli.spark.job import EveryOption, SparkOptions, job, named_or_all, of_intakes, with_session
from tarry.progress_output import tell


@with_session
def archive(
    lake: Annotated[
        str, typer.Option("--lake", metavar="DIR", help="Directory of the tables; any path that Spark can write.")
    ],
    *,
    intake: Annotated[
        list[str] | None, typer.Option(metavar="I", help="An intake; repeatable; default: all configured intakes.")
    ] = None,
    every: EveryOption = None,
    skip_lost: Annotated[
        bool, typer.Option("--skip-lost", help="Continue if results were deleted before they were archived.")
    ] = False,
    session: SparkOptions,
) -> None:
    """Keep results and dead letters as Delta tables, partitioned by hour, each record once.

    Adds the records since the last run to the tables `results` and `dead` of the lake. After a killed run, the next run
    continues. A JSON summary goes to stdout.

    Examples:
      tarry spark archive --lake /lake/tarry
      tarry spark archive --lake s3a://lake/tarry --every 1m --master spark://spark:7077
    """
    every_ms = None if every is None else value_of("--every", positive_duration_ms, every)
    with job("archive", session, of_intakes(intake)) as running:
        from tarry.pipelines.archive import archive as run

        done = run(
            running.topics,
            named_or_all(running.config, intake),
            lake,
            every_ms=every_ms,
            may_be_trimmed=skip_lost,
            on_progress=tell,
        )
        typer.echo(json.dumps({name: asdict(table) for name, table in done.items()}))
