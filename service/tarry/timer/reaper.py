"""The thread that advances a timer: the expired operation reaper."""

from __future__ import annotations

from threading import Event, Thread
from typing import TYPE_CHECKING, Final, Protocol, Self

if TYPE_CHECKING:
    from types import TracebackType

WORK_TIMEOUT_MS: Final = 200
"""The longest wait for an expiration, and so the longest shutdown. A task that is due earlier ends the wait."""


class Advancing(Protocol):
    """An object that a reaper advances: a timer or a purgatory."""

    def advance_clock(self, timeout_ms: int) -> bool:
        """Run what is due, waiting up to `timeout_ms`; return whether a bucket expired."""
        ...


class Reaper:
    """Advances a timer in its own thread, from `start` to `shutdown`, or in a `with` block.

    A daemon thread: without a shutdown it does not keep the process alive.

    Args:
        timer: the timer or purgatory to advance.
        name: the name of the thread.
        work_timeout_ms: the longest wait of one `advance_clock`.
    """

    def __init__(
        self, timer: Advancing, *, name: str = "expired operation reaper", work_timeout_ms: int = WORK_TIMEOUT_MS
    ) -> None:
        self._timer = timer
        self._work_timeout_ms = work_timeout_ms
        self._stopping = Event()
        self._thread = Thread(target=self._reap, name=name, daemon=True)

    def start(self) -> None:
        """Start the thread.

        Raises:
            RuntimeError: it was started before.
        """
        self._thread.start()

    def shutdown(self) -> None:
        """Stop the thread, and wait for it. Call it before the timer's own shutdown; it may be called repeatedly."""
        self._stopping.set()
        if self._thread.is_alive():
            self._thread.join()

    def is_alive(self) -> bool:
        """Return whether the thread runs."""
        return self._thread.is_alive()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.shutdown()

    def _reap(self) -> None:
        while not self._stopping.is_set():
            self._timer.advance_clock(self._work_timeout_ms)
