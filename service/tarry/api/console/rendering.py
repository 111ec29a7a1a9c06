"""What all pages share: templates, the frame's facts, and errors as pages instead of problems."""

from collections.abc import Callable, Coroutine
from http import HTTPStatus
from pathlib import Path
from typing import Annotated, Any, Final
from urllib.parse import urlencode

from fastapi import Depends, Request
from fastapi.exceptions import RequestValidationError
from fastapi.routing import APIRoute
from jinja2 import Environment, FileSystemLoader, StrictUndefined
from starlette.responses import HTMLResponse, RedirectResponse, Response

from tarry.api.access.gate import gate_of
from tarry.api.access.identity import demand
from tarry.api.access.principal import Principal, Scope
from tarry.api.console.formats import FILTERS
from tarry.api.looking.answers import Answers
from tarry.api.looking.lookout import Lookout, lookout_of
from tarry.api.parts import Parts, parts_of
from tarry.api.problems import Code, ProblemError, fault_text, problem_of
from tarry.errors import BrokerError, TarryError

HERE: Final = Path(__file__).parent
STATIC: Final = HERE / "static"

_JINJA: Final = Environment(
    loader=FileSystemLoader(HERE / "templates"),
    autoescape=True,
    undefined=StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
)
_JINJA.filters.update(FILTERS)


class Page:
    """The page of a request: who looks, what they may see, and the frame around it.

    Args:
        request: the request.
    """

    def __init__(self, request: Request) -> None:
        self.request = request
        self.parts: Parts = parts_of(request)
        self.lookout: Lookout = lookout_of(request)
        self.principal: Principal | None = getattr(request.state, "principal", None)
        self.now_ms = self.parts.clock.now_ms()

    @property
    def base(self) -> str:
        """What URLs begin with."""
        return self.parts.settings.api.prefix

    @property
    def answers(self) -> Answers:
        """The answers for whoever looks.

        Raises:
            ProblemError: they may not look.
        """
        principal = self.looker
        return Answers(self.lookout, principal, self.parts.clock, self.parts.settings.service.group)

    @property
    def looker(self) -> Principal:
        """Whoever looks.

        Raises:
            ProblemError: nobody has logged in, or they may not look.
        """
        if self.principal is None:
            raise ProblemError(HTTPStatus.UNAUTHORIZED, "Log in first.")
        demand(self.principal, Scope.LOOK)
        return self.principal

    @property
    def intake(self) -> str:
        """The intake that the URL names, or the first one."""
        return self.lookout.intake(self.request.query_params.get("intake") or None).topic

    def url(self, path: str, **query: object) -> str:
        """Return a URL of the console; a query without a value is left out."""
        given = {name: value for name, value in query.items() if value is not None and value != ""}
        return f"{self.base}{path}" + (f"?{urlencode(given)}" if given else "")

    def has(self, method: str, path: str) -> bool:
        """Whether the server has a request for an act, and whoever looks may act."""
        if self.principal is None or not self.principal.has(Scope.ACT):
            return False
        return (method, path) in _requests_of(self.request)

    async def render(
        self,
        template: str,
        title: str,
        *,
        as_of: int | None = None,
        away: str | None = None,
        status: int = 200,
        **fields: Any,
    ) -> HTMLResponse:
        """Return the page."""
        query = self.request.url.query
        path = self.request.url.path.removeprefix(self.base)
        api = self.parts.settings.api
        context = {
            "title": title,
            "status": status,
            "base": self.base,
            "here": path if path == "/" else f"/{path.split('/')[1]}".replace("/message", "/waiting"),
            "self_url": f"{self.base}{path}" + (f"?{query}" if query else ""),
            "origin": str(self.request.base_url).rstrip("/"),
            "environment": api.environment,
            "colour": api.colour,
            "read_only": api.is_read_only,
            "cluster": await self._cluster(),
            "who": self.principal.name if self.principal and not gate_of(self.request).is_open else "",
            "in_session": getattr(getattr(self.request.state, "credential", None), "session", None) is not None,
            # What was read is not younger than this.
            "now_ms": self.parts.clock.now_ms(),
            "q": "",
            "as_of": as_of,
            "away": away,
            "intakes": [one.topic for one in self.lookout.intakes],
            **fields,
        }
        return HTMLResponse(_JINJA.get_template(template).render(context), status)

    async def _cluster(self) -> str:
        if self.principal is None:
            return ""
        try:
            return (await self.lookout.cluster_id()).value
        except BrokerError:
            return ""


def rendered_alone(template: str, parts: Parts, status: int, **fields: Any) -> HTMLResponse:
    """Return a page without the frame, for whoever has not logged in: it asks Kafka nothing."""
    api = parts.settings.api
    context = {"base": api.prefix, "environment": api.environment, "colour": api.colour, **fields}
    return HTMLResponse(_JINJA.get_template(template).render(context), status)


def _requests_of(request: Request) -> set[tuple[str, str]]:
    """Return the methods and paths that the server has."""
    paths: dict[str, dict[str, Any]] = request.app.openapi()["paths"]
    return {(method.upper(), path) for path, methods in paths.items() for method in methods}


async def page_of(request: Request) -> Page:
    """Return the page of a request; a FastAPI dependency."""
    return Page(request)


ThePage = Annotated[Page, Depends(page_of)]

_TITLES: Final = {
    HTTPStatus.NOT_FOUND: "There is nothing here",
    HTTPStatus.FORBIDDEN: "You may not look at this",
    HTTPStatus.SERVICE_UNAVAILABLE: "Kafka does not answer",
    HTTPStatus.GONE: "This list has expired",
    HTTPStatus.UNPROCESSABLE_ENTITY: "A field is wrong",
}


class PageRoute(APIRoute):
    """A route whose errors are pages."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """Return the handler."""
        handle = super().get_route_handler()

        async def handled(request: Request) -> Response:
            try:
                return await handle(request)
            except ProblemError as error:
                return await problem_page(request, error)
            except TarryError as error:
                return await problem_page(request, problem_of(error))
            except RequestValidationError as error:
                return await problem_page(request, ProblemError(HTTPStatus.UNPROCESSABLE_ENTITY, fault_text(error)))

        return handled


async def problem_page(request: Request, error: ProblemError) -> Response:
    """Return the page that says what is wrong; to whoever must log in first, the login."""
    page = Page(request)
    if error.status == HTTPStatus.UNAUTHORIZED:
        to = request.url.path.removeprefix(page.base) if request.method == "GET" else "/"
        return RedirectResponse(page.url("/login", next=to), 303)
    is_refused = error.code == Code.KAFKA_REFUSES
    title = "Kafka refuses this" if is_refused else _TITLES.get(error.status, error.status.phrase)
    return await page.render("problem.html", title, status=int(error.status), detail=error.detail)
