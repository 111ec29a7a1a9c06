"""The key queue: a failed message and the later messages of its key, until all are handled; pure.

When a message of key k fails, the consumer sends it to the intake, to come back after a wait, and k is *in trouble*.
Later messages of k must not overtake it: the consumer sends them to the intake too, to come back right after it. Such
an *episode* is named by the offset of the message that failed first. It numbers its messages 1, 2, 3, … in the order of
the topic. The *head* is the number of the message that may be handled now; the *tail* is the last number assigned. The
handler gets only the head. A message that comes back before its turn is sent again. A message that comes back after its
turn was already handled, and is skipped. When the head is greater than the tail, k is healthy.

    offset 17 of k fails                17 is sent as 1, due in 1 s       head 1  tail 1
    offset 18 of k is read              18 is sent as 2, same due time    head 1  tail 2
    1 comes back and is done                                              head 2  tail 2
    2 comes back and is done            healthy                           head 3  tail 2

No message of a key queue is due earlier than the ones sent before it, and messages with equal due times come back in
the order in which they were sent. So the queue mostly comes back in order. If it does not, the numbers restore the
order.

A message that came back before its turn may be impossible to send again, because the brokers refuse the record. Then it
is given up *early*, and its number is passed over when its turn comes.

Cost: each time a head fails, every message after it makes one more hop through the intake.
"""

import dataclasses
import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from typing import NamedTuple


class Ticket(NamedTuple):
    """A message's place in a key queue.

    Attributes:
        episode: the offset of the first message of its key that failed.
        number: its number in the episode, from 1.
    """

    episode: int
    number: int


@dataclass(frozen=True, slots=True)
class Trouble:
    """The state of a key in trouble.

    Attributes:
        episode: the offset of its first failed message.
        head: the number of the message that may be handled now.
        tail: the last number assigned.
        due_ms: the latest due time of the key queue's messages in flight, epoch milliseconds.
        head_due_ms: an upper bound of the head's due time; unlike `due_ms` it does not grow when messages after the
            head are sent again.
        stopped: whether the messages of the key go to the dead letters, without being handled.
        attempts: how often the head has failed; of a stopped key, the message that stopped it. For people.
        since_ms: when the first failed message failed first, epoch milliseconds; 0: not known. For people.
        early: the numbers between head and tail whose messages were given up before their turn.
    """

    episode: int
    head: int
    tail: int
    due_ms: int
    head_due_ms: int
    stopped: bool = False
    attempts: int = 0
    since_ms: int = 0
    early: tuple[int, ...] = ()

    @property
    def length(self) -> int:
        """The number of its messages on their way back."""
        return 0 if self.stopped else self.tail - self.head + 1 - len(self.early)


class HandleNow(NamedTuple):
    """Handle the message now; the ticket is None if the key is healthy."""

    ticket: Ticket | None


class SendOff(NamedTuple):
    """Send the message to the intake with this due time and ticket."""

    ticket: Ticket
    due_ms: int


class ToDeadLetters(NamedTuple):
    """Write the message to the dead letters: its key has stopped."""

    ticket: Ticket


class Skip(NamedTuple):
    """Skip the message: it was handled before."""


Decision = HandleNow | SendOff | ToDeadLetters | Skip
SKIP = Skip()


class KeyQueues:
    """The keys in trouble of one partition.

    Changes are tentative until `commit`; `abort` undoes them.

    Args:
        least_ms: the shortest delay of a message that is sent to the intake.
        troubles: the last committed states, by key.
    """

    def __init__(self, least_ms: int, troubles: Mapping[bytes, Trouble] | None = None) -> None:
        self._least_ms = least_ms
        self._troubles = dict(troubles or {})
        self._before: dict[bytes, Trouble | None] = {}

    def __len__(self) -> int:
        """Return the number of keys in trouble."""
        return len(self._troubles)

    def of(self, key: bytes) -> Trouble | None:
        """Return the state of a key; None: it is healthy."""
        return self._troubles.get(key)

    def length(self, key: bytes) -> int:
        """Return the number of a key's messages on their way back."""
        trouble = self._troubles.get(key)
        return 0 if trouble is None else trouble.length

    def longest(self) -> int:
        """Return the length of the longest key queue."""
        return max((self.length(key) for key in self._troubles), default=0)

    # -- messages -----------------------------------------------------------------------------------------------------

    def read(self, key: bytes, now_ms: int, *, releases: int | None = None) -> Decision:
        """Decide about a message read from the topic.

        Args:
            key: its key.
            now_ms: the current time.
            releases: the episode of a redriven dead letter; a key that stopped in this episode or an earlier one
                continues. None: not redriven.
        """
        trouble = self._troubles.get(key)
        if trouble is not None and trouble.stopped and releases is not None and releases >= trouble.episode:
            self._set(key, None)
            trouble = None
        if trouble is None:
            return HandleNow(None)
        ticket = Ticket(trouble.episode, trouble.tail + 1)
        if trouble.stopped:
            self._set(key, replace(trouble, tail=ticket.number))
            return ToDeadLetters(ticket)
        due_ms = max(trouble.due_ms, now_ms + self._least_ms)
        self._set(key, replace(trouble, tail=ticket.number, due_ms=due_ms))
        return SendOff(ticket, due_ms)

    def came_back(self, key: bytes, ticket: Ticket, now_ms: int) -> Decision:
        """Decide about a message that has come back."""
        trouble = self._troubles.get(key)
        if trouble is None or ticket.episode != trouble.episode:
            return ToDeadLetters(ticket)  # its key stopped, and a redrive released it before this message came back
        if trouble.stopped:
            return ToDeadLetters(ticket)
        if ticket.number < trouble.head:
            return SKIP
        if ticket.number == trouble.head:
            return HandleNow(ticket)
        due_ms = max(trouble.due_ms, now_ms + self._least_ms)
        self._set(key, replace(trouble, due_ms=due_ms))
        return SendOff(ticket, due_ms)

    def done(self, key: bytes, ticket: Ticket | None) -> None:
        """Note that a message was handled or given up; the next one may be handled."""
        if ticket is None:
            return
        trouble = self._troubles[key]
        head = ticket.number + 1
        while head in trouble.early:
            head += 1
        early = tuple(number for number in trouble.early if number > head)
        following = replace(trouble, head=head, head_due_ms=trouble.due_ms, attempts=0, early=early)
        self._set(key, None if head > trouble.tail else following)

    def give_up_early(self, key: bytes, ticket: Ticket) -> None:
        """Note that a message after the head is given up, because it cannot be sent again."""
        trouble = self._troubles[key]
        early, tail = {*trouble.early, ticket.number}, trouble.tail
        while tail in early:  # nothing is behind it
            early.discard(tail)
            tail -= 1
        self._set(key, replace(trouble, tail=tail, early=tuple(sorted(early))))

    def again(self, key: bytes, offset: int, ticket: Ticket | None, due_ms: int, now_ms: int) -> SendOff:
        """Note that a message failed and will be retried.

        Args:
            key: its key.
            offset: its offset in the topic; used only without a ticket.
            ticket: its ticket; None: its key was healthy.
            due_ms: the due time of the next attempt.
            now_ms: the current time.
        """
        if ticket is None:
            self._set(key, Trouble(offset, 1, 1, due_ms, due_ms, attempts=1, since_ms=now_ms))
            return SendOff(Ticket(offset, 1), due_ms)
        trouble = self._troubles[key]
        due_ms = max(due_ms, trouble.due_ms)
        self._set(key, replace(trouble, due_ms=due_ms, head_due_ms=due_ms, attempts=trouble.attempts + 1))
        return SendOff(ticket, due_ms)

    def stop(self, key: bytes, offset: int, ticket: Ticket | None, now_ms: int) -> Ticket:
        """Note that a message failed permanently and that its key stops; return the message's ticket."""
        if ticket is None:
            ticket = Ticket(offset, 1)
            self._set(key, Trouble(offset, 2, 1, 0, 0, stopped=True, attempts=1, since_ms=now_ms))
        else:
            trouble = self._troubles[key]
            attempts = trouble.attempts + 1
            self._set(key, replace(trouble, head=ticket.number + 1, stopped=True, attempts=attempts, early=()))
        return ticket

    def overdue(self, before_ms: int) -> Iterable[tuple[bytes, Trouble]]:
        """Return the keys whose head was due before a time."""
        return [(key, t) for key, t in self._troubles.items() if not t.stopped and t.head_due_ms < before_ms]

    # -- transactions -------------------------------------------------------------------------------------------------

    def changed(self) -> dict[bytes, Trouble | None]:
        """Return the keys that a transaction must write, with their states; None: healthy."""
        return {
            key: self._troubles.get(key) for key, before in self._before.items() if self._troubles.get(key) != before
        }

    def commit(self) -> None:
        """Note that the changes are written."""
        self._before.clear()

    def abort(self) -> None:
        """Undo the changes since the last commit."""
        for key, before in self._before.items():
            if before is None:
                self._troubles.pop(key, None)
            else:
                self._troubles[key] = before
        self._before.clear()

    def _set(self, key: bytes, trouble: Trouble | None) -> None:
        self._before.setdefault(key, self._troubles.get(key))
        if trouble is None:
            self._troubles.pop(key, None)
        else:
            self._troubles[key] = trouble


_FIELDS = frozenset(field.name for field in dataclasses.fields(Trouble))


_VERSION = 1
_VERSION_WITH_EARLY = 2
"""An older consumer would wait for the numbers that were given up early, so it must refuse the state."""


def encode(trouble: Trouble) -> bytes:
    """Return the value of the state record."""
    fields = asdict(trouble)
    if trouble.early:
        fields = {"v": _VERSION_WITH_EARLY, **fields}
    else:
        del fields["early"]
        fields = {"v": _VERSION, **fields}
    return json.dumps(fields, separators=(",", ":")).encode()


def decode_trouble(value: bytes) -> Trouble:
    """Read a value of `encode`; fields that a later version may add are ignored.

    Raises:
        ValueError: it has another form or an unknown version.
    """
    fields = json.loads(value)
    if not isinstance(fields, dict) or fields.pop("v", None) not in (_VERSION, _VERSION_WITH_EARLY):
        raise ValueError(_unreadable(value))
    try:
        trouble = Trouble(**{name: found for name, found in fields.items() if name in _FIELDS})
        return replace(trouble, early=tuple(trouble.early))
    except TypeError as error:
        raise ValueError(_unreadable(value)) from error


def _unreadable(value: bytes) -> str:
    return (
        "not a state that this version of RetryingConsumer can read; a later version or another client has written it: "
        f"{value[:100]!r}"
    )
