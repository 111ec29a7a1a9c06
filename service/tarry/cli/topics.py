"""`tarry topics`: the topics of all intakes, made or checked as a start of the service would, and no more.

For who starts the service with a user that may create none.
"""

import os
from typing import Any

import typer

from tarry import logs
from tarry.cli.options import ConfigOption
from tarry.config import load
from tarry.service import app


def topics(
    context: typer.Context,
    config: ConfigOption = None,
) -> None:
    """Make the topics that are missing, check those that are there, and end.

    It is what `tarry serve` does first. Run before it, by a user who may create topics, it leaves the service without
    need for that right. Prints one line for each topic that was made, and one for each intake.

    Example: tarry topics --config tarry.toml
    """
    settings = load(config, os.environ)
    logs.configure(context.obj.log_level if context.obj else "info")

    def report(event: str, **said: Any) -> None:
        if event == "status_topic_unfit":
            typer.echo(f"note  {said['reason']}; the service does without, and clients cannot ask what it accepts")
        if event == "topic_made":
            typer.echo(f"made  {said['topic']}")

    app.prepare(settings, adopt=False, on_event=report)
    for intake in settings.intakes:
        typer.echo(f"ok    {intake.topic}: its topics are as they must be")
