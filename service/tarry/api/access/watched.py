"""A file that is read again when it changes."""

from collections.abc import Callable
from pathlib import Path
from typing import Final, Generic, TypeVar

from tarry.clock import Clock
from tarry.errors import ConfigError

LOOK_EVERY_MS: Final = 1_000
"""How often the file is looked at for a change."""

_Content = TypeVar("_Content")


class WatchedFile(Generic[_Content]):
    """A file, and what it held last.

    While the file cannot be read, what was read last counts: a mistake in it must not shut out everybody.

    Args:
        path: the file; it must exist.
        read: reads it; raises ConfigError.
        clock: monotonic time.
        on_event: takes the name and the fields of an event for the log.

    Raises:
        ConfigError: the file cannot be read.
    """

    def __init__(
        self, path: Path, read: Callable[[Path], _Content], clock: Clock, on_event: Callable[..., None]
    ) -> None:
        self._path = path
        self._read = read
        self._clock = clock
        self._on_event = on_event
        self._seen = _mark(path)
        self._content = read(path)
        self._looked_ms = clock.monotonic_ms()
        self._fault = ""

    def content(self) -> _Content:
        """Return what the file holds."""
        now_ms = self._clock.monotonic_ms()
        if now_ms - self._looked_ms >= LOOK_EVERY_MS:
            self._looked_ms = now_ms
            self._look()
        return self._content

    def _look(self) -> None:
        try:
            seen = _mark(self._path)
            if seen == self._seen:
                return
            self._content = self._read(self._path)
        except ConfigError as error:
            if self._fault != str(error):
                self._fault = str(error)
                self._on_event("file_unreadable", error=self._fault)
            return
        self._seen, self._fault = seen, ""
        self._on_event("file_read_again", file=str(self._path))


def _mark(path: Path) -> tuple[int, int, int]:
    """Return what changes when a file is replaced or written."""
    try:
        found = path.stat()
    except OSError as error:
        raise ConfigError(f"{path}: {error.strerror}") from error
    return found.st_mtime_ns, found.st_size, found.st_ino
