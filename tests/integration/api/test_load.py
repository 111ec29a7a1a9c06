"""How much a replica takes on at the same time, on real connections."""

import json
import threading
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from anyio import to_thread
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.types import Receive, Scope, Send

from tarry.api.access import load
from tarry.api.access.load import BODIES, FORM_BYTES
from tarry.config import Api
from tests.support.api import make_token
from tests.support.brokers import wait_until
from tests.support.layers import Line, layered

MOST = 65_536
SETTINGS = Api(max_body="64KiB")


async def handler(scope: Scope, receive: Receive, send: Send) -> None:
    """Say how long a body was; one that begins with `!` is a fault of the program."""
    body = await Request(scope, receive).body()
    if body.startswith(b"!"):
        raise RuntimeError("a fault")
    await JSONResponse({"length": len(body)})(scope, receive, send)


@pytest.fixture
def port() -> Iterator[int]:
    with layered(handler, SETTINGS) as found:
        yield found


def status(port: int, size: int = MOST, begin: bytes = b"") -> int:
    """The status that a body is answered with."""
    with Line(port) as line:
        line.post(size, begin.ljust(size, b"x"))
        return line.answer()[0]


def fill(port: int, lines: ExitStack) -> list[Line]:
    """Take all the room by bodies whose last byte does not come."""
    full = [lines.enter_context(Line(port)) for _ in range(BODIES)]
    for line in full:
        line.post(MOST, b"x" * (MOST - 1))
    wait_until(lambda: status(port) == 503, "no room")
    return full


def test_the_bodies_of_all_connections_together_are_bounded_and_what_goes_away_makes_room(port: int) -> None:
    with ExitStack() as lines:
        full = fill(port, lines)
        with Line(port) as late:
            late.post(MOST, b"")
            found, headers, problem = late.answer()
            assert (found, problem["code"], problem["accepted"]) == (503, "busy", False)
            assert int(headers["retry-after"]) > 0
        # One that is whole is answered, and its room is free again.
        full[0].send(b"x")
        assert full[0].answer()[2] == {"length": MOST}
        assert status(port) == 200
        for line in full:
            line.close()
        wait_until(lambda: status(port) == 200, "room")
        # All of it is free.
        for line in fill(port, lines):
            line.send(b"x")
            assert line.answer()[0] == 200


def test_a_body_without_a_length_is_counted_as_it_comes(port: int) -> None:
    with ExitStack() as lines:
        fill(port, lines)
        with Line(port) as late:
            head = "POST /v1/messages HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
            late.send(f"{head}Transfer-Encoding: chunked\r\n\r\n1000\r\n".encode() + b"x" * 4_096 + b"\r\n")
            assert late.answer()[0] == 503


@pytest.mark.parametrize(("begin", "size", "found"), [(b"!", MOST, 500), (b"", MOST + 1, 413)])
def test_a_request_that_fails_gives_its_room_back(port: int, begin: bytes, size: int, found: int) -> None:
    assert [status(port, size, begin) for _ in range(2 * BODIES)] == [found] * 2 * BODIES
    assert status(port) == 200


def test_a_body_that_is_too_slow_gives_its_room_back(port: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(load, "BODY_WITHIN_S", 1.0)
    with ExitStack() as lines:
        slow = [lines.enter_context(Line(port)) for _ in range(BODIES)]
        for line in slow:
            line.post(MOST, b"x" * (MOST - 1))
        assert [line.answer()[0] for line in slow] == [408] * BODIES
        assert status(port) == 200


def test_a_body_takes_room_until_its_request_is_answered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(load, "BODIES", 1)
    begun, answers = threading.Event(), threading.Event()

    async def held(scope: Scope, receive: Receive, send: Send) -> None:
        begun.set()
        await to_thread.run_sync(answers.wait)
        await handler(scope, receive, send)

    with layered(held, SETTINGS) as port, Line(port) as first:
        first.post(MOST, b"x" * MOST)
        assert begun.wait(20)
        assert status(port) == 503
        answers.set()
        assert first.answer()[0] == 200
        wait_until(lambda: status(port) == 200, "room")


def test_no_body_of_a_stranger_is_read_except_a_small_form(tmp_path: Path) -> None:
    path = tmp_path / "tokens.json"
    token = make_token(path, "sender", "send")
    with layered(handler, Api(max_body="64KiB", tokens=str(path))) as port, ExitStack() as lines:
        stranger = lines.enter_context(Line(port))
        stranger.post(MOST, b"")
        assert stranger.answer()[0] == 401
        stranger = lines.enter_context(Line(port))
        stranger.post(FORM_BYTES + 1, b"", "/login")
        assert stranger.answer()[0] == 413
        # A page says by itself that somebody must log in first.
        stranger = lines.enter_context(Line(port))
        stranger.post(FORM_BYTES, b"x" * FORM_BYTES, "/dead/plan")
        assert stranger.answer()[0] == 200
        # Strangers that log in slowly keep each other out, and no sender.
        for _ in range(BODIES):
            lines.enter_context(Line(port)).post(FORM_BYTES, b"x" * (FORM_BYTES - 1), "/login")

        def logged_in() -> int:
            with Line(port) as line:
                line.post(FORM_BYTES, b"x" * FORM_BYTES, "/login")
                return line.answer()[0]

        wait_until(lambda: logged_in() == 503, "no room")
        sender = lines.enter_context(Line(port))
        sender.post(MOST, json.dumps({}).encode().ljust(MOST), Authorization=f"Bearer {token}")
        assert sender.answer()[0] == 200
