"""`tarry resume`: deliver to a paused target again."""

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
from tarry.cli.options import ConfigOption, JsonOption, ServersOption
from tarry.clock import SystemClock
from tarry.core.request.pause import Pause
from tarry.errors import UsageError


def resume(
    target: Annotated[str, typer.Argument(help="The target topic.", show_default=False)],
    *,
    reason: Annotated[str, typer.Option(metavar="TEXT", help="Why, for the log.")] = "",
    intake: DecidedIntakeOption = None,
    wait: WaitOption = "30s",
    as_json: JsonOption = False,
    config: ConfigOption = None,
    bootstrap_servers: ServersOption = None,
) -> None:
    """Deliver to a target again that was paused. What waited for it arrives first, in order.

    Exit code: 1 if an owner has not confirmed within --wait; it resumes the target when it reads the request.

    Example: tarry resume orders --reason "the warehouse is back"
    """
    decided = Pause(
        checked_target(target),
        paused=False,
        reason=checked_reason(reason),
        who=myself(),
        at_ms=SystemClock().now_ms(),
    )
    settings, cluster = configured(config, bootstrap_servers)
    with open_control(settings, cluster) as control:
        intakes = [intake] if intake else [one.topic for one in settings.intakes]
        becomes = "the service delivers the messages that wait for it, in order"
        try:
            control.check_target(target)
        except UsageError as error:  # it may have been deleted while it was paused
            typer.echo(f"note: {error}", err=True)
            becomes = "unless it is created, the messages that wait for it become dead letters"
        decide(control, intakes, decided, wait, becomes, as_json=as_json)
