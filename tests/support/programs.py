"""Programs that tests run as their users do, to the end."""

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Final, NamedTuple

ROOT: Final = Path(__file__).parents[2]
WITHIN_S: Final = 300.0


class Failed(Exception):  # noqa: N818 (what happened to the command)
    """A command ended badly; the text is all that it said."""


def run(*command: str, within_s: float = WITHIN_S, **environment: str) -> str:
    """What a command that ended well wrote to stdout; it runs in the project's directory.

    Args:
        command: a program and its arguments.
        within_s: how long it may take.
        environment: variables beside those of the tests' own.

    Raises:
        Failed: it did not end well.
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
    """How a command ended.

    Args:
        code: its exit code.
        out: what it wrote to stdout.
        err: what it wrote to stderr.
    """

    code: int
    out: str
    err: str


def tarry(*arguments: str, cwd: Path, within_s: float = 120.0, environment: Mapping[str, str] | None = None) -> Said:
    """Run `tarry` to its end, however it ends.

    Args:
        arguments: of the command.
        cwd: where it runs, and finds a `tarry.toml` if there is one.
        within_s: how long it may take.
        environment: variables beside those of the tests' own, without whatever would configure it.
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
