"""The help text of a command: its docstring, with one line per example."""

import inspect
import re
from collections.abc import Callable
from typing import Any

_EXAMPLES = re.compile(r"^(?=Examples?:$)", re.MULTILINE)


def help_of(command: Callable[..., Any]) -> str:
    """Return the text that `--help` prints above the options: the command's docstring."""
    # Click rewraps every paragraph that does not start with \b; a list of examples must keep its line breaks.
    return _EXAMPLES.sub("\b\n", inspect.cleandoc(command.__doc__ or ""))
