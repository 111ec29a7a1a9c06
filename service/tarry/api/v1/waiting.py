"""`/v1/messages/{handle}`: where a message is; cancel it; move it to another time."""

from functools import partial
from http import HTTPStatus
from typing import Annotated, Any, Final

from fastapi import APIRouter, Path, Query, Request
from starlette.responses import JSONResponse

from tarry.api.access.audit import audit
from tarry.api.access.identity import Asker
from tarry.api.parts import given
from tarry.api.problems import ProblemError
from tarry.api.v1.acting import Acting, acting_of
from tarry.api.v1.answers import Sent, State, problems
from tarry.api.v1.body import MovedTo, wait_ms
from tarry.api.v1.finding import Finding, finding_of
from tarry.api.v1.intakes import Intakes, intakes_of
from tarry.errors import HeaderError
from tarry.handle import Handle
from tarry.headers import ErrorCode
from tarry.units import MAX_EPOCH_MS, parse_duration_ms, parse_instant_ms

router = APIRouter(tags=["messages"])

_HandleText = Annotated[str, Path(max_length=400, description="The handle, from the receipt.")]
_Wait = Annotated[str | None, Query(max_length=64, description="Wait so long for the answer, 30s at most.")]
_Reason = Annotated[str | None, Query(max_length=1_000, description="Why: for the audit log.")]
_Acting = Annotated[Acting, given(acting_of)]
_Intakes = Annotated[Intakes, given(intakes_of)]


def parsed_handle(text: str, intakes: Intakes) -> Handle:
    """Return the handle in a path.

    Raises:
        ProblemError: it is none, or not of an intake of this server.
    """
    try:
        handle = Handle.parse(text)
    except HeaderError:
        raise ProblemError(HTTPStatus.NOT_FOUND, "not a handle: 1.INTAKE.PARTITION.DUE_MS.ID") from None
    if not handle.due_ms:
        raise ProblemError(HTTPStatus.NOT_FOUND, "the handle of a schedule: ask for its key and name in /v1/timers")
    intakes.named(handle.topic, for_sending=False)
    return handle


@router.get(
    "/messages/{handle}",
    response_model=None,
    responses={200: {"model": State}, **problems(404)},
    summary="Where a message is",
)
async def status(
    handle: _HandleText, asker: Asker, intakes: _Intakes, finding: Annotated[Finding, given(finding_of)]
) -> JSONResponse:
    """Say where a message is: `waiting`, its outcome, or `unknown` (404)."""
    return JSONResponse(await finding.status(asker, parsed_handle(handle, intakes)))


@router.delete(
    "/messages/{handle}",
    response_model=None,
    status_code=202,
    responses={200: {"model": State}, 202: {"model": State}, **problems(404, 409, 504)},
    summary="Cancel a message",
)
async def cancel(
    request: Request,
    handle: _HandleText,
    asker: Asker,
    acting: _Acting,
    intakes: _Intakes,
    wait: _Wait = None,
    reason: _Reason = None,
) -> JSONResponse:
    """Cancel a message that has not been delivered.

    200: it is cancelled, and is not delivered. 202: Kafka has the cancel; the service decides when it reads it, or
    shortly before the message is due. 409: it was too late.
    """
    wanted, wait_for_ms = parsed_handle(handle, intakes), wait_ms(wait)
    await acting.check(asker, wanted)
    audit(request, asker, "cancel", handle=str(wanted), reason=reason)
    return await acting.cancel(asker, wanted, wait_for_ms)


_MOVED: Final[dict[int | str, dict[str, Any]]] = {200: {"model": Sent}, 202: {"model": Sent}, **problems(404, 409, 504)}


@router.post("/messages/{handle}:move", response_model=None, responses=_MOVED, summary="Move a message in time")
async def move(
    request: Request, handle: _HandleText, body: MovedTo, asker: Asker, acting: _Acting, intakes: _Intakes
) -> JSONResponse:
    """Let a waiting message be due at another time.

    One transaction cancels it and sends it again. Near its old due time both may be delivered: `twice` says whether
    that is excluded. A named message is replaced instead, which is exact.
    """
    at_ms = acting.now_ms() + parse_duration_ms(body.delay or "0ms") if body.at is None else parse_instant_ms(body.at)
    if at_ms > MAX_EPOCH_MS:
        raise ProblemError(HTTPStatus.UNPROCESSABLE_ENTITY, "beyond the year 9999", ErrorCode.BEYOND_MAX_DELAY)
    on_act = partial(audit, request, asker, "move")
    return await acting.move(asker, parsed_handle(handle, intakes), at_ms, wait_ms(body.wait), on_act)


@router.post(
    "/messages/{handle}:deliver-now", response_model=None, responses=_MOVED, summary="Deliver a waiting message now"
)
async def deliver_now(
    request: Request, handle: _HandleText, asker: Asker, acting: _Acting, intakes: _Intakes, wait: _Wait = None
) -> JSONResponse:
    """Move a waiting message to now."""
    on_act = partial(audit, request, asker, "deliver-now")
    return await acting.move(asker, parsed_handle(handle, intakes), acting.now_ms(), wait_ms(wait), on_act)
