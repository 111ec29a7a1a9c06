"""What a principal may see of messages; pure.

`look` shows that a message waits, when and for which target. Keys and names, and headers and values, are scopes of
their own. What is hidden is left out before anything is made of it, so no page and no answer can show it by mistake.
"""

from typing import Final

from pydantic import BaseModel

from tarry.api.access.principal import Principal, Scope

MOST_IN_A_LIST: Final = 256
"""How many bytes of a key or a name lists show."""


class Shown(BaseModel):
    r"""Bytes of a message, for people and programs.

    Attributes:
        text: as UTF-8; bytes that are not are written `\x..`.
        is_utf8: whether all are UTF-8.
        size_bytes: how many bytes there are.
        is_cut: whether the text is of the first bytes only.
    """

    text: str
    is_utf8: bool = True
    size_bytes: int
    is_cut: bool = False


def shown(raw: bytes, most: int = MOST_IN_A_LIST) -> Shown:
    """Return the first bytes as text."""
    is_cut = len(raw) > most
    some = raw[:most]
    try:
        return Shown(text=some.decode(), size_bytes=len(raw), is_cut=is_cut)
    except UnicodeDecodeError as error:
        # A character may be cut in two.
        if is_cut and error.reason == "unexpected end of data" and error.start > most - 4:
            return Shown(text=some[: error.start].decode(), size_bytes=len(raw), is_cut=True)
        return Shown(text=some.decode("utf-8", "backslashreplace"), is_utf8=False, size_bytes=len(raw), is_cut=is_cut)


class Sight:
    """What one principal sees.

    Args:
        principal: who looks.
    """

    def __init__(self, principal: Principal) -> None:
        self._principal = principal

    def sees(self, target: str | None) -> bool:
        """Whether messages for a target may be listed at all; None is a record without a target."""
        return self._principal.may(Scope.LOOK, target or "")

    def key(self, target: str | None, raw: bytes | None, most: int = MOST_IN_A_LIST) -> Shown | None:
        """Return a key or a name; None if it is hidden, or there is none."""
        return shown(raw, most) if raw is not None and self.sees_keys(target) else None

    def sees_keys(self, target: str | None) -> bool:
        """Whether keys and names of messages for a target may be seen."""
        return self._principal.may(Scope.LOOK_KEYS, target or "")

    @property
    def sees_any_keys(self) -> bool:
        """Whether keys and names of any target may be seen."""
        return self._principal.has(Scope.LOOK_KEYS)

    def sees_values(self, target: str | None) -> bool:
        """Whether headers and values of messages for a target may be seen."""
        return self._principal.may(Scope.LOOK_VALUES, target or "")

    def hidden(self, target: str | None) -> list[str]:
        """Return which parts of messages for a target are hidden."""
        keys = [] if self.sees_keys(target) else ["key", "name"]
        return keys + ([] if self.sees_values(target) else ["headers", "value"])
