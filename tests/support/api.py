"""`tarry api` as a process beside a service, and an HTTP client of it."""

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Self

import httpx

from tarry.api.access.tokens import TokenFile
from tarry.clock import SystemClock
from tarry.testing import LiveService
from tarry.testing.serve import Serve, ServeConfig
from tests.support.programs import ROOT

API: Final = ("tarry", "api", "--config")
JSON: Final = {"Content-Type": "application/json"}
NDJSON: Final = {"Content-Type": "application/x-ndjson"}


@dataclass(frozen=True)
class ApiConfig(ServeConfig):
    """The content of a `tarry.toml` with `[api]`.

    Args:
        api: settings of `[api]`, by name.
        oidc: settings of `[api.oidc]`, by name.
        oidc_grants: settings of `[api.oidc.grants]`, by name.
    """

    api: Mapping[str, object] = field(default_factory=dict)
    oidc: Mapping[str, object] = field(default_factory=dict)
    oidc_grants: Mapping[str, object] = field(default_factory=dict)

    def toml(self) -> str:
        """Return the text of the file."""
        tables = [
            ("[api]", {"port": 0, **self.api}),
            ("[api.oidc]", self.oidc),
            ("[api.oidc.grants]", self.oidc_grants),
        ]
        lines = [ServeConfig.toml(self)]
        for name, table in tables:
            if table:
                lines += [name, *(f"{json.dumps(key)} = {json.dumps(value)}" for key, value in table.items()), ""]
        return "\n".join(lines)


class Api:
    """One `tarry api`, over all of its starts. A context manager.

    Args:
        config: its configuration.
        directory: for its configuration and its logs.
        name: a name that distinguishes several of them.
        command: the module and its arguments, `tarry api` or one of the tests' programs.
    """

    def __init__(
        self, config: ApiConfig, directory: Path, name: str = "tarry-api", command: Sequence[str] = API
    ) -> None:
        self.process = Serve(config, directory, name, command, ROOT)

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.process.close()

    def start(self) -> None:
        """Start the process, and wait until it listens."""
        self.process.start()
        self.process.wait_said("api_listening", 1, 60.0)

    @property
    def url(self) -> str:
        """Its address."""
        return f"http://127.0.0.1:{self.process.events('api_listening')[-1]['port']}"

    @contextmanager
    def client(self, token: str | None = None, **settings: Any) -> Iterator[httpx.Client]:
        """Return an HTTP client, with a token or without one."""
        headers = {} if token is None else {"Authorization": f"Bearer {token}"}
        with httpx.Client(base_url=self.url, headers=headers, timeout=40, trust_env=False, **settings) as client:
            yield client


def config_beside(service: LiveService, partitions: int = 1, **api: object) -> ApiConfig:
    """Return the configuration of an API for the intake of a service."""
    return ApiConfig(
        service.bootstrap_servers, service.intake, partitions, f"{service.name}.group", api={"port": 0, **api}
    )


def make_token(path: Path, name: str, *scopes: str, expires_in_ms: int | None = None) -> str:
    """Add a token to a file, and return it."""
    now_ms = SystemClock().now_ms()
    return TokenFile(path).create(name, scopes, now_ms, None if expires_in_ms is None else now_ms + expires_in_ms)
