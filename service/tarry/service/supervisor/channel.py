"""What a process and its supervisor say to each other, over one socket.

The supervisor speaks once, at the start: the orders, as bytes behind their length. Then the process says a line of
JSON a second: that it lives, whether it is ready, and all its numbers (`Beat`); and perhaps, as its last words, why
starting it anew would be of no use (`Refused`).

The process never waits here: what does not go out now is kept, and the next beat is left out until it has gone. Beats
hold totals, so none is missed.

The socket is also a leash. When the supervisor is gone, however that happened, the process ends: on Linux at once, by
the kernel; elsewhere with the next beat.
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
"""No process has so much to say; whoever does is ill."""

_LENGTH: Final = struct.Struct(">I")
_PR_SET_PDEATHSIG: Final = 1
_LAST_WORDS_S: Final = 2.0


@dataclass(frozen=True, slots=True)
class Beat:
    """One sign of life.

    Attributes:
        ready: whether all that the group gave it is taken over and replayed.
        why: if not, why not; else what it does not serve, a line each.
        snapshot: its numbers.
    """

    ready: bool
    why: str
    snapshot: Snapshot


@dataclass(frozen=True, slots=True)
class Refused:
    """The process ends on purpose.

    Attributes:
        text: one line for people.
        configuration: whether the configuration is to blame, which is exit code 2.
    """

    text: str
    configuration: bool


def decode(line: bytes) -> Beat | Refused:
    """Read a line of the channel.

    Raises:
        ValueError: it is none.
    """
    try:
        said: Mapping[str, Any] = json.loads(line)
        if "refused" in said:
            return Refused(str(said["refused"]), bool(said["configuration"]))
        return Beat(bool(said["ready"]), str(said["why"]), Snapshot.decode(said))
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"not a line of the channel: {error!r}") from error


class Channel:
    """The process's end.

    Args:
        descriptor: of the socket, inherited.
        supervisor: the process id of the supervisor.
    """

    def __init__(self, descriptor: int, supervisor: int) -> None:
        _die_with(supervisor)
        self._socket = socket.socket(fileno=descriptor)
        self._socket.setblocking(False)
        self._unsent = b""
        self.orphaned = False
        """Whether the supervisor is gone."""

    def orders(self) -> bytes:
        """Wait for what the supervisor wants.

        Raises:
            EOFError: it is gone.
        """
        self._socket.setblocking(True)
        orders = self._receive(_LENGTH.unpack(self._receive(_LENGTH.size))[0])
        self._socket.setblocking(False)
        return orders

    def beat(self, beat: Beat) -> None:
        """Say that we live; never waits, and leaves this one out if the last has not gone yet."""
        self._flush()
        if not self._unsent:
            self._say({"ready": beat.ready, "why": beat.why, **beat.snapshot.encode()})

    def refuse(self, refused: Refused) -> None:
        """Say the last words; waits a little if need be."""
        self._socket.settimeout(_LAST_WORDS_S)
        self._say({"refused": refused.text, "configuration": refused.configuration})

    def close(self) -> None:
        """Say no more."""
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
                raise EOFError("the supervisor is gone")
            received += chunk
        return received


def put_orders(to: socket.socket, orders: bytes) -> None:
    """Give a process its orders: the supervisor's side of `Channel.orders`."""
    to.sendall(_LENGTH.pack(len(orders)) + orders)


def _die_with(supervisor: int) -> None:
    """Be killed when the supervisor ends. A process that hangs cannot notice it by itself."""
    if sys.platform == "linux":
        with suppress(ImportError, AttributeError, OSError):
            import ctypes  # noqa: PLC0415 (a Python may be built without it)

            ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != supervisor:  # it was gone before we asked
        os._exit(1)
