"""Compares the messages that were sent with those that arrived, and counts broken promises.

The tally uses only what the brokers acknowledged to the sender and what a read_committed reader received. It uses
nothing that the service reports about itself. The promises:

- Never early: the record's timestamp and the time of its arrival are both at or after the due time.
- Once: no id arrives a second time, and at the end each id has arrived.
- In order: messages of one key arrive by due time, and at equal due times by their offset in the intake. The service
  promises this for a message that it had read before the message was due. The tally checks the order only where it has
  proof of that: a message of the same partition, with the same or a higher offset, was delivered at or before that due
  time.

Pure, and for one thread: senders and readers pass in values, and `now_ms` is an argument.
"""

import heapq
from collections import Counter, defaultdict, deque
from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple


class Sent(NamedTuple):
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

    message: Sent
    late_ms: int


@dataclass(frozen=True, slots=True)
class Lateness:
    """The time from a message's due time to its arrival, in milliseconds; None before the first arrival."""

    p50_ms: int | None
    p99_ms: int | None
    max_ms: int | None


class Tally:
    """The counts of a run, and the messages that have not arrived yet.

    Args:
        recent: the number of last deliveries to remember.
    """

    def __init__(self, recent: int = 5) -> None:
        self.sent = 0
        self.delivered = 0
        self.twice = 0
        self.early = 0
        self.out_of_order = 0
        self.unexpected = 0
        self.recent: deque[Delivery] = deque(maxlen=recent)
        self._waiting: dict[str, Sent] = {}
        self._arrived: dict[str, Sent] = {}
        self._unchecked: deque[Arrival] = deque()
        self._front: dict[str, tuple[int, int]] = {}
        self._stamps: defaultdict[int, list[tuple[int, int]]] = defaultdict(list)
        self._late: Counter[int] = Counter()

    @property
    def waiting(self) -> int:
        """The number of messages that were sent and have not arrived."""
        return len(self._waiting)

    @property
    def broken(self) -> int:
        """How often a promise was broken so far. A message that has not arrived yet does not count."""
        return self.twice + self.early + self.out_of_order + self.unexpected

    def add_sent(self, messages: Iterable[Sent]) -> None:
        """Add messages that the broker has acknowledged."""
        for message in messages:
            self.sent += 1
            self._waiting[message.id] = message
        self._check()

    def add_arrivals(self, arrivals: Iterable[Arrival]) -> None:
        """Add records that the reader has received, in the order of each partition."""
        self._unchecked.extend(arrivals)
        self._check()

    def close(self) -> None:
        """End the tally: count each arrival that belongs to no sent message as unexpected."""
        while self._unchecked:
            self._check()
            if self._unchecked:
                self._unchecked.popleft()
                self.unexpected += 1

    def next_due(self, count: int) -> list[Sent]:
        """Return the messages that are due next, at most `count`."""
        return heapq.nsmallest(count, self._waiting.values(), key=_rank)

    def lateness(self) -> Lateness:
        """Return percentiles (nearest rank) over all deliveries."""
        values = sorted(self._late)
        return Lateness(self._percentile(values, 50), self._percentile(values, 99), values[-1] if values else None)

    def _percentile(self, values: list[int], percent: int) -> int | None:
        rank = -(-self.delivered * percent // 100)
        below = 0
        for value in values:
            below += self._late[value]
            if below >= rank:
                return value
        return None

    def _check(self) -> None:
        """Check arrivals in their order, up to the first one whose acknowledgement has not been added yet."""
        while self._unchecked:
            arrival = self._unchecked[0]
            message = self._waiting.pop(arrival.id, None)
            if message is not None:
                self._arrived[message.id] = message
                self._check_first(message, arrival)
            elif arrival.id in self._arrived:
                self.twice += 1
            else:
                return
            self._unchecked.popleft()

    def _check_first(self, message: Sent, arrival: Arrival) -> None:
        self.delivered += 1
        late_ms = arrival.seen_ms - message.due_ms
        self._late[late_ms] += 1
        self.recent.append(Delivery(message, late_ms))
        if min(arrival.stamp_ms, arrival.seen_ms) < message.due_ms:
            self.early += 1
        self._stamps[message.partition].append((message.offset, arrival.stamp_ms))
        rank = _rank(message)
        front = self._front.get(message.key)
        if front is None or rank > front:
            self._front[message.key] = rank
        elif self._was_read_in_time(message):
            self.out_of_order += 1

    def _was_read_in_time(self, message: Sent) -> bool:
        return any(
            offset >= message.offset and stamp_ms <= message.due_ms
            for offset, stamp_ms in self._stamps[message.partition]
        )


def _rank(message: Sent) -> tuple[int, int]:
    return message.due_ms, message.offset
