"""The key queue: a key whose message failed, and all that follow it until it is well again; pure.

A message of key k fails. It is sent to come back after a wait, and k is *in trouble*: what follows of k does not
overtake it, but is sent after it, to come back right behind. Such an *episode* begins at the message that failed first,
whose offset names it, and numbers its messages 1, 2, 3, … in the order of the topic. The *head* is the number of the
one whose turn it is, the *tail* the last number given away. Nothing but the head is handled. One that comes back before
its turn is sent off again; one whose turn is over was done before, and is passed over. When the head is behind the
tail, k is healthy.

    offset 17 of k fails                17 goes off as 1, due in 1 s      head 1  tail 1
    offset 18 of k is read              18 goes off as 2, due with it     head 1  tail 2
    1 comes back and is done                                              head 2  tail 2
    2 comes back and is done            healthy                           head 3  tail 2

No message of a key queue is due earlier than those sent off before it, and messages that are due at the same time come
back in the order in which they were sent. So the queue mostly comes back in order; where it does not, the numbers
restore the order.

Cost: a message of the key queue makes one hop for each failure of a head in front of it.
"""

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from typing import NamedTuple


class Ticket(NamedTuple):
    """A message's place in a key queue.

    Attributes:
        episode: the offset of the first message of its key that failed.
        number: 1 for that one, and so on.
    """

    episode: int
    number: int


@dataclass(frozen=True, slots=True)
class Trouble:
    """A key that is in trouble.

    Attributes:
        episode: the offset of its first message that failed.
        head: the number whose turn it is.
        tail: the last number that was given away.
        due_ms: no message of the key queue that is on its way comes back later, epoch milliseconds.
        head_due_ms: the head does not, which those behind it may have to do again and again.
        stopped: nothing of it is handled any more.
    """

    episode: int
    head: int
    tail: int
    due_ms: int
    head_due_ms: int
    stopped: bool = False


class Handle(NamedTuple):
    """It is this message's turn; without a ticket where its key is healthy."""

    ticket: Ticket | None


class SendOff(NamedTuple):
    """It is to come back at a time, under this ticket."""

    ticket: Ticket
    due_ms: int


class Bury(NamedTuple):
    """Its key has stopped: it goes to the dead letters; without a ticket where it never was on its way."""

    ticket: Ticket


class PassOver(NamedTuple):
    """It was done before."""


Decision = Handle | SendOff | Bury | PassOver
PASS_OVER = PassOver()


class KeyQueues:
    """The keys in trouble of one partition.

    What changes is tentative until `commit`; `abort` takes it back.

    Args:
        least_ms: the shortest wait that anything is sent off for.
        troubles: as they were committed last, by key.
    """

    def __init__(self, least_ms: int, troubles: Mapping[bytes, Trouble] | None = None) -> None:
        self._least_ms = least_ms
        self._troubles = dict(troubles or {})
        self._before: dict[bytes, Trouble | None] = {}

    def __len__(self) -> int:
        """How many keys are in trouble."""
        return len(self._troubles)

    def of(self, key: bytes) -> Trouble | None:
        """What is known of a key; None: it is healthy."""
        return self._troubles.get(key)

    def length(self, key: bytes) -> int:
        """How many messages of a key are on their way."""
        trouble = self._troubles.get(key)
        return trouble.tail - trouble.head + 1 if trouble and not trouble.stopped else 0

    def longest(self) -> int:
        """How many messages of one key are on their way, at most."""
        return max((self.length(key) for key in self._troubles), default=0)

    # -- messages -----------------------------------------------------------------------------------------------------

    def read(self, key: bytes, now_ms: int, *, releases: int | None = None) -> Decision:
        """Decide on a message that is read from the topic.

        Args:
            key: its key.
            now_ms: the time.
            releases: the episode that it is sent again out of, where it was among the dead letters: a key that
                stopped in that one goes on.
        """
        trouble = self._troubles.get(key)
        if trouble is not None and trouble.stopped and releases is not None and releases >= trouble.episode:
            self._set(key, None)
            trouble = None
        if trouble is None:
            return Handle(None)
        ticket = Ticket(trouble.episode, trouble.tail + 1)
        if trouble.stopped:
            self._set(key, replace(trouble, tail=ticket.number))
            return Bury(ticket)
        due_ms = max(trouble.due_ms, now_ms + self._least_ms)
        self._set(key, replace(trouble, tail=ticket.number, due_ms=due_ms))
        return SendOff(ticket, due_ms)

    def came_back(self, key: bytes, ticket: Ticket, now_ms: int) -> Decision:
        """Decide on a message that has come back."""
        trouble = self._troubles.get(key)
        if trouble is None or ticket.episode != trouble.episode:
            return Bury(ticket)  # its key had stopped, and was let go on while this was on its way
        if trouble.stopped:
            return Bury(ticket)
        if ticket.number < trouble.head:
            return PASS_OVER
        if ticket.number == trouble.head:
            return Handle(ticket)
        due_ms = max(trouble.due_ms, now_ms + self._least_ms)
        self._set(key, replace(trouble, due_ms=due_ms))
        return SendOff(ticket, due_ms)

    def done(self, key: bytes, ticket: Ticket | None) -> None:
        """A message was handled, or is given up: it is the next one's turn."""
        if ticket is None:
            return
        trouble = self._troubles[key]
        is_last = ticket.number >= trouble.tail
        self._set(key, None if is_last else replace(trouble, head=ticket.number + 1, head_due_ms=trouble.due_ms))

    def again(self, key: bytes, offset: int, ticket: Ticket | None, due_ms: int) -> SendOff:
        """A message failed, and comes back.

        Args:
            key: its key.
            offset: its offset in the topic, where it has no ticket.
            ticket: its ticket; None: its key was healthy so far.
            due_ms: when it comes back.
        """
        if ticket is None:
            self._set(key, Trouble(offset, 1, 1, due_ms, due_ms))
            return SendOff(Ticket(offset, 1), due_ms)
        trouble = self._troubles[key]
        due_ms = max(due_ms, trouble.due_ms)
        self._set(key, replace(trouble, due_ms=due_ms, head_due_ms=due_ms))
        return SendOff(ticket, due_ms)

    def stop(self, key: bytes, offset: int, ticket: Ticket | None) -> Ticket:
        """A message failed for good, and nothing behind it is to be handled either; returns its ticket."""
        if ticket is None:
            ticket = Ticket(offset, 1)
            self._set(key, Trouble(offset, 2, 1, 0, 0, stopped=True))
        else:
            self._set(key, replace(self._troubles[key], head=ticket.number + 1, stopped=True))
        return ticket

    def overdue(self, before_ms: int) -> Iterable[tuple[bytes, Trouble]]:
        """Keys whose head should have come back before a time."""
        return [(key, t) for key, t in self._troubles.items() if not t.stopped and t.head_due_ms < before_ms]

    # -- transactions -------------------------------------------------------------------------------------------------

    def changed(self) -> dict[bytes, Trouble | None]:
        """What a transaction has to write: keys and how they are; None: healthy."""
        return {
            key: self._troubles.get(key) for key, before in self._before.items() if self._troubles.get(key) != before
        }

    def commit(self) -> None:
        """What changed is written."""
        self._before.clear()

    def abort(self) -> None:
        """What changed is not written: it is as it was."""
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


def encode(trouble: Trouble) -> bytes:
    """As the value of a record that keeps it."""
    fields = {"v": 1, **asdict(trouble)}
    return json.dumps(fields, separators=(",", ":")).encode()


def decode(value: bytes) -> Trouble:
    """Read back what `encode` has written.

    Raises:
        ValueError: it is something else, or of a version that is not known here.
    """
    fields = json.loads(value)
    if not isinstance(fields, dict) or fields.pop("v", None) != 1:
        raise ValueError(f"not the state of a key in trouble: {value[:100]!r}")
    try:
        return Trouble(**fields)
    except TypeError as error:
        raise ValueError(f"not the state of a key in trouble: {value[:100]!r}") from error
