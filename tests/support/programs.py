"""Programs that tests run as their users do, to the end."""

import os
import subprocess
from pathlib import Path
from typing import Final

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
