"""`tarry serve`: the service in the foreground."""

import os
from typing import Annotated

import typer

from tarry import logs
from tarry.cli.options import ConfigOption
from tarry.config import load
from tarry.service import app


def serve(
    context: typer.Context,
    config: ConfigOption = None,
    processes: Annotated[
        int | None, typer.Option(min=1, max=64, metavar="N", help="How many workers; without it as configured.")
    ] = None,
    adopt: Annotated[
        bool,
        typer.Option(
            "--adopt",
            help="Deliver all that an intake holds where nobody knows what of it is done: one of before, or made anew.",
        ),
    ] = False,
) -> None:
    """Deliver messages when they are due, until SIGTERM or Ctrl-C.

    Makes the topics that are missing and checks those that are there. Then one line of JSON an event goes to stderr;
    "serving" means that a process has taken over all its partitions. On SIGTERM they are handed over, and it ends
    within 10 seconds. Health and metrics are at /livez, /readyz and /metrics of [http].

    Example: tarry serve --config tarry.toml
    """
    settings = load(config, os.environ)
    level: logs.Level = context.obj.log_level if context.obj else "info"
    app.serve(
        settings,
        adopt=adopt,
        processes=processes or settings.service.processes,
        log_level=level,
        on_event=logs.configure(level).info,
    )
