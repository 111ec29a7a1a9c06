"""`tarry topics`: create and check the topics of all intakes, as `tarry serve` does when it starts.

Use it when the service runs as a user that may not create topics.
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
    """Create the topics that are missing, and check the others.

    `tarry serve` does the same when it starts. If a user with the right to create topics runs this command first, the
    service does not need that right. The command prints one line for each topic that it created, and one for each
    intake.

    Example: tarry topics --config tarry.toml
    """
    settings = load(config, os.environ)
    logs.configure(context.obj.log_level if context.obj else "info")

    def report(event: str, **said: Any) -> None:
        if event == "status_topic_unfit":
            typer.echo(
                f"note  {said['reason']}; the service runs without it, but clients cannot ask what the intake accepts"
            )
        if event == "control_topic_unfit":
            typer.echo(f"note  {said['reason']}; the service runs without it, but no target can be paused reliably")
        if event == "operations_topic_unfit":
            typer.echo(f"note  {said['reason']}; the service runs without it, but `tarry api` has no bulk acts")
        if event == "topic_made":
            typer.echo(f"made  {said['topic']}")

    app.prepare(settings, adopt=False, on_event=report)
    for intake in settings.intakes:
        typer.echo(f"ok    {intake.topic}: the topics that it needs are as they must be")
