"""One life of one process, as its supervisor sees it: started with orders, heard, told to end, reaped."""

import os
import signal
import socket
import subprocess
from collections.abc import Sequence
from contextlib import suppress

from tarry.service.supervisor.channel import LINE_LIMIT_BYTES, Beat, Refused, decode, put_orders

_CHUNK_BYTES = 262_144
_ORDERS_S = 10.0


class ChildProcess:
    """A child that was just started. It shares standard error with us.

    Args:
        command: the program and its arguments; two more are added: the channel's descriptor and our process id.
        orders: what it is told first.
    """

    def __init__(self, command: Sequence[str], orders: bytes) -> None:
        self._socket, theirs = socket.socketpair()
        try:
            # A child inherits what is blocked. Ctrl-C reaches all of a terminal's processes, and is for us alone.
            blocked = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
            try:
                self._process = subprocess.Popen(  # noqa: S603 (our own program)
                    [*command, str(theirs.fileno()), str(os.getpid())],
                    stdin=subprocess.DEVNULL,
                    pass_fds=(theirs.fileno(),),
                )
            finally:
                signal.pthread_sigmask(signal.SIG_SETMASK, blocked)
        except OSError:
            self._socket.close()
            raise
        finally:
            # The child alone holds that end, so that ours tells of its death.
            theirs.close()
        self._received = b""
        self._socket.settimeout(_ORDERS_S)  # they fit into the socket's buffer, however long the child takes to start
        self.silent = False
        """Whether nothing more will be heard: its end of the channel is closed, as it is when it dies."""
        with suppress(OSError):  # dead already: its end of the channel will tell
            put_orders(self._socket, orders)
        self._socket.setblocking(False)

    @property
    def pid(self) -> int:
        """Its process id."""
        return self._process.pid

    def fileno(self) -> int:
        """Readable when something was said, or it died."""
        return self._socket.fileno()

    def hear(self) -> list[Beat | Refused]:
        """What it has said since the last time; never waits.

        Raises:
            ValueError: no sense can be made of it.
        """
        while True:
            try:
                chunk = self._socket.recv(_CHUNK_BYTES)
            except BlockingIOError:
                break
            except OSError:
                chunk = b""
            if not chunk:
                self.silent = True
                break
            self._received += chunk
            if len(self._received) > LINE_LIMIT_BYTES:
                raise ValueError("it does not stop talking")
        *lines, self._received = self._received.split(b"\n")
        return [decode(line) for line in lines]

    def terminate(self) -> None:
        """SIGTERM."""
        self._process.terminate()

    def kill(self) -> None:
        """SIGKILL."""
        self._process.kill()

    def ended(self) -> str | None:
        """How it ended, in words; None while it runs. Reaps it."""
        code = self._process.poll()
        if code is None:
            return None
        if code >= 0:
            return f"exit code {code}"
        try:
            return signal.Signals(-code).name
        except ValueError:
            return f"signal {-code}"

    def wait(self) -> None:
        """Wait for its end, which must be certain: after a kill."""
        self._process.wait()

    def close(self) -> None:
        """Close the channel."""
        self._socket.close()
