"""Puts the principal of a request into its state, and refuses who shows something that is not valid."""

from http import HTTPStatus
from typing import Final
from urllib.parse import quote

from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import HTTPConnection
from starlette.responses import RedirectResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from tarry.api.access.gate import Credential, Gate, cookie_name, cookie_of, set_cookie
from tarry.api.access.paths import route_path
from tarry.api.access.rates import Rates
from tarry.api.access.sessions import LONGEST_MS
from tarry.api.problems import Code, ProblemError

CHALLENGE: Final = {"WWW-Authenticate": 'Bearer realm="tarry"'}
_OPEN: Final = frozenset({"/livez", "/readyz", "/metrics", "/login", "/logout", "/oidc/callback", "/oidc/login"})
_LONGEST: Final = 20_000


class Authentication:
    """An ASGI middleware.

    Args:
        app: what it protects.
        gate: knows who is who.
        rates: how many requests each may make.
        prefix: what URLs begin with.
    """

    def __init__(self, app: ASGIApp, gate: Gate, rates: Rates, prefix: str) -> None:
        self._app = app
        self._gate = gate
        self._rates = rates
        self._prefix = prefix

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle a request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        path = route_path(scope, self._prefix)
        headers = Headers(scope=scope)
        credential = await self._credential(headers, scope["scheme"])
        if credential is None:
            if path not in _OPEN and asks_for_a_page(path, scope["method"], headers):
                to = quote(path or "/", safe="/")
                await RedirectResponse(f"{self._prefix}/login?next={to}", 303)(scope, receive, send)
                return
        else:
            principal = credential.principal
            scope["state"] |= {"principal": principal, "credential": credential, "rates": self._rates}
            if path not in _OPEN and (after_s := self._rates.take(principal.name)):
                raise ProblemError(
                    HTTPStatus.TOO_MANY_REQUESTS,
                    f"{principal.name} makes too many requests to this replica",
                    headers={"Retry-After": str(max(1, round(after_s)))},
                )
            if credential.session is not None:
                send = self._renewing(credential, scope["scheme"], send)
        await self._app(scope, receive, send)

    async def _credential(self, headers: Headers, scheme: str) -> Credential | None:
        shown = headers.getlist("authorization")
        if len(shown) > 1:
            raise ProblemError(HTTPStatus.BAD_REQUEST, "two Authorization headers")
        if shown:
            kind, _, token = shown[0].partition(" ")
            if kind.lower() != "bearer" or not token or len(token) > _LONGEST:
                raise ProblemError(HTTPStatus.UNAUTHORIZED, "needs Authorization: Bearer TOKEN", headers=CHALLENGE)
            found = await self._gate.of_bearer(token.strip())
            if found is None:
                raise ProblemError(
                    HTTPStatus.UNAUTHORIZED,
                    "the token is not valid: it is unknown, has expired or was revoked",
                    Code.UNAUTHENTICATED,
                    headers={"WWW-Authenticate": 'Bearer realm="tarry", error="invalid_token"'},
                )
            return found
        cookie = cookie_of(headers, cookie_name(scheme))
        found = None if cookie is None else self._gate.of_cookie(cookie)
        return found or self._gate.nobody()

    def _renewing(self, credential: Credential, scheme: str, send: Send) -> Send:
        """Return a `send` that writes the session's cookie again, with the time of this request."""
        assert credential.session is not None  # noqa: S101 - the caller has looked
        renewed = self._gate.sessions.renewed(credential.session)
        if renewed is None:
            return send

        async def renewing(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                if "set-cookie" not in headers:
                    cookie = set_cookie(cookie_name(scheme), renewed, scheme, LONGEST_MS // 1_000)
                    headers.append("set-cookie", cookie)
            await send(message)

        return renewing


def asks_for_a_page(path: str, method: str, headers: Headers) -> bool:
    """Return whether a browser asks for a page; what is below /v1 is none.

    Args:
        path: below the prefix.
        method: of the request.
        headers: of the request.
    """
    return method == "GET" and not path.startswith("/v1/") and "text/html" in headers.get("accept", "")


def rates_of(connection: HTTPConnection) -> Rates:
    """Return the rates, for a request that is many requests."""
    found: Rates = connection.state.rates
    return found
