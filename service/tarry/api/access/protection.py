"""Checks of the heads of requests before anything else reads them: host, origin, URL, types and sizes."""

from collections.abc import Iterable
from http import HTTPStatus
from typing import Final
from urllib.parse import unquote_to_bytes, urlsplit

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Receive, Scope, Send

from tarry.api.access.paths import route_path
from tarry.api.problems import Code, ProblemError
from tarry.config import Api
from tarry.config.tree import LOOPBACK_NAMES

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
    """

    def __init__(self, app: ASGIApp, settings: Api) -> None:
        self._app = app
        self._settings = settings
        self._hosts = frozenset(name.lower() for name in (*settings.hosts, *LOOPBACK_NAMES))

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle a request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers, path = Headers(scope=scope), route_path(scope, self._settings.prefix)
        _check_heads(scope["headers"])
        _check_url(scope)
        if path not in PROBES:
            self._check_host(headers)
        if scope["method"] not in _SAFE:
            _check_origin(headers, scope["scheme"])
            if self._settings.is_read_only and path not in {"/login", "/logout"}:
                raise ProblemError(HTTPStatus.FORBIDDEN, "this server is read-only", Code.READ_ONLY)
        if path == BATCH:
            _check_type(headers, LINES)
        elif has_body(headers):
            _check_type(headers, _JSON if path.startswith("/v1/") else (*_FORMS, *_JSON))
        await self._app(scope, receive, send)

    def _check_host(self, headers: Headers) -> None:
        """Refuse a name that is not this server's: another site's name may lead here (DNS rebinding)."""
        hosts = headers.getlist("host")
        name = _hostname(hosts[0]) if len(hosts) == 1 else None
        if name not in self._hosts:
            raise ProblemError(
                HTTPStatus.MISDIRECTED_REQUEST, "the Host header is none of this server's names: add it to api.hosts"
            )


def has_body(headers: Headers) -> bool:
    """Return whether a request has a body.

    Args:
        headers: of the request.
    """
    return "transfer-encoding" in headers or headers.get("content-length", "0") != "0"


def _check_heads(headers: Iterable[tuple[bytes, bytes]]) -> None:
    found = list(headers)
    if len(found) > MOST_HEADERS or sum(len(name) + len(value) for name, value in found) > HEADER_BYTES:
        raise ProblemError(
            HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE,
            f"more than {MOST_HEADERS} headers, or more than {HEADER_BYTES} bytes of them",
            Code.TOO_LARGE,
        )


def _check_url(scope: Scope) -> None:
    """Refuse a path or a query that is no text: whoever reads it would put another character for each wrong byte."""
    for part in (scope["raw_path"], scope["query_string"]):
        if b"%" not in part:
            continue
        try:
            unquote_to_bytes(part).decode()
        except UnicodeDecodeError:
            raise ProblemError(
                HTTPStatus.BAD_REQUEST, "the URL is not UTF-8; bytes that are no text go into key_base64"
            ) from None


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
