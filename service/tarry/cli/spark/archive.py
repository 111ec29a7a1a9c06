"""`tarry spark archive`."""

from typing import Annotated

import typer

from tarry.cli.looking import ConfigOption, ServersOption
from tarry.cli.spark.job import ConfOption, EveryOption, KafkaOption, MasterOption, job, tell


def archive(
    lake: Annotated[
        str, typer.Option("--lake", metavar="DIR", help="Where the tables are; any path that Spark knows.")
    ],
    *,
    intake: Annotated[
        list[str] | None, typer.Option(metavar="I", help="An intake; by default all that are configured.")
    ] = None,
    every: EveryOption = None,
    skip_lost: Annotated[
        bool, typer.Option("--skip-lost", help="Go on where results were deleted before they were archived.")
    ] = False,
    master: MasterOption = None,
    conf: ConfOption = None,
    kafka_option: KafkaOption = None,
    config: ConfigOption = None,
    bootstrap_servers: ServersOption = None,
) -> None:
    """Keep results and dead letters as Delta tables, by the hour, each record once.

    Adds what is new since the last run to the tables `results` and `dead` of the lake. A run that was killed is made
    good by the next one.

    Examples:
      tarry spark archive --lake /lake/tarry
      tarry spark archive --lake s3a://lake/tarry --every 1m --master spark://spark:7077
    """
    with job(
        "archive",
        master=master,
        conf=conf,
        kafka_option=kafka_option,
        config=config,
        bootstrap_servers=bootstrap_servers,
    ) as running:
        from tarry.pipelines.archive import archive as run

        run(
            running.spark,
            running.topics,
            intake or [one.topic for one in running.config.intakes],
            lake,
            every_ms=every,
            may_be_trimmed=skip_lost,
            on_progress=tell,
        )
