"""Cursors: where the next page begins, and what there was when the first one was read; pure.

A cursor of waiting messages holds the ends of the intake's partitions as they were: what was sent later is not listed.
It also holds the due time, partition and offset of the last message of the page. A message keeps all three while it
moves down the levels, so what waits throughout is listed once. Of a crowd it holds where in its log the page ended.

A cursor is opaque, and is checked when it comes back: it could only ask for what its owner may see anyway.
"""

import binascii
import json
import zlib
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Sequence
from http import HTTPStatus
from typing import Any, Final, NamedTuple

from tarry.api.looking.crowds import Crowd
from tarry.api.problems import ProblemError

LASTS_MS: Final = 3_600_000
MOST_CHARACTERS: Final = 16_000
"""A URL must have room for it; compressed, the ends of some thousand partitions fit."""

MOST_BYTES: Final = 200_000
MOST_OFFSET: Final = 2**63 - 1
_VERSION: Final = 2

Position = tuple[int, int, int]
"""Due time, partition and offset in the intake: the order of pages."""

BEGIN: Final[Position] = (-1, -1, -1)


class MessageCursor(NamedTuple):
    """Where the next page of waiting messages begins.

    Attributes:
        intake: the intake.
        ends: the end of each of its partitions when the first page was read.
        begun_ms: when that was.
        after: the page holds messages behind this position.
        crowd: the crowd that is listed, or whose rest is; None: neither.
    """

    intake: str
    ends: Sequence[int]
    begun_ms: int
    after: Position
    crowd: Crowd | None = None

    def text(self) -> str:
        """Return the cursor as opaque text."""
        crowd = None if self.crowd is None else list(self.crowd)
        return _encoded([_VERSION, "m", self.intake, list(self.ends), self.begun_ms, list(self.after), crowd])

    def checked(self, intake: str, ends: Sequence[int], now_ms: int) -> "MessageCursor":
        """Return the cursor, if it still holds.

        Args:
            intake: the intake that is asked for.
            ends: the present ends of its partitions.
            now_ms: the present time.

        Raises:
            ProblemError: it is another intake's, too old, or the intake was recreated.
        """
        if self.intake != intake:
            raise ProblemError(HTTPStatus.BAD_REQUEST, f"cursor: is of intake {self.intake}")
        is_shorter = len(self.ends) != len(ends) or any(now < then for then, now in zip(self.ends, ends, strict=True))
        if is_shorter or not -LASTS_MS < now_ms - self.begun_ms < LASTS_MS:
            raise ProblemError(HTTPStatus.GONE, "cursor: has expired; begin again without one")
        return self


class LetterCursor(NamedTuple):
    """Where the next page of dead letters begins: below this time, partition and offset, the newest first."""

    at_ms: int
    partition: int
    offset: int

    def text(self) -> str:
        """Return the cursor as opaque text."""
        return _encoded([_VERSION, "d", *self])


def message_cursor(text: str) -> MessageCursor:
    """Read a cursor of waiting messages.

    Raises:
        ProblemError: it is none.
    """
    match _decoded(text):
        case [2, "m", str(intake), [*ends], int(begun_ms), [int(due), int(partition), int(offset)], crowd] if all(
            type(end) is int for end in ends
        ):
            return MessageCursor(intake, ends, begun_ms, (due, partition, offset), _crowd(crowd, len(ends)))
    raise _unreadable()


def _crowd(parts: Any, partitions: int) -> Crowd | None:
    """Read a crowd: its numbers, then a list for all partitions three times, then two numbers."""
    match parts:
        case None:
            return None
        case [int(level), int(from_ms), int(until_ms), list(below), list(log_ends), list(lows), int(at), int(offset)]:
            numbers = [*below, *log_ends, *lows]
            are_whole = (
                all(type(one) is int and one <= MOST_OFFSET for one in [*numbers, offset])
                and len(numbers) == 3 * partitions
            )
            if are_whole and len(below) == len(lows) == partitions and level > 0 and from_ms < until_ms and at >= 0:
                return Crowd(level, from_ms, until_ms, below, log_ends, lows, at, offset)
    raise _unreadable()


def letter_cursor(text: str) -> LetterCursor:
    """Read a cursor of dead letters.

    Raises:
        ProblemError: it is none.
    """
    match _decoded(text):
        case [2, "d", int(at_ms), int(partition), int(offset)]:
            return LetterCursor(at_ms, partition, offset)
    raise _unreadable()


def _encoded(parts: Sequence[Any]) -> str:
    packed = zlib.compress(json.dumps(parts, separators=(",", ":")).encode(), 9)
    return urlsafe_b64encode(packed).rstrip(b"=").decode()


def _decoded(text: str) -> Any:
    if len(text) > MOST_CHARACTERS:
        raise _unreadable()
    try:
        packed = urlsafe_b64decode(text.encode("ascii") + b"=" * (-len(text) % 4))
        return json.loads(zlib.decompressobj().decompress(packed, MOST_BYTES))
    except (binascii.Error, zlib.error, ValueError, RecursionError) as error:
        raise _unreadable() from error


def _unreadable() -> ProblemError:
    return ProblemError(HTTPStatus.BAD_REQUEST, "cursor: is not one that a page gave as next")
