"""The two cores that a bench may measure beside each other: the tree's Python, and the same compiled by mypyc."""

import sys
from pathlib import Path
from typing import Final

COMPILED: Final = Path(__file__).resolve().parent.parent / "build" / "compiled" / "bin" / "python"
"""The Python of the environment that `make compiled` makes."""


def pythons() -> dict[str, str]:
    """The interpreter of each core, by its name in a table.

    Raises:
        SystemExit: one of them is not there.
    """
    if Path(sys.executable) == COMPILED:
        raise SystemExit("this measures both cores: run it by .venv/bin/python, whose core is pure")
    if not COMPILED.exists():
        raise SystemExit(f"{COMPILED} is not there: make compiled")
    return {"pure": sys.executable, "compiled": str(COMPILED)}
