"""Whether the brokers answer, asked every two seconds, and the pages for probes and scrapers."""

import asyncio
from http import HTTPStatus
from typing import Annotated, Final

from confluent_kafka import KafkaException
from fastapi import APIRouter, Depends
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest
from starlette.requests import HTTPConnection
from starlette.responses import PlainTextResponse, Response

from tarry.api.parts import Parts, parts_of
from tarry.api.problems import ProblemError

router = APIRouter(include_in_schema=False)

ASK_EVERY_S: Final = 2.0
SILENT_MS: Final = 10_000
"""After how long without an answer a replica is not ready."""


class Brokers:
    """Asks the brokers whether they are there.

    Args:
        parts: the cluster and the clock.
    """

    def __init__(self, parts: Parts) -> None:
        self._admin = parts.cluster.clients.admin(parts.cluster.admin())
        self._clock = parts.clock
        self._answered_ms: int | None = None

    @property
    def are_silent(self) -> bool:
        """Whether none has answered for some seconds."""
        return self._answered_ms is None or self._clock.monotonic_ms() - self._answered_ms > SILENT_MS

    async def ask(self) -> None:
        """Ask until this is cancelled."""
        while True:
            try:
                # As it is asked: at the latest that long ago somebody was there.
                asked_ms = self._clock.monotonic_ms()
                await asyncio.wrap_future(self._admin.describe_cluster(request_timeout=ASK_EVERY_S))
                self._answered_ms = asked_ms
            except KafkaException:
                pass  # `are_silent` says it
            await asyncio.sleep(ASK_EVERY_S)


def _brokers_of(connection: HTTPConnection) -> Brokers:
    found: Brokers = connection.app.state.brokers
    return found


@router.get("/livez")
async def livez() -> Response:
    """Answer: the event loop turns."""
    return PlainTextResponse("ok\n")


@router.get("/readyz")
async def readyz(brokers: Annotated[Brokers, Depends(_brokers_of)]) -> Response:
    """Answer whether requests should come here."""
    if brokers.are_silent:
        return PlainTextResponse("no broker answers\n", HTTPStatus.SERVICE_UNAVAILABLE)
    return PlainTextResponse("ok\n")


@router.get("/metrics")
async def metrics(parts: Annotated[Parts, Depends(parts_of)]) -> Response:
    """Answer with the figures of this replica."""
    if not parts.settings.api.metrics:
        raise ProblemError(HTTPStatus.NOT_FOUND, "api.metrics is off")
    return Response(generate_latest(parts.metrics.registry), media_type=CONTENT_TYPE_LATEST)
