"""How much a replica takes on at the same time: the bytes of the bodies that it holds, and the requests.

A body is read whole before anything handles it, and its bytes count from the moment at which they come until the
request is answered. All bodies together are bounded, not each of them alone: there may be thousands of connections.
Whoever has shown no token may only send forms of pages, such as the one that logs in: they take few bytes, and those
count apart, so they shut out no sender.
"""

import asyncio
from http import HTTPStatus
from typing import Final

from starlette.datastructures import Headers
from starlette.requests import HTTPConnection
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from tarry.api.access.identity import principal_of
from tarry.api.access.paths import route_path
from tarry.api.access.protection import BATCH, has_body
from tarry.api.metrics import ApiMetrics
from tarry.api.problems import RETRY_AFTER_S, Code, ProblemError
from tarry.config import Api

BODIES: Final = 64
"""How many of the largest bodies a replica holds at the same time: so many bytes, however many bodies they are."""

BODY_WITHIN_S: Final = 15.0
"""How long a body may take to come."""

FORM_BYTES: Final = 16_384
"""The largest body of whoever has shown no token."""


class Load:
    """An ASGI middleware, behind the one that says who asks.

    Args:
        app: what handles the requests.
        settings: the configuration.
        metrics: counts the requests that are under way.
    """

    def __init__(self, app: ASGIApp, settings: Api, metrics: ApiMetrics) -> None:
        self._app = app
        self._settings = settings
        self._metrics = metrics
        self._of_senders = _Room(BODIES * settings.max_body_bytes)
        self._of_strangers = _Room(BODIES * FORM_BYTES)
        self._under_way = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle a request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers, path = Headers(scope=scope), route_path(scope, self._settings.prefix)
        if not has_body(headers) or path == BATCH:
            await self._counted(scope, receive, send, None)
            return
        if path.startswith("/v1/"):
            principal_of(HTTPConnection(scope))
        if "principal" in scope["state"]:
            body = _Body(self._of_senders, self._settings.max_body_bytes)
        else:
            body = _Body(self._of_strangers, min(FORM_BYTES, self._settings.max_body_bytes))
        try:
            await self._counted(scope, await body.read(headers, receive), send, body)
        finally:
            body.forget()

    async def _counted(self, scope: Scope, receive: Receive, send: Send, body: "_Body | None") -> None:
        if self._under_way >= self._settings.requests:
            raise _busy("this replica handles too many requests: try again")
        counts = True
        self._change(1)

        async def counting(message: Message) -> None:
            nonlocal counts
            # A stream of events has a limit of its own, and no use for a body.
            if counts and message["type"] == "http.response.start" and _is_stream(message):
                counts = False
                self._change(-1)
                if body is not None:
                    body.forget()
            await send(message)

        try:
            await self._app(scope, receive, counting)
        finally:
            if counts:
                self._change(-1)

    def _change(self, by: int) -> None:
        self._under_way += by
        self._metrics.under_way.set(self._under_way)


class _Room:
    """How many bytes of bodies may still come."""

    def __init__(self, most: int) -> None:
        self.left = most


class _Body:
    """The body of a request, whose bytes take room until it is forgotten."""

    def __init__(self, room: _Room, most: int) -> None:
        self._room = room
        self._most = most
        self._bytes = bytearray()

    async def read(self, headers: Headers, receive: Receive) -> Receive:
        """Read it, and return a `receive` that gives it in one piece.

        Raises:
            ProblemError: it is too large or too slow, or there is no room for it.
        """
        length = headers.get("content-length")
        if length is not None:
            if not length.isdecimal() or int(length) > self._most:
                raise self._too_large()
            self._demand(int(length))
        try:
            async with asyncio.timeout(BODY_WITHIN_S):
                while True:
                    message = await receive()
                    if message["type"] != "http.request":
                        return _once(message, receive)
                    self._take(message.get("body", b""))
                    if not message.get("more_body"):
                        break
        except TimeoutError:
            raise ProblemError(
                HTTPStatus.REQUEST_TIMEOUT, "the body took too long", Code.TOO_SLOW, headers={"Connection": "close"}
            ) from None
        return _once({"type": "http.request", "body": bytes(self._bytes), "more_body": False}, receive)

    def forget(self) -> None:
        """Give back its room."""
        self._room.left += len(self._bytes)
        self._bytes = bytearray()

    def _take(self, part: bytes) -> None:
        if len(self._bytes) + len(part) > self._most:
            raise self._too_large()
        self._demand(len(part))
        self._room.left -= len(part)
        self._bytes += part

    def _demand(self, size: int) -> None:
        if size > self._room.left:
            raise _busy("this replica holds as many bytes of bodies as it may: try again", Connection="close")

    def _too_large(self) -> ProblemError:
        return ProblemError(
            HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
            f"the body has more than {self._most} bytes",
            headers={"Connection": "close"},
        )


def _busy(detail: str, **headers: str) -> ProblemError:
    return ProblemError(
        HTTPStatus.SERVICE_UNAVAILABLE,
        detail,
        Code.BUSY,
        headers={"Retry-After": str(RETRY_AFTER_S), **headers},
        accepted=False,
    )


def _is_stream(message: Message) -> bool:
    return Headers(raw=message["headers"]).get("content-type", "").startswith("text/event-stream")


def _once(first: Message, receive: Receive) -> Receive:
    """Return a `receive` that gives a message first."""
    held = [first]

    async def receiving() -> Message:
        return held.pop() if held else await receive()

    return receiving
