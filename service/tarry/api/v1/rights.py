"""What a principal may do with a message: it depends on the message's target, not on who sent it."""

from http import HTTPStatus

from tarry.api.access.principal import Principal, Scope
from tarry.api.problems import ProblemError


def may_see(principal: Principal, target: str | None) -> bool:
    """Return whether somebody may see where a message for a target is; None: for which is not known."""
    if target is None:
        return principal.has_for_all(Scope.LOOK) or principal.has_for_all(Scope.SEND)
    return principal.may(Scope.LOOK, target) or principal.may(Scope.SEND, target)


def may_change(principal: Principal, target: str | None) -> bool:
    """Return whether somebody may cancel, move or replace a message for a target; None: for which is not known."""
    if target is None:
        return principal.has_for_all(Scope.ACT) or principal.has_for_all(Scope.SEND)
    return principal.may(Scope.ACT, target) or principal.may(Scope.SEND, target)


def may_change_any(principal: Principal) -> bool:
    """Return whether it need not be looked up what a message's target is."""
    return may_change(principal, None)


def refuse_to_see(principal: Principal) -> ProblemError:
    """Return the refusal; it does not say for which target the message is."""
    return ProblemError(
        HTTPStatus.FORBIDDEN, f"{principal.name} has neither look nor send for the target of this message"
    )


def refuse_to_change(principal: Principal) -> ProblemError:
    """Return the refusal; it does not say for which target the message is."""
    return ProblemError(
        HTTPStatus.FORBIDDEN, f"{principal.name} has neither act nor send for the target of this message"
    )
