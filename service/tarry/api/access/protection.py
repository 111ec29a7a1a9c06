"""Bounds and checks of requests before anything reads them: host, origin, types, sizes and numbers."""

import asyncio
from collections.abc import Iterable
from http import HTTPStatus
from typing import Final
from urllib.parse import urlsplit

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from tarry.api.access.paths import route_path
from tarry.api.metrics import ApiMetrics
from tarry.api.problems import RETRY_AFTER_S, Code, ProblemError
from tarry.config import Api
from tarry.config.tree import LOOPBACK_NAMES

BODY_WITHIN_S: Final = 15.0
"""How long a body may take to come."""

MOST_HEADERS: Final = 64
HEADER_BYTES: Final = 32_768

PROBES: Final = frozenset({"/livez", "/readyz", "/metrics"})
"""Paths that are asked for by address, from inside: they change nothing and show no names."""

BATCH: Final = "/v1/messages:batch"
LINES: Final = ("application/x-ndjson", "application/jsonl")
_SAFE: Final = frozenset({"GET", "HEAD", "OPTIONS"})
_FORMS: Final = ("application/x-www-form-urlencoded",)
_JSON: Final = ("application/json",)
_OWN_SITE: Final = frozenset({"same-origin", "none"})


class Protection:
    """An ASGI middleware.

    Args:
        app: what it protects.
        settings: the configuration.
        metrics: counts the requests that are under way.
    """

    def __init__(self, app: ASGIApp, settings: Api, metrics: ApiMetrics) -> None:
        self._app = app
        self._settings = settings
        self._metrics = metrics
        self._hosts = frozenset(name.lower() for name in (*settings.hosts, *LOOPBACK_NAMES))
        self._under_way = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle a request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers, path = Headers(scope=scope), route_path(scope, self._settings.prefix)
        _check_heads(scope["headers"])
        if path not in PROBES:
            self._check_host(headers)
        if scope["method"] not in _SAFE:
            _check_origin(headers, scope["scheme"])
            if self._settings.is_read_only and path not in {"/login", "/logout"}:
                raise ProblemError(HTTPStatus.FORBIDDEN, "this server is read-only", Code.READ_ONLY)
        if path == BATCH:
            _check_type(headers, LINES)
        else:
            receive = await self._whole_body(headers, path, receive)
        await self._counted(scope, receive, send)

    def _check_host(self, headers: Headers) -> None:
        """Refuse a name that is not this server's: another site's name may lead here (DNS rebinding)."""
        hosts = headers.getlist("host")
        name = _hostname(hosts[0]) if len(hosts) == 1 else None
        if name not in self._hosts:
            raise ProblemError(
                HTTPStatus.MISDIRECTED_REQUEST, "the Host header is none of this server's names: add it to api.hosts"
            )

    async def _whole_body(self, headers: Headers, path: str, receive: Receive) -> Receive:
        """Read the body, and return a `receive` that gives it in one piece."""
        length = headers.get("content-length")
        if "transfer-encoding" not in headers and (length is None or length == "0"):
            return receive
        _check_type(headers, _JSON if path.startswith("/v1/") else (*_FORMS, *_JSON))
        most = self._settings.max_body_bytes
        if length is not None and (not length.isdecimal() or int(length) > most):
            raise _too_large(most)
        parts, size = [], 0
        try:
            async with asyncio.timeout(BODY_WITHIN_S):
                while True:
                    message = await receive()
                    if message["type"] != "http.request":
                        return _once(message, receive)
                    parts.append(message.get("body", b""))
                    size += len(parts[-1])
                    if size > most:
                        raise _too_large(most)
                    if not message.get("more_body"):
                        break
        except TimeoutError:
            raise ProblemError(
                HTTPStatus.REQUEST_TIMEOUT, "the body took too long", Code.TOO_SLOW, headers={"Connection": "close"}
            ) from None
        return _once({"type": "http.request", "body": b"".join(parts), "more_body": False}, receive)

    async def _counted(self, scope: Scope, receive: Receive, send: Send) -> None:
        if self._under_way >= self._settings.requests:
            raise ProblemError(
                HTTPStatus.SERVICE_UNAVAILABLE,
                "this replica handles too many requests: try again",
                Code.BUSY,
                headers={"Retry-After": str(RETRY_AFTER_S)},
            )
        counts = True
        self._change(1)

        async def counting(message: Message) -> None:
            nonlocal counts
            # A stream of events has a limit of its own.
            if counts and message["type"] == "http.response.start" and _is_stream(message):
                counts = False
                self._change(-1)
            await send(message)

        try:
            await self._app(scope, receive, counting)
        finally:
            if counts:
                self._change(-1)

    def _change(self, by: int) -> None:
        self._under_way += by
        self._metrics.under_way.set(self._under_way)


def _check_heads(headers: Iterable[tuple[bytes, bytes]]) -> None:
    found = list(headers)
    if len(found) > MOST_HEADERS or sum(len(name) + len(value) for name, value in found) > HEADER_BYTES:
        raise ProblemError(
            HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE,
            f"more than {MOST_HEADERS} headers, or more than {HEADER_BYTES} bytes of them",
            Code.TOO_LARGE,
        )


def _check_origin(headers: Headers, scheme: str) -> None:
    """Refuse a change that another site's page asks for. Browsers say where a request comes from; programs do not."""
    site = headers.get("sec-fetch-site")
    origin = headers.get("origin")
    is_own = site is None or site in _OWN_SITE
    if origin is not None:
        is_own = is_own and origin.lower() == f"{scheme}://{headers.get('host', '')}".lower()
    if not is_own:
        raise ProblemError(HTTPStatus.FORBIDDEN, "a page of another site may not ask for this", Code.CROSS_SITE)


def _check_type(headers: Headers, allowed: tuple[str, ...]) -> None:
    kind = headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind not in allowed:
        raise ProblemError(HTTPStatus.UNSUPPORTED_MEDIA_TYPE, f"needs Content-Type: {allowed[0]}")
    if headers.get("content-encoding", "identity").lower() != "identity":
        raise ProblemError(HTTPStatus.UNSUPPORTED_MEDIA_TYPE, "compressed bodies are not accepted")


def _hostname(host: str) -> str | None:
    """Return the name in a Host header, without the port."""
    if any(one in host for one in "/@?#\\ "):
        return None
    try:
        found = urlsplit(f"//{host}")
        port = found.port
    except ValueError:
        return None
    return None if port == 0 else found.hostname


def _is_stream(message: Message) -> bool:
    return Headers(raw=message["headers"]).get("content-type", "").startswith("text/event-stream")


def _once(first: Message, receive: Receive) -> Receive:
    """Return a `receive` that gives a message first."""
    held = [first]

    async def receiving() -> Message:
        return held.pop() if held else await receive()

    return receiving


def _too_large(most: int) -> ProblemError:
    return ProblemError(
        HTTPStatus.REQUEST_ENTITY_TOO_LARGE, f"the body has more than {most} bytes", headers={"Connection": "close"}
    )
