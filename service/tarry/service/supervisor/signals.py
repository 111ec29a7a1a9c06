"""Being asked to stop, by SIGTERM or SIGINT: a flag, and a file that wakes whoever waits in a selector."""

import os
import signal
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from types import FrameType
from typing import NoReturn


class StopSignals:
    """Whether SIGTERM or SIGINT has come; a second SIGINT ends the process at once.

    At most one a process, made on its main thread.

    Args:
        interrupt: whether SIGINT counts. A terminal sends Ctrl-C to a supervisor and to its processes alike, and these
            leave it to the supervisor.
    """

    def __init__(self, *, interrupt: bool = True) -> None:
        self.asked = False
        # Python's handlers run between bytecodes: without this pair a wait would not notice until it ends.
        self._reading, self._writing = socket.socketpair()
        self._reading.setblocking(False)
        self._writing.setblocking(False)
        signal.set_wakeup_fd(self._writing.fileno(), warn_on_full_buffer=False)
        self._before = {
            signal.SIGTERM: signal.signal(signal.SIGTERM, self._ask),
            signal.SIGINT: signal.signal(signal.SIGINT, self._ask if interrupt else signal.SIG_IGN),
        }

    def fileno(self) -> int:
        """Readable when a signal has come."""
        return self._reading.fileno()

    def drain(self) -> None:
        """Make it unreadable again."""
        with suppress(BlockingIOError):
            self._reading.recv(4096)

    def close(self) -> None:
        """Handle signals as before."""
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
    """Inside the block SIGTERM and SIGINT call a handler, also where a shell that started this had SIGINT ignored.

    Args:
        handler: called with the signal.
        once: the first of them alone; what comes after it is handled as before.
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
    """Inside the block SIGTERM and SIGINT raise KeyboardInterrupt."""
    with handled(_interrupt):
        yield


@contextmanager
def ended_at_once() -> Iterator[None]:
    """Inside the block SIGTERM and SIGINT end the process where it stands, with 128 and the signal's number.

    For what waits for brokers in the client library, where no handler of Python's runs, and has nothing to hand over.
    On the main thread alone. Not by the signals' default: the first process of a container has none.
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
    """Python needs a handler, or nothing is written to the descriptor."""


def _end_when_told(told: socket.socket) -> None:
    number = told.recv(1)
    if number != _NEVER_MIND:
        os._exit(128 + number[0])
