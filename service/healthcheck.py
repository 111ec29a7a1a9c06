"""Requests one HTTP page of the service in this container, prints it, and fails if the status is not 200.

`python healthcheck.py livez` is the image's health check; `readyz` and `metrics` are the other pages. With `api` behind
the page it asks `tarry api` instead of the service. It takes the address from the environment and from tarry.toml, as
they do. It imports only the standard library, because it runs every few seconds beside the service and must be cheap.
"""

import http.client
import os
import sys
import tomllib
from collections.abc import Mapping
from pathlib import Path

HOST = "127.0.0.1"
PORTS = {"http": 8080, "api": 8090}
WITHIN_S = 4.0
_EVERYWHERE = {"0.0.0.0": HOST, "::": "::1", "": HOST}  # noqa: S104 (looked up, not listened on)


def where(env: Mapping[str, str], section: str = "http") -> tuple[str, int]:
    """Host and port at which the service answers, or `tarry api`.

    Args:
        env: the environment.
        section: the section of the configuration: `http` or `api`.

    Raises:
        OSError: the configuration file does not exist or can't be read.
        ValueError: the file is not TOML, or the port is not a number.
    """
    path = Path(env.get("TARRY_CONFIG") or "tarry.toml")
    has_file = bool(env.get("TARRY_CONFIG")) or path.exists()
    table = tomllib.loads(path.read_text(encoding="utf-8")).get(section, {}) if has_file else {}
    prefix = f"TARRY_{section.upper()}__"
    host = env.get(f"{prefix}HOST", table.get("host", HOST))
    return _EVERYWHERE.get(host, host), int(env.get(f"{prefix}PORT", table.get("port", PORTS[section])))


def main(page: str, section: str = "http") -> int:
    """Request the page and print it; return the exit code, which is 0 if the status is 200."""
    try:
        host, port = where(os.environ, section)
        connection = http.client.HTTPConnection(host, port, timeout=WITHIN_S)
        connection.request("GET", f"/{page}")
        answer = connection.getresponse()
        said = answer.read().decode()
    except (OSError, ValueError, http.client.HTTPException) as error:
        sys.stderr.write(f"{page}: {error}\n")
        return 1
    sys.stdout.write(said)
    return 0 if answer.status == http.HTTPStatus.OK else 1


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
