"""Support for the modules that mypyc may compile, and a check whether they are compiled.

`core` and the wheel are plain Python. A wheel that is built with `TARRY_COMPILE=1` also holds them compiled by mypyc
(`docs/adr/0025-compiled-by-mypyc.md`); Python then imports the compiled modules instead.
"""

from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    # mypyc knows the decorator by its place there, also where it is imported from here.
    from mypy_extensions import mypyc_attr as mypyc_attr  # noqa: PLC0414 (re-exported)
else:

    def mypyc_attr(**_options: Any) -> Any:
        """Return a decorator that changes nothing: only mypyc reads the options, so nobody must install its package."""
        return lambda decorated: decorated


Core = Literal["compiled core", "pure Python core"]


def core() -> Core:
    """Return which of the two this process runs."""
    wheel = find_spec("tarry.timer.wheel")
    is_pure = wheel is not None and str(wheel.origin).endswith(".py")
    return "pure Python core" if is_pure else "compiled core"
