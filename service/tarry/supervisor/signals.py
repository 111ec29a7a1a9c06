"""Being asked to stop, by SIGTERM or SIGINT: a flag, and a file that wakes whoever waits in a selector."""

import signal
import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from types import FrameType


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
def ended_at_once() -> Iterator[None]:
    """Inside the block SIGTERM and SIGINT end the process where it stands.

    For what waits for brokers in the client library, where no handler of Python's runs, and has nothing to hand over;
    on the main thread alone.
    """
    before = {number: signal.signal(number, signal.SIG_DFL) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
