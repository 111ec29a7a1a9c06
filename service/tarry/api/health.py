"""The pages for probes and scrapers."""

from http import HTTPStatus
from typing import Annotated

from fastapi import APIRouter
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest
from starlette.responses import PlainTextResponse, Response

from tarry.api.parts import Parts, given, parts_of
from tarry.api.problems import ProblemError

router = APIRouter(include_in_schema=False)


@router.get("/livez")
async def livez() -> Response:
    """Answer: the event loop turns."""
    return PlainTextResponse("ok\n")


@router.get("/readyz")
async def readyz(parts: Annotated[Parts, given(parts_of)]) -> Response:
    """Answer whether requests should come here."""
    if not parts.brokers.have_answered:
        return PlainTextResponse("no broker answers\n", HTTPStatus.SERVICE_UNAVAILABLE)
    return PlainTextResponse("ok\n")


@router.get("/metrics")
async def metrics(parts: Annotated[Parts, given(parts_of)]) -> Response:
    """Answer with the figures of this replica."""
    if not parts.settings.api.metrics:
        raise ProblemError(HTTPStatus.NOT_FOUND, "api.metrics is off")
    return Response(generate_latest(parts.metrics.registry), media_type=CONTENT_TYPE_LATEST)
