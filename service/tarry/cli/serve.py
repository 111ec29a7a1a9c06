"""`tarry serve`: the service in the foreground."""

import os
from pathlib import Path
from typing import Annotated

import typer

from tarry import app, logs
from tarry.config import load
from tarry.errors import UsageError


def serve(
    context: typer.Context,
    config: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="The configuration; without it ./tarry.toml, if there."),
    ] = None,
    processes: Annotated[
        int | None, typer.Option(min=1, metavar="N", help="How many workers; without it as configured.")
    ] = None,
    adopt: Annotated[
        bool,
        typer.Option(
            "--adopt",
            help="Deliver all that an intake holds where nothing is known of it: a topic that was there before.",
        ),
    ] = False,
) -> None:
    """Deliver messages when they are due, until SIGTERM or Ctrl-C.

    Makes the topics that are missing and checks those that are there. Then one line of JSON an event goes to stderr;
    "serving" means that all its partitions are taken over. On SIGTERM it hands them over and ends within 10 seconds.

    Example: tarry serve --config tarry.toml
    """
    settings = load(config, os.environ)
    if (processes or settings.service.processes) > 1:
        raise UsageError("this version serves with one process: start it again for another, in the same group")
    logger = logs.configure(context.obj.log_level if context.obj else "info")
    app.serve(settings, adopt=adopt, on_event=logger.info)
