"""Cancelling and moving many messages that wait: which ones a dry run finds, and the steps of the operation.

A message has the same partition and offset in the intake wherever it waits. So an operation looks for its messages in
all logs, holds those that it finds (as many as a dry run takes at most), and handles them by due time. A message that
moves to another log meanwhile is looked for again. Right before each transaction it reads what the intake has got
since, and leaves what others have cancelled or moved, and what is delivered now.

Kafka has a cancel when its transaction is committed; the service decides whether it came in time, as for any cancel.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING, Final

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
from tarry.kafka.inspector import DueSpan, Inspector, States, Waiting

if TYPE_CHECKING:
    from tarry.kafka.backlog import Backlog

MOST: Final = 20_000
"""How many messages an operation is about at most; so many are held while it runs."""

MOST_PICKED: Final = 500
"""How many messages can be chosen by their handles."""

AT_ONCE: Final = 200
BYTES_AT_ONCE: Final = 4 * 2**20
ROUNDS: Final = 3
"""How often messages are looked for that have moved."""

NEAR_MS: Final = 5_000
"""A message without a name that is due sooner is not moved: its cancel may come too late, and both be delivered."""


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
        elif act is Act.MOVE and found.name is None and is_near(found, clock.now_ms()):
            pick.left_out[Left.BEING_DELIVERED] += 1
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

    Messages are cancelled in the order of their due times. They are moved in the opposite order, so that none overtakes
    a later one of its key that is still to be moved; those that are due at the same time keep their order, and are
    moved in one transaction.

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
        self._found: dict[int, Waiting] = {}
        """The messages that were found, by their numbers."""
        self._backlogs: list[Backlog] = []
        """The partitions; each begins where the intake is not read yet."""
        self._states: States = {}
        self._cancels: dict[tuple[int, str, int | None], int] = {}
        """The offset of the last cancel, by partition, id and due time of the message."""
        self._names: dict[tuple[int, bytes], int] = {}
        """The offset of the last message that the service had not read, by partition and name."""

    def steps(self, handled: Bits) -> Iterator[Step]:
        """Yield what to do with the messages that are not handled yet; each step is for `look_again`.

        Raises:
            UsageError: there is no such intake.
            BrokerError: Kafka does not answer.
        """
        for _ in range(ROUNDS):
            self._find(handled)
            yield from self._of_found()
            if all(number in handled for number in self._found):
                return
        self._find(handled)
        moving = Step()
        for number in self._found:
            moving.leave(number, Left.MOVES)
        if len(moving):
            yield moving

    def look_again(self, step: Step) -> Step:
        """Return a step without the messages that must be left by now.

        Raises:
            BrokerError: Kafka does not answer.
        """
        for one in self._unread():
            self._note(one)
        checked = Step(left=list(step.left))
        for number, records in step.writes:
            why = self._why_left(number)
            if why is None:
                checked.do(number, records)
            else:
                checked.leave(number, why)
        return checked

    def _find(self, handled: Bits) -> None:
        """Find the messages that still wait."""
        asked, inspector = self._asked, self._inspector
        backlogs, states = inspector.look(asked.intake)
        backlogs = [one for one in backlogs if one.place[1] in asked.picked.partitions]
        self._found, self._backlogs, self._states = {}, backlogs, states
        self._cancels, self._names = {}, {}
        span = DueSpan(asked.from_ms, min(asked.until_ms, FOREVER_MS))
        # In the order in which messages move, so each that waits throughout is met.
        for one in chain(
            self._unread(),
            inspector.in_levels(backlogs, states, span, to_now=True),
            inspector.in_parked(backlogs, states, to_now=True),
        ):
            self._note(one)
            number = asked.picked.number(one.place[1], one.sequence)
            if number is not None and number not in handled and one.kind == "message":
                self._found[number] = one

    def _unread(self) -> Iterator[Waiting]:
        """Yield what the intake has beyond what was read of it."""
        backlogs, requests = self._backlogs, RequestReader(self._policies[0])
        ends = self._inspector.offsets.ends([one.place for one in backlogs], committed=False)
        # By the journals as they were at first: a cancel that the service has answered since is not to be missed.
        yield from self._inspector.in_intake(backlogs, requests, self._states, to_now=True)
        self._backlogs = [replace(one, low=max(one.low, ends[one.place])) for one in backlogs]

    def _note(self, one: Waiting) -> None:
        """Note what a cancel, or a message with a name, does to messages before it."""
        if one.kind == "cancel":
            named = one.place[1], one.id, one.due_ms
            self._cancels[named] = max(self._cancels.get(named, 0), one.sequence)
        elif one.source == INTAKE and one.name is not None:
            self._names[one.place[1], one.name] = max(self._names.get((one.place[1], one.name), 0), one.sequence)

    def _why_left(self, number: int) -> Left | None:
        """Return why a message that was found must be left, as far as the intake was read; None: it need not."""
        one = self._found[number]
        if one.sequence < self._cancels.get((one.place[1], one.id, one.due_ms), -1):
            return Left.CANCELLED
        if self._asked.act is Act.CANCEL:
            return None
        if one.name is not None:
            # A newer one of its name replaces it once the service reads that one.
            is_replaced = one.sequence < self._names.get((one.place[1], one.name), -1)
            return Left.NOT_WAITING if is_replaced else None
        return Left.BEING_DELIVERED if is_near(one, self._clock.now_ms()) else None

    def _of_found(self) -> Iterator[Step]:
        is_move = self._asked.act is Act.MOVE
        step, before_ms = Step(), None
        for number, one in sorted(self._found.items(), key=partial(_order, is_move=is_move)):
            is_full = len(step) >= AT_ONCE and (not is_move or one.due_ms != before_ms)
            if is_full or step.size_bytes >= BYTES_AT_ONCE:
                yield step
                step = Step()
            before_ms = one.due_ms
            if (why := self._why_left(number)) is not None:
                step.leave(number, why)
            elif is_move:
                self._move(step, number, one)
            else:
                step.do(number, [self._cancel(one)])
        if len(step):
            yield step

    def _handle(self, found: Waiting) -> Handle:
        return Handle(self._asked.intake, found.place[1], found.due_ms or 0, found.id)

    def _cancel(self, found: Waiting) -> OutgoingRecord:
        handle = self._handle(found)
        record = to_cancel(handle)
        return OutgoingRecord(handle.topic, handle.partition, record.key, record.value, record.headers)

    def _move(self, step: Step, number: int, found: Waiting) -> None:
        """Add the move of a message to a step, unless the message has just moved to another log."""
        content, now_ms = self._inspector.content(found), self._clock.now_ms()
        if content is None or found.target is None:
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


def is_near(found: Waiting, now_ms: int) -> bool:
    """Whether a message is due, or so soon that a cancel of it may come too late."""
    return (found.due_ms or 0) - now_ms < NEAR_MS


def _order(found: tuple[int, Waiting], *, is_move: bool) -> tuple[int, int]:
    number, one = found
    due_ms = one.due_ms or 0
    return (-due_ms if is_move else due_ms), number
