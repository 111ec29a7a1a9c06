"""Finds the reason in a broker's logs why it did not start, or why it ended, and turns it into one line."""

import re
from pathlib import Path

from tarry.errors import UsageError

LOG = "server.log"
CONSOLE = "console.log"
LOGS = (CONSOLE, LOG)
_LINES_SHOWN = 20
_TELLING = re.compile(r"\b(?:[\w.]*(?:Exception|Error): .+|(?:ERROR|FATAL) .+|Error: .+)")


def lost_a_port(data: Path) -> bool:
    """Return whether the broker ended because another process used one of its ports."""
    return "Address already in use" in _said(data)


def failed_start(data: Path, within_s: float, *, still_runs: bool) -> UsageError:
    """Return the error for a failed start: one line with the reason, and a note with the last lines of the logs.

    Args:
        data: the broker's data directory.
        within_s: the seconds that the start was allowed to take.
        still_runs: whether the broker still runs, but did not answer in time.
    """
    said = _said(data)
    if still_runs:
        error = UsageError(f"the broker did not answer within {within_s:g} s; the machine may be busy: {_reason(said)}")
    else:
        error = UsageError(f"the broker ended during its start: {_reason(said)}")
    error.add_note(_last_lines(said))
    return error


def ended(data: Path, code: int) -> str:
    """Return that a broker ended by itself, with its exit code, and the last lines of its logs.

    Args:
        data: the broker's data directory.
        code: its exit code, or 128 + n for signal n.
    """
    return f"the broker had ended by itself, with code {code}:\n{_last_lines(_said(data))}"


def _reason(said: str) -> str:
    """Return the first line that looks like the cause; later lines of a log are mostly consequences."""
    telling = _TELLING.search(said)
    if telling:
        return telling.group(0).strip()
    lines = said.split("\n")
    return next((line.strip() for line in reversed(lines) if line.strip()), "its logs are empty")


def _last_lines(said: str) -> str:
    return "\n".join(said.splitlines()[-_LINES_SHOWN:])


def _said(data: Path) -> str:
    parts = []
    for log in LOGS:
        try:
            parts.append((data / log).read_text(encoding="utf-8", errors="replace"))
        except FileNotFoundError:
            continue
    return "".join(parts)
