"""The subcommands of `tarry`, each imported only when it is needed.

The import of all of them takes longer than most commands run. `--help` needs all of them, a command only itself.
"""

from collections.abc import Iterator, MutableMapping
from importlib import import_module
from typing import Any, Final

import typer
from typer.core import TyperGroup
from typer.main import get_command

from tarry.cli.help import help_of

NAMES: Final = (
    "broker",
    "serve",
    "send",
    "status",
    "cancel",
    "pending",
    "schedules",
    "parked",
    "pause",
    "resume",
    "paused",
    "redrive",
    "dismiss",
    "topics",
    "check",
    "demo",
    "api",
    "spark",
)
"""The commands in the order of `--help`. Each is a module here, with a function of its name, or with a group `app`."""


class Commands(TyperGroup):
    """The group of the subcommands."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings | {"commands": {}})
        self.commands = _Imported()


class _Imported(MutableMapping[str, Any]):
    """The commands by their names; a command is imported when it is looked up."""

    def __init__(self) -> None:
        self._loaded: dict[str, Any] = dict.fromkeys(NAMES)

    def __getitem__(self, name: str) -> Any:
        if self._loaded[name] is None:
            self._loaded[name] = _load(name)
        return self._loaded[name]

    def __setitem__(self, name: str, command: Any) -> None:
        self._loaded[name] = command

    def __delitem__(self, name: str) -> None:
        del self._loaded[name]

    def __contains__(self, name: object) -> bool:
        return name in self._loaded

    def __iter__(self) -> Iterator[str]:
        return iter(self._loaded)

    def __len__(self) -> int:
        return len(self._loaded)


def _load(name: str) -> Any:
    module = import_module(f"tarry.cli.{name}")
    found = getattr(module, name, None)
    if found is None:
        return get_command(module.app)
    alone = typer.Typer(add_completion=False, rich_markup_mode=None, pretty_exceptions_enable=False)
    alone.command(name, help=help_of(found))(found)
    return get_command(alone)
