"""The composition root of `tarry api`."""

import asyncio
import gc
import os
import signal
import socket
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from types import FrameType

import uvicorn
from fastapi import APIRouter, FastAPI
from starlette.types import ASGIApp
from uvicorn.middleware.proxy_headers import ProxyHeadersMiddleware

from tarry import __version__
from tarry.api import health, problems
from tarry.api.access.authentication import Authentication
from tarry.api.access.gate import Gate
from tarry.api.access.load import Load
from tarry.api.access.protection import Protection
from tarry.api.access.rates import Rates
from tarry.api.access.request_log import RequestLog
from tarry.api.console import login, pages
from tarry.api.looking import lookout
from tarry.api.operations.board import Board
from tarry.api.operations.bulk import Bulk
from tarry.api.parts import Parts
from tarry.api.protocol import BoundedProtocol
from tarry.api.v1 import batch, events, lists, messages, operations, targets, timers, waiting
from tarry.api.v1.acting import Acting
from tarry.api.v1.answers import problems as problems_of
from tarry.api.v1.events import Streams
from tarry.api.v1.finding import Finding
from tarry.api.v1.intakes import Intakes
from tarry.api.v1.sending import Sending
from tarry.api.v1.timers import Timers
from tarry.api.v1.turns import OneAtATime
from tarry.errors import UsageError
from tarry.service.app import SWITCH_INTERVAL_S
from tarry.service.http import listen

CONNECTIONS = 8_192
"""The most connections at the same time, idle ones included."""

GC_THRESHOLDS = (20_000, 20, 20)
"""Thresholds that make garbage collections rare: a full one stops all requests."""

ENDS_WITHIN_S = 8
"""How long requests may take to end after SIGTERM."""


def make_app(parts: Parts) -> ASGIApp:
    """Return the application; its end closes the parts.

    Raises:
        ConfigError: a file of the configuration cannot be read, or anybody could reach it.
    """
    api = parts.settings.api
    gate = Gate(api, parts.clock, parts.on_event)
    app = _routed(parts, gate)
    # The outermost is last.
    handlers = Load(messages.Shortcut(app, api.prefix), api, parts.metrics)
    protected: ASGIApp = Authentication(handlers, gate, Rates(api.rate, parts.clock), api.prefix)
    protected = Protection(protected, api)
    if api.proxies:
        protected = ProxyHeadersMiddleware(protected, trusted_hosts=list(api.proxies))  # type: ignore[arg-type, assignment]
    return RequestLog(protected, parts)


def _routed(parts: Parts, gate: Gate) -> FastAPI:
    board = Board(parts, f"{socket.gethostname()}-{os.getpid()}")

    @asynccontextmanager
    async def lifespan(_app: FastAPI) -> AsyncIterator[None]:
        asking = asyncio.create_task(parts.brokers.ask())
        board.start()
        try:
            yield
        finally:
            await asyncio.get_running_loop().run_in_executor(None, board.close)
            asking.cancel()
            with suppress(asyncio.CancelledError):
                await asking
            await gate.close()
            await parts.close()

    app = FastAPI(
        title="tarry",
        version=__version__,
        lifespan=lifespan,
        openapi_url="/v1/openapi.json",
        # Their pages load scripts from another site.
        docs_url=None,
        redoc_url=None,
        root_path=parts.settings.api.prefix,
    )
    intakes = Intakes(parts)
    finding = Finding(parts, intakes)
    state = app.state
    state.parts, state.gate, state.intakes, state.finding = parts, gate, intakes, finding
    turns = OneAtATime()
    state.sending, state.acting = Sending(parts, intakes, turns), Acting(parts, intakes, finding, turns)
    state.bulk = Bulk(parts, gate, board)
    state.timers, state.streams = Timers(parts, intakes, finding), Streams(parts)
    v1 = APIRouter(prefix="/v1")
    for module in (batch, messages, waiting, timers, targets, events, operations):
        v1.include_router(module.router)
    app.include_router(v1)
    app.include_router(lists.router, responses=problems_of(404, 410))
    app.include_router(health.router)
    app.include_router(login.router)
    problems.install(app)
    lookout.install(app, parts)
    pages.install(app)
    return app


def run(parts: Parts) -> None:
    """Serve until SIGTERM or Ctrl-C.

    Raises:
        ConfigError: as `make_app`.
        UsageError: the address cannot be listened on.
    """
    api = parts.settings.api
    app = make_app(parts)
    gc.collect()
    gc.freeze()
    gc.set_threshold(*GC_THRESHOLDS)
    # Threads of the client library bring delivery reports and results: they must not wait long for the event loop.
    sys.setswitchinterval(SWITCH_INTERVAL_S)
    config = uvicorn.Config(
        app,
        http=BoundedProtocol,
        ws="none",
        log_config=None,
        access_log=False,
        server_header=False,
        # `api.proxies` says whom to believe, not a variable of the environment.
        proxy_headers=False,
        limit_concurrency=CONNECTIONS,
        timeout_graceful_shutdown=ENDS_WITHIN_S,
    )
    try:
        listener = listen(api.host, api.port)
    except UsageError as error:
        raise UsageError(str(error).replace("http.", "api.")) from error
    with listener:
        host, port = listener.getsockname()[:2]
        url = f"http://{f'[{host}]' if ':' in host else host}:{port}{api.prefix}/"
        parts.on_event("api_listening", url=url, host=host, port=port, needs_token=bool(api.tokens or api.oidc))
        server = uvicorn.Server(config)

        def stop(_number: int, _frame: FrameType | None) -> None:
            server.should_exit = True

        # uvicorn has handlers while it runs, and raises the signal again at its end: that must not end the process.
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, stop)
        server.run([listener])
    parts.on_event("stopped")
