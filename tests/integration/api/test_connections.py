"""Connections that neither go on nor end, on a real server: none of them is kept."""

import socket
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.types import Receive, Scope, Send

from tarry.api import protocol
from tarry.api.access.protection import BATCH
from tarry.api.protocol import READ_LATE
from tarry.config import Api
from tests.support.brokers import wait_until
from tests.support.layers import Line, layered

LARGE = 8 * 2**20
PART = 2**16
HEAD = "{} HTTP/1.1\r\nHost: {}\r\nContent-Type: application/{}\r\n"


async def handler(scope: Scope, receive: Receive, send: Send) -> None:
    """Answer what is asked for: something large, or how long the body was."""
    if scope["path"] in {"/large", BATCH}:
        if scope["path"] == BATCH:
            scope["state"][READ_LATE] = True
        await send({"type": "http.response.start", "status": 200, "headers": []})
        for left in reversed(range(LARGE // PART)):
            await send({"type": "http.response.body", "body": b"x" * PART, "more_body": left > 0})
    else:
        await JSONResponse({"length": len(await Request(scope, receive).body())})(scope, receive, send)


@pytest.fixture
def port(monkeypatch: pytest.MonkeyPatch) -> Iterator[int]:
    """A server with little patience, which handles two requests at a time."""
    monkeypatch.setattr(protocol, "REST_WITHIN_S", 0.5)
    monkeypatch.setattr(protocol, "READ_WITHIN_S", 0.5)
    with layered(handler, Api(requests=2)) as found:
        yield found


def status(port: int) -> int:
    with Line(port) as line:
        line.send(HEAD.format("GET /", "localhost", "json").encode() + b"\r\n")
        return line.answer()[0]


@pytest.mark.parametrize(
    "more",
    [
        pytest.param(b"x", id="a part of a body that nobody reads"),
        pytest.param(b"x" * 20 + b"\r\n", id="an empty line behind it"),
    ],
)
def test_a_connection_that_says_nothing_more_after_its_answer_is_closed(port: int, more: bytes) -> None:
    with Line(port) as line:
        line.send(HEAD.format("POST /v1/messages", "evil.example", "json").encode() + b"Content-Length: 20\r\n\r\n")
        assert line.answer()[0] == 421
        line.send(more)
        assert line.is_closed()


def test_a_connection_whose_body_nobody_reads_has_its_next_answer(port: int) -> None:
    with Line(port) as line:
        line.send(HEAD.format("POST /v1/messages", "evil.example", "json").encode() + b"Content-Length: 20\r\n\r\n")
        assert line.answer()[0] == 421
        line.send(b"x" * 20)
        line.post(2, b"{}")
        assert line.answer()[2] == {"length": 2}


@contextmanager
def asked(port: int, request: str, more: bytes = b"") -> Iterator[socket.socket]:
    """A connection that has asked for something large, and has read the begin of the answer."""
    with socket.socket() as connection:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
        connection.connect(("127.0.0.1", port))
        connection.settimeout(20)
        kind = "x-ndjson" if BATCH in request else "json"
        connection.sendall(HEAD.format(request, "localhost", kind).encode() + more)
        assert connection.recv(12) == b"HTTP/1.1 200"
        yield connection


@pytest.mark.parametrize("pipelined", [b"", b"POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9\r\n\r\nx"])
def test_an_answer_that_nobody_reads_does_not_keep_its_request_under_way(port: int, pipelined: bytes) -> None:
    with asked(port, "GET /large", b"\r\n" + pipelined), asked(port, "GET /large", b"\r\n" + pipelined):
        wait_until(lambda: status(port) == 200, "a request is over")


def test_a_sender_may_read_the_answer_when_it_has_sent_all(port: int) -> None:
    with asked(port, f"POST {BATCH}", b"Content-Length: 2\r\n\r\nx") as sender:
        # Meanwhile the time is over in which another one would have had to read.
        with asked(port, "GET /large", b"\r\n"):
            wait_until(lambda: status(port) == 200, "the other one is cut off")
        sender.sendall(b"x")
        received = 0
        while received < LARGE:
            part = sender.recv(1_000_000)
            assert part, received
            received += len(part)
