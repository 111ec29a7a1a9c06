"""Handling of SIGTERM and SIGINT: a flag for the loop, and a descriptor that wakes a selector."""

import os
import signal
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from types import FrameType
from typing import NoReturn


class StopSignals:
    """Records whether SIGTERM or SIGINT was received (`asked`). A SIGINT after that raises KeyboardInterrupt.

    At most one instance per process, created on its main thread.

    Args:
        interrupt: whether to handle SIGINT; otherwise it is ignored. A terminal sends Ctrl-C to a supervisor and to its
            processes, and only the supervisor is to handle it.
    """

    def __init__(self, *, interrupt: bool = True) -> None:
        self.asked = False
        # Python runs handlers between bytecodes: without this pair, a wait in a selector would not be interrupted.
        self._reading, self._writing = socket.socketpair()
        self._reading.setblocking(False)
        self._writing.setblocking(False)
        signal.set_wakeup_fd(self._writing.fileno(), warn_on_full_buffer=False)
        self._before = {
            signal.SIGTERM: signal.signal(signal.SIGTERM, self._ask),
            signal.SIGINT: signal.signal(signal.SIGINT, self._ask if interrupt else signal.SIG_IGN),
        }

    def fileno(self) -> int:
        """A descriptor that is readable when a signal was received."""
        return self._reading.fileno()

    def drain(self) -> None:
        """Make the descriptor unreadable again."""
        with suppress(BlockingIOError):
            self._reading.recv(4096)

    def close(self) -> None:
        """Restore the previous signal handlers."""
        for number, handler in self._before.items():
            signal.signal(number, handler)
        signal.set_wakeup_fd(-1)
        self._reading.close()
        self._writing.close()

    def _ask(self, number: int, _frame: FrameType | None) -> None:
        if self.asked and number == signal.SIGINT:
            raise KeyboardInterrupt
        self.asked = True


@contextmanager
def handled(handler: Callable[[int, FrameType | None], object], *, once: bool = False) -> Iterator[None]:
    """Call a handler on SIGTERM and SIGINT inside the block, even if a shell started this process with SIGINT ignored.

    Args:
        handler: called with the signal's number and the stack frame.
        once: whether to handle only the first signal; later ones are handled as before the block.
    """
    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}

    def restore() -> None:
        for number, one in before.items():
            signal.signal(number, one)

    def first(number: int, frame: FrameType | None) -> None:
        restore()
        handler(number, frame)

    for number in before:
        signal.signal(number, first if once else handler)
    try:
        yield
    finally:
        restore()


@contextmanager
def interruptible() -> Iterator[None]:
    """Raise KeyboardInterrupt on SIGTERM and SIGINT inside the block."""
    with handled(_interrupt):
        yield


@contextmanager
def ended_at_once() -> Iterator[None]:
    """End the process at once on SIGTERM and SIGINT inside the block, with exit code 128 plus the signal's number.

    For code that waits for brokers in the client library, where Python runs no signal handlers, and that has no
    partitions to hand over. Only on the main thread. The default actions of these signals would not do: they do not
    apply to the first process of a container.
    """
    told, telling = socket.socketpair()
    telling.setblocking(False)
    watcher = threading.Thread(target=_end_when_told, args=(told,), daemon=True)
    watcher.start()
    descriptor = signal.set_wakeup_fd(telling.fileno(), warn_on_full_buffer=False)
    try:
        with handled(_heard):
            yield
    finally:
        signal.set_wakeup_fd(descriptor)
        telling.send(_NEVER_MIND)
        watcher.join()
        told.close()
        telling.close()


_NEVER_MIND = b"\0"


def _interrupt(_number: int, _frame: FrameType | None) -> NoReturn:
    raise KeyboardInterrupt


def _heard(_number: int, _frame: FrameType | None) -> None:
    """Do nothing: without a Python handler, nothing would be written to the wakeup descriptor."""


def _end_when_told(told: socket.socket) -> None:
    number = told.recv(1)
    if number != _NEVER_MIND:
        os._exit(128 + number[0])
