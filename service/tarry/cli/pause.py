"""`tarry pause`: stop the delivery to a target; its messages wait."""

from typing import Annotated

import typer

from tarry.cli.deciding import (
    DecidedIntakeOption,
    WaitOption,
    checked_reason,
    checked_target,
    decide,
    myself,
    open_control,
)
from tarry.cli.inspect import configured
from tarry.cli.options import ConfigOption, JsonOption, ServersOption, value_of
from tarry.clock import SystemClock
from tarry.core.request.pause import Pause
from tarry.units import parse_duration_ms, parse_instant_ms


def pause(
    target: Annotated[str, typer.Argument(help="The target topic.", show_default=False)],
    *,
    reason: Annotated[str, typer.Option(metavar="TEXT", help="Why; `tarry paused` and the log show it.")],
    until: Annotated[
        str | None,
        typer.Option(
            metavar="TIME",
            help="When the pause ends by itself: a time such as 2030-01-31T12:00:00Z, or a duration from now, such as "
            "2h.",
        ),
    ] = None,
    intake: DecidedIntakeOption = None,
    wait: WaitOption = "30s",
    as_json: JsonOption = False,
    config: ConfigOption = None,
    bootstrap_servers: ServersOption = None,
) -> None:
    """Stop the delivery to a target. Its messages wait, in order, until it is resumed.

    When the command says that the target is paused, all processes of `tarry serve` that own partitions of the intake
    have confirmed it: nothing is delivered to the target from then on, also if processes crash, restart or lose their
    partitions. Messages that become due are parked, for days if need be. They can still be purged and, by their
    names, cancelled and replaced.

    Exit code: 1 if an owner has not confirmed within --wait. The pause is stored nevertheless, and the owner obeys as
    soon as it reads it. `tarry paused` lists the partitions that have not confirmed.

    Examples:
      tarry pause orders --reason "the warehouse is down"
      tarry pause orders --reason "migration" --until 2h
    """
    now_ms = SystemClock().now_ms()
    until_ms = None if until is None else value_of("--until", lambda text: _until_ms(text, now_ms), until)
    decided = Pause(
        checked_target(target),
        paused=True,
        reason=checked_reason(reason),
        who=myself(),
        at_ms=now_ms,
        until_ms=until_ms,
    )
    settings, cluster = configured(config, bootstrap_servers)
    with open_control(settings, cluster) as control:
        control.check_target(target)
        intakes = [intake] if intake else [one.topic for one in settings.intakes]
        decide(control, intakes, decided, wait, "nothing is delivered to it from now on", as_json=as_json)


def _until_ms(text: str, now_ms: int) -> int:
    """Parse a time, or a duration from now.

    Raises:
        ValueError: it is neither, or the time is over.
    """
    until_ms = parse_instant_ms(text) if "T" in text else now_ms + parse_duration_ms(text)
    if until_ms <= now_ms:
        raise ValueError(f"is not later than now: {text}")
    return until_ms
