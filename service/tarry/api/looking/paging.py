"""Pages of messages that wait, by due time, and where there are too many, as they were filed.

A page reads the intake, the parked log, and the buckets of the overflow wheel one span of due times after the other,
until it is full. It keeps only the first messages that it meets, so its memory is that of a page, whatever waits. A
bucket that holds too much to be read for a page is a *crowd* (`tarry.api.looking.crowds`).

There is no index by target, key, or id: such a page reads on until its time, or the bytes that it may read, are over.
Then it says how far it came. Each page gets on by at least one span, so a search that goes on ends.
"""

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from heapq import heappush, heappushpop
from typing import Final, NamedTuple, Self

from tarry.api.looking.crowds import MOST, Costs, Crowd, begun, costs_of
from tarry.api.looking.cursor import BEGIN, MessageCursor, Position
from tarry.api.looking.due import FOREVER_MS, windows
from tarry.clock import Clock
from tarry.config import Config
from tarry.core.murmur2 import partition_of
from tarry.core.request.naming import hash_of
from tarry.core.request.reader import RequestReader
from tarry.handle import Handle
from tarry.kafka.backlog import Backlog
from tarry.kafka.backlog_index import DueRange
from tarry.kafka.inspector import DueSpan, Inspector, States, Waiting
from tarry.service.app import policy_at

PACE: Final = 100
"""After so many records of a crowd it is looked at the time."""

SEARCH_MS: Final = 500
"""How long a page reads on, unless it is told otherwise."""

MOST_MS: Final = 10_000
"""How long a page may be told to read on."""

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
        handles: only these, of the intake that is listed; None: any.
    """

    from_ms: int = 0
    until_ms: int = FOREVER_MS
    target: str | None = None
    key: bytes | None = None
    name: bytes | None = None
    id: str | None = None
    handles: frozenset[Handle] | None = None

    @classmethod
    def of_handles(cls, handles: Collection[Handle]) -> Self:
        """Return what lists the messages of some handles, one or more."""
        dues = [one.due_ms for one in handles]
        return cls(min(dues), max(dues) + 1, handles=frozenset(handles))

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
        if self.id is not None and self.id not in {found.id, schedule}:
            return False
        return self.handles is None or Handle(*found.place, found.due_ms or 0, found.id) in self.handles


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
        is_sorted: whether it is by due time among all that waits; else it is of a crowd.
    """

    found: list[Waiting]
    next: MessageCursor | None
    searched: int
    complete: bool
    is_sorted: bool = True


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
    crowd_from: int | None = None,
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
        crowd_from: a bucket that takes more records to read is a crowd; None: more than `MOST`.

    Raises:
        UsageError: there is no such intake.
        ProblemError: the cursor has expired.
        BrokerError: Kafka does not answer.
    """
    only = None if wanted.key is None or wanted.name is None else partition_of(wanted.key, inspector.partitions(intake))
    backlogs, states = inspector.look(intake)
    ends = [one.end for one in backlogs]
    now_ms = clock.now_ms()
    at = cursor.checked(intake, ends, now_ms) if cursor else MessageCursor(intake, ends, now_ms, BEGIN)
    if at.crowd is not None:
        at.crowd.check(backlogs)
    end_ms = clock.monotonic_ms() + within_ms
    requests = RequestReader(policy_at(settings, intake))
    scan = _Scan(inspector, backlogs, states, requests, at, wanted, most, sees, only, crowd_from or MOST)
    page = scan.page(lambda: clock.monotonic_ms() > end_ms)
    if at.crowd is not None:
        at.crowd.check(inspector.survey(intake))  # it may have been closed meanwhile, and met in two places
    return page


class _Scan:
    """The reading for one page."""

    def __init__(
        self,
        inspector: Inspector,
        backlogs: Sequence[Backlog],
        states: States,
        requests: RequestReader,
        at: MessageCursor,
        wanted: Wanted,
        most: int,
        sees: Callable[[str | None], bool],
        only: int | None,
        crowd_from: int,
    ) -> None:
        self._inspector = inspector
        self._all = backlogs
        self._backlogs = [one for one in backlogs if only is None or one.place[1] == only]
        self._requests = requests
        self._begun = at
        self._wanted = wanted
        self._most = most
        self._sees = sees
        self._crowd_from = crowd_from
        self._states = states
        self._searched = 0

    def page(self, is_over: Callable[[], bool]) -> Page:
        """Read until the page is full, or the time is over."""
        costs = costs_of(self._all, self._states)
        crowds = costs.crowds(self._all, self._crowd_from)
        at = self._begun
        while True:
            page = self._next(at, costs, crowds, is_over)
            if page.found or page.next is None or not page.complete or is_over():
                return page
            at = page.next

    def _next(self, at: MessageCursor, costs: Costs, crowds: Sequence[DueRange], is_over: Callable[[], bool]) -> Page:
        """Read on at a cursor: in a crowd, or by due time up to the next one."""
        crowd = at.crowd
        if crowd is not None and crowd.is_listed and at.after[0] >= crowd.until_ms:
            crowd = None
        after_ms = max(at.after[0], self._wanted.from_ms, 0)
        if crowd is None:
            here = next((one for one in crowds if _begins(one, at, after_ms)), None)
            crowd = None if here is None else begun(self._all, self._states, here)
        if crowd is not None and not crowd.is_listed:
            return self._of_crowd(at._replace(crowd=crowd), crowd, is_over)
        starts = (one.from_ms for one in crowds if one.from_ms > after_ms)
        until_ms = crowd.until_ms if crowd is not None else next(starts, FOREVER_MS)
        return self._by_due_time(at._replace(crowd=crowd), costs, until_ms, is_over)

    def _of_crowd(self, at: MessageCursor, crowd: Crowd, is_over: Callable[[], bool]) -> Page:
        """Read a crowd in the order of its log."""
        found: list[Waiting] = []
        for number in range(crowd.partition, len(crowd.below)):
            backlog = next((one for one in self._backlogs if one.place[1] == number), None)
            begin = crowd.offset if number == crowd.partition else 0
            if backlog is None:
                continue
            state = self._states[backlog.place]
            for one in self._inspector.in_bucket(backlog, state, crowd.bucket, begin, crowd.below[number]):
                is_full = len(found) == self._most
                if is_full or (self._searched and self._searched % PACE == 0 and is_over()):
                    rest = crowd._replace(partition=number, offset=one.offset)
                    return self._page_of(found, at._replace(crowd=rest), is_full=is_full)
                self._searched += 1
                if self._holds(one):
                    found.append(one)
        return self._page_of(found, at._replace(crowd=crowd._replace(partition=len(crowd.below))), is_full=True)

    def _page_of(self, found: list[Waiting], after: MessageCursor, *, is_full: bool) -> Page:
        return Page(sorted(found, key=position_of), after, self._searched, complete=is_full, is_sorted=False)

    def _by_due_time(self, at: MessageCursor, costs: Costs, until_ms: int, is_over: Callable[[], bool]) -> Page:
        """Read what is due before a time, or the rest of a crowd's range."""
        first = First(self._most + 1, at.after)
        until_ms = min(until_ms, self._wanted.until_ms)
        reached = self._read(first, at, costs, until_ms, is_over)
        end_ms = until_ms if reached is None else reached
        found = [one for one in first.sorted() if (one.due_ms or 0) < end_ms]
        if len(found) > self._most:
            found = found[: self._most]
            return Page(found, at._replace(after=position_of(found[-1])), self._searched, complete=True)
        if reached is None and until_ms >= self._wanted.until_ms:
            return Page(found, None, self._searched, complete=True)
        return Page(found, at._replace(after=(end_ms, -1, -1)), self._searched, complete=reached is None)

    def _read(
        self, first: First, at: MessageCursor, costs: Costs, until_ms: int, is_over: Callable[[], bool]
    ) -> int | None:
        """Read until a page is full; return the due time up to which all was read, or None if nothing is left."""
        self._take(first, at, self._inspector.in_intake(self._backlogs, self._requests, self._states, to_now=True))
        # Messages move from the levels to the parked log, so that is read last. It holds what is overdue: the page
        # before the first span can be full of it.
        after_ms = max(at.after[0], self._wanted.from_ms, 0)
        reached: int | None = None
        if costs.total <= MOST:
            self._take(first, at, self._levels(at, None))
        else:
            for number, span in enumerate(windows(costs.of_buckets, after_ms, until_ms, MOST)):
                if number and first.is_full and first.last_due_ms < span.from_ms:
                    break
                if number and (is_over() or self._searched > MOST_RECORDS):
                    reached = span.from_ms
                    break
                self._take(first, at, self._levels(at, DueSpan(span.from_ms, span.until_ms)))
        self._take(first, at, self._inspector.in_parked(self._backlogs, self._states, to_now=True))
        return reached

    def _levels(self, at: MessageCursor, span: DueSpan | None) -> Iterator[Waiting]:
        without = None if at.crowd is None else at.crowd.listed
        return self._inspector.in_levels(self._backlogs, self._states, span, to_now=True, without=without)

    def _take(self, first: First, at: MessageCursor, waiting: Iterator[Waiting]) -> None:
        for found in waiting:
            self._searched += 1
            if self._holds(found):
                if at.crowd is not None:
                    at.crowd.check_record(found)
                first.take(found)

    def _holds(self, found: Waiting) -> bool:
        is_there = found.sequence < self._begun.ends[found.place[1]]
        return is_there and self._wanted.holds(found) and self._sees(found.target)


def _begins(crowd: DueRange, at: MessageCursor, after_ms: int) -> bool:
    """Whether a crowd comes next: the listing begins in its range, or has come to its start."""
    is_first = at.after == BEGIN and crowd.from_ms <= after_ms < (crowd.until_ms or 0)
    return is_first or at.after == (crowd.from_ms, -1, -1)
