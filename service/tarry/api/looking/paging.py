"""Pages of messages that wait, by due time.

A page reads the intake, the parked log, and the buckets of the overflow wheel one span of due times after the other,
until it is full. It keeps only the first messages that it meets, so its memory is that of a page, whatever waits.

There is no index by target, key, or id: such a page reads on until its time, or the bytes that it may read, are over.
Then it says how far it came. Each page gets on by at least one span, so a search that goes on ends.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from heapq import heappush, heappushpop
from itertools import chain
from typing import Final, NamedTuple

from tarry.api.looking.cursor import BEGIN, MessageCursor, Position
from tarry.api.looking.due import FOREVER_MS, windows
from tarry.clock import Clock
from tarry.config import Config
from tarry.core.murmur2 import partition_of
from tarry.core.request.naming import hash_of
from tarry.core.request.reader import RequestReader
from tarry.kafka.backlog import Backlog
from tarry.kafka.backlog_index import DueRange, bucket_counts
from tarry.kafka.inspector import DueSpan, Inspector, States, Waiting
from tarry.service.app import policy_at

AT_ONCE: Final = 20_000
"""How many records of the levels are read at once, about."""

SEARCH_MS: Final = 2_000
"""How long a page without a filter reads on."""

MOST_MS: Final = 10_000
"""How long a page with a filter may be told to read on."""

MOST_RECORDS: Final = 2_000_000
"""How many records a page reads at most before it says how far it came."""


class Wanted(NamedTuple):
    """Which messages a page lists.

    Attributes:
        from_ms: none that is due before.
        until_ms: none that is due from then on.
        target: for this target only; the beginning of its name if it ends with `*`.
        key: of this key only.
        name: of this name only; needs the key.
        id: of this id, or of the schedule with this id.
    """

    from_ms: int = 0
    until_ms: int = FOREVER_MS
    target: str | None = None
    key: bytes | None = None
    name: bytes | None = None
    id: str | None = None

    @property
    def is_scan(self) -> bool:
        """Whether all messages must be read to find those that are wanted."""
        return any(one is not None for one in (self.target, self.key, self.id))

    def holds(self, found: Waiting) -> bool:
        """Whether a message is wanted."""
        if found.kind not in {"message", "dead"} or not self.from_ms <= (found.due_ms or 0) < self.until_ms:
            return False
        if self.target is not None and not _named(found.target, self.target):
            return False
        if self.key is not None and found.key != self.key:
            return False
        if self.name is not None and found.name != hash_of(self.key or b"", self.name):
            return False
        schedule = None if found.repeated is None else found.repeated.schedule.decode()
        return self.id is None or self.id in {found.id, schedule}


def _named(target: str | None, wanted: str) -> bool:
    return (target or "").startswith(wanted[:-1]) if wanted.endswith("*") else target == wanted


@dataclass(slots=True)
class Page:
    """A page that was read.

    Attributes:
        found: its messages, by due time.
        next: the cursor of the next one; None: there is none.
        searched: how many records were read.
        complete: whether it is full, or all was read.
    """

    found: list[Waiting]
    next: MessageCursor | None
    searched: int
    complete: bool


def position_of(found: Waiting) -> Position:
    """Return the place of a message in the order of pages."""
    return found.due_ms or 0, found.place[1], found.sequence


class First:
    """The first messages behind a position, each once.

    Args:
        most: how many are kept.
        after: they come behind this position.
    """

    def __init__(self, most: int, after: Position) -> None:
        self._most = most
        self._after = after
        self._heap: list[tuple[Position, Waiting]] = []
        self._known: set[Position] = set()

    def take(self, found: Waiting) -> None:
        """Take a message."""
        position = position_of(found)
        if position <= self._after or position in self._known:
            return
        # A heap has its smallest entry first, and this one needs the largest first.
        entry = (tuple(-part for part in position), found)
        self._known.add(position)
        if len(self._heap) < self._most:
            heappush(self._heap, entry)  # type: ignore[misc]
        else:
            _, last = heappushpop(self._heap, entry)  # type: ignore[misc]
            self._known.discard(position_of(last))

    @property
    def is_full(self) -> bool:
        """Whether there are as many as are kept."""
        return len(self._heap) == self._most

    @property
    def last_due_ms(self) -> int:
        """The due time of the last one."""
        return -self._heap[0][0][0]

    def sorted(self) -> list[Waiting]:
        """Return them in order."""
        return sorted((found for _, found in self._heap), key=position_of)


def read_page(
    inspector: Inspector,
    settings: Config,
    clock: Clock,
    intake: str,
    wanted: Wanted,
    cursor: MessageCursor | None,
    most: int,
    within_ms: int = SEARCH_MS,
    sees: Callable[[str | None], bool] = lambda _target: True,
) -> Page:
    """Read a page.

    Args:
        inspector: reads the logs.
        settings: the configuration.
        clock: wall time for the cursor, monotonic time for the limit.
        intake: the intake.
        wanted: which messages.
        cursor: where the page begins; None: at the first message.
        most: the size of the page.
        within_ms: after this time the page says how far it came.
        sees: whether messages for a target may be listed.

    Raises:
        UsageError: there is no such intake.
        ProblemError: the cursor has expired.
        BrokerError: Kafka does not answer.
    """
    only = None if wanted.key is None or wanted.name is None else partition_of(wanted.key, inspector.partitions(intake))
    backlogs = inspector.survey(intake)
    ends = [one.end for one in backlogs]
    now_ms = clock.now_ms()
    begun = cursor.checked(intake, ends, now_ms) if cursor else MessageCursor(intake, ends, now_ms, BEGIN)
    if only is not None:
        backlogs = [one for one in backlogs if one.place[1] == only]
    scan = _Scan(inspector, backlogs, RequestReader(policy_at(settings, intake)), begun, wanted, most, sees)
    end_ms = clock.monotonic_ms() + within_ms
    reached = scan.run(lambda: clock.monotonic_ms() > end_ms)
    found = scan.first.sorted()
    if reached is not None:
        found = [one for one in found if (one.due_ms or 0) < reached]
    if len(found) > most:
        found = found[:most]
        return Page(found, begun._replace(after=position_of(found[-1])), scan.searched, complete=True)
    if reached is not None:
        return Page(found, begun._replace(after=(reached, -1, -1)), scan.searched, complete=False)
    return Page(found, None, scan.searched, complete=True)


class _Scan:
    """The reading for one page."""

    def __init__(
        self,
        inspector: Inspector,
        backlogs: Sequence[Backlog],
        requests: RequestReader,
        begun: MessageCursor,
        wanted: Wanted,
        most: int,
        sees: Callable[[str | None], bool],
    ) -> None:
        self._inspector = inspector
        self._backlogs = backlogs
        self._requests = requests
        self._begun = begun
        self._wanted = wanted
        self._sees = sees
        self.first = First(most + 1, begun.after)
        self.searched = 0

    def run(self, is_over: Callable[[], bool]) -> int | None:
        """Read until the page is full; return the due time up to which all was read, or None if nothing is left."""
        states = self._inspector.journals(self._backlogs)
        self._take(self._inspector.in_intake(self._backlogs, self._requests, states, to_now=True))
        # Messages move from the levels to the parked log, so that is read last. It holds what is overdue: the page
        # before the first span can be full of it.
        counts = _counted(self._backlogs, states)
        total = sum(counts.values())
        after_ms = max(self._begun.after[0], self._wanted.from_ms, 0)
        spans = list(windows(counts, after_ms, self._wanted.until_ms, AT_ONCE))
        reached: int | None = None
        if total <= AT_ONCE:
            self._take(self._levels(states, None))
        else:
            for number, span in enumerate(spans):
                if number and self.first.is_full and self.first.last_due_ms < span.from_ms:
                    break
                if number and (is_over() or self.searched > MOST_RECORDS):
                    reached = span.from_ms
                    break
                self._take(self._levels(states, DueSpan(span.from_ms, span.until_ms)))
        self._take(self._inspector.in_parked(self._backlogs, states, to_now=True))
        return reached

    def _levels(self, states: States, span: DueSpan | None) -> Iterator[Waiting]:
        return self._inspector.in_levels(self._backlogs, states, span, to_now=True)

    def _take(self, waiting: Iterator[Waiting]) -> None:
        for found in waiting:
            self.searched += 1
            is_there = found.sequence < self._begun.ends[found.place[1]]
            if is_there and self._wanted.holds(found) and self._sees(found.target):
                self.first.take(found)


def _counted(backlogs: Sequence[Backlog], states: States) -> dict[DueRange, int]:
    counts: dict[DueRange, int] = {}
    for due, count in chain.from_iterable(bucket_counts(one, states[one.place]) for one in backlogs):
        counts[due] = counts.get(due, 0) + count
    return counts
