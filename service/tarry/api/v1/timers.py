"""`/v1/timers`: the message, or the schedule, that waits under a name of a key."""

from collections.abc import Mapping
from dataclasses import replace
from http import HTTPStatus
from typing import Annotated, Any, Final

from fastapi import APIRouter, Query, Request
from pydantic import BaseModel, ConfigDict
from starlette.requests import HTTPConnection
from starlette.responses import JSONResponse

from tarry.api.access.audit import audit
from tarry.api.access.identity import Asker, demand
from tarry.api.access.principal import Principal, Scope
from tarry.api.parts import Parts, given
from tarry.api.problems import ProblemError
from tarry.api.v1.acting import Acting, acting_of
from tarry.api.v1.answers import Sent, State, problems
from tarry.api.v1.body import Base64, Content, Duration, Name, Text, Topic, key_bytes, wait_ms
from tarry.api.v1.finding import Finding, Found
from tarry.api.v1.intakes import Intakes
from tarry.api.v1.messages import IdempotencyKey, response
from tarry.api.v1.rights import may_change, may_change_any, refuse_to_change
from tarry.api.v1.sending import Order, Sending, sending_of
from tarry.core.request.schedule_times import next_times, rule_fields
from tarry.handle import Handle
from tarry.headers import Outcome, id_text
from tarry.kafka.inspector import Inspector
from tarry.kafka.whereabouts import LOOKS, find, targets_under
from tarry.units import format_instant

router = APIRouter(tags=["timers"])

DECIDED_WITHIN: Final = "5s"
_THEN: Final = 5
"""How many times of a schedule are shown."""


class Timer(BaseModel):
    """Which timer is meant."""

    model_config = ConfigDict(extra="forbid", hide_input_in_errors=True)

    name: Name
    key: Text | None = None
    key_base64: Base64 | None = None
    intake: Topic | None = None
    wait: Duration | None = None


_Timer = Annotated[Timer, Query()]


class Timers:
    """Finds named messages.

    Args:
        parts: the clients.
        intakes: the configured intakes.
        finding: says what somebody may see.
    """

    def __init__(self, parts: Parts, intakes: Intakes, finding: Finding) -> None:
        self._parts = parts
        self._intakes = intakes
        self._finding = finding

    def place(self, timer: Timer) -> tuple[str, bytes]:
        """Return the intake and the key.

        Raises:
            ProblemError: the intake is none, or there are two keys or none.
        """
        if (timer.key is None) == (timer.key_base64 is None):
            raise ProblemError(HTTPStatus.UNPROCESSABLE_ENTITY, "give either key or key_base64")
        return self._intakes.named(timer.intake), key_bytes(timer.key, timer.key_base64) or b""

    async def find(self, intake: str, key: bytes, name: str, *, with_content: bool) -> tuple[Handle, Found]:
        """Return the message that waits under a name.

        Raises:
            ProblemError: none does, as far as the service has read.
        """
        await self._intakes.known(intake)
        policy = self._intakes.policy(intake)

        def look(inspector: Inspector) -> tuple[Handle, Found] | None:
            for _ in range(LOOKS):
                (topic, partition), entry, _served = inspector.named(intake, key, name.encode())
                if entry is None:
                    return None
                handle = Handle(topic, partition, entry.due_ms, id_text(entry.id).decode())
                found = find(inspector, handle, policy)
                if found.message is not None:
                    content = inspector.content(found.message) if with_content else None
                    return replace(handle, id=found.message.id), (found, content)
            return None

        found = await self._parts.look(look)
        if found is None:
            raise ProblemError(
                HTTPStatus.NOT_FOUND, "no message waits under this name, as far as the service has read it"
            )
        return found

    async def check(self, principal: Principal, intake: str, key: bytes, name: str) -> None:
        """Check the rights on what waits under a name, or will when the service has read it; if nothing, on anything.

        Raises:
            ProblemError: the principal may not change it.
        """
        if may_change_any(principal):
            return
        if not (principal.has(Scope.ACT) or principal.has(Scope.SEND)):
            raise refuse_to_change(principal)
        await self._intakes.known(intake)
        policy = self._intakes.policy(intake)
        targets = await self._parts.look(lambda inspector: targets_under(inspector, intake, key, name.encode(), policy))
        if not all(may_change(principal, target) for target in targets):
            raise refuse_to_change(principal)

    async def status(self, principal: Principal, intake: str, key: bytes, name: str) -> dict[str, Any]:
        """Return the state of a timer."""
        handle, (found, content) = await self.find(intake, key, name, with_content=True)
        fields = self._finding.fields(principal, handle, found, content)
        if found.repeated is not None:
            fields |= self._rule(handle, found.repeated.schedule, found.repeated.headers)
        return fields

    def _rule(self, handle: Handle, schedule: bytes, headers: Mapping[str, bytes | None]) -> dict[str, Any]:
        from_ms = max(self._parts.clock.now_ms(), handle.due_ms)
        then_ms = next_times(headers, schedule, from_ms, self._parts.settings.wheel.tick_ms, _THEN)
        return {**rule_fields(headers), "then": [format_instant(one) for one in then_ms], "then_ms": list(then_ms)}


def timers_of(connection: HTTPConnection) -> Timers:
    """Return what finds timers, of the application that handles a request; a FastAPI dependency."""
    found: Timers = connection.app.state.timers
    return found


_Timers = Annotated[Timers, given(timers_of)]


@router.get(
    "/timers", response_model=None, responses={200: {"model": State}, **problems(404)}, summary="Where a timer is"
)
async def status(timer: _Timer, asker: Asker, timers: _Timers) -> JSONResponse:
    """Say where the message is that waits under a name; of a schedule, also its rule and its next times."""
    return JSONResponse(await timers.status(asker, *timers.place(timer), timer.name))


@router.put(
    "/timers",
    response_model=None,
    status_code=202,
    responses={200: {"model": Sent}, 202: {"model": Sent}, **problems(409, 412, 504)},
    summary="Set a timer",
)
async def put(
    request: Request,
    timer: _Timer,
    body: Content,
    asker: Asker,
    timers: _Timers,
    sending: Annotated[Sending, given(sending_of)],
    idempotency_key: IdempotencyKey = None,
) -> JSONResponse:
    """Let this message, or this schedule, wait under the name; it replaces the one that does.

    With `if`, the answer says what was decided: 412 if it was skipped.
    """
    intake, key = timers.place(timer)
    wait = timer.wait if timer.wait is not None or body.only_if is None else DECIDED_WITHIN
    demand(asker, Scope.SEND, body.target)
    audit(request, asker, "set-timer", intake=intake, target=body.target)
    answer = await sending.send(
        asker, Order(body, intake, key, timer.name, idempotency_key, wait_ms(wait), "timer", decides=True)
    )
    outcome = answer.fields.get("outcome") or {}
    if outcome.get("outcome") == Outcome.SKIPPED:
        raise ProblemError(
            HTTPStatus.PRECONDITION_FAILED, f"nothing was changed: {outcome.get('reason')}", "skipped", **answer.fields
        )
    return response(answer)


@router.delete(
    "/timers",
    response_model=None,
    responses={200: {"model": State}, 202: {"model": State}, **problems(404, 409, 504)},
    summary="Cancel a timer",
)
async def delete(
    request: Request, timer: _Timer, asker: Asker, timers: _Timers, acting: Annotated[Acting, given(acting_of)]
) -> JSONResponse:
    """Cancel the message, or the schedule, that waits under the name.

    200: it is cancelled. 404: none waited. 202: the answer did not come in time.
    """
    intake, key = timers.place(timer)
    await timers.check(asker, intake, key, timer.name)
    audit(request, asker, "cancel-timer", intake=intake)
    return await acting.cancel_named(intake, key, timer.name, wait_ms(timer.wait or DECIDED_WITHIN))
