"""Sending dead letters again: which, in which order, and as what; pure."""

import re
from collections.abc import Iterable, Sequence
from fnmatch import fnmatchcase
from typing import NamedTuple

from tarry.client.retry.core.journey import RETRY_REDRIVEN, RETRY_SOURCE, Headers, journey_of, own_headers
from tarry.client.retry.core.message import Record
from tarry.errors import ConfigError, HeaderError
from tarry.headers import ERROR, ERROR_DETAIL, ID, TARGET

REDRIVEN_OFFSET = "tarry-redriven-offset"
"""On a record without key and value beside the dead letters: the one at this offset was sent again."""

_OFFSET = re.compile("[0-9]{1,19}")


class DeadLetter(NamedTuple):
    """A record of a topic of dead letters."""

    partition: int
    offset: int
    key: bytes | None
    value: bytes | None
    headers: Headers

    def text(self, name: str) -> list[str]:
        """What `key`, `value` or a header of this name says; nothing where there is none."""
        found = {"key": [self.key], "value": [self.value]}.get(name)
        values = found if found is not None else [value for header, value in self.headers if header == name]
        return [value.decode("utf-8", "replace") for value in values if value is not None]


class Condition(NamedTuple):
    """What a dead letter must say.

    Attributes:
        name: `key`, `value`, or a header's name.
        pattern: a shell's, with `*`, `?` and `[...]`.
    """

    name: str
    pattern: str

    @classmethod
    def parse(cls, text: str) -> "Condition":
        """From `name=pattern`.

        Raises:
            ConfigError: it is something else.
        """
        name, equals, pattern = text.partition("=")
        if not (name and equals):
            raise ConfigError(f"--where: NAME=PATTERN, such as tarry-error=out-of-attempts or key=order-*: {text!r}")
        return cls(name, pattern)

    def holds(self, letter: DeadLetter) -> bool:
        """Whether it does."""
        return any(fnmatchcase(text, self.pattern) for text in letter.text(self.name))


def selected(letters: Iterable[DeadLetter], conditions: Sequence[Condition]) -> list[DeadLetter]:
    """Those that all conditions hold for and that were not sent again: of each key in the order of its topic.

    Args:
        letters: all that the topic holds, of each partition in the order of its offsets.
        conditions: all must hold.
    """
    again: set[tuple[int, int]] = set()
    found: list[DeadLetter] = []
    for letter in letters:
        offsets = letter.text(REDRIVEN_OFFSET)
        if offsets:
            again.update((letter.partition, int(offset)) for offset in offsets if _OFFSET.fullmatch(offset))
        elif all(condition.holds(letter) for condition in conditions):
            found.append(letter)
    waiting = [letter for letter in found if (letter.partition, letter.offset) not in again]
    return sorted(waiting, key=lambda letter: (letter.partition, letter.key or b"", *_place(letter)))


def _place(letter: DeadLetter) -> tuple[int, int, int]:
    """A key queue's messages by their numbers; all others as they came."""
    try:
        ticket = journey_of(letter.headers).ticket
    except HeaderError:
        return 0, 0, letter.offset
    return ticket.episode, ticket.number, letter.offset


def sent_again(letter: DeadLetter, dead: str, to: str) -> tuple[Record, Record]:
    """What goes out for a dead letter.

    Args:
        letter: which.
        dead: the topic that it is in.
        to: the topic that it is sent to.

    Returns:
        The message as it was, and the note beside the dead letter.
    """
    note = Record(dead, letter.partition, None, None, [(REDRIVEN_OFFSET, b"%d" % letter.offset)])
    try:
        journey = journey_of(letter.headers)
    except HeaderError:
        journey = None
    if journey is None or letter.text(TARGET):  # of an intake, request and all
        headers = [one for one in letter.headers if one[0] not in {ERROR, ERROR_DETAIL}]
        return Record(to, -1, letter.key, letter.value, headers), note
    headers = [
        *(one for one in own_headers(letter.headers) if one[0] not in {ERROR, ERROR_DETAIL}),
        (ID, journey.id.encode()),
        (RETRY_REDRIVEN, f"{dead}/{journey.ticket.episode}".encode()),
    ]
    # Its own partition, whatever partitioner had put it there.
    at_home = any(source.rsplit("/", 2)[0] == to for source in letter.text(RETRY_SOURCE))
    return Record(to, journey.partition if at_home else -1, letter.key, letter.value, headers), note
