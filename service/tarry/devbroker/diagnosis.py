"""Says in one line why a broker did not start, from what it wrote to its logs."""

import re
from pathlib import Path

from tarry.errors import UsageError

LOG = "server.log"
CONSOLE = "console.log"
LOGS = (CONSOLE, LOG)
_LINES_SHOWN = 20
_TELLING = re.compile(r"\b(?:[\w.]*(?:Exception|Error): .+|(?:ERROR|FATAL) .+|Error: .+)")


def lost_a_port(data: Path) -> bool:
    """Whether the broker ended because somebody else had one of its ports."""
    return "Address already in use" in _said(data)


def failed_start(data: Path, within_s: float, *, still_runs: bool) -> UsageError:
    """The error to raise: one line that says what to do; the logs' last lines are its note.

    Args:
        data: the broker's data directory.
        within_s: seconds that the start was given.
        still_runs: the broker did not end but did not answer either.
    """
    said = _said(data)
    if still_runs:
        error = UsageError(f"the broker did not answer within {within_s:g} s: is the machine too busy? {_reason(said)}")
    else:
        error = UsageError(f"the broker ended at its start: {_reason(said)}")
    error.add_note("\n".join(said.splitlines()[-_LINES_SHOWN:]))
    return error


def _reason(said: str) -> str:
    """The first line that looks like the cause: what follows it in a log are its consequences."""
    telling = _TELLING.search(said)
    if telling:
        return telling.group(0).strip()
    lines = said.split("\n")
    return next((line.strip() for line in reversed(lines) if line.strip()), "it said nothing")


def _said(data: Path) -> str:
    parts = []
    for log in LOGS:
        try:
            parts.append((data / log).read_text(encoding="utf-8", errors="replace"))
        except FileNotFoundError:
            continue
    return "".join(parts)
