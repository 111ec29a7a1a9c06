"""Who asks, and what they may do; pure.

A principal has grants: for each scope, the targets that it holds for, as globs over topic names. Whoever may `act` on a
target may look at its messages and send to it.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from fnmatch import fnmatchcase
from types import MappingProxyType
from typing import Final


class Scope(StrEnum):
    """What a grant is for."""

    SEND = "send"
    """Send messages; replace, cancel and see those that this principal could send."""
    LOOK = "look"
    """See what waits, what is dead, and how the service is; without keys, names, headers and values."""
    LOOK_KEYS = "look-keys"
    """See keys and names, too."""
    LOOK_VALUES = "look-values"
    """See headers and values, too."""
    ACT = "act"
    """Cancel, move and redrive messages of others; pause and resume targets."""


ALL_TARGETS: Final = ("*",)

_IMPLIED: Final[Mapping[Scope, frozenset[Scope]]] = MappingProxyType(
    {
        Scope.SEND: frozenset({Scope.ACT}),
        Scope.LOOK: frozenset({Scope.ACT, Scope.LOOK_KEYS, Scope.LOOK_VALUES}),
    }
)
"""The scopes that include another one."""


@dataclass(frozen=True, slots=True)
class Principal:
    """Somebody, or a program, whose identity was checked.

    Attributes:
        name: shown in audit records, and written to Kafka as who did something.
        grants: the globs over target topics, by scope.
    """

    name: str
    grants: Mapping[Scope, tuple[str, ...]]

    def may(self, scope: Scope, target: str) -> bool:
        """Return whether a scope was granted for a target."""
        return any(fnmatchcase(target, glob) for glob in self._globs(scope))

    def has(self, scope: Scope) -> bool:
        """Return whether a scope was granted for any target."""
        return any(True for _ in self._globs(scope))

    def has_for_all(self, scope: Scope) -> bool:
        """Return whether a scope was granted for all targets."""
        return "*" in self._globs(scope)

    def _globs(self, scope: Scope) -> Iterable[str]:
        for one in (scope, *_IMPLIED.get(scope, ())):
            yield from self.grants.get(one, ())


ANYBODY: Final = Principal("local", dict.fromkeys(Scope, ALL_TARGETS))
"""Whoever reaches a server without tokens, which therefore listens on the loopback only."""


def parsed_grants(texts: Iterable[str]) -> dict[Scope, tuple[str, ...]]:
    """Read grants: `SCOPE`, for all targets, or `SCOPE:GLOB,GLOB`.

    Raises:
        ValueError: one is neither; one line that says which.
    """
    grants: dict[Scope, tuple[str, ...]] = {}
    for text in texts:
        word, colon, globs = text.partition(":")
        try:
            scope = Scope(word)
        except ValueError:
            raise ValueError(f"{text!r}: the scopes are {', '.join(Scope)}") from None
        found = tuple(glob.strip() for glob in globs.split(",")) if colon else ALL_TARGETS
        if not all(found):
            raise ValueError(f"{text!r}: should be {scope}, or {scope}: and globs over topic names, such as orders.*")
        grants[scope] = (*grants.get(scope, ()), *found)
    return grants
