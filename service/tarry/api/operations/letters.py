"""Redriving and dismissing many dead letters of an intake: which ones a dry run finds, and the steps of the operation.

A letter of which there is a note is done with, and notes come behind their letters. So the notes of a partition are
read first; they are one bit for each offset. Then the letters are read in their order.

Of several letters of a name only the youngest is sent, and no other one if it was sent before: it is what the sender
wants now, and an older one would bring back what is out of date. The others stay, until they are dismissed. A letter
that was dismissed does not count.
"""

from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass
from typing import Final

from confluent_kafka import Message

from tarry.api.looking.letters import Letter, letter_of, noted
from tarry.api.looking.message import content_of
from tarry.api.operations.pick import Pick
from tarry.api.operations.picked import Bits
from tarry.api.operations.records import Act, Asked
from tarry.api.operations.steps import Left, Step
from tarry.client.retry.core.redrive import (
    DeadLetter,
    Note,
    dismissed,
    name_of,
    sent_again,
    why_not_again,
    without_expired,
)
from tarry.clock import Clock
from tarry.headers import STUB
from tarry.kafka.inspector import Inspector
from tarry.kafka.record_headers import headers_of, read_headers
from tarry.kafka.topics import DEAD
from tarry.kafka.types import Place

MOST: Final = 100_000
"""How many letters an operation is about at most."""

WITHIN_MS: Final = 30_000
"""How long a dry run reads."""

AT_ONCE: Final = 500
BYTES_AT_ONCE: Final = 4 * 2**20
"""How many letters, and about how many bytes of them, one transaction holds."""


@dataclass(frozen=True, slots=True)
class WantedLetters:
    """Which letters.

    Attributes:
        code: only of this error code.
        target: only of this target; empty: only without one.
    """

    code: str | None = None
    target: str | None = None

    def hold(self, letter: Letter) -> bool:
        """Whether a letter is wanted."""
        is_code = self.code is None or letter.code == self.code
        return is_code and (self.target is None or (letter.target or "") == self.target)


def pick_letters(
    inspector: Inspector,
    intake: str,
    topic_id: str,
    wanted: WantedLetters,
    may: Callable[[str | None], bool],
    clock: Clock,
) -> Pick[Letter]:
    """Find the letters that are wanted and not done with.

    Args:
        inspector: reads the topic.
        intake: the intake.
        topic_id: the id of its topic of dead letters.
        wanted: which letters.
        may: whether letters for a target may be handled.
        clock: monotonic time.

    Raises:
        UsageError: there is no such intake.
        BrokerError: Kafka does not answer.
    """
    pick: Pick[Letter] = Pick(topic_id, MOST)
    logs = inspector.offsets.existing([(intake + DEAD, number) for number in range(inspector.partitions(intake))])
    if not logs:
        return pick
    starts, ends = inspector.offsets.starts(logs), inspector.offsets.ends(logs, committed=True)
    until_ms = clock.monotonic_ms() + WITHIN_MS
    for log in logs:
        done = Bits(ends[log] - starts[log])
        for note in _notes(inspector, log, starts[log], ends[log]):
            if note is not None:
                done.add(note.offset - starts[log])
            if clock.monotonic_ms() > until_ms:
                pick.is_whole = False
                return pick
        for _, record in inspector.records({log: starts[log]}, {log: ends[log]}):
            letter = letter_of(content_of(log, record))
            if letter is None or letter.offset - starts[log] in done or not wanted.hold(letter):
                continue
            if may(letter.target) and not pick.take((log[1], letter.offset), letter, letter.target, letter.code):
                return pick
            if clock.monotonic_ms() > until_ms:
                pick.is_whole = False
                return pick
    return pick


def _notes(inspector: Inspector, log: Place, start: int, end: int) -> Iterator[Note | None]:
    """Yield for each record the note that it is; None for another record."""
    for _, record in inspector.records({log: start}, {log: end}):
        yield noted(record)


def has_notes(inspector: Inspector, log: Place, start: int, end: int) -> bool:
    """Return whether one of these records is a note."""
    return start < end and any(note is not None for note in _notes(inspector, log, start, end))


class LetterSteps:
    """The steps of an operation on dead letters. Only while nobody else writes notes to the topic.

    Args:
        inspector: reads the topic.
        asked: the operation.
        keys_are_names: whether the intake takes the key for a name.
        clock: wall time.
    """

    def __init__(self, inspector: Inspector, asked: Asked, clock: Clock, *, keys_are_names: bool = False) -> None:
        self._inspector = inspector
        self._asked = asked
        self._keys_are_names = keys_are_names
        self._clock = clock

    def steps(self, handled: Bits) -> Iterator[Step]:
        """Yield what to do with the letters that are not handled yet.

        Raises:
            BrokerError: Kafka does not answer.
        """
        topic = self._asked.intake + DEAD
        for partition, offsets in self._asked.picked.partitions.items():
            log = topic, partition
            first = self._asked.picked.number(partition, offsets[0]) or 0
            left = [offset for number, offset in enumerate(offsets, first) if number not in handled]
            if not left:
                continue
            start = self._inspector.offsets.starts([log])[log]
            # Also what an open transaction hides, such as one of a service that was killed: reading waits for its end.
            end = self._inspector.offsets.ends([log], committed=False)[log]
            begin, until = max(start, left[0]), min(left[-1] + 1, end)
            if begin < until:
                yield from self._of_partition(log, begin, until, end, handled)

    def _of_partition(self, log: Place, begin: int, until: int, end: int, handled: Bits) -> Iterator[Step]:
        noted, dismissed = Bits(end - begin), Bits(end - begin)
        for note in _notes(self._inspector, log, begin, end):
            if note is not None:
                noted.add(note.offset - begin)
                if note.is_dismissed:
                    dismissed.add(note.offset - begin)
        youngest = self._youngest(log, begin, end, dismissed)
        at = begin
        while at < until:
            step = Step()
            # Closed before the step is executed: that may read the same log with the same reader.
            with closing(self._inspector.records({log: at}, {log: until})) as records:
                at = until
                for _, record in records:
                    offset = record.offset() or 0
                    number = self._asked.picked.number(log[1], offset)
                    if number is None or number in handled:
                        continue
                    if offset - begin in noted:
                        step.leave(number, Left.DONE_BY_OTHERS)
                    else:
                        self._handle(step, number, log, record, youngest)
                    if len(step) >= AT_ONCE or step.size_bytes >= BYTES_AT_ONCE:
                        at = offset + 1
                        break
            if len(step):
                yield step

    def _youngest(self, log: Place, begin: int, end: int, dismissed: Bits) -> dict[tuple[bytes | None, bytes], int]:
        """Return the last letter of each name that one of the letters has, by key and name; not a dismissed one."""
        found: dict[tuple[bytes | None, bytes], int] = {}
        if self._asked.act is not Act.REDRIVE:
            return found
        for _, record in self._inspector.records({log: begin}, {log: end}):
            offset = record.offset() or 0
            if offset - begin in dismissed:
                continue
            name = name_of(headers_of(record), record.key(), keys_are_names=self._keys_are_names)
            if name is not None and (
                (record.key(), name) in found or self._asked.picked.number(log[1], offset) is not None
            ):
                found[record.key(), name] = offset
        return found

    def _handle(
        self,
        step: Step,
        number: int,
        log: Place,
        record: Message,
        youngest: dict[tuple[bytes | None, bytes], int],
    ) -> None:
        offset = record.offset() or 0
        if self._asked.act is Act.DISMISS:
            step.do(number, [dismissed(log[0], log[1], offset)])
            return
        try:
            headers = list(read_headers(record) or [])
        except SystemError:  # a name that is not UTF-8: it cannot be written again
            step.leave(number, Left.NOT_UTF8)
            return
        letter = DeadLetter(log[1], offset, record.key(), record.value(), headers)
        name = name_of(headers, letter.key, keys_are_names=self._keys_are_names)
        if why_not_again(letter) is not None:
            step.leave(number, Left.STUB if letter.text(STUB) else Left.CANCEL_BY_NAME)
        elif name is not None and youngest.get((letter.key, name), offset) != offset:
            step.leave(number, Left.OLDER_OF_ITS_NAME)
        elif without_expired([letter], self._clock.now_ms()).expired:
            step.leave(number, Left.EXPIRED)
        else:
            step.do(number, sent_again(letter, log[0], self._asked.intake, keys_are_names=self._keys_are_names))
