"""`tarry serve`: run the service in the foreground."""

import os
from typing import Annotated

import typer

from tarry import logs
from tarry.cli.options import ConfigOption
from tarry.config import load
from tarry.config.sources import file_of
from tarry.errors import TarryError
from tarry.service import app


def serve(
    context: typer.Context,
    config: ConfigOption = None,
    processes: Annotated[
        int | None,
        typer.Option(
            min=1, max=64, metavar="N", help="Number of worker processes. Default: service.processes as configured."
        ),
    ] = None,
    adopt: Annotated[
        bool,
        typer.Option(
            "--adopt",
            help="Start each partition that cannot be taken over at the first record of its intake, and deliver all "
            "records that the intake holds. For an intake that existed before tarry, or topics that were created "
            "again. Messages may be delivered a second time.",
        ),
    ] = False,
) -> None:
    """Run the service: deliver messages when they are due.

    First the command creates the topics that are missing and checks those that exist. Then it runs until SIGTERM or
    Ctrl-C, and logs one line of JSON per event to stderr. The event "serving" means that a process has taken over all
    of its partitions.

    On SIGTERM the service releases its partitions and ends within 10 seconds. Health and metrics are at /livez,
    /readyz and /metrics of the [http] address.

    Example: tarry serve --config tarry.toml
    """
    settings = load(config, os.environ)
    level: logs.Level = context.obj.log_level if context.obj else "info"
    on_event = logs.speaker(logs.configure(level))
    on_event("configured", file=str(file_of(config, os.environ) or "none"), brokers=settings.kafka.bootstrap_servers)
    try:
        app.serve(
            settings,
            adopt=adopt,
            processes=processes or settings.service.processes,
            log_level=level,
            on_event=on_event,
        )
    except TarryError as error:
        on_event("failed", error=str(error))  # whoever reads the log as JSON lines sees the end, too
        raise
