"""Shared by `tarry pause` and `tarry resume`: write the decision, and wait until all owners obey it."""

import getpass
import json
import socket
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Annotated

import typer

from tarry.cli.inspect import instants
from tarry.cli.options import value_of
from tarry.clock import SystemClock
from tarry.config import Config
from tarry.core.request.pause import LONGEST_TEXT, Pause
from tarry.errors import RetriableError, UsageError
from tarry.headers import is_legal_topic
from tarry.kafka.control import Control, Unconfirmed
from tarry.kafka.settings import Cluster
from tarry.units import format_duration, parse_duration_ms

LOOK_EVERY_S = 0.1

WaitOption = Annotated[
    str,
    typer.Option(
        metavar="30s",
        help="The longest time to wait until all owners of the intake's partitions confirm; 0s: do not wait.",
    ),
]
DecidedIntakeOption = Annotated[
    str | None,
    typer.Option("--intake", metavar="I", help="Only for messages of this intake. Default: all configured intakes."),
]


@contextmanager
def open_control(settings: Config, cluster: Cluster) -> Iterator[Control]:
    """Open the access to the pauses, and close it after the block."""
    control = Control(
        cluster, settings.service.group, SystemClock(), lambda text: typer.echo(f"note: {text}", err=True)
    )
    try:
        yield control
    finally:
        control.close()


def checked_target(target: str) -> str:
    """Return the name of a target.

    Raises:
        typer.BadParameter: no topic can have this name.
    """
    if not is_legal_topic(target):
        raise typer.BadParameter(f"TARGET: not a legal topic name: {target}")
    return target


def checked_reason(reason: str) -> str:
    """Return a reason.

    Raises:
        typer.BadParameter: it is too long.
    """
    if len(reason) > LONGEST_TEXT:
        raise typer.BadParameter(f"--reason: at most {LONGEST_TEXT} characters: it has {len(reason)}")
    return reason


def myself() -> str:
    """Return who runs this command, for people."""
    return f"{getpass.getuser()}@{socket.gethostname()}"[:LONGEST_TEXT]


def decide(control: Control, intakes: Sequence[str], pause: Pause, wait: str, becomes: str, *, as_json: bool) -> None:
    """Write a decision for intakes, print a line for each, and wait until all owners of their partitions obey it.

    Args:
        control: the access to the pauses.
        intakes: to which intakes it applies.
        pause: the decision.
        wait: how long to wait, as a duration.
        becomes: what happens to the messages once it is obeyed, for people.
        as_json: whether to print JSON.

    Raises:
        UsageError: an owner has not confirmed in time; one line says which.
    """
    clock, wait_ms = SystemClock(), value_of("--wait", parse_duration_ms, wait)
    offsets = {intake: control.write(intake, pause) for intake in intakes}
    ends_ms = clock.monotonic_ms() + wait_ms
    missing: list[str] = []
    for intake, offset in offsets.items():
        found = control.unconfirmed(intake, offset)
        while found and clock.monotonic_ms() < ends_ms:
            clock.sleep(LOOK_EVERY_S)
            try:
                found = control.unconfirmed(intake, offset)
            except RetriableError as error:
                typer.echo(f"note: {error}", err=True)
        typer.echo(_told(intake, pause, found, becomes, as_json=as_json))
        missing += [f"{intake}/{one.partition} ({_owner(one)})" for one in found]
    if missing and wait_ms:
        shown = ", ".join(missing[:5]) + (f", and {len(missing) - 5} more" if len(missing) > 5 else "")
        raise UsageError(
            f"the request is stored, but not confirmed within {format_duration(wait_ms)} by {shown}: check that "
            "`tarry serve` runs; `tarry paused` lists the partitions that have not confirmed"
        )


def _told(intake: str, pause: Pause, missing: Sequence[Unconfirmed], becomes: str, *, as_json: bool) -> str:
    if as_json:
        fields = {
            "intake": intake,
            "target": pause.target,
            "paused": pause.paused,
            "confirmed": not missing,
            "unconfirmed": [{"partition": one.partition, "owner": one.owner} for one in missing],
            **instants(at=pause.at_ms, until=pause.until_ms),
        }
        return json.dumps(fields)
    done = "paused" if pause.paused else "resumed"
    if missing:
        return f"{intake}: {pause.target} will be {done}; {len(missing)} partitions have not confirmed yet"
    return f"{intake}: {pause.target} is {done}: {becomes}"


def _owner(one: Unconfirmed) -> str:
    if one.owner is None:
        return "not served yet"
    return f"{one.owner}, which cannot read the pauses" if one.is_too_old else one.owner
