"""The pages of bulk acts: what a form would do, the operation that follows, and who did what. All work without scripts.

A form on the page of dead letters, or of what waits, asks for a dry run. Its page has the form that begins the
operation, and that leads to the page of the operation, with progress and the form that stops it.
"""

from collections.abc import Mapping
from http import HTTPStatus
from typing import Annotated, Final, Literal

from fastapi import APIRouter, Form, Request
from starlette.responses import HTMLResponse, RedirectResponse, Response

from tarry.api.access.audit import audit
from tarry.api.access.identity import demand
from tarry.api.access.principal import Scope
from tarry.api.console.rendering import Page, PageRoute, ThePage
from tarry.api.looking.due import FOREVER_MS, time_of
from tarry.api.looking.paging import Wanted
from tarry.api.operations.bulk import Bulk, bulk_of
from tarry.api.operations.letters import WantedLetters
from tarry.api.operations.models import DryRun
from tarry.api.operations.records import LONGEST_TEXT, Act
from tarry.api.operations.waiting import MOST_PICKED
from tarry.api.parts import given
from tarry.api.problems import ProblemError
from tarry.errors import HeaderError
from tarry.handle import Handle
from tarry.units import parse_duration_ms, shown

SHOWN_ACTS: Final = 200
SHOWN_OPERATIONS: Final = 50

router = APIRouter(route_class=PageRoute, include_in_schema=False, default_response_class=HTMLResponse)

Field = Annotated[str, Form(max_length=4096)]
_Bulk = Annotated[Bulk, given(bulk_of)]
_Reason = Annotated[str, Form(min_length=1, max_length=LONGEST_TEXT)]


def confirmed_by(found: DryRun) -> str:
    """Return what must be typed to begin an operation: its target, if that is one, else the intake."""
    names = list(found.by_target)
    return names[0] if len(names) == 1 and names[0] else found.intake


@router.post("/dead/plan")
async def plan_letters(
    page: ThePage,
    bulk: _Bulk,
    intake: Field,
    act: Annotated[Literal["redrive", "dismiss"], Form()],
    code: Field = "",
    target: Field = "",
    *,
    without_target: Annotated[bool, Form()] = False,
) -> Response:
    """What redriving or dismissing would do."""
    demand(page.looker, Scope.ACT)
    topic = page.lookout.intake(intake).topic
    wanted = WantedLetters(code or None, "" if without_target else target or None)
    found = await bulk.plan_letters(page.looker, topic, Act(act), wanted)
    where = f" --where {shown(f'tarry-error={code}')}" if code else ""
    where += f" --where {shown(f'tarry-target={target}')}" if target else ""
    to = f" --to {topic}" if act == "redrive" else ""
    given = {"code": code or None, "target": "" if without_target else target or None}
    filters = {field: text for field, text in given.items() if text is not None}
    return await _planned(
        page, found, {"intake": topic, **filters}, f"tarry {act} {topic}.dead{to}{where} --dry-run", filters=filters
    )


@router.post("/waiting/plan")
async def plan_waiting(
    page: ThePage,
    bulk: _Bulk,
    intake: Field,
    act: Annotated[Literal["cancel", "move"], Form()],
    due_from: Field = "",
    due_until: Field = "",
    target: Field = "",
    key: Field = "",
    name: Field = "",
    by: Field = "",
    pick: Annotated[list[str] | None, Form(max_length=MOST_PICKED)] = None,
) -> Response:
    """What cancelling or moving would do: to the messages with the handles `pick`, else to all that fit."""
    demand(page.looker, Scope.ACT)
    topic = page.lookout.intake(intake).topic
    if name and not key:
        raise ProblemError(HTTPStatus.UNPROCESSABLE_ENTITY, "A name belongs to a key: fill in both.")
    try:
        by_ms = parse_duration_ms(by) if act == "move" else 0
        handles = [Handle.parse(one) for one in pick or ()]
    except (ValueError, HeaderError) as error:
        raise ProblemError(HTTPStatus.UNPROCESSABLE_ENTITY, str(error)) from error
    if act == "move" and by_ms < 1:
        raise ProblemError(HTTPStatus.UNPROCESSABLE_ENTITY, "Later by: at least 1ms.")
    from_ms, until_ms = time_of("due_from", due_from) or 0, time_of("due_until", due_until)
    until_ms = FOREVER_MS if until_ms is None else until_ms
    wanted = Wanted(from_ms, until_ms, target or None, key.encode() if key else None, name.encode() if name else None)
    if handles:
        wanted = Wanted.of_handles(handles)
    found = await bulk.plan_waiting(page.looker, topic, Act(act), wanted, by_ms)
    given = {"due_from": due_from, "due_until": due_until, "target": target, "key": key, "name": name}
    filters = {field: text for field, text in given.items() if text}
    texts = [str(one) for one in handles]
    chosen = {"handles": texts} if texts else filters
    body = {"intake": topic, **chosen, **({"by": by} if by_ms else {})}
    cli = f"# all that is due at one time: tarry pending --intake {topic} --bucket TIME\n"
    cli += "\n".join(f"tarry cancel {one}" for one in texts or ["HANDLE"])
    return await _planned(page, found, body, cli, filters=filters)


async def _planned(
    page: Page,
    found: DryRun,
    body: Mapping[str, object] | None = None,
    cli: str = "",
    *,
    filters: Mapping[str, str] | None = None,
    fault: bool = False,
    reason: str = "",
) -> Response:
    of = "dead" if found.act.is_of_letters else "pending"
    back = "/dead" if found.act.is_of_letters else "/waiting"
    return await page.render(
        "plan.html",
        f"{found.act.capitalize()}: dry run",
        status=HTTPStatus.UNPROCESSABLE_ENTITY if fault else HTTPStatus.OK,
        plan=found,
        typed=confirmed_by(found),
        fault=fault,
        reason=reason,
        body=body,
        path=f"/v1/{of}:{found.act}",
        cli=cli,
        back_url=page.url(back, intake=found.intake, **(filters or {})),
        here=back,
    )


@router.post("/operations")
async def begin(
    request: Request,
    page: ThePage,
    bulk: _Bulk,
    act: Annotated[Act, Form()],
    token: Annotated[str, Form(min_length=1)],
    reason: _Reason,
    typed: Field,
) -> Response:
    """Begin an operation."""
    demand(page.looker, Scope.ACT)
    found = bulk.planned_by(page.looker, act, token)
    if typed.strip() != confirmed_by(found):
        return await _planned(page, found, fault=True, reason=reason)
    row = await bulk.begin(page.looker, act, token, reason)
    audit(request, page.looker, str(act), intake=row.intake, operation=row.id, records=row.total, reason=reason)
    return RedirectResponse(page.url(f"/operations/{row.id}"), HTTPStatus.SEE_OTHER)


@router.get("/operations/{operation_id}")
async def operation(page: ThePage, bulk: _Bulk, operation_id: str) -> Response:
    """One operation."""
    row = await bulk.operation(page.looker, operation_id)
    return await page.render(
        "operation.html",
        f"{row.act.capitalize()}",
        as_of=page.now_ms,
        row=row,
        may_stop=not row.is_over and page.has("POST", "/v1/operations/{operation_id}:stop"),
        here="/audit",
    )


@router.post("/operations/{operation_id}/stop")
async def stop(request: Request, page: ThePage, bulk: _Bulk, operation_id: str, reason: _Reason) -> Response:
    """Stop an operation."""
    demand(page.looker, Scope.ACT)
    row = await bulk.stop(page.looker, operation_id, reason)
    audit(request, page.looker, "stop", intake=row.intake, operation=row.id, reason=reason)
    return RedirectResponse(page.url(f"/operations/{row.id}"), HTTPStatus.SEE_OTHER)


@router.get("/audit")
async def audit_page(page: ThePage, bulk: _Bulk) -> Response:
    """Operations, and who did what."""
    looker, intake = page.looker, page.intake
    found = bulk.audit(looker, intake, SHOWN_ACTS)
    return await page.render(
        "audit.html",
        "Audit",
        as_of=found.as_of,
        intake=intake,
        acts=found.acts,
        operations=bulk.operations(looker, intake, SHOWN_OPERATIONS).operations,
    )
