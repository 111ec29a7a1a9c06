"""The answers of the API: their models, which OpenAPI shows, and the fields that all of them write alike."""

from collections.abc import Mapping
from http import HTTPStatus
from typing import Any, Final

from pydantic import BaseModel, ConfigDict, Field

from tarry.api.access.principal import Principal, Scope
from tarry.api.problems import MEDIA_TYPE
from tarry.client import Receipt, ScheduleReceipt
from tarry.units import format_instant


class Problem(BaseModel):
    """An error, by RFC 9457."""

    model_config = ConfigDict(extra="allow")

    type: str
    title: str
    status: int
    code: str = Field(description="The word to branch on: one of docs/http.md, or of docs/headers.md.")
    detail: str


class Sent(BaseModel):
    """The receipt of a message, and its outcome if that is known."""

    model_config = ConfigDict(extra="allow")

    id: str
    intake: str
    partition: int
    offset: int | None = None
    handle: str | None = None
    due: str | None = Field(default=None, description="RFC 3339.")
    due_ms: int | None = None
    next: str | None = Field(default=None, description="Of a schedule: when it comes first.")
    next_ms: int | None = None
    status_url: str
    known: bool | None = Field(default=None, description="It was sent before, and was not sent again.")
    outcome: dict[str, Any] | None = Field(default=None, description="The result that the service wrote.")


class State(BaseModel):
    """Where a message is."""

    model_config = ConfigDict(extra="allow")

    state: str


SCHEMA: Final = Problem.model_json_schema()
_ALWAYS: Final = (400, 401, 403, 408, 413, 415, 421, 422, 429, 431, 500, 503)


def problems(*more: int) -> dict[int | str, dict[str, Any]]:
    """Return the problems that a path may answer, for OpenAPI.

    Args:
        more: statuses beside those that each path may answer.
    """
    return {
        status: {"description": HTTPStatus(status).phrase, "content": {MEDIA_TYPE: {"schema": SCHEMA}}}
        for status in sorted({*_ALWAYS, *more})
    }


def receipt_fields(receipt: Receipt, status_url: str) -> dict[str, Any]:
    """Return the answer about an accepted message."""
    handle = receipt.handle
    return {
        "id": receipt.id,
        "handle": str(handle),
        "due": format_instant(handle.due_ms),
        "due_ms": handle.due_ms,
        "intake": handle.topic,
        "partition": handle.partition,
        "offset": receipt.offset,
        "status_url": status_url,
    }


def schedule_fields(receipt: ScheduleReceipt, next_ms: int, status_url: str) -> dict[str, Any]:
    """Return the answer about an accepted schedule."""
    return {
        "id": receipt.id,
        "next": format_instant(next_ms),
        "next_ms": next_ms,
        "intake": receipt.intake,
        "partition": receipt.partition,
        "offset": receipt.offset,
        "status_url": status_url,
    }


_OF_KEYS: Final = frozenset({"key", "key_base64", "name"})


def shown_result(result: Mapping[str, Any], principal: Principal) -> dict[str, Any]:
    """Return a result as a principal may see it: results of named messages may carry key and name."""
    target = result.get("target")
    may = principal.may(Scope.LOOK_KEYS, target) if target else principal.has_for_all(Scope.LOOK_KEYS)
    return dict(result) if may else {name: one for name, one in result.items() if name not in _OF_KEYS}
