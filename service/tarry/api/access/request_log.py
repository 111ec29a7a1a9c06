"""The outermost layer of a request: its id, its line in the access log, its figures, and the headers of its answer."""

import asyncio
import re
import uuid
from collections.abc import Callable
from http import HTTPStatus
from typing import Final

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from tarry.api.access.paths import route_path
from tarry.api.parts import Parts
from tarry.api.problems import RETRY_AFTER_S, Code, ProblemError, problem_of, unexpected
from tarry.errors import TarryError

HEADERS: Final = {
    "Content-Security-Policy": (
        "default-src 'self'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
        "form-action 'self'; object-src 'none'; base-uri 'none'; frame-ancestors 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    # Not `no-referrer`: with it a browser sends `Origin: null` with our own forms.
    "Referrer-Policy": "same-origin",
    "Cache-Control": "no-store",
}
"""Headers of each answer that does not set them itself."""

_ENCODED: Final = [(name.lower().encode(), value.encode()) for name, value in HEADERS.items()]
_ID: Final = re.compile(r"[A-Za-z0-9._-]{8,64}")
_LONGEST_SHOWN: Final = 200


class RequestLog:
    """An ASGI middleware.

    Args:
        app: what it logs.
        parts: the log and the figures.
    """

    def __init__(self, app: ASGIApp, parts: Parts) -> None:
        self._app = app
        self._parts = parts

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle a request."""
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
            return
        if scope["type"] != "http":
            await send({"type": "websocket.close", "code": 1000})
            return
        began_ms = self._parts.clock.monotonic_ms()
        given = Headers(scope=scope).get("x-request-id", "")
        request_id = given if _ID.fullmatch(given) else uuid.uuid4().hex
        scope.setdefault("state", {})["request_id"] = request_id
        status, answered_ms = 0, began_ms

        async def sending(message: Message) -> None:
            nonlocal status, answered_ms
            if message["type"] == "http.response.start":
                status, answered_ms = message["status"], self._parts.clock.monotonic_ms()
                own = message["headers"]
                names = {name for name, _ in own}
                more = [one for one in _ENCODED if one[0] not in names]
                message["headers"] = [*own, *more, (b"x-request-id", request_id.encode())]
            await send(message)

        try:
            await self._answered(scope, receive, sending, request_id, lambda: status)
        finally:
            self._note(scope, request_id, status, began_ms, answered_ms)

    async def _answered(
        self, scope: Scope, receive: Receive, send: Send, request_id: str, status: Callable[[], int]
    ) -> None:
        """Handle a request; answer errors by problems."""
        try:
            await self._app(scope, receive, send)
        except (ProblemError, TarryError) as error:
            if status():
                raise
            problem = error if isinstance(error, ProblemError) else problem_of(error)
            await problem.response()(scope, receive, send)
        except asyncio.CancelledError:
            if not status():  # this replica ends, and the request has not
                await _stopping().response()(scope, receive, send)
            raise
        except Exception:  # noqa: BLE001 - the program is wrong: the log says how, and the answer does not
            self._parts.on_event("request_failed", request_id=request_id, exc_info=True)
            if not status():
                await unexpected().response()(scope, receive, send)

    def _note(self, scope: Scope, request_id: str, status: int, began_ms: int, answered_ms: int) -> None:
        route = getattr(scope.get("route"), "path", "")
        method = scope["method"] if scope["method"].isalpha() and len(scope["method"]) < 10 else "other"
        metrics, shown = self._parts.metrics, route or "unmatched"
        metrics.requests.labels(method, shown, str(status)).inc()
        metrics.seconds.labels(method, shown).observe((answered_ms - began_ms) / 1_000)
        if not self._parts.settings.api.access_log or shown in {"/livez", "/readyz", "/metrics"}:
            return
        principal = scope["state"].get("principal")
        client = scope.get("client")
        self._parts.on_event(
            "request",
            request_id=request_id,
            method=method,
            # Without the query, which has keys and names. Without a route it is anything.
            path=printable(route_path(scope, self._parts.settings.api.prefix)) if route else "",
            status=status,
            ms=self._parts.clock.monotonic_ms() - began_ms,
            principal=getattr(principal, "name", None),
            client=client[0] if client else None,
        )


def _stopping() -> ProblemError:
    return ProblemError(
        HTTPStatus.SERVICE_UNAVAILABLE,
        "this replica stops: it is not known what became of the request",
        Code.BUSY,
        headers={"Retry-After": str(RETRY_AFTER_S)},
        accepted=None,
    )


def printable(text: str) -> str:
    """Return a text for the log: control characters and what is not ASCII are escaped, and it is cut."""
    return text[:_LONGEST_SHOWN].encode("unicode_escape").decode("ascii")
