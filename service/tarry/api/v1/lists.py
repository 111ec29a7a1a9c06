"""`GET /v1/…`: the lists. What they show is decided in `tarry.api.looking`; here are their addresses and parameters."""

from http import HTTPStatus
from typing import Annotated

from fastapi import APIRouter, Depends, Query
from starlette.requests import HTTPConnection

from tarry.api.access.identity import Asker, demand
from tarry.api.access.principal import Scope
from tarry.api.looking.answers import MOST_IN_A_PAGE, Answers
from tarry.api.looking.due import FOREVER_MS, time_of
from tarry.api.looking.lookout import lookout_of
from tarry.api.looking.models import (
    Dead,
    Health,
    Intakes,
    Messages,
    Partitions,
    Pending,
    Retries,
    Schedules,
    Targets,
)
from tarry.api.looking.paging import MOST_MS, SEARCH_MS, Wanted
from tarry.api.parts import parts_of
from tarry.api.problems import ProblemError
from tarry.api.v1.answers import problems

router = APIRouter(prefix="/v1", tags=["looking"], responses=problems(400, 404, 410))


async def answers_of(connection: HTTPConnection, principal: Asker) -> Answers:
    """Return the answers for whoever asks.

    Raises:
        ProblemError: they may not look.
    """
    demand(principal, Scope.LOOK)
    parts = parts_of(connection)
    return Answers(lookout_of(connection), principal, parts.clock, parts.settings.service.group)


Looking = Annotated[Answers, Depends(answers_of)]
IntakeQuery = Annotated[
    str | None, Query(max_length=249, description="The intake; the only one, or the first, if it is left out.")
]
OnlyIntakeQuery = Annotated[str | None, Query(max_length=249, description="Only of this intake.")]
CursorQuery = Annotated[
    str | None, Query(description="`next` of the page before.", max_length=16_000, pattern="^[A-Za-z0-9_-]*$")
]
LimitQuery = Annotated[int, Query(ge=1, le=MOST_IN_A_PAGE, description="How many the page has at most.")]
TimeQuery = Annotated[str | None, Query(description="RFC 3339, with its offset.", max_length=64)]


@router.get("/health", summary="Whether all is well")
async def health(answers: Looking) -> Health:
    """Return whether all is well: what is late, dead, parked, paused, quarantined or not served."""
    return await answers.health()


@router.get("/intakes", summary="The intakes")
async def intakes(answers: Looking) -> Intakes:
    """Return all configured intakes, with what waits in each."""
    return await answers.intakes()


@router.get("/partitions", summary="The partitions, and who serves them")
async def partitions(answers: Looking, intake: OnlyIntakeQuery = None) -> Partitions:
    """Return the partitions of all intakes, or of one."""
    return await answers.partitions(intake)


@router.get("/targets", summary="The targets: rates, lateness, what is parked")
async def targets(answers: Looking, intake: OnlyIntakeQuery = None) -> Targets:
    """Return the targets of which something is known: recent deliveries, parked messages, dead letters."""
    return await answers.targets(intake)


@router.get("/schedules", summary="The schedules, by due time")
async def schedules(answers: Looking, intake: IntakeQuery = None) -> Schedules:
    """Return the schedules of an intake. It reads what waits under names, for 0.7 s at most."""
    return await answers.schedules(intake)


@router.get("/retries", summary="Keys in trouble of consumers that retry")
async def retries(answers: Looking) -> Retries:
    """Return for each group of `RetryingConsumer` the keys in trouble."""
    return await answers.retries()


@router.get("/pending", summary="How many messages wait, by due time")
async def pending(
    answers: Looking,
    intake: IntakeQuery = None,
    due_from: TimeQuery = None,
    due_until: TimeQuery = None,
) -> Pending:
    """Count what waits by due time, from index and journal: no message is read, and counts are upper bounds.

    With `due_from` and `due_until`, the range is divided into about 24 rows.
    """
    from_ms, until_ms = time_of("due_from", due_from), time_of("due_until", due_until)
    if from_ms is not None and until_ms is not None and from_ms >= until_ms:
        raise ProblemError(HTTPStatus.UNPROCESSABLE_ENTITY, "due_until: should be after due_from")
    return await answers.pending(intake, from_ms, until_ms)


@router.get("/pending/messages", summary="The messages that wait, by due time")
async def pending_messages(
    answers: Looking,
    intake: IntakeQuery = None,
    due_from: TimeQuery = None,
    due_until: TimeQuery = None,
    target: Annotated[str | None, Query(max_length=250, description="The target; `orders.*` for a beginning.")] = None,
    key: Annotated[str | None, Query(max_length=1024, description="The key, as text.")] = None,
    name: Annotated[str | None, Query(max_length=255, description="The name; needs the key.")] = None,
    message_id: Annotated[
        str | None, Query(alias="id", max_length=36, description="Of a message or a schedule.")
    ] = None,
    cursor: CursorQuery = None,
    limit: LimitQuery = 100,
    within_ms: Annotated[int, Query(ge=100, le=MOST_MS, description="How long to search.")] = SEARCH_MS,
) -> Messages:
    """Return a page of messages that wait.

    There is no index by target, key, or id: a page searches for `within_ms`, and then says that it is not `complete`,
    and where to go on.
    """
    wanted = Wanted(
        time_of("due_from", due_from) or 0,
        FOREVER_MS if (until_ms := time_of("due_until", due_until)) is None else until_ms,
        target,
        None if key is None else key.encode(),
        None if name is None else name.encode(),
        None if message_id is None else message_id.lower(),
    )
    if name is not None and key is None:
        raise ProblemError(HTTPStatus.UNPROCESSABLE_ENTITY, "name: needs the key")
    return await answers.messages(intake, wanted, cursor, limit, within_ms)


@router.get("/dead", summary="Dead letters: counts, and pages")
async def dead(
    answers: Looking,
    intake: IntakeQuery = None,
    code: Annotated[str | None, Query(max_length=64, description="Only of this error code.")] = None,
    target: Annotated[str | None, Query(max_length=249, description="Only of this target.")] = None,
    cursor: CursorQuery = None,
    limit: LimitQuery = 100,
    *,
    sent_again: Annotated[bool, Query(description="Also those that were redriven or dismissed.")] = False,
) -> Dead:
    """Return the dead letters of an intake: by code and target, by hour, and a page, the newest first."""
    return await answers.dead(intake, limit, cursor, code, target, sent_again_too=sent_again)
