"""The protocol between a worker process and its supervisor, over one socket.

The supervisor writes once, at the start: the orders, as bytes after their length. Then the process writes a line of
JSON per second, its heartbeat: whether it is ready, and all its metrics (`Beat`). If a restart would be useless, its
last line says why (`Refused`).

A heartbeat never blocks the process: bytes that cannot be sent now are kept, and no other heartbeat is sent before
them. Heartbeats hold totals, so a skipped one loses nothing.

The process also ends when the supervisor has ended, for whatever reason: on Linux the kernel kills it at once;
elsewhere it notices at its next heartbeat.
"""

import json
import os
import signal
import socket
import struct
import sys
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final

from tarry.service.metrics import Snapshot

LINE_LIMIT_BYTES: Final = 16 * 1024 * 1024
"""The most bytes that the supervisor reads from a process at once. A process that writes more is faulty: killed."""

_LENGTH: Final = struct.Struct(">I")
_PR_SET_PDEATHSIG: Final = 1
_LAST_WORDS_S: Final = 2.0


@dataclass(frozen=True, slots=True)
class Beat:
    """One heartbeat.

    Attributes:
        ready: whether all partitions that were assigned and can be served are taken over and replayed.
        why: if not ready, the reason; if ready, the partitions that are not served, one line each.
        snapshot: the metrics of the process.
    """

    ready: bool
    why: str
    snapshot: Snapshot


@dataclass(frozen=True, slots=True)
class StartRefused:
    """The last message of a process that ends on purpose, because a restart would be useless.

    Attributes:
        text: the reason, one line for people.
        configuration: whether the configuration is wrong, which gives exit code 2.
    """

    text: str
    configuration: bool


def decode_report(line: bytes) -> Beat | StartRefused:
    """Parse a line of the channel.

    Raises:
        ValueError: it is not a line that `Channel` writes.
    """
    try:
        said: Mapping[str, Any] = json.loads(line)
        if "refused" in said:
            return StartRefused(str(said["refused"]), bool(said["configuration"]))
        return Beat(bool(said["ready"]), str(said["why"]), Snapshot.decode(said))
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"not a line of the channel: {error!r}") from error


class Channel:
    """The worker process's end of the socket.

    Args:
        descriptor: the inherited file descriptor of the socket.
        supervisor: the process id of the supervisor.
    """

    def __init__(self, descriptor: int, supervisor: int) -> None:
        _die_with(supervisor)
        self._socket = socket.socket(fileno=descriptor)
        self._socket.setblocking(False)
        self._unsent = b""
        self.orphaned = False
        """Whether the supervisor has ended."""

    def orders(self) -> bytes:
        """Wait for the orders of the supervisor, and return them.

        Raises:
            EOFError: the supervisor has ended.
        """
        self._socket.setblocking(True)
        orders = self._receive(_LENGTH.unpack(self._receive(_LENGTH.size))[0])
        self._socket.setblocking(False)
        return orders

    def beat(self, beat: Beat) -> None:
        """Send a heartbeat. Never blocks; skips this one if the previous one is not sent completely."""
        self._flush()
        if not self._unsent:
            self._say({"ready": beat.ready, "why": beat.why, **beat.snapshot.encode()})

    def refuse(self, refused: StartRefused) -> None:
        """Send the reason why the process ends; waits up to 2 s for the socket."""
        self._socket.settimeout(_LAST_WORDS_S)
        self._say({"refused": refused.text, "configuration": refused.configuration})

    def close(self) -> None:
        """Close the socket."""
        self._socket.close()

    def _say(self, words: Mapping[str, Any]) -> None:
        self._unsent += json.dumps(words, separators=(",", ":")).encode() + b"\n"
        self._flush()

    def _flush(self) -> None:
        try:
            while self._unsent:
                self._unsent = self._unsent[self._socket.send(self._unsent) :]
        except (BlockingIOError, TimeoutError):
            return
        except OSError:
            self.orphaned = True
            self._unsent = b""

    def _receive(self, length: int) -> bytes:
        received = b""
        while len(received) < length:
            chunk = self._socket.recv(length - len(received))
            if not chunk:
                raise EOFError("the supervisor has ended")
            received += chunk
        return received


def put_orders(to: socket.socket, orders: bytes) -> None:
    """Send a process its orders, for `Channel.orders`."""
    to.sendall(_LENGTH.pack(len(orders)) + orders)


def _die_with(supervisor: int) -> None:
    """Let the kernel kill this process when the supervisor ends: a process that hangs could not notice it by itself."""
    if sys.platform == "linux":
        with suppress(ImportError, AttributeError, OSError):
            import ctypes  # noqa: PLC0415 (a Python may be built without it)

            ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != supervisor:  # it ended before the call above
        os._exit(1)
