"""`tarry dismiss`: note of dead letters that nothing follows."""

import json
from contextlib import closing
from typing import Annotated

import typer

from tarry.cli.inspect import Bar, configured
from tarry.cli.options import ConfigOption, JsonOption, ServersOption
from tarry.cli.redrive import WhereOption, show
from tarry.client.retry.core.redrive import Condition
from tarry.client.retry.redrive import Redrive


def dismiss(
    dead: Annotated[str, typer.Argument(help="The dead-letter topic.", show_default=False)],
    *,
    where: WhereOption = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Write nothing; only print the dead letters that would be dismissed.")
    ] = False,
    as_json: JsonOption = False,
    config: ConfigOption = None,
    bootstrap_servers: ServersOption = None,
) -> None:
    """Mark dead letters as done, without sending them again.

    A dismissed letter is not counted any more, and `tarry redrive` leaves it out. The letters stay in the topic as long
    as its retention says: the command writes a note beside them, as `tarry redrive` does. Nothing is sent, so a stopped
    key of a RetryingConsumer stays stopped.

    Example: tarry dismiss tarry.delayed.dead --where tarry-error=unknown-target --dry-run
    """
    conditions = [Condition.parse(text) for text in where or []]
    _, cluster = configured(config, bootstrap_servers)
    with closing(Bar()) as bar:
        redriving = Redrive(cluster, dead, lambda text: typer.echo(f"tarry: {text}", err=True), bar.advance)
        found = redriving.look(conditions) if dry_run else []
        count = 0 if dry_run else redriving.dismiss(conditions)
    if dry_run:
        show(found, "dismiss", as_json=as_json)
    else:
        typer.echo(json.dumps({"dismissed": count}) if as_json else f"dismissed {count:,}")
