"""The help of a command: its docstring, with the examples line by line as they stand there."""

import inspect
import re
from collections.abc import Callable
from typing import Any

_EXAMPLES = re.compile(r"^(?=Examples?:$)", re.MULTILINE)


def help_of(command: Callable[..., Any]) -> str:
    """What `--help` prints of a command above its options."""
    # Click fills paragraphs, but for those that begin so.
    return _EXAMPLES.sub("\b\n", inspect.cleandoc(command.__doc__ or ""))
