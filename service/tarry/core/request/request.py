"""What a record in an intake asks for: a message to be delivered later, a cancel, or what can't be done.

`tarry.core.request.reader` finds out which.
"""

from typing import NamedTuple, final

from tarry.core.request.dialects import Dialect
from tarry.headers import ErrorCode


@final
class Request(NamedTuple):
    """A message to be delivered later.

    Args:
        due_ms: when, milliseconds since the epoch, rounded up to the tick.
        target: the topic; the same `str` object for the same bytes, so that a million held messages share it.
        partition: the target's partition, or -1: by key.
        id: `tarry-id`, 36 ASCII characters in lower case.
        carries: whether any headers are delivered beside our own.
        dialect: that of its headers, which says what is delivered; None: ours.
    """

    due_ms: int
    target: str
    partition: int
    id: bytes
    carries: bool
    dialect: Dialect | None = None


@final
class CancelRequest(NamedTuple):
    """A message is to be cancelled.

    Args:
        due_ms: when that message is due.
        id: its id, 36 ASCII characters.
    """

    due_ms: int
    id: bytes


@final
class Rejection(NamedTuple):
    """Why a record can never be delivered, and what is known of it all the same.

    Args:
        code: the value of `tarry-error`.
        detail: one line for people, the value of `tarry-error-detail`.
        id: 36 ASCII characters; the one made from topic, partition and offset where the record's own is bad.
        due_ms: when it would have been due, rounded up to the tick, or None.
        target: where it would have gone, if that can be a topic's name, or None.
    """

    code: ErrorCode
    detail: str
    id: bytes
    due_ms: int | None
    target: str | None
