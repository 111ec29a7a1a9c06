"""The audit log: who did what to others' messages and to targets, as events in the log.

What people do is recorded in Kafka, too, for all to see: pauses, and what comes from a browser. What programs do by the
thousand is in the log alone.
"""

from typing import Final

from starlette.requests import HTTPConnection

from tarry.api.access.gate import credential_of
from tarry.api.access.principal import Principal
from tarry.api.access.request_log import printable
from tarry.api.parts import parts_of
from tarry.handle import Handle

_ALWAYS: Final = frozenset({"pause", "resume"})
_BY_HAND: Final = frozenset({"cancel", "move", "deliver-now", "set-timer", "cancel-timer"})
_FIELDS: Final = ("target", "handle", "reason")


def audit(connection: HTTPConnection, principal: Principal, act: str, **fields: object) -> None:
    """Log an act.

    Args:
        connection: the request.
        principal: who acts.
        act: what was done, a constant.
        fields: to what; never a key, a name, a value or a token.
    """
    shown = {name: printable(one) if isinstance(one, str) else one for name, one in fields.items()}
    parts = parts_of(connection)
    parts.on_event(
        "audit",
        act=act,
        principal=printable(principal.name),
        request_id=getattr(connection.state, "request_id", None),
        **shown,
    )
    if act in _ALWAYS or (act in _BY_HAND and _is_by_hand(connection)):
        handle = fields.get("handle")
        intake = fields.get("intake") or (Handle.parse(str(handle)).topic if handle else None)
        if intake is not None:
            texts = {name: None if (one := fields.get(name)) is None else str(one) for name in _FIELDS}
            parts.on_act(str(intake), {"act": act, "who": principal.name, **texts})


def _is_by_hand(connection: HTTPConnection) -> bool:
    """Whether a browser asks: it has a session, or says which site's page asks."""
    credential = credential_of(connection)
    has_session = credential is not None and credential.session is not None
    return has_session or "sec-fetch-site" in connection.headers
