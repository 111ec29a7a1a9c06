"""`tarry serve` with a level's log and a parked message that get old within seconds, not hours.

`python -m tests.support.hasty --config CONFIG` is `tarry serve --config CONFIG`. But its processes file again what
waits at the beginning of a log of some thousand offsets, write the index often, and file a parked message to the parked
log after three seconds. No configuration can set this, and a soak of half an hour would not reach the usual values.
"""

import sys
from dataclasses import replace
from typing import Any, Final
from unittest.mock import patch

from tarry.cli import work
from tarry.cli.main import main as command
from tarry.core.wheel.overflow import Upkeep
from tarry.service import app
from tarry.service.worker.plan import Plan

REFILE_FROM: Final = 2_000
HASTY: Final[dict[str, Any]] = {
    "upkeep": Upkeep(refile_from=REFILE_FROM, tell_from=200, index_after=20),
    "park_after_ms": 3_000,
}
WORK: Final = "work"


def main(arguments: list[str]) -> None:
    """Be the supervisor, or one of its processes, and end with its exit code."""
    if arguments[0] == WORK:
        usual = app.plan_of

        def hasty(*given: Any, **named: Any) -> Plan:
            return replace(usual(*given, **named), **HASTY)

        with patch.object(app, "plan_of", hasty):
            sys.exit(work.main(arguments[1:]))
    with patch.object(app, "work_command", lambda: [sys.executable, "-m", "tests.support.hasty", WORK]):
        command(["serve", *arguments])


if __name__ == "__main__":
    main(sys.argv[1:])
