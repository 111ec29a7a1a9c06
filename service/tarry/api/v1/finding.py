"""Where a message is, as far as a principal may know."""

import base64
from http import HTTPStatus
from typing import Any, Final

from starlette.requests import HTTPConnection

from tarry.api.access.principal import Principal, Scope
from tarry.api.parts import Parts
from tarry.api.problems import Code, ProblemError
from tarry.api.v1.answers import shown_result
from tarry.api.v1.intakes import Intakes
from tarry.api.v1.rights import may_see, refuse_to_see
from tarry.core.progress.source import PARKED
from tarry.handle import Handle
from tarry.headers import NAME, REPLACED_HEADERS, REQUEST_HEADERS
from tarry.kafka.inspector import Content, Inspector
from tarry.kafka.whereabouts import Whereabouts, find
from tarry.units import format_instant

SHOWN_BYTES: Final = 65_536
"""How much of a value is shown."""

Found = tuple[Whereabouts, Content | None]


class Finding:
    """Finds messages.

    Args:
        parts: the clients.
        intakes: the configured intakes.
    """

    def __init__(self, parts: Parts, intakes: Intakes) -> None:
        self._parts = parts
        self._intakes = intakes

    async def find(self, handle: Handle, *, with_content: bool = False) -> Found:
        """Look for a message, and read what it holds.

        Raises:
            TarryError: as `find` of `tarry.kafka.whereabouts`.
        """
        await self._intakes.known(handle.topic)
        policy = self._intakes.policy(handle.topic)

        def look(inspector: Inspector) -> Found:
            found = find(inspector, handle, policy)
            waits = found.message if with_content else None
            return found, None if waits is None else inspector.content(waits)

        return await self._parts.look(look)

    async def status(self, principal: Principal, handle: Handle) -> dict[str, Any]:
        """Return the state of a message.

        Raises:
            ProblemError: it is unknown, or the principal may not see it.
        """
        sees_content = principal.has(Scope.LOOK_KEYS) or principal.has(Scope.LOOK_VALUES)
        found, content = await self.find(handle, with_content=sees_content)
        return self.fields(principal, handle, found, content)

    def fields(
        self, principal: Principal, handle: Handle, found: Whereabouts, content: Content | None
    ) -> dict[str, Any]:
        """Return the state of a message that was looked for.

        Raises:
            ProblemError: it is unknown, or the principal may not see it.
        """
        if found.message is None and found.result is None:
            raise ProblemError(
                HTTPStatus.NOT_FOUND,
                "the message is not waiting and has no result: results are kept for some days",
                Code.NOT_FOUND,
                state="unknown",
                cancel_waits=found.cancel_waits,
                served=found.is_served,
            )
        target = found.message.target if found.message is not None else (found.result or {}).get("target")
        if not may_see(principal, target):
            raise refuse_to_see(principal)
        fields: dict[str, Any] = {
            "state": "waiting" if found.message is not None else str((found.result or {}).get("outcome")),
            "handle": str(handle),
            "due": format_instant(handle.due_ms),
            "due_ms": handle.due_ms,
            "target": target,
            "cancel_waits": found.cancel_waits,
            "served": found.is_served,
        }
        if found.result is not None:
            fields["outcome"] = shown_result(found.result, principal)
        if found.message is not None:
            fields |= _place(found)
            if content is not None and target is not None:
                fields |= _content(principal, target, content)
        return fields


def _place(found: Whereabouts) -> dict[str, Any]:
    assert found.message is not None  # noqa: S101 - the caller has looked
    level = found.message.source.level
    fields: dict[str, Any] = {
        "level": level,
        "parked": level == PARKED,
        "will_be_dead": found.will_be_dead,
        "source": f"{found.message.place[0]}/{found.message.place[1]}/{found.message.sequence}",
    }
    if found.bucket is not None:
        bucket, until_ms = found.bucket
        fields |= {"bucket_from": format_instant(bucket.start_ms), "bucket_until": format_instant(until_ms)}
    if found.repeated is not None:
        fields |= {"schedule": found.repeated.schedule.decode(), "occurrence": found.repeated.number}
    return fields


def _content(principal: Principal, target: str, content: Content) -> dict[str, Any]:
    """Return what a message holds, as far as the principal may see it."""
    fields: dict[str, Any] = {}
    if principal.may(Scope.LOOK_KEYS, target):
        name = dict(content.headers).get(NAME)
        fields |= shown_bytes("key", content.key)
        fields["name"] = None if name is None else name.decode("utf-8", "replace")
    if principal.may(Scope.LOOK_VALUES, target):
        hidden = REQUEST_HEADERS | REPLACED_HEADERS
        fields["headers"] = [
            {"name": name, **shown_bytes("value", value)} for name, value in content.headers if name not in hidden
        ]
        value = content.value
        fields |= shown_bytes("value", None if value is None else value[:SHOWN_BYTES])
        fields["value_bytes"] = None if value is None else len(value)
    return fields


def shown_bytes(field: str, value: bytes | None) -> dict[str, str | None]:
    """Return bytes as a field: as text if they are text, else `FIELD_base64`."""
    if value is None:
        return {field: None}
    try:
        return {field: value.decode()}
    except UnicodeDecodeError:
        return {f"{field}_base64": base64.b64encode(value).decode()}


def finding_of(connection: HTTPConnection) -> Finding:
    """Return what finds messages, of the application that handles a request; a FastAPI dependency."""
    found: Finding = connection.app.state.finding
    return found
