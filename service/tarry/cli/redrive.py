"""`tarry redrive`: send dead letters again."""

import json
from collections import Counter
from contextlib import closing
from typing import Annotated

import typer

from tarry.cli.inspect import Bar, configured
from tarry.cli.options import ConfigOption, JsonOption, ServersOption
from tarry.client.retry.core.redrive import Condition, DeadLetter
from tarry.client.retry.redrive import Redrive
from tarry.headers import ERROR
from tarry.units import shown

SHOWN = 10
"""The largest number of dead letters that `--dry-run` lists."""

WhereOption = Annotated[
    list[str] | None,
    typer.Option(
        metavar="NAME=PATTERN",
        help="Select dead letters. NAME is key, value or the name of a header; PATTERN is a shell pattern. "
        "With several --where, all must match.",
    ),
]


def redrive(
    dead: Annotated[str, typer.Argument(help="The dead-letter topic.", show_default=False)],
    *,
    to: Annotated[str, typer.Option("--to", metavar="TOPIC", help="The topic to send the dead letters to.")],
    where: WhereOption = None,
    expired: Annotated[
        bool,
        typer.Option(
            "--expired", help="Also send dead letters that have expired, without the header tarry-expires-at."
        ),
    ] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Send nothing; only print what would be sent.")] = False,
    as_json: JsonOption = False,
    config: ConfigOption = None,
    bootstrap_servers: ServersOption = None,
) -> None:
    """Send dead letters again.

    Each dead letter is sent once, even if the command runs again: the same transaction writes a record to the
    dead-letter topic that marks the dead letter as sent. Messages of one key keep their order; but of dead letters with
    the same key and name, only the newest is sent, and the service skips it if a newer message waits. A stopped key of
    a RetryingConsumer continues with the first dead letter of that key. A dead letter that has expired would be dead
    again: the command leaves it out, unless --expired is given. One that Kafka refuses stays.

    Examples:
      tarry redrive orders.billing.dead --to orders --dry-run
      tarry redrive orders.billing.dead --to orders --where tarry-error=out-of-attempts --where 'key=order-*'
    """
    conditions = [Condition.parse(text) for text in where or []]
    _, cluster = configured(config, bootstrap_servers)
    with closing(Bar()) as bar:
        redriving = Redrive(cluster, dead, lambda text: typer.echo(f"tarry: {text}", err=True), bar.advance)
        found = redriving.sendable(to, conditions, expired=expired) if dry_run else []
        sent = 0 if dry_run else redriving.run(to, conditions, expired=expired)
    if dry_run:
        show(found, "send", to, as_json=as_json)
    else:
        refused = redriving.refused
        more = f", {refused:,} refused" if refused else ""
        typer.echo(
            json.dumps({"sent": sent, "refused": refused, "to": to}) if as_json else f"sent {sent:,} to {to}{more}"
        )


def show(letters: list[DeadLetter], act: str, to: str | None = None, *, as_json: bool) -> None:
    """Print which dead letters would be sent, or dismissed.

    Args:
        letters: the letters.
        act: what would be done with them: `send` or `dismiss`.
        to: the topic to send them to.
        as_json: whether to print JSON.
    """
    reasons = Counter(",".join(letter.text(ERROR)) for letter in letters)
    if as_json:
        where = {} if to is None else {"to": to}
        typer.echo(json.dumps({f"would_{act}": len(letters), **where, "by_error": reasons}))
        return
    typer.echo(f"would {act} {len(letters):,}" + ("" if to is None else f" to {to}"))
    for reason, count in reasons.most_common():
        typer.echo(f"  {count:,} {_printable(reason)}")
    for letter in letters[:SHOWN]:
        key = "".join(letter.text("key")) or "no key"
        typer.echo(f"  partition {letter.partition} offset {letter.offset}: {_printable(key)}")
    if len(letters) > SHOWN:
        typer.echo(f"  and {len(letters) - SHOWN:,} more")


def _printable(text: str) -> str:
    """Escape text from a message, which must not send control characters to the terminal."""
    return text if text.isprintable() else shown(text)
