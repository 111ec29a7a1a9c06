"""The transaction coordinator: ids, epochs, and markers, which reach each partition after a lag of its own."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from enum import Enum, auto
from functools import partial

from confluent_kafka import KafkaError

from tarry.kafka.types import Place
from tarry.testing.fake.groups import Groups
from tarry.testing.fake.refusals import Busy, RefusedRequest
from tarry.testing.fake.topics import Topics
from tarry.testing.manual_clock import ManualClock

RETRY_MS = 50
"""How long until the coordinator retries a marker that it could not write."""


class State(Enum):
    """The state of the transaction of one id."""

    EMPTY = auto()
    ONGOING = auto()
    ENDING = auto()
    """The transaction is decided, but not all markers are written."""


@dataclass(frozen=True, slots=True)
class Producer:
    """The producer that sends a request.

    Attributes:
        name: the transactional id.
        id: the producer id.
        epoch: the producer epoch.
    """

    name: str
    id: int
    epoch: int


@dataclass(slots=True)
class Transaction:
    """The successive transactions of one transactional id.

    Attributes:
        id: the producer id.
        timeout_ms: the time after which an open transaction is aborted.
        epoch: the producer epoch.
        state: the state of the current transaction.
        commits: whether the current or the last transaction was committed; None: no transaction in this epoch.
        number: the number of transactions so far.
        places: the partitions in the transaction.
        groups: the groups with offsets in the transaction.
        markers: the number of markers that are not written yet.
    """

    id: int
    timeout_ms: int
    epoch: int = -1
    state: State = State.EMPTY
    commits: bool | None = None
    number: int = 0
    places: dict[Place, None] = field(default_factory=dict)
    groups: dict[str, None] = field(default_factory=dict)
    markers: int = 0


class Transactions:
    """All transactional ids.

    Args:
        clock: for timeouts and markers.
        topics: the topics, whose logs get markers.
        groups: the groups, whose offsets get markers.
        running: returns whether the cluster runs.
        draw_lag_ms: draws how long a marker takes.
    """

    def __init__(
        self,
        clock: ManualClock,
        topics: Topics,
        groups: Groups,
        running: Callable[[], bool],
        draw_lag_ms: Callable[[], int],
    ) -> None:
        self._clock = clock
        self._topics = topics
        self._groups = groups
        self._running = running
        self._draw_lag_ms = draw_lag_ms
        self._transactions: dict[str, Transaction] = {}

    @property
    def ending(self) -> list[str]:
        """The ids whose last transaction is decided, but not all of its markers are written yet."""
        return [name for name, found in self._transactions.items() if found.state is State.ENDING]

    def producer_of(self, name: str) -> int:
        """Return the producer id of a transactional id that was registered."""
        return self._transactions[name].id

    def is_undecided(self, id_: int) -> bool:
        """Whether the transaction of a producer is open, and it is not decided how it ends."""
        return any(found.id == id_ and found.state is State.ONGOING for found in self._transactions.values())

    def register(self, name: str, timeout_ms: int) -> Producer:
        """Give a producer the next epoch, and abort the open transaction of an earlier producer.

        Raises:
            Busy: that transaction has not ended yet.
        """
        found = self._transactions.setdefault(name, Transaction(len(self._transactions) + 1, timeout_ms))
        if found.state is State.ONGOING:
            found.epoch += 1
            self._end(found, commit=False)
        self._wait_for_markers(found)
        found.timeout_ms = timeout_ms
        found.epoch += 1
        found.commits = None
        return Producer(name, found.id, found.epoch)

    def bump(self, producer: Producer) -> Producer:
        """Give a producer its next epoch, unless it is fenced.

        Raises:
            Refused: the producer is fenced.
            Busy: not all markers of its last transaction are written.
        """
        found = self.check(producer)
        found.epoch += 1
        found.commits = None
        return Producer(producer.name, found.id, found.epoch)

    def check(self, producer: Producer) -> Transaction:
        """Return the transaction of a producer that is not fenced.

        Raises:
            Refused: the producer is fenced.
            Busy: not all markers of its last transaction are written.
        """
        found = self._transactions[producer.name]
        if found.epoch != producer.epoch:
            raise RefusedRequest(KafkaError.INVALID_PRODUCER_EPOCH)
        self._wait_for_markers(found)
        return found

    def add(self, producer: Producer, places: Iterable[Place] = (), groups: Iterable[str] = ()) -> None:
        """Add partitions and groups to the transaction. The first call opens it.

        Raises:
            Refused: the producer is fenced.
            Busy: not all markers of its last transaction are written.
        """
        found = self.check(producer)
        if found.state is State.EMPTY:
            found.state = State.ONGOING
            found.number += 1
            late_ms = self._clock.monotonic_ms() + found.timeout_ms
            self._clock.call_at(late_ms, partial(self._time_out, found, found.number))
        found.places.update(dict.fromkeys(places))
        found.groups.update(dict.fromkeys(groups))

    def end(self, producer: Producer, *, commit: bool) -> None:
        """Commit or abort the transaction.

        Raises:
            Refused: the producer is fenced, or there is no open transaction and the last one ended differently.
            Busy: the transaction was already decided in the same way, and not all of its markers are written.
        """
        found = self._transactions[producer.name]
        if found.epoch != producer.epoch:
            raise RefusedRequest(KafkaError.INVALID_PRODUCER_EPOCH)
        if found.state is not State.ONGOING:
            if found.commits is not commit:
                raise RefusedRequest(KafkaError.INVALID_TXN_STATE)
            self._wait_for_markers(found)
            return
        self._end(found, commit=commit)

    @staticmethod
    def _wait_for_markers(found: Transaction) -> None:
        if found.state is State.ENDING:
            raise Busy(KafkaError.CONCURRENT_TRANSACTIONS, lambda: found.state is not State.ENDING)

    def _time_out(self, found: Transaction, number: int) -> None:
        if found.state is not State.ONGOING or found.number != number:
            return
        if not self._running():
            self._later(RETRY_MS, partial(self._time_out, found, number))
            return
        found.epoch += 1
        self._end(found, commit=False)

    def _end(self, found: Transaction, *, commit: bool) -> None:
        found.state = State.ENDING
        found.commits = commit
        marks = [partial(self._mark_log, found, place, commit=commit) for place in found.places]
        marks += [partial(self._mark_group, found, group, commit=commit) for group in found.groups]
        found.markers = len(marks)
        found.places, found.groups = {}, {}
        for mark in marks:
            lag_ms = self._draw_lag_ms()
            if lag_ms:
                self._later(lag_ms, mark)
            else:
                mark()

    def _mark_log(self, found: Transaction, place: Place, *, commit: bool) -> None:
        log = self._topics.find(place)
        if not self._running() or self._topics.keeps_markers_waiting(place):
            self._later(RETRY_MS, partial(self._mark_log, found, place, commit=commit))
            return
        if log is not None:
            log.mark(found.id, self._clock.now_ms(), commit=commit)
        self._count_marker(found)

    def _mark_group(self, found: Transaction, group: str, *, commit: bool) -> None:
        if not self._running():
            self._later(RETRY_MS, partial(self._mark_group, found, group, commit=commit))
            return
        self._groups.of(group).offsets.end(found.id, commit=commit)
        self._count_marker(found)

    @staticmethod
    def _count_marker(found: Transaction) -> None:
        found.markers -= 1
        if found.markers == 0:
            found.state = State.EMPTY

    def _later(self, ms: int, call: Callable[[], None]) -> None:
        self._clock.call_at(self._clock.monotonic_ms() + ms, call)
