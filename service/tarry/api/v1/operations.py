"""`/v1/dead:redrive`, `/v1/dead:dismiss`, `/v1/pending:cancel`, `/v1/pending:move`, and the operations that they begin.

Without a token, each is a dry run: it says what it would do, and gives a token for exactly the records that it saw.
With the token and a reason, it begins the operation.
"""

from http import HTTPStatus
from typing import Annotated, Any, Final, Self

from fastapi import APIRouter, Path, Query, Request
from pydantic import AfterValidator, BaseModel, ConfigDict, Field, StringConstraints, model_validator
from starlette.responses import JSONResponse

from tarry.api.access.audit import audit
from tarry.api.access.identity import Asker, demand
from tarry.api.access.principal import Principal, Scope
from tarry.api.looking.due import FOREVER_MS
from tarry.api.looking.paging import Wanted
from tarry.api.operations.bulk import Bulk, bulk_of
from tarry.api.operations.letters import WantedLetters
from tarry.api.operations.models import Audit, DryRun, OperationRow, Operations
from tarry.api.operations.records import LONGEST_TEXT, Act
from tarry.api.operations.waiting import MOST_PICKED
from tarry.api.parts import given, parts_of
from tarry.api.v1.answers import problems
from tarry.api.v1.body import Base64, Duration, Name, Text, Time, Topic, check_text, key_bytes
from tarry.api.v1.intakes import Intakes, intakes_of
from tarry.errors import HeaderError
from tarry.handle import Handle
from tarry.units import parse_duration_ms, parse_instant_ms

router = APIRouter(tags=["operations"])

MOST_LISTED: Final = 500
_Reason = Annotated[str, StringConstraints(min_length=1, max_length=LONGEST_TEXT), AfterValidator(check_text)]


def _check_handle(text: str) -> str:
    try:
        return str(Handle.parse(text))
    except HeaderError as error:
        raise ValueError(str(error)) from None


_Handle = Annotated[str, StringConstraints(max_length=512), AfterValidator(_check_handle)]
_FILTERS: Final = frozenset({"due_from", "due_until", "target", "key", "key_base64", "name"})
_Bulk = Annotated[Bulk, given(bulk_of)]
_Intakes = Annotated[Intakes, given(intakes_of)]
_Id = Annotated[str, Path(max_length=64, description="The id of the operation.")]
_Intake = Annotated[str | None, Query(max_length=249, description="Only of this intake.")]
_Limit = Annotated[int, Query(ge=1, le=MOST_LISTED, description="How many at most.")]


class _Bulky(BaseModel):
    """The fields that all bulk acts share."""

    model_config = ConfigDict(extra="forbid", hide_input_in_errors=True)

    intake: Topic | None = Field(default=None, description="Needed where there are several.")
    token: Annotated[str, StringConstraints(min_length=1)] | None = Field(
        default=None, description="Of a dry run: execute it. It says all that is to be done."
    )
    reason: _Reason | None = Field(default=None, description="Why: for all who look. Needed with a token.")

    @model_validator(mode="after")
    def _check_token(self) -> Self:
        if self.token is not None and self.reason is None:
            raise ValueError("a token needs a reason")
        if self.token is not None and self.model_fields_set - {"token", "reason"}:
            raise ValueError("with a token, give only a reason: the dry run has fixed the other fields")
        return self


class OfLetters(_Bulky):
    """Which dead letters."""

    code: Annotated[str, StringConstraints(max_length=64)] | None = Field(
        default=None, description="Only of this error code."
    )
    target: Annotated[str, StringConstraints(max_length=249)] | None = Field(
        default=None, description="Only of this target; empty: only without one."
    )


class OfMessages(_Bulky):
    """Which messages that wait."""

    due_from: Time | None = Field(default=None, description="None that is due before.")
    due_until: Time | None = Field(default=None, description="None that is due from then on.")
    target: Annotated[str, StringConstraints(min_length=1, max_length=250)] | None = Field(
        default=None, description="The target; `orders.*` for a beginning."
    )
    key: Text | None = None
    key_base64: Base64 | None = None
    name: Name | None = Field(default=None, description="Needs the key.")
    handles: Annotated[list[_Handle], Field(min_length=1, max_length=MOST_PICKED)] | None = Field(
        default=None, description="Only these messages: in place of all other fields that choose."
    )

    @model_validator(mode="after")
    def _check_filter(self) -> Self:
        if self.handles is not None and self.model_fields_set & _FILTERS:
            raise ValueError("give either handles, or other fields that choose")
        if self.key is not None and self.key_base64 is not None:
            raise ValueError("give either key or key_base64")
        if self.name is not None and self.key is None and self.key_base64 is None:
            raise ValueError("name needs the key")
        return self

    def wanted(self) -> Wanted:
        """Return which messages it means."""
        if self.handles is not None:
            return Wanted.of_handles([Handle.parse(one) for one in self.handles])
        return Wanted(
            0 if self.due_from is None else parse_instant_ms(self.due_from),
            FOREVER_MS if self.due_until is None else parse_instant_ms(self.due_until),
            self.target,
            key_bytes(self.key, self.key_base64),
            None if self.name is None else self.name.encode(),
        )


class MovedBy(OfMessages):
    """Which messages, and by how much they are due later."""

    by: Duration | None = Field(default=None, description="By how much they are due later. Needed without a token.")

    @model_validator(mode="after")
    def _check_by(self) -> Self:
        if self.token is None and (self.by is None or parse_duration_ms(self.by) < 1):
            raise ValueError("by: needed, at least 1ms")
        return self


class StopReason(BaseModel):
    """Why an operation is stopped."""

    model_config = ConfigDict(extra="forbid", hide_input_in_errors=True)

    reason: _Reason = Field(description="Why: for all who look.")


_ANSWERS: Final[dict[int | str, dict[str, Any]]] = {
    200: {"model": DryRun, "description": "A dry run: nothing was changed."},
    202: {"model": OperationRow, "description": "The operation begins, or has begun before."},
    **problems(404),
}


@router.post("/dead:redrive", response_model=None, responses=_ANSWERS, summary="Send many dead letters again")
async def redrive(request: Request, body: OfLetters, asker: Asker, bulk: _Bulk, intakes: _Intakes) -> JSONResponse:
    """Send dead letters to their intake again, each once.

    Only letters for targets on which you may act are found.
    """
    return await _letters(request, Act.REDRIVE, body, asker, bulk, intakes)


@router.post("/dead:dismiss", response_model=None, responses=_ANSWERS, summary="Dismiss many dead letters")
async def dismiss(request: Request, body: OfLetters, asker: Asker, bulk: _Bulk, intakes: _Intakes) -> JSONResponse:
    """Mark dead letters as done, without sending them again. The letters stay in their topic."""
    return await _letters(request, Act.DISMISS, body, asker, bulk, intakes)


@router.post("/pending:cancel", response_model=None, responses=_ANSWERS, summary="Cancel many messages")
async def cancel(request: Request, body: OfMessages, asker: Asker, bulk: _Bulk, intakes: _Intakes) -> JSONResponse:
    """Cancel messages that wait, 20,000 at most, about those that are due first.

    An occurrence of a schedule is cancelled with its schedule. The service decides whether each cancel came in time.
    """
    return await _messages(request, Act.CANCEL, body, asker, bulk, intakes)


@router.post("/pending:move", response_model=None, responses=_ANSWERS, summary="Move many messages in time")
async def move(request: Request, body: MovedBy, asker: Asker, bulk: _Bulk, intakes: _Intakes) -> JSONResponse:
    """Let messages that wait be due later, 20,000 at most, about those that are due first; schedules are left out.

    One transaction cancels a message and sends it again. What is due, or nearly so, is left: both might be delivered.
    A named message is replaced instead, which is exact.
    """
    by_ms = 0 if body.by is None else parse_duration_ms(body.by)
    return await _messages(request, Act.MOVE, body, asker, bulk, intakes, by_ms)


async def _letters(
    request: Request, act: Act, body: OfLetters, asker: Principal, bulk: Bulk, intakes: Intakes
) -> JSONResponse:
    demand(asker, Scope.ACT)
    if body.token is not None:
        return await _begun(request, act, body, asker, bulk)
    # They go to the intake as they came, so it need not take delays from headers.
    intake = intakes.named(body.intake, for_sending=False) if body.intake else intakes.only()
    found = await bulk.plan_letters(asker, intake, act, WantedLetters(body.code, body.target))
    return JSONResponse(found.model_dump(mode="json"))


async def _messages(
    request: Request, act: Act, body: OfMessages, asker: Principal, bulk: Bulk, intakes: Intakes, by_ms: int = 0
) -> JSONResponse:
    demand(asker, Scope.ACT)
    if body.token is not None:
        return await _begun(request, act, body, asker, bulk)
    found = await bulk.plan_waiting(asker, intakes.named(body.intake), act, body.wanted(), by_ms)
    return JSONResponse(found.model_dump(mode="json"))


async def _begun(request: Request, act: Act, body: _Bulky, asker: Principal, bulk: Bulk) -> JSONResponse:
    row = await bulk.begin(asker, act, body.token or "", body.reason or "")
    audit(request, asker, str(act), intake=row.intake, operation=row.id, records=row.total, reason=body.reason)
    where = f"{parts_of(request).settings.api.prefix}/v1/operations/{row.id}"
    return JSONResponse(row.model_dump(mode="json"), HTTPStatus.ACCEPTED, {"Location": where})


@router.get("/operations", responses=problems(404), summary="The bulk acts, the newest first")
async def operations(
    asker: Asker, bulk: _Bulk, intakes: _Intakes, intake: _Intake = None, limit: _Limit = 100
) -> Operations:
    """Return the operations of the last 90 days that you began, or whose targets you may all look at."""
    demand(asker, Scope.LOOK)
    return bulk.operations(asker, _named(intakes, intake), limit)


@router.get("/operations/{operation_id}", responses=problems(404), summary="How far a bulk act is")
async def operation(operation_id: _Id, asker: Asker, bulk: _Bulk) -> OperationRow:
    """Return an operation: its state, how much is done, and what was left, by reason."""
    demand(asker, Scope.LOOK)
    return await bulk.operation(asker, operation_id)


@router.post("/operations/{operation_id}:stop", responses=problems(404), summary="Stop a bulk act")
async def stop(request: Request, operation_id: _Id, body: StopReason, asker: Asker, bulk: _Bulk) -> OperationRow:
    """Stop an operation: what is done stays done, and nothing more is."""
    demand(asker, Scope.ACT)
    row = await bulk.stop(asker, operation_id, body.reason)
    audit(request, asker, "stop", intake=row.intake, operation=row.id, reason=body.reason)
    return row


@router.get("/audit", responses=problems(404), summary="Who did what")
async def audit_log(asker: Asker, bulk: _Bulk, intakes: _Intakes, intake: _Intake = None, limit: _Limit = 100) -> Audit:
    """Return who did what: bulk acts, pauses, and what people did in the console, the newest first."""
    demand(asker, Scope.LOOK)
    return bulk.audit(asker, _named(intakes, intake), limit)


def _named(intakes: Intakes, intake: str | None) -> str | None:
    return None if intake is None else intakes.named(intake, for_sending=False)
