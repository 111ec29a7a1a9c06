"""The pages by which a browser logs in and out: by a token, or at the OIDC issuer."""

from html import escape
from http import HTTPStatus
from typing import Annotated, Final

from fastapi import APIRouter, Request
from starlette.responses import HTMLResponse, RedirectResponse, Response

from tarry.api.access.audit import audit
from tarry.api.access.gate import Gate, cookie_name, cookie_of, gate_of, set_cookie
from tarry.api.access.oidc import Attempt
from tarry.api.access.principal import Principal, parsed_grants
from tarry.api.access.sessions import LONGEST_MS
from tarry.api.console.rendering import rendered_alone
from tarry.api.parts import Parts, given, parts_of
from tarry.api.problems import ProblemError

router = APIRouter(include_in_schema=False)

_ATTEMPT: Final = "login"
_ATTEMPT_MS: Final = 600_000
_LONGEST_TOKEN: Final = 200

_Gate = Annotated[Gate, given(gate_of)]
_Parts = Annotated[Parts, given(parts_of)]


@router.get("/login")
async def login_page(request: Request, gate: _Gate, parts: _Parts) -> Response:
    """Show the form."""
    return _page(gate, parts, _own_path(request.query_params.get("next")))


@router.post("/login")
async def login(request: Request, gate: _Gate, parts: _Parts) -> Response:
    """Begin a session with a token."""
    form = await request.form()
    token, to = form.get("token"), form.get("next")
    next_ = _own_path(to if isinstance(to, str) else None)
    found = gate.of_token(token.strip()) if isinstance(token, str) and len(token) <= _LONGEST_TOKEN else None
    if found is None:
        return _page(gate, parts, next_, "This token is not valid.", HTTPStatus.UNAUTHORIZED)
    cookie = gate.sessions.begin("token", found.token_hash, ends_ms=found.ends_ms)
    audit(request, found.principal, "login")
    answer = RedirectResponse(parts.settings.api.prefix + next_, HTTPStatus.SEE_OTHER)
    _keep(answer, request, cookie)
    return answer


@router.post("/logout")
async def logout(request: Request, parts: _Parts) -> Response:
    """End the session of this browser."""
    scheme = request.url.scheme
    answer = RedirectResponse(f"{parts.settings.api.prefix}/login", HTTPStatus.SEE_OTHER)
    answer.headers.append("set-cookie", set_cookie(cookie_name(scheme), "", scheme, 0))
    answer.headers["Clear-Site-Data"] = '"cache"'
    return answer


@router.get("/oidc/login")
async def oidc_login(request: Request, gate: _Gate, parts: _Parts) -> Response:
    """Send the browser to the issuer."""
    if gate.issuer is None:
        raise ProblemError(HTTPStatus.NOT_FOUND, "there is no OIDC issuer: see api.oidc")
    attempt, next_ = Attempt.new(), _own_path(request.query_params.get("next"))
    address = await gate.issuer.login_url(attempt, _callback(request, parts))
    sealed = gate.sessions.seal(_ATTEMPT, [attempt.state, attempt.nonce, attempt.verifier, next_])
    answer = RedirectResponse(address, HTTPStatus.SEE_OTHER)
    scheme = request.url.scheme
    # Lax: the issuer's page sends the browser back, and Strict cookies do not come with that.
    cookie = set_cookie(cookie_name(scheme, _ATTEMPT), sealed, scheme, _ATTEMPT_MS // 1_000, "Lax")
    answer.headers.append("set-cookie", cookie)
    return answer


@router.get("/oidc/callback")
async def oidc_callback(request: Request, gate: _Gate, parts: _Parts) -> Response:
    """Begin a session: the issuer has sent the browser back."""
    if gate.issuer is None:
        raise ProblemError(HTTPStatus.NOT_FOUND, "there is no OIDC issuer: see api.oidc")
    scheme = request.url.scheme
    sealed = cookie_of(request.headers, cookie_name(scheme, _ATTEMPT))
    kept = None if sealed is None else gate.sessions.unseal(_ATTEMPT, sealed, _ATTEMPT_MS)
    code, state = request.query_params.get("code"), request.query_params.get("state")
    if not kept or not code or state != kept[0]:
        return _page(gate, parts, "/", "This login was not begun here, or took too long.", HTTPStatus.BAD_REQUEST)
    attempt = Attempt(*kept[:3])
    found = await gate.issuer.redeemed(attempt, code, _callback(request, parts))
    if found is None:
        return _page(gate, parts, "/", "The issuer does not vouch for you.", HTTPStatus.UNAUTHORIZED)
    if not found.grants:
        return _page(gate, parts, "/", "Nothing was granted to you: see api.oidc.grants.", HTTPStatus.FORBIDDEN)
    audit(request, Principal(found.principal.name, parsed_grants(found.grants)), "login")
    # A page, not a redirect: a Strict cookie does not come with a redirect that another site's page began.
    to = escape(parts.settings.api.prefix + kept[3], quote=True)
    answer = HTMLResponse(
        f'<!doctype html><html lang="en"><meta charset="utf-8"><meta http-equiv="refresh" content="0;url={to}">'
        f'<title>tarry</title><p><a href="{to}">Go on</a></html>'
    )
    _keep(answer, request, gate.sessions.begin("oidc", found.principal.name, found.grants, found.ends_ms))
    answer.headers.append("set-cookie", set_cookie(cookie_name(scheme, _ATTEMPT), "", scheme, 0, "Lax"))
    return answer


def _keep(answer: Response, request: Request, cookie: str) -> None:
    scheme = request.url.scheme
    answer.headers.append("set-cookie", set_cookie(cookie_name(scheme), cookie, scheme, LONGEST_MS // 1_000))


def _callback(request: Request, parts: Parts) -> str:
    """Return where the issuer sends the browser back to. The Host header was checked."""
    return f"{request.url.scheme}://{request.headers['host']}{parts.settings.api.prefix}/oidc/callback"


def _own_path(path: str | None) -> str:
    """Return where to go after the login, if that is a path here; else the first page."""
    is_own = path is not None and path.startswith("/") and not path.startswith(("//", "/\\")) and path.isprintable()
    return path if is_own and path is not None else "/"


def _page(gate: Gate, parts: Parts, next_: str, fault: str = "", status: HTTPStatus = HTTPStatus.OK) -> HTMLResponse:
    """Return the page with the form."""
    return rendered_alone(
        "login.html",
        parts,
        status,
        next=next_,
        fault=fault,
        takes_tokens=gate.takes_tokens,
        has_issuer=gate.issuer is not None,
        is_open=gate.is_open,
    )
