"""Options that several commands have, how their texts are read, and what they mean where they are left out."""

from collections.abc import Callable
from pathlib import Path
from typing import Annotated, TypeVar

import typer

from tarry.config import Config
from tarry.errors import UsageError
from tarry.handle import Handle
from tarry.units import parse_duration_ms

_Read = TypeVar("_Read")

ConfigOption = Annotated[
    Path | None, typer.Option("--config", metavar="F", help="The configuration; by default ./tarry.toml.")
]
ServersOption = Annotated[
    str | None, typer.Option("--bootstrap-servers", metavar="HOST:PORT", help="Kafka; by default as configured.")
]
JsonOption = Annotated[bool, typer.Option("--json", help="One JSON object a line.")]


def value_of(name: str, read: Callable[[str], _Read], text: str) -> _Read:
    """What an option says, read by a function that raises ValueError.

    Raises:
        typer.BadParameter: it can't be read; names the option.
    """
    try:
        return read(text)
    except ValueError as error:
        raise typer.BadParameter(f"{name}: {error}") from error


def more_than_nothing_ms(text: str) -> int:
    """A duration that is not 0.

    Raises:
        ValueError: it is, or is no duration.
    """
    duration_ms = parse_duration_ms(text)
    if not duration_ms:
        raise ValueError(f"more than nothing is needed: {text}")
    return duration_ms


def signed_duration_ms(text: str) -> int:
    """A duration that is not 0, with a minus before it or without.

    Raises:
        ValueError: it is none.
    """
    sign = -1 if text.startswith("-") else 1
    return sign * more_than_nothing_ms(text.removeprefix("-"))


HandleIntakeOption = Annotated[
    str | None,
    typer.Option("--intake", metavar="I", help="The intake that the handle is of; by default one that is configured."),
]


def refuse_other_intakes(handle: Handle, settings: Config, intake: str | None) -> None:
    """Refuse a handle that is of another topic: it may come from anybody, and name any.

    Args:
        handle: which.
        settings: the configuration.
        intake: the one that is meant; None: any that is configured.

    Raises:
        UsageError: it is not of that intake.
    """
    known = [one.topic for one in settings.intakes] if intake is None else [intake]
    if handle.topic not in known:
        raise UsageError(f"the handle is of {handle.topic}, and not of {', '.join(known)}: name its intake by --intake")


def default_intake(settings: Config) -> str:
    """The first configured intake whose messages say in our headers when they are due.

    Raises:
        UsageError: all have a fixed delay, or a dialect.
    """
    for intake in settings.intakes:
        if not intake.is_fixed and intake.dialect is None:
            return intake.topic
    raise UsageError("all configured intakes have a fixed delay or a dialect: produce to them with any producer")
