"""The layers of `tarry api` around a handler of a test: a real server at a real port, without Kafka."""

import json
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any, Self

import uvicorn
from starlette.types import ASGIApp

from tarry.api.access.authentication import Authentication
from tarry.api.access.gate import Gate
from tarry.api.access.load import Load
from tarry.api.access.protection import Protection
from tarry.api.access.rates import Rates
from tarry.api.access.request_log import RequestLog
from tarry.api.metrics import ApiMetrics
from tarry.api.protocol import BoundedProtocol
from tarry.clock import SystemClock
from tarry.config import Api, Config
from tests.support.brokers import wait_until


class Line:
    """A connection to it."""

    def __init__(self, port: int) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port), 20)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def send(self, data: bytes) -> None:
        """Send bytes."""
        self._socket.sendall(data)

    def post(self, length: int, body: bytes, path: str = "/v1/messages", **headers: str) -> None:
        """Send a request that says how long its body is, and a part of the body."""
        more = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
        kind = "application/json" if path.startswith("/v1") else "application/x-www-form-urlencoded"
        head = f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: {kind}\r\nContent-Length: {length}\r\n{more}"
        self.send(f"{head}\r\n".encode() + body)

    def answer(self) -> tuple[int, dict[str, str], Any]:
        """Return status, headers and body of the next answer."""
        received = b""
        while b"\r\n\r\n" not in received:
            received += self._some()
        head, _, body = received.partition(b"\r\n\r\n")
        first, *lines = head.decode().split("\r\n")
        headers = {name.lower(): value for name, _, value in (line.partition(": ") for line in lines)}
        while len(body) < int(headers["content-length"]):
            body += self._some()
        return int(first.split()[1]), headers, json.loads(body)

    def is_closed(self) -> bool:
        """Wait for an end of the connection."""
        try:
            return self._socket.recv(1) == b""
        except ConnectionResetError:
            return True

    def close(self) -> None:
        """Close it, whatever was received."""
        self._socket.close()

    def _some(self) -> bytes:
        found = self._socket.recv(65_536)
        assert found, "the server has closed the connection"
        return found


@contextmanager
def layered(handler: ASGIApp, settings: Api) -> Iterator[int]:
    """Serve; return the port."""

    def quiet(_event: str, **_fields: object) -> None:
        """Take no notes."""

    clock, metrics = SystemClock(), ApiMetrics()
    parts: Any = SimpleNamespace(clock=clock, metrics=metrics, settings=Config(api=settings), on_event=quiet)
    gate = Gate(settings, clock, quiet)
    inner = Load(handler, settings, metrics)
    app = RequestLog(Protection(Authentication(inner, gate, Rates(settings.rate, clock), ""), settings), parts)
    server = uvicorn.Server(
        uvicorn.Config(app, http=BoundedProtocol, ws="none", lifespan="off", log_config=None, access_log=False)
    )
    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=server.run, args=([listener],))
        thread.start()
        try:
            wait_until(lambda: server.started, "the server")
            yield listener.getsockname()[1]
        finally:
            server.should_exit = True
            thread.join()
