"""The path of a request, without what a proxy put before it, and which paths need no token."""

from typing import Final

from starlette.types import Scope

OPEN: Final = frozenset({"/livez", "/readyz", "/metrics", "/login", "/logout", "/oidc/callback", "/oidc/login"})
"""Paths that need no token."""


def route_path(scope: Scope, prefix: str) -> str:
    """Return the path below the prefix; proxies pass it on with or without."""
    path: str = scope["path"]
    return path.removeprefix(prefix) if prefix and path.startswith(f"{prefix}/") else path
