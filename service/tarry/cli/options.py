"""Options that several commands share: their declarations, their parsers and their defaults."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, TypeVar

import typer

from tarry.config import Config
from tarry.errors import HeaderError, UsageError
from tarry.handle import Handle
from tarry.units import parse_duration_ms

_Read = TypeVar("_Read")

ConfigOption = Annotated[
    Path | None,
    typer.Option(
        "--config", metavar="F", help="The configuration file. Default: $TARRY_CONFIG, else ./tarry.toml if it exists."
    ),
]
ServersOption = Annotated[
    str | None,
    typer.Option(
        "--bootstrap-servers", metavar="HOST:PORT", help="The Kafka cluster. Default: the configured address."
    ),
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print one JSON object per line.")]


def value_of(name: str, read: Callable[[str], _Read], text: str) -> _Read:
    """Parse the text of an option.

    Args:
        name: the option, for the error.
        read: the parser; raises ValueError.
        text: the text to parse.

    Raises:
        typer.BadParameter: `read` raised ValueError; the error names the option.
    """
    try:
        return read(text)
    except ValueError as error:
        raise typer.BadParameter(f"{name}: {error}") from error


def positive_duration_ms(text: str) -> int:
    """Parse a duration that is greater than zero; return milliseconds.

    Raises:
        ValueError: the text is not a duration, or the duration is zero.
    """
    duration_ms = parse_duration_ms(text)
    if not duration_ms:
        raise ValueError(f"duration must be greater than zero: {text}")
    return duration_ms


def signed_duration_ms(text: str) -> int:
    """Parse a duration that is not zero and that may be negative, such as `-1h`; return milliseconds.

    Raises:
        ValueError: the text is not a duration, or the duration is zero.
    """
    sign = -1 if text.startswith("-") else 1
    return sign * positive_duration_ms(text.removeprefix("-"))


KeyOfNameOption = Annotated[str | None, typer.Option("--key", metavar="K", help="With --name: the message's key.")]
NameOption = Annotated[
    str | None,
    typer.Option("--name", metavar="N", help="The message's name, in place of its handle; needs --key."),
]


def named(handle: str | None, key: str | None, name: str | None) -> tuple[bytes, bytes] | None:
    """Return key and name, if a command was given them instead of a handle.

    Raises:
        typer.BadParameter: it was given both, neither, or only a part.
    """
    if (handle is None) == (name is None) or (key is None) != (name is None):
        raise typer.BadParameter("needs either HANDLE, or --key and --name")
    return None if key is None or name is None else (os.fsencode(key), os.fsencode(name))


def parsed_handle(text: str) -> Handle:
    """Parse the handle of a message.

    Raises:
        HeaderError: it is not a handle, or it is that of a schedule, which names no message.
    """
    handle = Handle.parse(text)
    if not handle.due_ms:
        raise HeaderError("the handle of a schedule has no due time: give --key and --name instead")
    return handle


HandleIntakeOption = Annotated[
    str | None,
    typer.Option(
        "--intake",
        metavar="I",
        help="The intake. Default: with HANDLE, each configured one; with --name, the first configured one that has "
        "neither a fixed delay nor a dialect.",
    ),
]


def refuse_other_intakes(handle: Handle, settings: Config, intake: str | None) -> None:
    """Refuse a handle of another topic. A handle can come from an untrusted source, and can name any topic.

    Args:
        handle: the handle.
        settings: the configuration.
        intake: the only intake to accept; None: accept every configured intake.

    Raises:
        UsageError: the handle belongs to another topic.
    """
    known = [one.topic for one in settings.intakes] if intake is None else [intake]
    if handle.topic not in known:
        raise UsageError(
            f"the handle belongs to topic {handle.topic}, not to {', '.join(known)}: give its intake with --intake"
        )


def default_intake(settings: Config) -> str:
    """Return the topic of the first configured intake without a fixed delay and without a dialect.

    Raises:
        UsageError: every configured intake has a fixed delay or a dialect.
    """
    for intake in settings.intakes:
        if not intake.is_fixed and intake.dialect is None:
            return intake.topic
    raise UsageError(
        "every configured intake has a fixed delay or a dialect: send to these intakes with a plain Kafka producer"
    )
