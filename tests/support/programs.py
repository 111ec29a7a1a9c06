"""Runs programs to their end, as users do."""

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Final, NamedTuple

ROOT: Final = Path(__file__).parents[2]
WITHIN_S: Final = 300.0


class Failed(Exception):  # noqa: N818 (what happened to the command)
    """A command failed; the text is its output."""


def run(*command: str, within_s: float = WITHIN_S, **environment: str) -> str:
    """Run a command in the project's directory; return its stdout.

    Args:
        command: a program and its arguments.
        within_s: how long it may take.
        environment: variables in addition to the test's environment.

    Raises:
        Failed: its exit code is not 0.
    """
    done = subprocess.run(
        command,
        cwd=ROOT,
        env={**os.environ, **environment},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=within_s,
        check=False,
    )
    if done.returncode != 0:
        raise Failed(f"{' '.join(command)}: {done.returncode}\n{done.stdout}{done.stderr}")
    return done.stdout


class Said(NamedTuple):
    """The result of a command.

    Args:
        code: its exit code.
        out: its stdout.
        err: its stderr.
    """

    code: int
    out: str
    err: str


def tarry(*arguments: str, cwd: Path, within_s: float = 120.0, environment: Mapping[str, str] | None = None) -> Said:
    """Run `tarry` to its end; it may fail.

    Args:
        arguments: the command's arguments.
        cwd: its working directory, where it may find a `tarry.toml`.
        within_s: how long it may take.
        environment: variables in addition to the test's environment, from which all TARRY_ variables are removed.
    """
    clean = {name: value for name, value in os.environ.items() if not name.startswith("TARRY_")}
    done = subprocess.run(
        [sys.executable, "-m", "tarry", *arguments],
        cwd=cwd,
        env={**clean, **(environment or {})},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=within_s,
        check=False,
    )
    return Said(done.returncode, done.stdout, done.stderr)
