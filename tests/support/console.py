"""A console over a real service: `tarry api` as a process, or its application in this process for one principal."""

import asyncio
import http.client
import json
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote, urlsplit

import uvicorn
from fastapi import FastAPI
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from tarry.api import problems
from tarry.api.access.gate import Gate
from tarry.api.access.principal import Principal
from tarry.api.console import pages
from tarry.api.looking import lookout
from tarry.api.operations.board import Board
from tarry.api.operations.bulk import Bulk
from tarry.api.parts import Parts
from tarry.api.v1 import lists
from tarry.clock import SystemClock
from tarry.config import Config, load
from tarry.devbroker.ports import free_port
from tarry.devbroker.process import LeashedProcess
from tarry.service.app import cluster_of
from tests.support.brokers import wait_until
from tests.support.processes import ServeConfig

STRICT: Final = (
    "default-src 'self'; img-src 'self'; object-src 'none'; base-uri 'none'; frame-ancestors 'none'; form-action 'self'"
)
"""No inline scripts, no inline styles, nothing from elsewhere."""


def get(url: str, path: str) -> tuple[int, str]:
    """Ask for a path; return status and body."""
    address = urlsplit(url)
    connection = http.client.HTTPConnection(address.hostname or "", address.port, timeout=60)
    try:
        connection.request("GET", quote(path, safe="/?&=:%+*"))
        answer = connection.getresponse()
        return answer.status, answer.read().decode()
    finally:
        connection.close()


def get_json(url: str, path: str) -> Any:
    """Ask for a path that answers with JSON."""
    status, body = get(url, path)
    assert status == 200, f"{path}: {status} {body}"
    return json.loads(body)


def config_of(config: ServeConfig, directory: Path, port: int) -> Path:
    """Write the configuration of `tarry api` for a service's."""
    path = directory / "api.toml"
    extra = f'[api]\nport = {port}\nenvironment = "staging"\ncolour = "orange"\n'
    path.write_text(f"{config.toml()}\n{extra}", encoding="utf-8")
    return path


@contextmanager
def api_process(config: ServeConfig, directory: Path) -> Iterator[str]:
    """Run `tarry api`; yield its URL."""
    import sys  # noqa: PLC0415

    port = free_port()
    path = config_of(config, directory, port)
    url = f"http://127.0.0.1:{port}"
    command = [sys.executable, "-m", "tarry", "api", "--config", str(path)]
    process = LeashedProcess(command, directory / "api.log", 10)

    def answers() -> bool:
        try:
            return get(url, "/static/console.css")[0] == 200
        except OSError:
            return False

    try:
        wait_until(answers, f"{url} answers: {(directory / 'api.log').read_text(encoding='utf-8')[-2000:]}")
        yield url
    finally:
        process.stop()


class _As:
    """Names whoever asks, and forbids what a strict policy forbids."""

    def __init__(self, app: ASGIApp, principal: Principal) -> None:
        self._app = app
        self._principal = principal

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def with_policy(message: Message) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [*message["headers"], (b"content-security-policy", STRICT.encode())]
            await send(message)

        scope.setdefault("state", {})["principal"] = self._principal
        await self._app(scope, receive, with_policy)


@contextmanager
def served_to(
    principal: Principal, config: ServeConfig, directory: Path, change: Callable[[Config], Config] = lambda found: found
) -> Iterator[str]:
    """Serve the looking half in this process to one principal; yield its URL."""
    port = free_port()
    settings = change(load(config_of(config, directory, port), {}))
    parts = Parts(settings, cluster_of(settings), SystemClock(), lambda _event, **_fields: None)

    @asynccontextmanager
    async def asking(_app: FastAPI) -> AsyncIterator[None]:
        task = asyncio.create_task(parts.brokers.ask())
        try:
            yield
        finally:
            task.cancel()

    app = FastAPI(lifespan=asking)
    app.state.parts = parts
    problems.install(app)
    lookout.install(app, parts)
    app.state.gate = Gate(settings.api, parts.clock, parts.on_event)
    app.state.bulk = Bulk(parts, app.state.gate, Board(parts, "console"))
    app.include_router(lists.router)
    pages.install(app)
    wrapped: Any = _As(app, principal)
    server = uvicorn.Server(uvicorn.Config(wrapped, "127.0.0.1", port, log_config=None, lifespan="on"))
    thread = threading.Thread(target=server.run, name="console")
    thread.start()
    try:
        wait_until(lambda: server.started, "the console listens")
        yield f"http://127.0.0.1:{port}"
    finally:
        server.should_exit = True
        thread.join(20)


def without_cluster(config: ServeConfig, bootstrap: str) -> ServeConfig:
    """Return the configuration for a broker that is not there."""
    return replace(config, bootstrap=bootstrap)
