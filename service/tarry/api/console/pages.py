"""The pages of the console. Each renders what `tarry.api.looking` answers; its filters are in its URL."""

from http import HTTPStatus
from typing import Annotated, Any, Final, NamedTuple

from fastapi import APIRouter, FastAPI, Path, Query
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, RedirectResponse, Response
from starlette.staticfiles import StaticFiles

from tarry.api.access.authentication import asks_for_a_page
from tarry.api.access.paths import route_path
from tarry.api.console import acts
from tarry.api.console.bars import due_bars, hour_bars
from tarry.api.console.rendering import STATIC, Page, PageRoute, ThePage, problem_page
from tarry.api.console.values import FORMS, form_of, value_as
from tarry.api.looking.due import FOREVER_MS, time_of
from tarry.api.looking.letters import letter_of
from tarry.api.looking.message import Content
from tarry.api.looking.models import Messages, Problem
from tarry.api.looking.paging import MOST_MS, Wanted
from tarry.api.looking.published import Published, is_stale
from tarry.api.looking.rows import letter_row
from tarry.api.looking.search import Sought, sought
from tarry.api.looking.shown import MOST_IN_A_LIST, Sight, shown
from tarry.api.parts import parts_of
from tarry.api.problems import ProblemError, problem_of_http
from tarry.errors import HeaderError
from tarry.handle import Handle
from tarry.headers import NAME, TARGET
from tarry.kafka.topics import DEAD
from tarry.units import format_duration, format_instant

IN_A_PAGE: Final = 50
MOST_HITS: Final = 20
MOST_HEADERS: Final = 200

router = APIRouter(route_class=PageRoute, include_in_schema=False, default_response_class=HTMLResponse)

Text = Annotated[str, Query(max_length=4096)]
CursorText = Annotated[str, Query(max_length=16_000)]
Partition = Annotated[int, Path(ge=0, le=2**31 - 1)]
Offset = Annotated[int, Path(ge=0, le=2**63 - 1)]


def install(app: FastAPI) -> None:
    """Give an application the console; a browser that asks for an unknown path then gets a page, too."""
    app.include_router(acts.router)
    app.include_router(router)
    app.mount("/static", StaticFiles(directory=STATIC), name="static")

    @app.exception_handler(HTTPException)
    async def http(request: Request, error: HTTPException) -> Response:
        path = route_path(request.scope, parts_of(request).settings.api.prefix)
        if error.status_code == HTTPStatus.NOT_FOUND and asks_for_a_page(path, request.method, request.headers):
            return await problem_page(request, ProblemError(HTTPStatus.NOT_FOUND, "There is no such page."))
        return problem_of_http(request, error).response()


# -- overview ----------------------------------------------------------------------------------------------------------


@router.get("/")
async def overview(page: ThePage, due_from: Text = "", due_until: Text = "") -> Response:
    """Whether all is well, what waits by due time, and what is delivered."""
    answers, intake = page.answers, page.intake
    from_ms, until_ms = time_of("due_from", due_from), time_of("due_until", due_until)
    health, intakes = await answers.health(), await answers.intakes()
    pending = await answers.pending(intake, from_ms, until_ms)
    targets, published = (await answers.targets(intake)).targets, (await page.lookout.published(intake)).value
    row = next(one for one in intakes.intakes if one.intake == intake)

    def zoomed(first: int, last: int) -> str:
        return page.url("/", intake=intake, due_from=format_instant(first), due_until=format_instant(last))

    bars = due_bars(pending.rows, zoomed, is_late=row.late_since is not None)
    per_s = sum(one.delivered_per_s for one in targets)
    late = next((one for one in pending.rows if one.due_from is None), None)
    backlog = ""
    if late and row.late_since and per_s:
        backlog = f"{late.at_most:,} are behind: through in about {format_duration(int(late.at_most / per_s) * 1000)}"
    return await page.render(
        "overview.html",
        "Overview",
        as_of=pending.as_of,
        away=health.away or pending.away,
        health=health,
        intake=intake,
        intake_rows=intakes.intakes,
        row=row,
        bars=bars,
        resolution=max((one.resolution_ms for one in pending.rows), default=0),
        zoomed=from_ms is not None and until_ms is not None,
        from_ms=from_ms,
        until_ms=until_ms,
        targets=[one for one in targets if one.last_delivery is not None],
        per_s=per_s,
        worst=max((one.worst_ms for one in targets if one.worst_ms is not None), default=None),
        p99=max((one.p99_ms for one in targets if one.p99_ms is not None), default=None),
        **_age(published, page.now_ms),
        backlog=backlog,
        clocks=(await page.lookout.clocks()).value,
        problem_link=_problem_link,
    )


def _age(published: Published, now_ms: int) -> dict[str, Any]:
    """Return when the owners of an intake published figures last, and whether that is long ago."""
    as_of_ms = published.as_of_ms
    return {"figures_as_of": as_of_ms, "figures_are_stale": is_stale(as_of_ms, now_ms)}


def _problem_link(problem: Problem) -> str:
    paths = {"late": "/partitions", "quarantined": "/partitions", "not-served": "/partitions", "clock": "/partitions"}
    path = paths.get(problem.kind, "/dead" if problem.kind == "dead" else "/targets")
    return f"{path}?intake={problem.intake}" if problem.intake else path


@router.get("/live/deliveries")
async def deliveries(page: ThePage) -> Response:
    """The data of the live charts."""
    sight = Sight(page.looker)
    seen = await page.lookout.published(page.intake)
    found = {target: points for target, points in seen.value.series().items() if sight.sees(target)}
    busiest = sorted(found, key=lambda target: -sum(rate for _, rate, _ in found[target]))[:6]
    first = next(iter(found.values()), [])
    return JSONResponse(
        {
            "at": [at for at, _, _ in first],
            "targets": {
                target: {
                    "rate": [rate for _, rate, _ in found[target]],
                    # Where nothing is delivered, nothing is late.
                    "late": [late if rate else None for _, rate, late in found[target]],
                }
                for target in sorted(busiest)
            },
        }
    )


# -- waiting -----------------------------------------------------------------------------------------------------------


@router.get("/waiting")
async def waiting(
    page: ThePage,
    due_from: Text = "",
    due_until: Text = "",
    target: Text = "",
    key: Text = "",
    name: Text = "",
    cursor: CursorText = "",
) -> Response:
    """The messages that wait."""
    answers, intake = page.answers, page.intake
    if name and not key:
        raise ProblemError(HTTPStatus.UNPROCESSABLE_ENTITY, "A name belongs to a key: fill in both.")
    from_ms, until_ms = time_of("due_from", due_from), time_of("due_until", due_until)
    wanted = Wanted(
        from_ms or 0,
        FOREVER_MS if until_ms is None else until_ms,
        target or None,
        key.encode() if key else None,
        name.encode() if name else None,
    )
    is_there = (await page.lookout.look(intake)).value is not None
    found = Messages(as_of=page.now_ms, intake=intake, messages=[])
    if is_there:
        found = await answers.messages(intake, wanted, cursor or None, IN_A_PAGE)
    filters = {"due_from": due_from, "due_until": due_until, "target": target, "key": key, "name": name}
    at = f" --bucket {due_from}" if due_from else ""
    query = page.url("/v1/pending/messages", intake=intake, **filters).removeprefix(page.base)
    return await page.render(
        "waiting.html",
        "Waiting",
        as_of=found.as_of,
        away=found.away,
        intake=intake,
        page=found,
        f={**filters, "cursor": cursor},
        filtered=any(filters.values()),
        known_targets=[one.target for one in (await answers.targets(intake)).targets],
        next_url=page.url("/waiting", intake=intake, **filters, cursor=found.next) if found.next else "",
        first_url=page.url("/waiting", intake=intake, **filters),
        acts={
            "cancel": page.has("POST", "/v1/pending:cancel"),
            "move": page.has("POST", "/v1/pending:move"),
        },
        cli=f"tarry pending --intake {intake}{at}",
        curl=f"curl '{str(page.request.base_url).rstrip('/')}{query}'",
    )


@router.get("/message/{handle}")
async def message(
    page: ThePage,
    handle: str,
    as_: Annotated[str, Query(alias="as", max_length=8)] = "",
    at: Annotated[str, Query(max_length=32, pattern=r"^([0-9]{1,2}\.[0-9]{1,18})?$")] = "",
) -> Response:
    """One message; `at` is where a list has met it: level, and offset in the level's log."""
    parsed = _handle(handle)
    sight = Sight(page.looker)
    level, _, offset = at.partition(".")
    look = await page.lookout.message(parsed, (int(level), int(offset)) if at else None)
    if not sight.sees(look.target):
        raise ProblemError(HTTPStatus.FORBIDDEN, f"{page.looker.name} may not look at messages for its target")
    name = look.content.header(NAME) if look.content else None
    path = f"/message/{parsed}"
    return await page.render(
        "message.html",
        "Message",
        as_of=page.now_ms,
        look=look,
        key=sight.key(look.target, look.content.key if look.content else None),
        name=sight.key(look.target, name),
        acts={
            "cancel": page.has("DELETE", "/v1/messages/{handle}"),
            "move": page.has("POST", "/v1/messages/{handle}:move"),
            "deliver_now": page.has("POST", "/v1/messages/{handle}:deliver-now"),
        },
        **_content(sight, look.target, look.content, as_, path),
    )


@router.get("/message/{handle}/value")
async def message_value(page: ThePage, handle: str) -> Response:
    """The value of a message, as an attachment."""
    look = await page.lookout.message(_handle(handle))
    return _attachment(page, look.target, look.content)


def _handle(text: str) -> Handle:
    try:
        return Handle.parse(text)
    except HeaderError as error:
        raise ProblemError(HTTPStatus.NOT_FOUND, str(error)) from error


def _content(sight: Sight, target: str | None, content: Content | None, form: str, path: str) -> dict[str, Any]:
    """Return the fields of a record's content that the one who looks may see."""
    hidden = sight.hidden(target)
    raw = None if content is None or "value" in hidden else content.value
    chosen = form if form in FORMS else form_of(raw)
    headers = [] if content is None or "headers" in hidden else content.headers[:MOST_HEADERS]
    if "name" in hidden:
        headers = [one for one in headers if one[0] != NAME]
    return {
        "content": content,
        "hidden": hidden,
        "headers": [(one[:MOST_IN_A_LIST], None if raw is None else shown(raw, 1024)) for one, raw in headers],
        "value": value_as(raw, chosen),
        "forms": FORMS,
        "as_form": chosen,
        "content_url": path,
        "value_url": f"{path}/value",
    }


def _attachment(page: Page, target: str | None, content: Content | None) -> Response:
    if content is None or content.value is None:
        raise ProblemError(HTTPStatus.NOT_FOUND, "No log holds its value.")
    if not Sight(page.looker).sees_values(target):
        raise ProblemError(HTTPStatus.FORBIDDEN, f"{page.looker.name} may not see values for its target")
    name = f"{content.log[0]}-{content.log[1]}-{content.offset}.bin"
    headers = {"content-disposition": f'attachment; filename="{name}"', "x-content-type-options": "nosniff"}
    return Response(content.value, media_type="application/octet-stream", headers=headers)


# -- schedules, dead letters -------------------------------------------------------------------------------------------


@router.get("/schedules")
async def schedules(page: ThePage) -> Response:
    """The schedules."""
    found = await page.answers.schedules(page.intake)
    return await page.render(
        "schedules.html", "Schedules", as_of=found.as_of, away=found.away, intake=page.intake, found=found
    )


@router.get("/dead")
async def dead(
    page: ThePage,
    code: Text = "",
    target: Annotated[str | None, Query(max_length=4096)] = None,
    cursor: CursorText = "",
    *,
    sent_again: bool = False,
) -> Response:
    """The dead letters."""
    intake = page.intake
    found = await page.answers.dead(intake, IN_A_PAGE, cursor or None, code or None, target, sent_again_too=sent_again)

    def url(*, also: bool, at: str | None = None) -> str:
        filters = {"intake": intake, "code": code, "sent_again": "true" if also else "", "cursor": at}
        # An empty target is a filter, too.
        return page.url("/dead", **filters) + ("" if target is None else f"&{page.url('', target=target or ' ')[1:]}")

    selected = sum(one.count for one in found.hours)
    return await page.render(
        "dead.html",
        "Dead",
        as_of=found.as_of,
        away=found.away,
        intake=intake,
        dead=found,
        bars=hour_bars(found.hours, page.now_ms),
        code=code,
        target=target,
        sent_again=sent_again,
        selected=selected,
        next_url=url(also=sent_again, at=found.next) if found.next else "",
        toggle_url=url(also=not sent_again),
        acts={"redrive": page.has("POST", "/v1/dead:redrive"), "dismiss": page.has("POST", "/v1/dead:dismiss")},
    )


@router.get("/dead/{intake}/{partition}/{offset}")
async def letter(
    page: ThePage,
    intake: str,
    partition: Partition,
    offset: Offset,
    as_: Annotated[str, Query(alias="as", max_length=8)] = "",
) -> Response:
    """One dead letter."""
    sight = Sight(page.looker)
    content, target = await _letter(page, sight, intake, partition, offset)
    found = letter_of(content)
    if found is None:
        raise ProblemError(
            HTTPStatus.NOT_FOUND, "This record is not a dead letter: it notes that one was sent again, or dismissed."
        )
    return await page.render(
        "letter.html",
        "Dead letter",
        as_of=page.now_ms,
        intake=intake,
        log=f"{intake}{DEAD}/{partition}",
        offset=offset,
        row=letter_row(intake, found, sight),
        **_content(sight, target, content, as_, f"/dead/{intake}/{partition}/{offset}"),
    )


@router.get("/dead/{intake}/{partition}/{offset}/value")
async def letter_value(page: ThePage, intake: str, partition: Partition, offset: Offset) -> Response:
    """The value of a dead letter, as an attachment."""
    content, target = await _letter(page, Sight(page.looker), intake, partition, offset)
    return _attachment(page, target, content)


async def _letter(page: Page, sight: Sight, intake: str, partition: int, offset: int) -> tuple[Content, str | None]:
    topic = page.lookout.intake(intake).topic
    content = await page.lookout.content((topic + DEAD, partition), offset)
    if content is None:
        raise ProblemError(HTTPStatus.NOT_FOUND, f"{topic}{DEAD}/{partition} has no record at offset {offset}.")
    raw = content.header(TARGET)
    target = None if raw is None else raw.decode("utf-8", "backslashreplace")
    if not sight.sees(target):
        raise ProblemError(HTTPStatus.FORBIDDEN, f"{page.looker.name} may not look at letters for its target")
    return content, target


# -- targets, retries, partitions --------------------------------------------------------------------------------------


@router.get("/targets")
async def targets(page: ThePage) -> Response:
    """The targets."""
    found = await page.answers.targets(page.intake)
    return await page.render(
        "targets.html",
        "Targets",
        as_of=found.as_of,
        away=found.away,
        intake=page.intake,
        rows=found.targets,
        **_age((await page.lookout.published(page.intake)).value, page.now_ms),
        acts={
            "pause": page.has("PUT", "/v1/targets/{topic}/pause"),
            "resume": page.has("PUT", "/v1/targets/{topic}/resume"),
        },
    )


@router.get("/retries")
async def retries(page: ThePage) -> Response:
    """The keys in trouble of consumers that retry."""
    found = await page.answers.retries()
    return await page.render(
        "retries.html",
        "Retries",
        as_of=found.as_of,
        away=found.away,
        found=found,
        bootstrap=page.parts.cluster.bootstrap_servers,
        intake=page.intake,
    )


@router.get("/partitions")
async def partitions(page: ThePage) -> Response:
    """The partitions, and who serves them."""
    found = await page.answers.partitions(page.intake)
    return await page.render(
        "partitions.html",
        "Partitions",
        as_of=found.as_of,
        away=found.away,
        intake=page.intake,
        found=found,
        clocks=(await page.lookout.clocks()).value,
    )


# -- search ------------------------------------------------------------------------------------------------------------


class Hit(NamedTuple):
    """Something that a search found."""

    text: str
    what: str
    href: str
    at_ms: int | None = None


@router.get("/search")
async def search(page: ThePage, q: Text = "") -> Response:
    """Find what a text names."""
    sight = Sight(page.looker)
    text = q.strip()
    found = sought(text)
    if found.handle is not None:
        return RedirectResponse(page.url(f"/message/{found.handle}"), HTTPStatus.SEE_OTHER)
    hits: list[Hit] = []
    if found.place is not None and (hit := await _at_place(page, found.place)) is not None:
        return RedirectResponse(hit, HTTPStatus.SEE_OTHER)
    hits += await _topics(page, found)
    searched, complete = 0, True
    for wanted, what in _searches(found, sight):
        for one in page.lookout.intakes:
            if (await page.lookout.look(one.topic)).value is None:
                continue
            if wanted.id is not None:
                done, whole = await page.lookout.done(one.topic, wanted.id)
                hits += [_done_hit(page, each) for each in done if sight.sees(each.get("target"))]
                complete = complete and whole
            within_ms = MOST_MS // 2
            rows = await page.answers.messages(one.topic, wanted, None, MOST_HITS, within_ms)
            searched, complete = searched + rows.searched, complete and rows.complete
            hits += [
                Hit(each.id, f"{what}, waits for {each.target}", page.url(f"/message/{each.handle}"), each.due)
                for each in rows.messages
                if each.handle
            ]
    unique = list({hit.href: hit for hit in hits}.values())[: 3 * MOST_HITS]
    if len(unique) == 1 and complete and found.id is not None:
        return RedirectResponse(unique[0].href, HTTPStatus.SEE_OTHER)
    return await page.render("search.html", "Search", q=text, hits=unique, searched=searched, complete=complete)


def _searches(found: Sought, sight: Sight) -> list[tuple[Wanted, str]]:
    if found.id is not None:
        return [(Wanted(id=found.id), "by its id")]
    searches = []
    if found.key is not None and sight.sees_any_keys:
        searches.append((Wanted(key=found.key), "by its key"))
    if found.name is not None and found.key is not None and sight.sees_any_keys:
        key = found.key[: -len(found.name) - 1]
        searches.append((Wanted(key=key, name=found.name), "by its key and name"))
    return searches


async def _at_place(page: Page, place: tuple[str, int, int]) -> str | None:
    topic, partition, offset = place
    owner = topic.removesuffix(DEAD)
    if owner != topic and owner in {one.topic for one in page.lookout.intakes}:
        return page.url(f"/dead/{owner}/{partition}/{offset}")
    handle = await page.lookout.handle_at(place)
    return None if handle is None else page.url(f"/message/{handle}")


async def _topics(page: Page, found: Sought) -> list[Hit]:
    """Return the intakes and the targets of a name."""
    hits = [
        Hit(one.topic, "an intake", page.url("/", intake=one.topic))
        for one in page.lookout.intakes
        if found.topic == one.topic
    ]
    for row in (await page.answers.targets()).targets:
        if found.topic is not None and found.topic == row.target:
            hits.append(Hit(row.target, f"a target of {row.intake}", page.url("/targets", intake=row.intake)))
            href = page.url("/waiting", intake=row.intake, target=row.target)
            hits.append(Hit(f"what waits for {row.target}", f"in {row.intake}", href))
    return hits


def _done_hit(page: Page, result: dict[str, Any]) -> Hit:
    handle = result["handle"]
    return Hit(str(result["id"]), f"{result['outcome']}", page.url(f"/message/{handle}"), result.get("at_ms"))


# -- parameters --------------------------------------------------------------------------------------------------------
