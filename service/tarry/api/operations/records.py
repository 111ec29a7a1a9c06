"""The records of `I.operations`: what was asked, how far it is, that it shall stop; and single acts; pure.

Key: an id and a kind, as `8e8c5b0c-…/asked`. Value: JSON; a reader ignores unknown fields. The last record of a key
counts, and no record is made from what another one says: so no two writers can undo each other. The record that says
how far an operation is comes from one writer at a time (`running`).

No record has a key, a name, a header or a value of a message, or a token.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Final

from tarry.api.operations.picked import Picked
from tarry.units import MAX_EPOCH_MS

VERSION: Final = 1
LONGEST_TEXT: Final = 1_000
"""The most characters of a reason, of a name and of an error."""

MOST_COUNTS: Final = 200
"""How many targets, and how many codes, an operation is about at most."""


class Act(StrEnum):
    """What an operation does with each of its records."""

    REDRIVE = "redrive"
    DISMISS = "dismiss"
    CANCEL = "cancel"
    MOVE = "move"

    @property
    def is_of_letters(self) -> bool:
        """Whether its records are dead letters; else they are messages that wait."""
        return self in {Act.REDRIVE, Act.DISMISS}


class State(StrEnum):
    """How far an operation is."""

    WAITING = "waiting"
    """Nobody has begun it; or the replica that executed it ended, and another one goes on."""
    RUNNING = "running"
    STOPPING = "stopping"
    DONE = "done"
    STOPPED = "stopped"
    FAILED = "failed"

    @property
    def is_over(self) -> bool:
        """Whether nothing follows."""
        return self in {State.DONE, State.STOPPED, State.FAILED}


class Kind(StrEnum):
    """The kinds of records."""

    ASKED = "asked"
    PROGRESS = "progress"
    STOP = "stop"
    ACT = "act"


@dataclass(frozen=True, slots=True)
class Asked:
    """An operation, as it was asked for.

    Attributes:
        id: its id, 36 characters.
        act: what to do.
        intake: in which intake.
        topic_id: the id of the topic of the records; empty: the brokers have no ids. Another topic of the same name has
            other records.
        picked: the records.
        targets: how many of them are for each target; empty for those without one.
        codes: how many dead letters have each code.
        by_ms: by how much `move` changes the due times.
        from_ms: none of the messages is due before.
        until_ms: none of the messages is due from then on.
        who: who asked.
        reason: why.
        at_ms: when.
    """

    id: str
    act: Act
    intake: str
    topic_id: str
    picked: Picked
    targets: Mapping[str, int]
    codes: Mapping[str, int] = field(default_factory=dict)
    by_ms: int = 0
    from_ms: int = 0
    until_ms: int = 0
    who: str = ""
    reason: str = ""
    at_ms: int = 0

    def fields(self) -> dict[str, Any]:
        """Return it as JSON has it."""
        return {
            "v": VERSION,
            "id": self.id,
            "act": str(self.act),
            "intake": self.intake,
            "topic_id": self.topic_id,
            "picked": self.picked.encoded(),
            "targets": dict(self.targets),
            "codes": dict(self.codes),
            "by_ms": self.by_ms,
            "from_ms": self.from_ms,
            "until_ms": self.until_ms,
            "who": self.who,
            "reason": self.reason,
            "at_ms": self.at_ms,
        }


@dataclass(frozen=True, slots=True)
class Progress:
    """How far an operation is.

    Attributes:
        state: never `STOPPING`, which others decide.
        done: with how many records it has done what it was asked to do.
        failed: how many were left as they are, by a word that says why.
        handled: the bits of both.
        at_ms: when this was written.
        replica: who executes it; empty: nobody now.
        error: why it has failed as a whole.
    """

    state: State
    done: int
    failed: Mapping[str, int]
    handled: str
    at_ms: int
    replica: str
    error: str = ""

    def fields(self) -> dict[str, Any]:
        """Return it as JSON has it."""
        return {
            "v": VERSION,
            "state": str(self.state),
            "done": self.done,
            "failed": dict(self.failed),
            "handled": self.handled,
            "at_ms": self.at_ms,
            "replica": self.replica,
            "error": self.error,
        }


@dataclass(frozen=True, slots=True)
class Stop:
    """That an operation shall stop.

    Attributes:
        who: who decided it.
        reason: why.
        at_ms: when.
    """

    who: str
    reason: str
    at_ms: int

    def fields(self) -> dict[str, Any]:
        """Return it as JSON has it."""
        return {"v": VERSION, "who": self.who, "reason": self.reason, "at_ms": self.at_ms}


@dataclass(frozen=True, slots=True)
class Single:
    """An act about one target or one message.

    Attributes:
        act: what was done, a word.
        who: who did it.
        at_ms: when.
        target: for messages to this target; None: it is not known.
        handle: of the message; None: it is none by handle.
        reason: why; empty: none was asked for.
    """

    act: str
    who: str
    at_ms: int
    target: str | None = None
    handle: str | None = None
    reason: str = ""

    def fields(self) -> dict[str, Any]:
        """Return it as JSON has it."""
        return {
            "v": VERSION,
            "act": self.act,
            "who": self.who,
            "at_ms": self.at_ms,
            "target": self.target,
            "handle": self.handle,
            "reason": self.reason,
        }


Content = Asked | Progress | Stop | Single
_KINDS: Final[Mapping[type, Kind]] = {
    Asked: Kind.ASKED,
    Progress: Kind.PROGRESS,
    Stop: Kind.STOP,
    Single: Kind.ACT,
}


def key_of(id_: str, content: Content) -> bytes:
    """Return the key of a record."""
    return f"{id_}/{_KINDS[type(content)]}".encode()


def value_of(content: Content) -> bytes:
    """Return the value of a record."""
    return json.dumps(content.fields(), separators=(",", ":")).encode()


def read_record(key: bytes | None, value: bytes | None) -> tuple[str, Content] | None:
    """Read a record.

    Returns:
        The id and what it says; None if it was deleted, or is of a kind that this version does not know.

    Raises:
        ValueError: it cannot be read; one line says why.
    """
    try:
        id_, _, kind = (key or b"").decode("ascii").partition("/")
        if value is None or kind not in set(Kind):
            return None
        found = json.loads(value)
        if type(version := found["v"]) is not int or version != VERSION:
            raise ValueError(f"version {version!r:.40}; this version of tarry reads version {VERSION}")
        match Kind(kind):
            case Kind.ASKED:
                return id_, read_asked(found)
            case Kind.PROGRESS:
                return id_, _progress(found)
            case Kind.STOP:
                return id_, Stop(text_of(found["who"]), text_of(found["reason"]), _time(found["at_ms"]))
            case Kind.ACT:
                return id_, _single(found)
    except (KeyError, TypeError, AttributeError, RecursionError, UnicodeDecodeError) as error:
        raise ValueError(f"no record of an operation: {error!r:.200}") from error


def read_asked(found: Any) -> Asked:
    """Read the fields of an operation.

    Raises:
        ValueError: or KeyError, TypeError: they cannot be read.
    """
    return Asked(
        text_of(found["id"]),
        Act(found["act"]),
        text_of(found["intake"]),
        text_of(found["topic_id"]),
        Picked.decoded(found["picked"]),
        _counts(found["targets"]),
        _counts(found["codes"]),
        _whole(found["by_ms"]),
        _whole(found["from_ms"]),
        _whole(found["until_ms"]),
        text_of(found["who"]),
        text_of(found["reason"]),
        _time(found["at_ms"]),
    )


def _progress(found: Any) -> Progress:
    return Progress(
        State(found["state"]),
        _whole(found["done"]),
        _counts(found["failed"]),
        str(found["handled"]),
        _time(found["at_ms"]),
        text_of(found["replica"]),
        text_of(found["error"]),
    )


def _single(found: Any) -> Single:
    target, handle = found["target"], found["handle"]
    return Single(
        text_of(found["act"]),
        text_of(found["who"]),
        _time(found["at_ms"]),
        None if target is None else text_of(target),
        None if handle is None else text_of(handle),
        text_of(found["reason"]),
    )


def _counts(found: Any) -> dict[str, int]:
    counts = {text_of(name): _whole(count) for name, count in dict(found).items()}
    if len(counts) > MOST_COUNTS + 1:
        raise ValueError("more targets or codes than an operation has")
    return counts


def _whole(found: Any) -> int:
    if type(found) is not int or found < 0:
        raise ValueError("a number is not a whole one")
    return found


def _time(found: Any) -> int:
    return min(_whole(found), MAX_EPOCH_MS)


def text_of(value: object) -> str:
    """Return a text that can be written anywhere: JSON may have halves of characters, which UTF-8 has not."""
    return str(value)[:LONGEST_TEXT].encode(errors="replace").decode()
