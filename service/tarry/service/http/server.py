"""The HTTP server. Its sockets never block, so it runs in its owner's event loop and needs no thread.

A connection may last five seconds. When there are too many, the oldest is dropped, so that slow or malicious clients
cannot keep a probe out.
"""

import socket
from collections.abc import Mapping
from contextlib import suppress
from selectors import EVENT_READ, EVENT_WRITE, BaseSelector

from tarry.clock import Clock
from tarry.errors import UsageError
from tarry.service.http.answer import Page, answer_to

CONNECTION_MS = 5_000
"""The longest life of a connection."""

CONNECTIONS = 32
"""The most connections at the same time."""

_CHUNK_BYTES = 65_536


def listen(host: str, port: int) -> socket.socket:
    """Open the listening socket of the server.

    Args:
        host: a host name or an address of this machine.
        port: the port, or 0 for any free one.

    Raises:
        UsageError: the port is taken, or the host is not an address of this machine; one line.
    """
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        family, kind, protocol, _name, address = found[0]
        listener = socket.socket(family, kind, protocol)
        try:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listener.bind(address)
            listener.listen(CONNECTIONS)
            listener.setblocking(False)
        except OSError:
            listener.close()
            raise
    except OSError as error:
        raise UsageError(
            f"cannot listen on http.host {host}, http.port {port}: {error.strerror or error} (port 0 takes a free one)"
        ) from error
    return listener


class HttpServer:
    """Serves pages on a listening socket.

    Args:
        listener: the listening socket, from `listen`; `close` closes it.
        pages: the pages by path.
        selector: the selector of the owner's loop. The data of its keys are functions, which the loop calls with the
            event's mask.
        clock: for the life of connections.
    """

    def __init__(
        self, listener: socket.socket, pages: Mapping[str, Page], selector: BaseSelector, clock: Clock
    ) -> None:
        self._listener = listener
        self._pages = pages
        self._selector = selector
        self._clock = clock
        self._connections: list[_Connection] = []
        selector.register(listener, EVENT_READ, self._accept)

    @property
    def port(self) -> int:
        """The port that it listens on."""
        return int(self._listener.getsockname()[1])

    def expire(self) -> None:
        """Drop connections whose time is over. The loop calls this regularly."""
        now_ms = self._clock.monotonic_ms()
        for connection in [one for one in self._connections if one.ends_ms <= now_ms]:
            self._drop(connection)

    def close(self) -> None:
        """Close the listening socket and all connections."""
        for connection in list(self._connections):
            self._drop(connection)
        self._selector.unregister(self._listener)
        self._listener.close()

    def _accept(self, _mask: int) -> None:
        try:
            client, _address = self._listener.accept()
        except OSError:  # the client has gone, or too many files are open: a later one may succeed
            return
        client.setblocking(False)
        if len(self._connections) >= CONNECTIONS:
            self._drop(self._connections[0])
        connection = _Connection(client, self._clock.monotonic_ms() + CONNECTION_MS)
        self._connections.append(connection)
        self._selector.register(client, EVENT_READ, lambda mask: self._serve(connection, mask))

    def _serve(self, connection: "_Connection", mask: int) -> None:
        if connection not in self._connections:  # dropped by an earlier event of the same turn
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
            return True  # ignored, but read: closing with unread bytes would reset the connection and lose the response
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
