"""`tarry parked`: show which targets have messages in the parked log, how many, and since when."""

import json
from collections.abc import Iterable
from typing import Annotated, Any, NamedTuple

import typer

from tarry.cli.inspect import configured, instants, open_inspector
from tarry.cli.options import ConfigOption, JsonOption, ServersOption
from tarry.kafka.inspector import ParkedMessages
from tarry.units import format_instant


class ParkedTarget(NamedTuple):
    """The parked messages of one target, in all partitions.

    Attributes:
        target: the target.
        messages: how many they are.
        since_ms: the due time of the first one; None if it is not in the log any more.
        partitions: the partitions of the intake that they came to.
    """

    target: str
    messages: int
    since_ms: int | None
    partitions: tuple[int, ...]


def parked(
    intake: Annotated[
        str | None, typer.Option(metavar="I", help="The intake. Default: all configured intakes.")
    ] = None,
    *,
    as_json: JsonOption = False,
    config: ConfigOption = None,
    bootstrap_servers: ServersOption = None,
) -> None:
    """Show which targets are away for long, with the messages that wait for them.

    A message whose target is away waits in memory at first, and after 30 s in the parked log. The command prints one
    row for each target with messages there: how many, and since when the first one is due. They are delivered in order
    when the target is back.

    Example: tarry parked --intake tarry.delayed
    """
    settings, cluster = configured(config, bootstrap_servers)
    with open_inspector(settings, cluster) as inspector:
        for topic in [intake] if intake else [one.topic for one in settings.intakes]:
            rows = by_target(inspector.parked(inspector.survey(topic)))
            for line in lines(topic, rows, as_json=as_json):
                typer.echo(line)


def by_target(found: Iterable[ParkedMessages]) -> list[ParkedTarget]:
    """Add up the parked messages of all partitions, the target that has waited longest first."""
    rows: dict[str, ParkedTarget] = {}
    for one in found:
        row = rows.get(one.target) or ParkedTarget(one.target, 0, one.since_ms, ())
        known = [at_ms for at_ms in (row.since_ms, one.since_ms) if at_ms is not None]
        rows[one.target] = ParkedTarget(
            one.target, row.messages + one.messages, min(known, default=None), (*row.partitions, one.place[1])
        )
    return sorted(rows.values(), key=lambda row: (row.since_ms is None, row.since_ms or 0, row.target))


def lines(intake: str, rows: Iterable[ParkedTarget], *, as_json: bool) -> list[str]:
    """Return the rows as lines of text, or as JSON objects."""
    if as_json:
        return [json.dumps(_fields(intake, row)) for row in rows]
    found = [
        f"{row.messages:>12}  {row.target}"
        + ("" if row.since_ms is None else f", the first one due since {format_instant(row.since_ms)}")
        for row in rows
    ]
    return (
        [f"{intake}: {sum(row.messages for row in rows)} are parked", *found]
        if found
        else [f"{intake}: nothing is parked"]
    )


def _fields(intake: str, row: ParkedTarget) -> dict[str, Any]:
    return {
        "intake": intake,
        "target": row.target,
        "messages": row.messages,
        **instants(since=row.since_ms),
        "partitions": list(row.partitions),
    }
