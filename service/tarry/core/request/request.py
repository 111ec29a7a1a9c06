"""The meanings of a record in an intake: a message to deliver later, a cancel (of two kinds), a purge, a rejection.

`tarry.core.request.reader` decides which.
"""

from typing import NamedTuple, final

from tarry.core.expiry import NO_EXPIRY_MS
from tarry.core.request.dialects import Dialect
from tarry.core.request.naming import Naming, Planned
from tarry.headers import ErrorCode


@final
class Request(NamedTuple):
    """A message to deliver later.

    Args:
        due_ms: the due time, milliseconds since the epoch, rounded up to the tick.
        target: the topic; the same `str` object for the same bytes, so that a million held messages share it.
        partition: the target's partition, or -1 to choose it by key.
        id: `tarry-id`, 36 ASCII characters in lower case.
        carries: whether headers of the record are delivered, beside tarry's own.
        dialect: the dialect of the headers, which decides what is delivered; None for tarry's own headers.
        naming: its name; None if it has none.
        expires_ms: it is delivered at this time at the latest, milliseconds since the epoch.
    """

    due_ms: int
    target: str
    partition: int
    id: bytes
    carries: bool
    dialect: Dialect | None = None
    naming: Naming | None = None
    expires_ms: int = NO_EXPIRY_MS


@final
class NameCancelRequest(NamedTuple):
    """A request to cancel the message that waits under a name.

    Args:
        hash: stands for key and name.
        id: 36 ASCII characters, derived from topic, partition and offset.
    """

    hash: bytes
    id: bytes


@final
class CancelRequest(NamedTuple):
    """A request to cancel a message.

    Args:
        due_ms: the due time of that message.
        id: the id of that message, 36 ASCII characters.
    """

    due_ms: int
    id: bytes


@final
class PurgeRequest(NamedTuple):
    """A request to make dead letters of the messages that are parked for a target.

    Args:
        due_ms: messages that are due later are not meant.
        target: the target.
        id: 36 ASCII characters, derived from topic, partition and offset.
    """

    due_ms: int
    target: str
    id: bytes


@final
class Rejection(NamedTuple):
    """The reason why a record can never be delivered, with the parts of its request that are known.

    Args:
        code: the value of `tarry-error`.
        detail: one line for people, the value of `tarry-error-detail`.
        id: 36 ASCII characters; derived from topic, partition and offset if the record's own id is bad.
        due_ms: the due time, rounded up to the tick, or None if it is not known.
        target: the target, or None if it is not known or not a legal topic name.
        name: the hash of its name, if it has a valid one: it may have been accepted before.
        planned: its place in its schedule, if that is known.
    """

    code: ErrorCode
    detail: str
    id: bytes
    due_ms: int | None
    target: str | None
    name: bytes | None = None
    planned: Planned | None = None
