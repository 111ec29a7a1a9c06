"""Errors as RFC 9457 problems: `application/problem+json`.

`code` is the word that a program branches on: a code of the header contract (`docs/headers.md`), or one of `Code`.
`Raised` is what a handler raises; errors of tarry are translated here, in one place.
"""

from collections.abc import Iterable, Mapping, Sequence
from enum import StrEnum
from http import HTTPStatus
from typing import Any, Final

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from starlette.exceptions import HTTPException

from tarry.errors import BrokerError, FatalError, HeaderError, TarryError, UsageError

MEDIA_TYPE: Final = "application/problem+json"
RETRY_AFTER_S: Final = 2
_SHOWN_FAULTS: Final = 5


class Code(StrEnum):
    """The codes of errors that are not those of a message."""

    BAD_REQUEST = "bad-request"
    BUSY = "busy"
    CONFLICT = "conflict"
    CROSS_SITE = "cross-site"
    CURSOR_EXPIRED = "cursor-expired"
    DRY_RUN_EXPIRED = "dry-run-expired"
    FORBIDDEN = "forbidden"
    INTERNAL = "internal"
    ISSUER_AWAY = "issuer-away"
    KAFKA_AWAY = "kafka-away"
    KAFKA_REFUSES = "kafka-refuses"
    MAY_BE_DONE = "may-be-done"
    MISDIRECTED = "misdirected"
    NOT_ALLOWED = "method-not-allowed"
    NOT_FOUND = "not-found"
    READ_ONLY = "read-only"
    TOO_LARGE = "too-large"
    TOO_MANY = "too-many-requests"
    TOO_SLOW = "too-slow"
    UNAUTHENTICATED = "unauthenticated"
    UNSUPPORTED = "unsupported-media-type"


_CODES: Final = {
    HTTPStatus.BAD_REQUEST: Code.BAD_REQUEST,
    HTTPStatus.UNAUTHORIZED: Code.UNAUTHENTICATED,
    HTTPStatus.FORBIDDEN: Code.FORBIDDEN,
    HTTPStatus.NOT_FOUND: Code.NOT_FOUND,
    HTTPStatus.METHOD_NOT_ALLOWED: Code.NOT_ALLOWED,
    HTTPStatus.CONFLICT: Code.CONFLICT,
    HTTPStatus.GONE: Code.CURSOR_EXPIRED,
    HTTPStatus.REQUEST_ENTITY_TOO_LARGE: Code.TOO_LARGE,
    HTTPStatus.UNSUPPORTED_MEDIA_TYPE: Code.UNSUPPORTED,
    HTTPStatus.MISDIRECTED_REQUEST: Code.MISDIRECTED,
    HTTPStatus.UNPROCESSABLE_ENTITY: Code.BAD_REQUEST,
    HTTPStatus.TOO_MANY_REQUESTS: Code.TOO_MANY,
    HTTPStatus.SERVICE_UNAVAILABLE: Code.KAFKA_AWAY,
    HTTPStatus.GATEWAY_TIMEOUT: Code.MAY_BE_DONE,
}


class ProblemError(Exception):
    """A request that is answered by a problem.

    Args:
        status: the HTTP status.
        detail: one line that says what to do.
        code: None: the usual one of the status.
        headers: further headers of the answer.
        fields: further fields of the problem.
    """

    def __init__(
        self,
        status: HTTPStatus,
        detail: str,
        code: str | None = None,
        *,
        headers: Mapping[str, str] | None = None,
        **fields: Any,
    ) -> None:
        super().__init__(detail)
        self.status = status
        self.detail = detail
        self.code = code or _CODES.get(status, Code.INTERNAL)
        self.headers = dict(headers or {})
        self.fields = fields

    def body(self) -> dict[str, Any]:
        """Return the problem."""
        return {
            "type": "about:blank",
            "title": self.status.phrase,
            "status": int(self.status),
            "code": str(self.code),
            "detail": self.detail,
            **self.fields,
        }

    def response(self) -> JSONResponse:
        """Return the answer."""
        return JSONResponse(self.body(), self.status, self.headers, MEDIA_TYPE)


def problem_of(error: TarryError) -> ProblemError:
    """Translate an error of tarry."""
    match error:
        case HeaderError():
            return ProblemError(HTTPStatus.UNPROCESSABLE_ENTITY, str(error))
        case BrokerError():
            is_refused = error.code.endswith("AUTHORIZATION_FAILED") or error.code == "UNKNOWN_TOPIC_OR_PART"
            code = Code.KAFKA_REFUSES if is_refused else Code.KAFKA_AWAY
            headers = {"Retry-After": str(RETRY_AFTER_S)}
            return ProblemError(HTTPStatus.SERVICE_UNAVAILABLE, str(error), code, headers=headers)
        case UsageError():
            return ProblemError(HTTPStatus.NOT_FOUND, str(error))
        case _:
            return unexpected()


def is_open(error: BrokerError) -> bool:
    """Return whether what was asked of Kafka may be done nevertheless."""
    # What a producer had in flight when it was lost, nobody knows.
    return error.may_be_done or isinstance(error, FatalError)


def problem_of_http(request: Request, error: HTTPException) -> ProblemError:
    """Return the problem of an error of the framework: an unknown path, another method."""
    status, detail = HTTPStatus(error.status_code), str(error.detail)
    if detail == HTTPStatus.NOT_FOUND.phrase:
        detail = "there is no such path: /v1/openapi.json has all of /v1"
    elif status is HTTPStatus.METHOD_NOT_ALLOWED:
        detail = f"this path takes {(error.headers or {}).get('Allow', 'other methods')}, not {request.method}"
    return ProblemError(status, detail, headers=error.headers)


def unexpected() -> ProblemError:
    """Return the problem of an error that is a fault of this program."""
    return ProblemError(HTTPStatus.INTERNAL_SERVER_ERROR, "the request failed; see the log")


def fault_text(error: RequestValidationError) -> str:
    """Return one line about the first faults of a request, without its values."""
    return faults_text((one["loc"][1:] or one["loc"], one) for one in error.errors())


def faults_text(faults: Iterable[tuple[Sequence[int | str], Mapping[str, Any]]]) -> str:
    """Return one line about the first faults.

    Args:
        faults: of each its place, and what pydantic says of it.
    """
    texts = [f"{'.'.join(map(str, place))}: {_fault(place, one)}" for place, one in faults]
    more = f" (and {len(texts) - _SHOWN_FAULTS} more)" if len(texts) > _SHOWN_FAULTS else ""
    return "; ".join(texts[:_SHOWN_FAULTS]) + more


def _fault(place: Sequence[int | str], one: Mapping[str, Any]) -> str:
    """Return one fault of a field in words that say what to write instead."""
    text = str(one["msg"])
    match one["type"]:
        case "value_error":
            return text.removeprefix("Value error, ")
        case "missing":
            return "is needed"
        case "extra_forbidden":
            return "there is no such field"
        case "string_type":
            return "must be a string, in quotes" + ("; write JSON into it" if place[-1:] == ("value",) else "")
    return text


def install(app: FastAPI) -> None:
    """Let an application answer all errors by problems."""

    @app.exception_handler(ProblemError)
    async def problem(_request: Request, error: ProblemError) -> JSONResponse:
        return error.response()

    @app.exception_handler(TarryError)
    async def tarry_error(_request: Request, error: TarryError) -> JSONResponse:
        return problem_of(error).response()

    @app.exception_handler(RequestValidationError)
    async def invalid(_request: Request, error: RequestValidationError) -> JSONResponse:
        return ProblemError(HTTPStatus.UNPROCESSABLE_ENTITY, fault_text(error)).response()

    @app.exception_handler(Exception)
    async def fault(_request: Request, _error: Exception) -> JSONResponse:
        return unexpected().response()  # whoever called the application gets the error, and logs it

    @app.exception_handler(HTTPException)
    async def http(request: Request, error: HTTPException) -> JSONResponse:
        return problem_of_http(request, error).response()
