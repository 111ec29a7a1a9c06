"""Who asks: the principal of a request, and what a handler demands of it."""

from http import HTTPStatus
from typing import Annotated

from starlette.requests import HTTPConnection

from tarry.api.access.principal import Principal, Scope
from tarry.api.parts import given
from tarry.api.problems import ProblemError


def principal_of(connection: HTTPConnection) -> Principal:
    """Return who asks; a FastAPI dependency.

    Raises:
        ProblemError: the request has no valid token or session.
    """
    found: Principal | None = getattr(connection.state, "principal", None)
    if found is None:
        raise ProblemError(
            HTTPStatus.UNAUTHORIZED,
            "needs a token: Authorization: Bearer TOKEN",
            headers={"WWW-Authenticate": 'Bearer realm="tarry"'},
        )
    return found


Asker = Annotated[Principal, given(principal_of)]
"""The principal, as a parameter of a handler."""


def demand(principal: Principal, scope: Scope, target: str | None = None) -> None:
    """Refuse a request that its principal may not make.

    Args:
        principal: who asks.
        scope: what the request needs.
        target: for this target; None: for any.

    Raises:
        ProblemError: it was not granted.
    """
    if principal.has(scope) if target is None else principal.may(scope, target):
        return
    where = "" if target is None else f" for {target}"
    raise ProblemError(HTTPStatus.FORBIDDEN, f"{principal.name} has no scope {scope}{where}")
