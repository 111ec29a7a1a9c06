"""The `tarry` command: its common options, its errors and its exit codes.

Exit codes: 0 done, 1 failed, 2 wrong usage or configuration. An error is one line on stderr; `--debug` adds the
traceback.
"""

import os
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Final

import typer
from typer.exceptions import TyperException
from typer.main import get_command

from tarry import __version__
from tarry.cli.commands import Commands
from tarry.cli.interrupts import is_interrupted, noting
from tarry.config import DEFAULT_PATH, is_configured, load
from tarry.errors import BrokerError, ConfigError, HeaderError, TarryError
from tarry.logs import Level
from tarry.native import core

FAILED, USAGE, INTERRUPTED = 1, 2, 130

_CONFIG: Final = "--config"
_SERVERS: Final = "--bootstrap-servers"

_SILENCE: Final = frozenset({"_ALL_BROKERS_DOWN", "_RESOLVE", "_TIMED_OUT", "_TRANSPORT"})
"""Codes of errors that a wrong address causes, or a broker that is not there."""

_ABOUT: Final = """A delay and retry service for Kafka: messages arrive later, on time, once and in order.

You send a message to an intake, which is a topic, and the service delivers it to its target, another topic, when it is
due. A handle identifies a sent message. A message that is due later than in some seconds waits in a topic
INTAKE.wheel-N: each is a level of the overflow wheel, in buckets by due time. One that is due and cannot be delivered
is parked. INTAKE.results has the outcome of each message."""

app = typer.Typer(
    name="tarry",
    cls=Commands,
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    help=_ABOUT,
)


@dataclass(frozen=True, slots=True)
class Common:
    """The options that are given before the command."""

    debug: bool
    log_level: Level


def _show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"tarry {__version__} ({core()})")
        raise typer.Exit


@app.callback()
def common(
    context: typer.Context,
    debug: Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")] = False,
    log_level: Annotated[Level, typer.Option(help="The lowest level of log events that go to stderr.")] = "info",
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    """Take the options that stand before the command."""
    del version
    context.obj = Common(debug, log_level)


def _address_hint(error: TarryError, words: list[str]) -> str:
    """Return a hint for a broker error: the address that was asked, if the error does not name it.

    It says so when nothing sets the address: the default is a likely cause then.
    """
    if not isinstance(error, BrokerError):
        return ""
    said = []
    config, servers = _given(words, _CONFIG), _given(words, _SERVERS)
    if error.code in _SILENCE:
        asked = servers or load(Path(config) if config else None, os.environ).kafka.bootstrap_servers
        if asked not in str(error):
            said.append(f"Kafka at {asked} does not answer")
    if not (config or servers or is_configured(os.environ)):
        missing = f", and no {_SERVERS}" if _has_option(words, _SERVERS) else ""
        said.append(f"this is the default address, because there is no {DEFAULT_PATH} here{missing}")
    return f" ({'; '.join(said)})" if said else ""


def _given(words: list[str], option: str) -> str | None:
    """Return the value that the command line gives to an option."""
    for word, following in zip(words, [*words[1:], ""], strict=True):
        name, equals, value = word.partition("=")
        if name == option:
            return value if equals else following
    return None


def _has_option(words: list[str], option: str) -> bool:
    """Return whether the command on the command line has this option."""
    command: Any = get_command(app)
    for word in words:
        command = getattr(command, "commands", {}).get(word, command)
    return any(option in parameter.opts for parameter in command.params)


def main(arguments: list[str] | None = None) -> None:
    """Run the command, and end the process with its exit code."""
    words = sys.argv[1:] if arguments is None else arguments
    try:
        with noting():
            code: Any = app(words, prog_name="tarry", standalone_mode=False)
    except TyperException as error:
        context: typer.Context | None = getattr(error, "ctx", None)
        asked = context.command_path if context else "tarry"
        typer.echo(f"tarry: {error.format_message()} ({asked} --help)", err=True)
        sys.exit(error.exit_code)
    except (typer.Abort, KeyboardInterrupt):
        sys.exit(INTERRUPTED)
    except TarryError as error:
        if "--debug" in words:
            raise
        typer.echo(f"tarry: {error}{_address_hint(error, words)}", err=True)
        code = USAGE if isinstance(error, ConfigError | HeaderError) else FAILED
        sys.exit(INTERRUPTED if is_interrupted() else code)
    except Exception:
        if "--debug" in words or not is_interrupted():
            raise
        sys.exit(INTERRUPTED)
    sys.exit(code if isinstance(code, int) else 0)
