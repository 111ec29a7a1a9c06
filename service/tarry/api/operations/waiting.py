"""Cancelling and moving many messages that wait: which ones a dry run finds, and the steps of the operation.

A message has the same partition and offset in the intake wherever it waits. So an operation looks for its messages in
all logs, holds those that it finds (as many as a dry run takes at most), and handles them by due time. A message that
moves to another log meanwhile is looked for again.

Kafka has a cancel when its transaction is committed; the service decides whether it came in time, as for any cancel.
"""

from collections.abc import Callable, Iterator, Sequence
from itertools import chain
from typing import Final

from tarry.api.looking.due import FOREVER_MS
from tarry.api.looking.paging import MOST_MS, MOST_RECORDS, Wanted, read_page
from tarry.api.operations.moving import moved_message
from tarry.api.operations.pick import Pick
from tarry.api.operations.picked import Bits
from tarry.api.operations.records import Act, Asked
from tarry.api.operations.steps import Left, Step
from tarry.client.record import to_cancel, to_record
from tarry.client.rescheduling import refuse_itself
from tarry.client.retry.core.message import OutgoingRecord
from tarry.clock import Clock
from tarry.config import Config
from tarry.core.progress.source import INTAKE
from tarry.core.request.intake_policy import IntakePolicy
from tarry.core.request.reader import RequestReader
from tarry.errors import HeaderError
from tarry.handle import Handle
from tarry.kafka.inspector import DueSpan, Inspector, Waiting

MOST: Final = 20_000
"""How many messages an operation is about at most; so many are held while it runs."""

MOST_PICKED: Final = 500
"""How many messages can be chosen by their handles."""

AT_ONCE: Final = 200
BYTES_AT_ONCE: Final = 4 * 2**20
ROUNDS: Final = 3
"""How often messages are looked for that have moved."""


def pick_waiting(
    inspector: Inspector,
    settings: Config,
    clock: Clock,
    intake: str,
    topic_id: str,
    act: Act,
    wanted: Wanted,
    may: Callable[[str | None], bool],
) -> Pick[Waiting]:
    """Find the messages that are wanted, about those that are due first.

    Args:
        inspector: reads the logs.
        settings: the configuration.
        clock: wall and monotonic time.
        intake: the intake.
        topic_id: the id of its topic.
        act: what to do with them.
        wanted: which messages.
        may: whether messages for a target may be changed.

    Raises:
        UsageError: there is no such intake.
        BrokerError: Kafka does not answer.
    """
    pick: Pick[Waiting] = Pick(topic_id, MOST)
    not_found = len(wanted.handles or ())
    for found in _waiting(inspector, settings, clock, intake, wanted, may, pick):
        not_found -= 1
        if found.due_ms is None or found.kind != "message":
            pick.left_out["will-be-dead"] += 1
        elif act is Act.MOVE and found.repeated is not None:
            pick.left_out[Left.SCHEDULE] += 1
        elif pick.take((found.place[1], found.sequence), found, found.target):
            pick.first_ms = min(pick.first_ms or found.due_ms, found.due_ms)
            pick.last_ms = max(pick.last_ms, found.due_ms)
    if pick.is_whole and not_found > 0:
        pick.left_out["not-found"] = not_found
    return pick


def _waiting(
    inspector: Inspector,
    settings: Config,
    clock: Clock,
    intake: str,
    wanted: Wanted,
    may: Callable[[str | None], bool],
    pick: Pick[Waiting],
) -> Iterator[Waiting]:
    """Yield the messages of one page after the other, until there are enough or the time is over."""
    end_ms, cursor, left = clock.monotonic_ms() + MOST_MS, None, MOST
    while True:
        within_ms = max(end_ms - clock.monotonic_ms(), 0)
        # By due time also where a page of the console would not sort.
        page = read_page(inspector, settings, clock, intake, wanted, cursor, left, within_ms, may, MOST_RECORDS)
        yield from page.found
        cursor, left = page.next, left - len(page.found)
        if cursor is None:
            return
        if left <= 0 or clock.monotonic_ms() >= end_ms:
            pick.is_whole = False
            return


class WaitingSteps:
    """The steps of an operation on messages that wait.

    Args:
        inspector: reads the logs.
        asked: the operation.
        policies: what the owners of the intake accept.
        clock: wall time.
    """

    def __init__(self, inspector: Inspector, asked: Asked, policies: Sequence[IntakePolicy], clock: Clock) -> None:
        self._inspector = inspector
        self._asked = asked
        self._policies = policies
        self._clock = clock
        self._cancelled: set[int] = set()
        """Of which of the messages that were found a cancel waits, too."""
        self._replaced: set[int] = set()
        """Which of them a newer one of their name replaces once the service reads it."""

    def steps(self, handled: Bits) -> Iterator[Step]:
        """Yield what to do with the messages that are not handled yet.

        Raises:
            UsageError: there is no such intake.
            BrokerError: Kafka does not answer.
        """
        for number in range(ROUNDS):
            found = self._found(handled)
            yield from self._of(found, is_last=number == ROUNDS - 1)
            if all(number in handled for number, _ in found):
                return

    def _found(self, handled: Bits) -> list[tuple[int, Waiting]]:
        """Return the messages that still wait, with their numbers, by due time."""
        asked, inspector = self._asked, self._inspector
        backlogs, states = inspector.look(asked.intake)
        backlogs = [one for one in backlogs if one.place[1] in asked.picked.partitions]
        requests = RequestReader(self._policies[0])
        span = DueSpan(asked.from_ms, min(asked.until_ms, FOREVER_MS))
        found: dict[int, Waiting] = {}
        cancels: dict[tuple[int, str, int | None], int] = {}
        names: dict[tuple[int, bytes], int] = {}
        # In the order in which messages move, so each that waits throughout is met.
        for one in chain(
            inspector.in_intake(backlogs, requests, states, to_now=True),
            inspector.in_levels(backlogs, states, span, to_now=True),
            inspector.in_parked(backlogs, states, to_now=True),
        ):
            if one.kind == "cancel":
                named = one.place[1], one.id, one.due_ms
                cancels[named] = max(cancels.get(named, 0), one.sequence)
            elif one.source == INTAKE and one.name is not None:
                names[one.place[1], one.name] = one.sequence
            number = asked.picked.number(one.place[1], one.sequence)
            if number is not None and number not in handled and one.kind == "message":
                found[number] = one
        self._cancelled = {
            number
            for number, one in found.items()
            if one.sequence < cancels.get((one.place[1], one.id, one.due_ms), -1)
        }
        self._replaced = {
            number
            for number, one in found.items()
            if one.name is not None and one.sequence < names.get((one.place[1], one.name), -1)
        }
        return sorted(found.items(), key=lambda pair: (pair[1].due_ms or 0, pair[0]))

    def _of(self, found: Sequence[tuple[int, Waiting]], *, is_last: bool) -> Iterator[Step]:
        step = Step()
        for number, one in found:
            if number in self._cancelled:
                step.leave(number, Left.CANCELLED)
            elif self._asked.act is Act.CANCEL:
                step.do(number, [self._cancel(one)])
            elif number in self._replaced:
                step.leave(number, Left.NOT_WAITING)
            else:
                self._move(step, number, one, is_last=is_last)
            if len(step) >= AT_ONCE or step.size_bytes >= BYTES_AT_ONCE:
                yield step
                step = Step()
        if len(step):
            yield step

    def _handle(self, found: Waiting) -> Handle:
        return Handle(self._asked.intake, found.place[1], found.due_ms or 0, found.id)

    def _cancel(self, found: Waiting) -> OutgoingRecord:
        handle = self._handle(found)
        record = to_cancel(handle)
        return OutgoingRecord(handle.topic, handle.partition, record.key, record.value, record.headers)

    def _move(self, step: Step, number: int, found: Waiting, *, is_last: bool) -> None:
        content, now_ms = self._inspector.content(found), self._clock.now_ms()
        if content is None or found.target is None:
            if is_last:
                step.leave(number, Left.MOVES)
            return
        at_ms = (found.due_ms or 0) + self._asked.by_ms
        if any(at_ms - now_ms > policy.max_delay_ms for policy in self._policies):
            step.leave(number, Left.BEYOND_MAX_DELAY)
            return
        message = moved_message(found, content, at_ms)
        if message.expires_at is not None and message.at is not None and message.expires_at < message.at:
            step.leave(number, Left.EXPIRED)
            return
        try:
            refuse_itself(self._handle(found), message, now_ms, self._policies[0].tick_ms)
            record = to_record(message, now_ms)
        except HeaderError:
            step.leave(number, Left.BAD_TIME)
            return
        sent = OutgoingRecord(self._asked.intake, -1, record.key, record.value, record.headers)
        # A name has one message: the new one takes the place of the old one.
        step.do(number, [sent] if message.name is not None else [self._cancel(found), sent])
