"""The audit log: who did what to others' messages and to targets, as events in the log."""

from starlette.requests import HTTPConnection

from tarry.api.access.principal import Principal
from tarry.api.access.request_log import printable
from tarry.api.parts import parts_of


def audit(connection: HTTPConnection, principal: Principal, act: str, **fields: object) -> None:
    """Log an act.

    Args:
        connection: the request.
        principal: who acts.
        act: what was done, a constant.
        fields: to what; never a key, a name, a value or a token.
    """
    shown = {name: printable(one) if isinstance(one, str) else one for name, one in fields.items()}
    parts_of(connection).on_event(
        "audit",
        act=act,
        principal=printable(principal.name),
        request_id=getattr(connection.state, "request_id", None),
        **shown,
    )
