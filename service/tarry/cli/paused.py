"""`tarry paused`: show which targets are paused, by whom, since when, why, and until when."""

import json
from collections.abc import Iterable, Sequence
from typing import Annotated

import typer

from tarry.cli.deciding import open_control
from tarry.cli.inspect import configured, instants
from tarry.cli.options import ConfigOption, JsonOption, ServersOption
from tarry.clock import SystemClock
from tarry.core.request.pause import Pause
from tarry.kafka.control import Unconfirmed
from tarry.units import format_instant, shown


def paused(
    intake: Annotated[
        str | None, typer.Option(metavar="I", help="The intake. Default: all configured intakes.")
    ] = None,
    *,
    as_json: JsonOption = False,
    config: ConfigOption = None,
    bootstrap_servers: ServersOption = None,
) -> None:
    """Show which targets are paused: since when, by whom, why, and until when.

    It also lists the partitions that have not confirmed the last pause or resume yet: until then their owners act as
    before it.

    Example: tarry paused --intake tarry.delayed
    """
    settings, cluster = configured(config, bootstrap_servers)
    now_ms = SystemClock().now_ms()
    with open_control(settings, cluster) as control:
        for topic in [intake] if intake else [one.topic for one in settings.intakes]:
            decided = list(control.pauses(topic).values())
            found = sorted((one for one in decided if one.holds_at(now_ms)), key=lambda one: (one.at_ms, one.target))
            missing = control.unconfirmed(topic, control.end(topic)) if decided else []
            for line in lines(topic, found, missing, as_json=as_json):
                typer.echo(line)


def lines(intake: str, found: Sequence[Pause], missing: Iterable[Unconfirmed], *, as_json: bool) -> list[str]:
    """Return the pauses as lines of text, or as JSON objects."""
    numbers = [one.partition for one in missing]
    if as_json:
        return [json.dumps(_fields(intake, one, numbers), ensure_ascii=False) for one in found]
    of_targets = [f"{intake}: {len(found)} paused" if found else f"{intake}: no target is paused", *map(_line, found)]
    if numbers:
        of_targets.append(f"  not confirmed yet by partitions {', '.join(map(str, numbers))}")
    return of_targets


def _line(pause: Pause) -> str:
    since = f"  {pause.target}, since {format_instant(pause.at_ms)}"
    if pause.unreadable:
        return f"{since}: its record cannot be read ({shown(pause.unreadable)}), which counts as a pause"
    until = "" if pause.until_ms is None else f", until {format_instant(pause.until_ms)}"
    return f"{since}{until}, by {shown(pause.who)}: {shown(pause.reason)}"


def _fields(intake: str, pause: Pause, unconfirmed: Sequence[int]) -> dict[str, object]:
    return {
        "intake": intake,
        "target": pause.target,
        "reason": pause.reason,
        "who": pause.who,
        **instants(since=pause.at_ms, until=pause.until_ms),
        "unreadable": pause.unreadable or None,
        "unconfirmed": list(unconfirmed),
    }
