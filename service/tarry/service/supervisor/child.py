"""One child process of the supervisor: it gets orders, sends heartbeats, is told to end, and is reaped."""

import os
import signal
import socket
import subprocess
from collections.abc import Sequence
from contextlib import suppress

from tarry.service.supervisor.channel import LINE_LIMIT_BYTES, Beat, StartRefused, decode_report, put_orders

_CHUNK_BYTES = 262_144
_ORDERS_S = 10.0


class ChildProcess:
    """A child process, which the constructor starts. It shares the supervisor's standard error.

    Args:
        command: the program and its arguments. Two more are added: the channel's file descriptor, and the process id of
            the supervisor.
        orders: the first message to the process.

    Raises:
        OSError: the process could not be started.
    """

    def __init__(self, command: Sequence[str], orders: bytes) -> None:
        self._socket, theirs = socket.socketpair()
        try:
            # The child inherits the blocked SIGINT. A terminal sends Ctrl-C to all its processes, but only the
            # supervisor is to handle it.
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
            # Only the child may hold that end, so that our end is closed when the child dies.
            theirs.close()
        self._received = b""
        self._socket.settimeout(_ORDERS_S)  # orders fit into the socket's buffer, so a slow start does not matter
        self.silent = False
        """Whether the child has closed its end of the channel, which also happens when it dies."""
        with suppress(OSError):  # the child has died already, which `hear` will notice
            put_orders(self._socket, orders)
        self._socket.setblocking(False)

    @property
    def pid(self) -> int:
        """The process id of the child."""
        return self._process.pid

    def fileno(self) -> int:
        """A descriptor that is readable when the child has written, or has died."""
        return self._socket.fileno()

    def hear(self) -> list[Beat | StartRefused]:
        """Return the messages since the last call. Never blocks.

        Raises:
            ValueError: the child has written something that is not a message.
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
                raise ValueError(f"more than {LINE_LIMIT_BYTES} bytes at once")
        *lines, self._received = self._received.split(b"\n")
        return [decode_report(line) for line in lines]

    def terminate(self) -> None:
        """Send SIGTERM."""
        self._process.terminate()

    def kill(self) -> None:
        """Send SIGKILL."""
        self._process.kill()

    def ended(self) -> str | None:
        """Return how the child ended, in words, and reap it; None while it runs."""
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
        """Wait until the child has ended. Call this only after `kill`."""
        self._process.wait()

    def close(self) -> None:
        """Close the supervisor's end of the channel."""
        self._socket.close()
