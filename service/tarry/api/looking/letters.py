"""Dead letters of an intake: which are open, by code and target, over time.

The topic is read once, and from then on only what is new. What is kept of a letter is small, and of the oldest letters
only a number is kept, so memory is bounded however many there are. A note that a letter was sent again, or dismissed,
takes it out of the counts.
"""

from collections import Counter, OrderedDict
from collections.abc import Callable
from typing import Final, NamedTuple

from confluent_kafka import Message

from tarry.api.looking.message import Content, content_of
from tarry.client.retry.core.redrive import Note, note_of
from tarry.clock import Clock
from tarry.headers import ERROR, ERROR_DETAIL, ID, NAME, TARGET
from tarry.kafka.inspector import Inspector
from tarry.kafka.record_headers import headers_of
from tarry.kafka.types import Place

MOST: Final = 20_000
"""How many letters are kept of an intake."""

MOST_KEPT_BYTES: Final = 512
"""How many bytes of a key, a name or a detail are kept."""

HOUR_MS: Final = 3_600_000
LOOK_MS: Final = 5_000
"""How long one look reads."""


class Letter(NamedTuple):
    """What is kept of a dead letter.

    Attributes:
        place: the partition of the topic of dead letters.
        offset: there.
        at_ms: when it was written.
        code: why.
        detail: one line.
        target: the target that the message had.
        id: of the message.
        key: its key, perhaps only the first bytes.
        name: its name.
        key_bytes: the length of the key.
        is_sent_again: whether it was redriven, or dismissed.
        is_dismissed: whether it was dismissed.
    """

    place: Place
    offset: int
    at_ms: int
    code: str
    detail: str
    target: str | None
    id: str | None
    key: bytes | None
    name: bytes | None
    key_bytes: int = 0
    is_sent_again: bool = False
    is_dismissed: bool = False

    @property
    def order(self) -> tuple[int, int, int]:
        """The place in the order of pages."""
        return self.at_ms, self.place[1], self.offset


def letter_of(content: Content) -> Letter | None:
    """Return what is kept of a record; None if it is a note about another one."""
    if note_of(content.key, content.value, content.headers) is not None:
        return None
    headers = dict(reversed(content.headers))  # the first of each name counts
    # Of these, the last one does: the others came with the message.
    headers |= {name: value for name, value in content.headers if name in {ERROR, ERROR_DETAIL}}
    key = content.key
    texts = {one: (headers.get(one) or b"")[:MOST_KEPT_BYTES].decode("utf-8", "backslashreplace") for one in _TEXTS}
    name = headers.get(NAME)
    return Letter(
        content.log,
        content.offset,
        max(content.at_ms, 0),
        texts[ERROR] or "unknown",
        texts[ERROR_DETAIL],
        texts[TARGET] or None,
        texts[ID] or None,
        None if key is None else key[:MOST_KEPT_BYTES],
        None if name is None else name[:MOST_KEPT_BYTES],
        len(key or b""),
    )


_TEXTS: Final = (ERROR, ERROR_DETAIL, TARGET, ID)


def noted(record: Message) -> Note | None:
    """Return what a record notes of a letter; None if it is no note."""
    return note_of(record.key(), record.value(), headers_of(record))


class Letters:
    """The dead letters of a topic. One thread at a time.

    Args:
        topic: the topic.
        most: how many letters are kept.
    """

    def __init__(self, topic: str, most: int = MOST) -> None:
        self.topic = topic
        self._most = most
        self._kept: OrderedDict[tuple[int, int], Letter] = OrderedDict()
        self._positions: dict[Place, int] = {}
        self.forgotten = 0
        """How many older letters are not kept."""
        self.is_whole = False
        """Whether all that the topic held at the last look was read."""

    def take(self, place: Place, record: Message) -> None:
        """Take a record."""
        if (note := noted(record)) is not None:
            found = self._kept.get((place[1], note.offset))
            if found is not None and not found.is_sent_again:
                is_dismissed = note.is_dismissed
                self._kept[place[1], note.offset] = found._replace(is_sent_again=True, is_dismissed=is_dismissed)
            return
        letter = letter_of(content_of(place, record))
        if letter is None:
            return
        self._kept[place[1], letter.offset] = letter
        if len(self._kept) > self._most:
            self._kept.popitem(last=False)
            self.forgotten += 1

    def look(self, inspector: Inspector, partitions: int, clock: Clock) -> None:
        """Read what is new, for `LOOK_MS` at most.

        Raises:
            BrokerError: Kafka does not answer.
        """
        logs = inspector.offsets.existing([(self.topic, number) for number in range(partitions)])
        if not logs:
            self.is_whole = True
            return
        starts, ends = inspector.offsets.starts(logs), inspector.offsets.ends(logs, committed=True)
        begins = {log: max(starts[log], self._positions.get(log, 0)) for log in logs}
        if any(self._positions.get(log, 0) > ends[log] for log in logs):  # the topic was recreated
            self._kept.clear()
            begins, self.forgotten = starts, 0
        until_ms = clock.monotonic_ms() + LOOK_MS
        for log, record in inspector.records(begins, ends):
            self.take(log, record)
            self._positions[log] = (record.offset() or 0) + 1
            if clock.monotonic_ms() > until_ms:
                self.is_whole = False
                return
        self._positions |= ends
        self.is_whole = True

    def seen(self, sees: Callable[[str | None], bool]) -> list[Letter]:
        """Return the letters whose target may be seen, the newest first."""
        return sorted((one for one in list(self._kept.values()) if sees(one.target)), key=_order, reverse=True)


def _order(letter: Letter) -> tuple[int, int, int]:
    return letter.order


def by_hour(letters: list[Letter]) -> list[tuple[int, int]]:
    """Return how many letters were written in each hour, the first hour first; hours without one are left out."""
    return sorted(Counter(one.at_ms // HOUR_MS * HOUR_MS for one in letters).items())
