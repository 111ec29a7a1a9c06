"""Redriving dead letters: which ones, in which order, and as which records; pure.

A named message may have a younger one of its name by now. So a named letter is sent on the condition that none waits.
Of several letters of a name only the youngest is sent: an older one would bring back what is out of date, once the
youngest is delivered.

The letter of a schedule may be a next record, which the service wrote. It follows nothing any more, so it is sent as
the sender wrote it, and the schedule begins anew.

A letter that has expired would be dead again. So it is left out or, if that is asked for, sent without its expiry.
"""

import re
from collections.abc import Iterable, Sequence
from fnmatch import fnmatchcase
from typing import NamedTuple

from tarry.client.retry.core.journey import RETRY_REDRIVEN, RETRY_SOURCE, Headers, journey_of, own_headers
from tarry.client.retry.core.message import OutgoingRecord
from tarry.client.retry.core.names import DEAD
from tarry.core.request.header_values import HeaderFault, expiry_in, read_delay
from tarry.errors import ConfigError, HeaderError
from tarry.headers import (
    CANCEL_NAME,
    DELAY_MS,
    ERROR,
    ERROR_DETAIL,
    EXPIRES_AT,
    ID,
    IF,
    NAME,
    NEXT,
    STUB,
    TARGET,
    ErrorCode,
)

REDRIVEN_OFFSET = "tarry-redriven-offset"
"""On a note: the dead letter at this offset was redriven, or dismissed."""

DISMISSED = "tarry-dismissed"
"""On a note: nothing was sent, somebody only has decided that nothing follows."""

_OFFSET = re.compile(b"[0-9]{1,19}")
_OF_A_NOTE = ([REDRIVEN_OFFSET], [REDRIVEN_OFFSET, DISMISSED])


class Note(NamedTuple):
    """A record of a topic of dead letters that says of a letter of its partition: nothing more follows.

    Attributes:
        offset: the letter's.
        is_dismissed: whether nothing was sent.
    """

    offset: int
    is_dismissed: bool


def note_of(key: bytes | None, value: bytes | None, headers: Headers) -> Note | None:
    """Return the note that a record is; None: it is something else.

    A note has its own headers only, and a letter has its error, too: a message that has the headers of a note does not
    become one when it is dead.
    """
    names = [name for name, _ in headers]
    if key is not None or value is not None or names not in _OF_A_NOTE:
        return None
    offset = headers[0][1]
    return Note(int(offset), DISMISSED in names) if offset is not None and _OFFSET.fullmatch(offset) else None


class DeadLetter(NamedTuple):
    """A record of a topic of dead letters."""

    partition: int
    offset: int
    key: bytes | None
    value: bytes | None
    headers: Headers

    @property
    def note(self) -> Note | None:
        """The note that the record is; None: it is something else."""
        return note_of(self.key, self.value, self.headers)

    def text(self, name: str) -> list[str]:
        """Return the text of `key`, `value` or all headers of this name; empty if there is none.

        Of several errors the last one is the letter's: the others came with the message.
        """
        found = {"key": [self.key], "value": [self.value]}.get(name)
        values = found if found is not None else [value for header, value in self.headers if header == name]
        if name in {ERROR, ERROR_DETAIL}:
            values = values[-1:]
        return [value.decode("utf-8", "replace") for value in values if value is not None]


class Condition(NamedTuple):
    """A condition on a dead letter.

    Attributes:
        name: `key`, `value`, or the name of a header.
        pattern: a shell pattern with `*`, `?` and `[...]`.
    """

    name: str
    pattern: str

    @classmethod
    def parse(cls, text: str) -> "Condition":
        """Parse `name=pattern`.

        Raises:
            ConfigError: the text has another form.
        """
        name, equals, pattern = text.partition("=")
        if not (name and equals):
            raise ConfigError(
                f"--where: must be NAME=PATTERN, such as tarry-error=out-of-attempts or key=order-*: {text!r}"
            )
        return cls(name, pattern)

    def holds(self, letter: DeadLetter) -> bool:
        """Return whether a dead letter meets the condition."""
        return any(fnmatchcase(text, self.pattern) for text in letter.text(self.name))


def matching_letters(letters: Iterable[DeadLetter], conditions: Sequence[Condition]) -> list[DeadLetter]:
    """Return the dead letters that meet all conditions and were not redriven; those of a key in the topic's order.

    Args:
        letters: all records of the dead-letter topic, those of a partition in the order of their offsets.
        conditions: the conditions; all must hold.
    """
    again: set[tuple[int, int]] = set()
    found: list[DeadLetter] = []
    for letter in letters:
        if (note := letter.note) is not None:
            again.add((letter.partition, note.offset))
        elif all(condition.holds(letter) for condition in conditions):
            found.append(letter)
    waiting = [letter for letter in found if (letter.partition, letter.offset) not in again]
    return sorted(waiting, key=lambda letter: (letter.partition, letter.key or b"", *_place(letter)))


def is_stranger(record: DeadLetter) -> bool:
    """Return whether a record is neither a dead letter nor a note about one."""
    return record.note is None and not record.text(ERROR)


def why_not_again(letter: DeadLetter) -> str | None:
    """Return why a dead letter cannot be sent again as it is; None: it can."""
    if stub := letter.text(STUB):
        return f"the whole record is {stub[0]}"
    if letter.text(CANCEL_NAME):
        return "a cancel by name would take what waits now"
    return None


class Selected(NamedTuple):
    """The letters to send.

    Attributes:
        letters: in their order.
        expired: how many others are left out because they have expired.
    """

    letters: list[DeadLetter]
    expired: int


def without_expired(letters: Sequence[DeadLetter], now_ms: int, *, revive: bool = False) -> Selected:
    """Leave out letters that have expired, whatever they died of, or that would before their delay is over again.

    Args:
        letters: from `matching_letters`.
        now_ms: the current time.
        revive: keep these letters, without their expiry.
    """
    selected = []
    for letter in letters:
        if ErrorCode.EXPIRED not in letter.text(ERROR) and expiry_in(letter.headers) >= _due_again_ms(letter, now_ms):
            selected.append(letter)
        elif revive:
            selected.append(letter._replace(headers=[one for one in letter.headers if one[0] != EXPIRES_AT]))
    return Selected(selected, len(letters) - len(selected))


def _due_again_ms(letter: DeadLetter, now_ms: int) -> int:
    """Return when a letter that is sent now can be delivered at the earliest."""
    delay = next((value for name, value in letter.headers if name == DELAY_MS), b"0")
    due_ms = read_delay(DELAY_MS, delay, now_ms)
    return now_ms if isinstance(due_ms, HeaderFault) else due_ms


def _place(letter: DeadLetter) -> tuple[int, int, int]:
    """Return the sort key: the number in the key queue, for other messages the offset."""
    try:
        ticket = journey_of(letter.headers).ticket
    except HeaderError:
        return 0, 0, letter.offset
    return ticket.episode, ticket.number, letter.offset


def older_of_names(records: Sequence[DeadLetter], *, keys_are_names: bool) -> set[tuple[int, int]]:
    """Return the partition and offset of each letter behind which another one of its key and name came.

    That one counts also if it was redriven, but not if it was dismissed.

    Args:
        records: all records of the dead-letter topic, those of a partition in the order of their offsets.
        keys_are_names: whether the intake to send them to takes the key for a name.
    """
    notes = [(record.partition, record.note) for record in records]
    dismissed = {(partition, note.offset) for partition, note in notes if note is not None and note.is_dismissed}
    last: dict[tuple[int, bytes | None, bytes], tuple[int, int]] = {}
    older: set[tuple[int, int]] = set()
    for letter in records:
        name = name_of(letter.headers, letter.key, keys_are_names=keys_are_names)
        place = letter.partition, letter.offset
        if name is None or place in dismissed:
            continue
        named = letter.partition, letter.key, name
        if named in last:
            older.add(last[named])
        last[named] = place
    return older


def name_of(headers: Headers, key: bytes | None, *, keys_are_names: bool) -> bytes | None:
    """Return the name of a message; None if it has none."""
    return next((value for name, value in headers if name == NAME), key if keys_are_names else None)


def sent_again(
    letter: DeadLetter, dead: str, to: str, *, keys_are_names: bool = False
) -> tuple[OutgoingRecord, OutgoingRecord]:
    """Return the records to write for a dead letter.

    Args:
        letter: the dead letter.
        dead: its dead-letter topic.
        to: the topic to send it to.
        keys_are_names: whether that is an intake which takes the key for a name.

    Returns:
        The original message, and the note for the dead-letter topic.
    """
    record = _record_of(letter, dead, to)
    if name_of(record.headers, record.key, keys_are_names=keys_are_names) is not None:
        headers = [*(one for one in record.headers if one[0] != IF), (IF, b"absent")]
        record = record._replace(headers=headers)
    return record, OutgoingRecord(dead, letter.partition, None, None, [(REDRIVEN_OFFSET, b"%d" % letter.offset)])


def dismissed(dead: str, partition: int, offset: int) -> OutgoingRecord:
    """Return the note that dismisses a dead letter: it counts as done, and nothing is sent."""
    return OutgoingRecord(dead, partition, None, None, [(REDRIVEN_OFFSET, b"%d" % offset), (DISMISSED, None)])


def _record_of(letter: DeadLetter, dead: str, to: str) -> OutgoingRecord:
    try:
        journey = journey_of(letter.headers)
    except HeaderError:
        journey = None
    # An intake's dead letter: keep the request headers. Those of a journey are its sender's, if it has some.
    if journey is None or letter.text(TARGET) or dead == to + DEAD:
        headers = [one for one in letter.headers if one[0] not in {ERROR, ERROR_DETAIL, NEXT}]
        return OutgoingRecord(to, -1, letter.key, letter.value, headers)
    headers = [
        *(one for one in own_headers(letter.headers) if one[0] not in {ERROR, ERROR_DETAIL}),
        (ID, journey.id.encode()),
        (RETRY_REDRIVEN, f"{dead}/{journey.ticket.episode}".encode()),
    ]
    # Back to its original partition, whatever partitioner its producer used.
    at_home = any(source.rsplit("/", 2)[0] == to for source in letter.text(RETRY_SOURCE))
    return OutgoingRecord(to, journey.partition if at_home else -1, letter.key, letter.value, headers)
