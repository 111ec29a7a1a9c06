"""Compares the messages that were sent with those that arrived, while they arrive, and counts broken promises.

The tally uses only what the brokers acknowledged to the sender and what a read_committed reader received. It uses
nothing that the service reports about itself. `tarry.testing.judge` knows the promises. The order of a message counts
where its acceptance before it was due is proven by what has arrived so far.

Pure, and for one thread: senders and readers pass in values.
"""

import heapq
from collections import defaultdict, deque
from collections.abc import Iterable
from typing import NamedTuple

from tarry.testing.judge import Acceptance, Judge, Report


class SentMessage(NamedTuple):
    """A message that the broker has acknowledged.

    Args:
        id: its `tarry-id`.
        key: its key; messages of one key have an order.
        due_ms: its due time.
        partition: its partition of the intake, which is the same for equal keys.
        offset: its offset in that partition.
    """

    id: str
    key: str
    due_ms: int
    partition: int
    offset: int

    @property
    def rank(self) -> tuple[int, int]:
        """Its place in the order of its key."""
        return self.due_ms, self.offset


class Arrival(NamedTuple):
    """A record at the target.

    Args:
        id: its `tarry-id`; empty if it has none.
        stamp_ms: the record's timestamp.
        seen_ms: the reader's wall time when it received the record.
    """

    id: str
    stamp_ms: int
    seen_ms: int


class Delivery(NamedTuple):
    """A message and its first arrival."""

    message: SentMessage
    late_ms: int


class RunTally:
    """The counts of a run, and the messages that have not arrived yet.

    Args:
        recent: the number of last deliveries to remember.
    """

    def __init__(self, recent: int = 5) -> None:
        self.report = Report()
        """The faults found so far. A message that has not arrived is lost only when the tally is closed."""
        self.is_closed = False
        self.recent: deque[Delivery] = deque(maxlen=recent)
        self._judge = Judge[SentMessage](self.report)
        self._waiting: dict[str, SentMessage] = {}
        self._arrived: dict[str, SentMessage] = {}
        self._unchecked: deque[Arrival] = deque()
        self._acceptances: defaultdict[int, Acceptance] = defaultdict(Acceptance)

    @property
    def waiting(self) -> int:
        """The number of messages that were sent and have not arrived."""
        return len(self._waiting)

    @property
    def delivered(self) -> int:
        """The number of messages that have arrived."""
        return len(self._arrived)

    def add_sent(self, messages: Iterable[SentMessage]) -> None:
        """Add messages that the broker has acknowledged."""
        for message in messages:
            self.report.sent += 1
            self._waiting[message.id] = message
        self._check()

    def add_arrivals(self, arrivals: Iterable[Arrival]) -> None:
        """Add records that the reader has received, in the order of each partition."""
        self._unchecked.extend(arrivals)
        self._check()

    def close(self) -> None:
        """End the tally: what belongs to no sent message is unexpected, and what has not arrived is lost."""
        self.is_closed = True
        while self._unchecked:
            self.report.add("unexpected", f"{self._unchecked.popleft()}")
            self._check()
        for message in self._waiting.values():
            self._judge.once(message, 0)

    def next_due(self, count: int) -> list[SentMessage]:
        """Return the messages that are due next, at most `count`."""
        return heapq.nsmallest(count, self._waiting.values(), key=lambda message: message.rank)

    def _check(self) -> None:
        """Check arrivals in their order, up to the first one whose acknowledgement has not been added yet."""
        while self._unchecked:
            arrival = self._unchecked[0]
            if (message := self._waiting.pop(arrival.id, None)) is not None:
                self._check_first(message, arrival)
            elif (message := self._arrived.get(arrival.id)) is not None:
                self._judge.once(message, 2)
            else:
                return
            self._unchecked.popleft()

    def _check_first(self, message: SentMessage, arrival: Arrival) -> None:
        self._arrived[message.id] = message
        self.recent.append(Delivery(message, arrival.seen_ms - message.due_ms))
        self._judge.never_early(message, arrival.stamp_ms, arrival.seen_ms)
        acceptance = self._acceptances[message.partition]
        acceptance.add(message.offset, arrival.stamp_ms)
        accepted_at = 0 if acceptance.by(message.offset) <= message.due_ms else None
        self._judge.in_order(message.key, message, len(self._arrived), accepted_at)
