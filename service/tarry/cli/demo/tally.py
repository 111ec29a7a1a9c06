"""What was sent against what arrived: the demo's judge.

It knows of a message what the broker acknowledged to its sender, and of an arrival what a read_committed reader saw;
what the service says of itself it does not ask. The promises:

- never early: neither the record's timestamp nor the moment when it was seen lies before the due time;
- once: no second arrival of an id, and at the end an arrival for each;
- in order: of one key, by due time, and among equal due times by the place in the intake. That is promised to what the
  service had read before it was due, and judged where that is proven: by the arrival, until then, of a message that
  stands behind it in its partition.

Pure and for one thread: senders and readers hand in values, `now_ms` is an argument.
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
        key: decides its partition, and its place in an order.
        due_ms: when it is due.
        partition: of the intake; equal keys have the same one.
        offset: its place there.
    """

    id: str
    key: str
    due_ms: int
    partition: int
    offset: int


class Arrival(NamedTuple):
    """A record at the target.

    Args:
        id: its `tarry-id`; empty where it has none.
        stamp_ms: the record's timestamp.
        seen_ms: the reader's wall time when it had it.
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
    """From being due to being seen, in milliseconds; None before anything has arrived."""

    p50_ms: int | None
    p99_ms: int | None
    max_ms: int | None


class Tally:
    """Counts, and holds what waits.

    Args:
        recent: how many of the last deliveries to remember.
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
        self._unjudged: deque[Arrival] = deque()
        self._front: dict[str, tuple[int, int]] = {}
        self._stamps: defaultdict[int, list[tuple[int, int]]] = defaultdict(list)
        self._late: Counter[int] = Counter()

    @property
    def waiting(self) -> int:
        """How many were sent and have not arrived."""
        return len(self._waiting)

    @property
    def broken(self) -> int:
        """How often a promise was broken so far; what has not arrived yet does not count."""
        return self.twice + self.early + self.out_of_order + self.unexpected

    def add_sent(self, messages: Iterable[Sent]) -> None:
        """Take in what was acknowledged."""
        for message in messages:
            self.sent += 1
            self._waiting[message.id] = message
        self._judge()

    def add_arrivals(self, arrivals: Iterable[Arrival]) -> None:
        """Take in what was read, in the order of each partition."""
        self._unjudged.extend(arrivals)
        self._judge()

    def close(self) -> None:
        """Everything is in: an arrival that nobody sent is none of ours."""
        while self._unjudged:
            self._judge()
            if self._unjudged:
                self._unjudged.popleft()
                self.unexpected += 1

    def next_due(self, count: int) -> list[Sent]:
        """The messages that are due next, at most `count`."""
        return heapq.nsmallest(count, self._waiting.values(), key=_rank)

    def lateness(self) -> Lateness:
        """Percentiles (nearest rank) over all deliveries."""
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

    def _judge(self) -> None:
        """Judge arrivals in turn, up to the first whose acknowledgement is not in yet."""
        while self._unjudged:
            arrival = self._unjudged[0]
            message = self._waiting.pop(arrival.id, None)
            if message is not None:
                self._arrived[message.id] = message
                self._judge_first(message, arrival)
            elif arrival.id in self._arrived:
                self.twice += 1
            else:
                return
            self._unjudged.popleft()

    def _judge_first(self, message: Sent, arrival: Arrival) -> None:
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
