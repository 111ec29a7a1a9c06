"""The pause of a target: a record of `I.control`, which the owners of all partitions of the intake obey.

Key: the target. Value: JSON with the fields below; a reader ignores unknown fields. The last record of a key counts. A
record without a value means that the target is not paused. A record with `paused` false stays, so that people can see
who has resumed the target, and why.

A record that cannot be read, because it is damaged or of a later version, counts as a pause without an end: a delivery
cannot be taken back, but a message that waits can still be delivered. The next readable record of its key ends that.
"""

import json
from dataclasses import dataclass
from typing import Any, Final

from tarry.headers import is_legal_topic
from tarry.units import MAX_EPOCH_MS, format_instant

VERSION: Final = 1
LONGEST_TEXT: Final = 1_000
"""The most characters of a reason, and of a name."""


@dataclass(frozen=True, slots=True)
class Pause:
    """What was decided about a target last.

    Attributes:
        target: the target.
        paused: whether it was paused; false: it was resumed.
        reason: why, for people.
        who: who decided it, for people.
        at_ms: when, epoch milliseconds.
        until_ms: when the pause ends by itself; None: never.
        unreadable: why the record cannot be read; empty if it can.
    """

    target: str
    paused: bool
    reason: str
    who: str
    at_ms: int
    until_ms: int | None = None
    unreadable: str = ""

    def holds_at(self, now_ms: int) -> bool:
        """Whether the target is paused at a time."""
        return self.paused and (self.until_ms is None or now_ms < self.until_ms)

    def key(self) -> bytes:
        """Return the record's key."""
        return self.target.encode()

    def value(self) -> bytes:
        """Return the record's value."""
        fields = {
            "v": VERSION,
            "target": self.target,
            "paused": self.paused,
            "reason": self.reason,
            "who": self.who,
            "at_ms": self.at_ms,
            "until_ms": self.until_ms,
        }
        return json.dumps(fields).encode()


def read_pause(key: bytes | None, value: bytes | None, stamp_ms: int) -> Pause | None:
    """Read a record of `I.control`.

    Args:
        key: of the record.
        value: of the record.
        stamp_ms: its timestamp.

    Returns:
        The decision; None if the key is not the name of a topic, so that the record is about no target.
    """
    try:
        target = (key or b"").decode()
    except UnicodeDecodeError:
        return None
    if not is_legal_topic(target):
        return None
    stamp_ms = min(max(0, stamp_ms), MAX_EPOCH_MS)  # a producer may write any number
    if value is None:
        return Pause(target, paused=False, reason="", who="", at_ms=stamp_ms)
    try:
        return _parsed(target, value)
    except ValueError as error:
        return Pause(target, paused=True, reason="", who="", at_ms=stamp_ms, unreadable=str(error))


def _parsed(target: str, value: bytes) -> Pause:
    """Read a value.

    Raises:
        ValueError: it cannot be read; one line says why.
    """
    try:
        found: dict[str, Any] = json.loads(value)
        if type(version := found["v"]) is not int or version != VERSION:
            raise ValueError(f"version {version!r:.40}; this version of tarry reads version {VERSION}")
        at_ms, until_ms = found["at_ms"], found["until_ms"]
        for instant_ms in (at_ms, 0 if until_ms is None else until_ms):
            if type(instant_ms) is not int:
                raise ValueError("a time is not a whole number")
            format_instant(instant_ms)
        if found["target"] != target or type(found["paused"]) is not bool:
            raise ValueError("it is about another target, or does not say whether it is paused")
        return Pause(
            target,
            found["paused"],
            _text(found["reason"]),
            _text(found["who"]),
            at_ms,
            until_ms,
        )
    except (KeyError, TypeError, RecursionError, UnicodeDecodeError) as error:
        raise ValueError(f"no pause: {error!r:.200}") from error


def _text(value: object) -> str:
    """Return a text that can be written anywhere: JSON may have halves of characters, which UTF-8 has not."""
    return str(value)[:LONGEST_TEXT].encode(errors="replace").decode()
