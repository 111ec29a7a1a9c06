"""`POST /v1/messages`: send one message.

The framework's router, dependencies and layers take longer than the send itself. So this handler reads its request by
itself, and `Shortcut` calls it. The router has it, too, for the description of the API.
"""

from http import HTTPStatus
from typing import Annotated, Any, Final

from fastapi import APIRouter, FastAPI, Header, Request
from pydantic import StringConstraints, TypeAdapter, ValidationError
from starlette.requests import ClientDisconnect
from starlette.responses import JSONResponse
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from tarry.api.access.identity import principal_of
from tarry.api.access.paths import route_path
from tarry.api.problems import ProblemError, faults_text
from tarry.api.v1.answers import Sent, problems
from tarry.api.v1.body import NewMessage, wait_ms
from tarry.api.v1.sending import Answer, sending_of

router = APIRouter(tags=["messages"])

_PATH: Final = "/v1/messages"
_HEADER: Final = "Idempotency-Key"
_DESCRIPTION: Final = "The request may be repeated under this key. Use a new UUID for each message."
_Key = Annotated[str, StringConstraints(min_length=1, max_length=255, pattern=r"^[\x21-\x7e]+$")]
_KEY: Final = TypeAdapter(_Key)

IdempotencyKey = Annotated[_Key | None, Header(alias=_HEADER, description=_DESCRIPTION)]


@router.post(
    _PATH.removeprefix("/v1"),
    status_code=202,
    response_model=None,
    openapi_extra={
        "parameters": [
            {"name": _HEADER, "in": "header", "description": _DESCRIPTION, "schema": _KEY.json_schema()},
        ],
        "requestBody": {
            "required": True,
            "content": {"application/json": {"schema": NewMessage.model_json_schema()}},
        },
    },
    responses={200: {"model": Sent}, 202: {"model": Sent}, **problems(409, 504)},
    summary="Send a message",
)
async def send(request: Request) -> JSONResponse:
    """Send one message that the service delivers later, or begin a schedule.

    202: all replicas of Kafka have it. 200: its outcome is known, too.
    """
    principal, sending, key = principal_of(request), sending_of(request), request.headers.get(_HEADER)
    try:
        body = NewMessage.model_validate_json(await request.body())
    except ValidationError as error:
        raise _fault(error, "body") from None
    except ClientDisconnect:
        raise ProblemError(HTTPStatus.BAD_REQUEST, "the sender has gone") from None
    try:
        idempotency_key = None if key is None else _KEY.validate_python(key)
    except ValidationError as error:
        raise _fault(error, _HEADER) from None
    order = sending.order(body, idempotency_key, wait_ms(body.wait), "message")
    return response(await sending.send(principal, order))


def response(answer: Answer) -> JSONResponse:
    """Return an answer, with the address of its status."""
    headers = {"Location": answer.fields["status_url"]} if "status_url" in answer.fields else None
    return JSONResponse(answer.fields, answer.status, headers)


def _fault(error: ValidationError, where: str) -> ProblemError:
    faults: list[Any] = error.errors(include_input=False)
    return ProblemError(HTTPStatus.UNPROCESSABLE_ENTITY, faults_text((one["loc"] or (where,), one) for one in faults))


class Shortcut:
    """An ASGI application that calls the handler of a send, and another one for all other requests.

    Args:
        app: the other one.
        prefix: what URLs begin with.
    """

    def __init__(self, app: FastAPI, prefix: str) -> None:
        self._app: ASGIApp = app
        self._prefix = prefix
        self._more = {"app": app, "route": Route(_PATH, send, methods=["POST"])}

    async def __call__(self, scope: Scope, receive: Receive, send_: Send) -> None:
        """Handle a request."""
        if scope["type"] != "http" or scope["method"] != "POST" or route_path(scope, self._prefix) != _PATH:
            await self._app(scope, receive, send_)
            return
        scope.update(self._more)
        answer = await send(Request(scope, receive))
        await answer(scope, receive, send_)
