"""The thread that turns a timer: the expired operation reaper."""

from __future__ import annotations

from threading import Event, Thread
from typing import TYPE_CHECKING, Final, Protocol, Self

if TYPE_CHECKING:
    from types import TracebackType

WORK_TIMEOUT_MS: Final = 200
"""How long one wait lasts at most, and so how long a shutdown may take. An earlier task wakes the timer by
itself."""


class Advancing(Protocol):
    """What a reaper advances: a timer, or what stands around one."""

    def advance_clock(self, timeout_ms: int) -> bool:
        """Do what is due, waiting for it up to `timeout_ms`; whether any bucket expired."""
        ...


class Reaper:
    """Advances a timer in a thread of its own, from `start` to `shutdown`, or for a `with` block.

    A daemon thread: one that is forgotten does not keep the process alive.

    Args:
        timer: what to advance.
        name: the thread's name.
        work_timeout_ms: the longest wait in one `advance_clock`.
    """

    def __init__(
        self, timer: Advancing, *, name: str = "expired operation reaper", work_timeout_ms: int = WORK_TIMEOUT_MS
    ) -> None:
        self._timer = timer
        self._work_timeout_ms = work_timeout_ms
        self._stopping = Event()
        self._thread = Thread(target=self._reap, name=name, daemon=True)

    def start(self) -> None:
        """Begin.

        Raises:
            RuntimeError: it has been started before.
        """
        self._thread.start()

    def shutdown(self) -> None:
        """End, and wait for the thread. Before the timer's own shutdown; harmless when repeated."""
        self._stopping.set()
        if self._thread.is_alive():
            self._thread.join()

    def is_alive(self) -> bool:
        """Whether the thread runs."""
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
