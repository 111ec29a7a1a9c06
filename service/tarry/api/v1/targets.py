"""`PUT /v1/targets/{topic}/pause` and `/resume`: stop the delivery to a target, and go on.

A decision stands when Kafka has it. The answer waits until all owners have confirmed that they obey.
"""

import asyncio
from http import HTTPStatus
from typing import Annotated, Any, Final

from fastapi import APIRouter, Path, Request
from pydantic import AfterValidator, BaseModel, ConfigDict, Field, StringConstraints
from starlette.responses import JSONResponse

from tarry.api.access.audit import audit
from tarry.api.access.identity import Asker, demand
from tarry.api.access.principal import Principal, Scope
from tarry.api.parts import Parts, given, parts_of
from tarry.api.problems import ProblemError
from tarry.api.v1.answers import problems
from tarry.api.v1.body import Duration, Time, Topic, check_text, wait_ms
from tarry.api.v1.intakes import Intakes, intakes_of
from tarry.core.request.pause import LONGEST_TEXT, Pause
from tarry.errors import UsageError
from tarry.kafka.control import Control, Unconfirmed
from tarry.units import format_instant, parse_instant_ms

router = APIRouter(tags=["targets"])

CONFIRMED_WITHIN: Final = "10s"
_LOOK_EVERY_S: Final = 0.05

_Reason = Annotated[str, StringConstraints(min_length=1, max_length=LONGEST_TEXT), AfterValidator(check_text)]
_Target = Annotated[str, Path(min_length=1, max_length=249, pattern=r"^[a-zA-Z0-9._-]+$")]


class Decision(BaseModel):
    """Why something is decided."""

    model_config = ConfigDict(extra="forbid", hide_input_in_errors=True)

    reason: _Reason = Field(description="Why: for all who look.")
    intake: Topic | None = Field(default=None, description="Needed where there are several.")
    wait: Duration | None = Field(
        default=None, description="How long to wait for the owners; default 10s, at most 30s."
    )


class Stop(Decision):
    """A pause."""

    until: Time | None = Field(default=None, description="When it ends by itself.")


class Decided(BaseModel):
    """A decision, and who has not confirmed it."""

    model_config = ConfigDict(extra="allow")

    intake: str
    target: str
    paused: bool
    confirmed: bool
    unconfirmed: list[dict[str, Any]]


_ANSWERS: Final[dict[int | str, dict[str, Any]]] = {
    200: {"model": Decided},
    202: {"model": Decided},
    **problems(404),
}
_Parts = Annotated[Parts, given(parts_of)]
_Intakes = Annotated[Intakes, given(intakes_of)]


@router.put("/targets/{topic}/pause", response_model=None, responses=_ANSWERS, summary="Stop the delivery to a target")
async def pause(
    request: Request, topic: _Target, body: Stop, asker: Asker, parts: _Parts, intakes: _Intakes
) -> JSONResponse:
    """Stop the delivery to a target; its messages wait, in order.

    200: all owners have confirmed it, and nothing is delivered from now on. 202: it stands, and the answer says who has
    not confirmed it yet.
    """
    until_ms = None if body.until is None else parse_instant_ms(body.until)
    if until_ms is not None and until_ms <= parts.clock.now_ms():
        raise ProblemError(HTTPStatus.UNPROCESSABLE_ENTITY, "until: must be later than now")
    return await _decided(request, topic, body, asker, parts, intakes, paused=True, until_ms=until_ms)


@router.put("/targets/{topic}/resume", response_model=None, responses=_ANSWERS, summary="Deliver to a target again")
async def resume(
    request: Request, topic: _Target, body: Decision, asker: Asker, parts: _Parts, intakes: _Intakes
) -> JSONResponse:
    """Deliver to a target again; what waited comes first, in order."""
    return await _decided(request, topic, body, asker, parts, intakes, paused=False, until_ms=None)


async def _decided(
    request: Request,
    topic: str,
    body: Decision,
    asker: Principal,
    parts: Parts,
    intakes: Intakes,
    *,
    paused: bool,
    until_ms: int | None,
) -> JSONResponse:
    demand(asker, Scope.ACT, topic)
    intake = intakes.named(body.intake, for_sending=False) if body.intake else intakes.only()
    wait_for_ms, clock = wait_ms(body.wait or CONFIRMED_WITHIN), parts.clock
    decided = Pause(topic, paused, body.reason, asker.name[:LONGEST_TEXT], clock.now_ms(), until_ms)
    await parts.brokers.demand()
    loop = asyncio.get_running_loop()
    control = await loop.run_in_executor(None, Control, parts.cluster, parts.settings.service.group, clock)
    try:
        try:
            if paused:
                await loop.run_in_executor(None, control.check_target, topic)
            # Before it is written: nobody did what was refused, and what gets no answer may have been done.
            audit(request, asker, "pause" if paused else "resume", intake=intake, target=topic, reason=body.reason)
            offset = await loop.run_in_executor(None, control.write, intake, decided)
        except UsageError as error:
            raise ProblemError(HTTPStatus.NOT_FOUND, str(error)) from error
        missing = await _missing(control, intake, offset, wait_for_ms, parts)
    finally:
        await loop.run_in_executor(None, control.close)
    fields = {
        "intake": intake,
        "target": topic,
        "paused": paused,
        "confirmed": not missing,
        "unconfirmed": [{"partition": one.partition, "owner": one.owner, "too_old": one.is_too_old} for one in missing],
        "at": format_instant(decided.at_ms),
        "until": None if until_ms is None else format_instant(until_ms),
    }
    return JSONResponse(fields, HTTPStatus.ACCEPTED if missing else HTTPStatus.OK)


async def _missing(control: Control, intake: str, offset: int, within_ms: int, parts: Parts) -> list[Unconfirmed]:
    """Return the partitions whose owners have not confirmed in time."""
    clock, loop = parts.clock, asyncio.get_running_loop()
    ends_ms = clock.monotonic_ms() + within_ms
    while True:
        found = await loop.run_in_executor(None, control.unconfirmed, intake, offset)
        if not found or clock.monotonic_ms() >= ends_ms:
            return found
        await asyncio.sleep(_LOOK_EVERY_S)
