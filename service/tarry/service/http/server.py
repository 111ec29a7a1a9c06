"""The server's sockets: none of them ever waits, so it lives in its owner's loop and needs no thread.

A connection has five seconds for all of it. When there are too many the oldest one is dropped, so that clients who
are slow, or mean, cannot keep a probe out.
"""

import socket
from collections.abc import Mapping
from contextlib import suppress
from selectors import EVENT_READ, EVENT_WRITE, BaseSelector

from tarry.clock import Clock
from tarry.errors import UsageError
from tarry.service.http.answer import Page, answer_to

CONNECTION_MS = 5_000
CONNECTIONS = 32
_CHUNK_BYTES = 65_536


def listen(host: str, port: int) -> socket.socket:
    """Open the server's door.

    Args:
        host: a name or an address.
        port: 0 for a free one.

    Raises:
        UsageError: the port is taken, or the host is not this machine's; one line.
    """
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        family, kind, protocol, _name, address = found[0]
        door = socket.socket(family, kind, protocol)
        try:
            door.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            door.bind(address)
            door.listen(CONNECTIONS)
            door.setblocking(False)
        except OSError:
            door.close()
            raise
    except OSError as error:
        raise UsageError(
            f"cannot listen on http.host {host}, http.port {port}: {error.strerror or error} (port 0 takes a free one)"
        ) from error
    return door


class HttpServer:
    """Answers what comes through a door.

    Args:
        door: from `listen`; closed by `close`.
        pages: by path.
        selector: of the loop that this lives in; its keys' data are functions to call with the event's mask.
        clock: for the bound on connections.
    """

    def __init__(self, door: socket.socket, pages: Mapping[str, Page], selector: BaseSelector, clock: Clock) -> None:
        self._door = door
        self._pages = pages
        self._selector = selector
        self._clock = clock
        self._connections: list[_Connection] = []
        selector.register(door, EVENT_READ, self._accept)

    @property
    def port(self) -> int:
        """Where it listens."""
        return int(self._door.getsockname()[1])

    def expire(self) -> None:
        """Drop connections whose time is over: called now and then by the loop."""
        now_ms = self._clock.monotonic_ms()
        for connection in [one for one in self._connections if one.ends_ms <= now_ms]:
            self._drop(connection)

    def close(self) -> None:
        """Close the door and all connections."""
        for connection in list(self._connections):
            self._drop(connection)
        self._selector.unregister(self._door)
        self._door.close()

    def _accept(self, _mask: int) -> None:
        try:
            client, _address = self._door.accept()
        except OSError:  # it went away before it was let in, or no more files may be open: the next one may do
            return
        client.setblocking(False)
        if len(self._connections) >= CONNECTIONS:
            self._drop(self._connections[0])
        connection = _Connection(client, self._clock.monotonic_ms() + CONNECTION_MS)
        self._connections.append(connection)
        self._selector.register(client, EVENT_READ, lambda mask: self._serve(connection, mask))

    def _serve(self, connection: "_Connection", mask: int) -> None:
        if connection not in self._connections:  # dropped by an event of the same turn
            return
        try:
            goes_on = self._read(connection) if mask & EVENT_READ else self._write(connection)
        except BlockingIOError:
            return
        except OSError:
            goes_on = False
        if not goes_on:
            self._drop(connection)

    def _read(self, connection: "_Connection") -> bool:
        chunk = connection.client.recv(_CHUNK_BYTES)
        if not chunk:
            return False
        if connection.answered:
            return True  # what it still has to say; closing now would take the answer from under its eyes
        connection.received += chunk
        answer = answer_to(bytes(connection.received), self._pages)
        if answer is None:
            return True
        connection.answered = True
        connection.unsent = memoryview(answer)
        self._selector.modify(connection.client, EVENT_WRITE, self._selector.get_key(connection.client).data)
        return True

    def _write(self, connection: "_Connection") -> bool:
        connection.unsent = connection.unsent[connection.client.send(connection.unsent) :]
        if not connection.unsent:
            connection.client.shutdown(socket.SHUT_WR)
            self._selector.modify(connection.client, EVENT_READ, self._selector.get_key(connection.client).data)
        return True

    def _drop(self, connection: "_Connection") -> None:
        self._connections.remove(connection)
        self._selector.unregister(connection.client)
        with suppress(OSError):
            connection.client.close()


class _Connection:
    """One client and its one request."""

    def __init__(self, client: socket.socket, ends_ms: int) -> None:
        self.client = client
        self.ends_ms = ends_ms
        self.received = bytearray()
        self.answered = False
        self.unsent = memoryview(b"")
