"""The path of a request, without what a proxy put before it."""

from starlette.types import Scope


def route_path(scope: Scope, prefix: str) -> str:
    """Return the path below the prefix; proxies pass it on with or without."""
    path: str = scope["path"]
    return path.removeprefix(prefix) if prefix and path.startswith(f"{prefix}/") else path
