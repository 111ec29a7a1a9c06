"""The parked log: messages that are due and have waited for their target for long, in the log `<intake>.parked`.

A target that is away must pin nothing. So its messages are filed to a log of their own, and are done where they came
from. Each target's messages are there in the order in which they are to be delivered, between those of other targets:

    offset    40 41 42 43 | 60 61 62
    target     A  A  B  B |  A  B  B         A reads 40 to 60, B 42 to 62

Which targets have messages there, and from which offset on, is in the journal. The parked records of filing
transactions add messages, and done records take them away; a summary repeats what is left. A number stands for the
target in the sources of done records. A later process may use it for another target, once all its messages are done.

So a process that takes over knows of each target only where its messages begin. Where the others are it learns from any
reading that passes them. Otherwise, each of many targets would read all of the log.
"""

from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain, islice

from tarry.core.batch import FiledRun
from tarry.core.progress.done_set import DoneSet
from tarry.core.progress.index import IndexPart
from tarry.core.progress.journal import ParkedEntry, ParkedRow, Range, whole
from tarry.core.progress.parked_records import FoundParked
from tarry.core.progress.source import PARKED, Source
from tarry.core.wheel.runs import add_run, clipped, joined


class TargetLog:
    """The messages of one target in the parked log.

    Args:
        target: the target's name.
        number: its number.
        pointer: an end of the journal from before its first message was filed.
    """

    __slots__ = (
        "_done",
        "_order",
        "_runs",
        "_vague",
        "found_done",
        "number",
        "pointer",
        "position",
        "target",
        "unread",
    )

    def __init__(self, target: str, number: int, pointer: int) -> None:
        self.target = target
        self.number = number
        self.pointer = pointer
        self.unread = 0
        """The number of messages that are in the log, and neither done nor held."""
        self.position = 0
        """The next offset to read."""
        self._runs: deque[Range] = deque()
        """Where the unread messages are; there may be those of other targets between them."""
        self._vague: list[Range] = []
        """Ranges of which a recovery does not know whether messages of this target are there."""
        self._order: deque[int] = deque()
        """The offsets of messages that were read, ascending, from the first one that is not done."""
        self._done: set[int] = set()
        """Those of them that are done."""
        self.found_done = DoneSet()
        """The offsets that a recovery found done."""

    @property
    def source(self) -> Source:
        """The source of its messages."""
        return Source(PARKED, self.number)

    @property
    def is_over(self) -> bool:
        """Whether all messages are done."""
        # Behind the last one, there may be messages of other targets, which are not read for this one.
        return not self._order and (not self._runs or self.unread == 0)

    @property
    def low(self) -> int:
        """The first offset that may not be done. Requires that not all are."""
        unread = [self.position] if self._runs else []
        return min([*unread, self._order[0]] if self._order else unread)

    def add(self, first: int, end: int, count: int) -> None:
        """Add messages behind all others."""
        if not self._runs:
            self.position = first
        add_run(self._runs, first, end)
        self.unread += count

    def recover(self, first: int, end: int, count: int, done: DoneSet) -> None:
        """Note what a recovery found: messages somewhere in a range, and which offsets of it are done."""
        self.add(first, end, count)
        self.found_done = done
        self._vague = [(first, end)]

    @property
    def is_vague(self) -> bool:
        """Whether it may be learned where some messages are."""
        return bool(self._vague) and bool(self._runs) and self.position < self._vague[-1][1]

    def learn(self, first: int, end: int, met: Iterable[Range]) -> None:
        """Note where messages are in a part of the log, which was read for another target.

        Args:
            first: the first offset of the part.
            end: one above the last one.
            met: where its messages are there that were not found done, ascending; those that are held, too.
        """
        part = max(first, self.position), end
        if not (self._runs and (known := list(clipped(self._vague, *part)))):
            return
        runs = [(self.position, self._runs[0][1]), *islice(self._runs, 1, None)]
        last = runs[-1][1]
        for one in known:
            self._vague = list(_without(self._vague, *one))
            runs = list(_without(runs, *one))
        runs += clipped(met, *part)
        # If messages are missing, that is noticed where it was read to its end.
        self._runs = deque(joined(runs) or [(last - 1, last)])
        self.position = self._runs[0][0]

    def next_run(self) -> Range | None:
        """Return what to read next; None if all was read."""
        return (self.position, self._runs[0][1]) if self._runs else None

    def is_wanted(self, offset: int) -> bool:
        """Whether one of its messages is to be read: it is not done, and not held, as a dead letter may be."""
        if offset in self.found_done:
            return False
        return not self._order or offset > self._order[-1] or offset not in self._order

    def read(self, offset: int) -> None:
        """Note that one of its messages was read, and is held from now on."""
        self.unread -= 1
        if self._order and offset < self._order[-1]:
            self._order = deque(sorted((*self._order, offset)))
        else:
            self._order.append(offset)

    def reach(self, position: int) -> None:
        """Note that the log was read up to an offset, which is at most the end of `next_run`."""
        self.position = position
        if self._runs and position >= self._runs[0][1]:
            self._runs.popleft()
            if self._runs:
                self.position = self._runs[0][0]

    def write_off(self) -> int:
        """Return how many messages are missing, and count them no more; 0 if not all was read.

        Negative: there were more than it knew of.
        """
        if self._runs:
            return 0
        missing, self.unread = self.unread, 0
        return missing

    def leave(self, offsets: Sequence[int]) -> None:
        """Note that the last messages that were read are not held any more: they are to be read again.

        Args:
            offsets: theirs, ascending.
        """
        gone = set(offsets)
        self._order = deque(offset for offset in self._order if offset not in gone)
        self.unread += len(offsets)
        if self._runs:
            self._runs[0] = self.position, self._runs[0][1]
        self._runs.appendleft((offsets[0], offsets[-1] + 1))
        self.position = offsets[0]

    def mark(self, offsets: Iterable[int]) -> None:
        """Mark messages that were read as done, tentatively."""
        self._done.update(offsets)

    def unmark(self, offsets: Iterable[int]) -> None:
        """Remove marks: their transaction aborted."""
        self._done.difference_update(offsets)

    def make_final(self) -> None:
        """Forget messages that are done, before the first one that is not: the marks are committed."""
        while self._order and self._order[0] in self._done:
            self._done.remove(offset := self._order.popleft())
            if self._runs and offset >= self.position:  # it is between messages that were left, and are read again
                self.found_done.add([(offset, offset + 1)])

    def done_ranges(self) -> list[Range]:
        """Return the offsets done above the low watermark, ascending: only offsets of its own messages."""
        done = DoneSet((offset, offset + 1) for offset in sorted(self._done))
        done.add(self._found_above_low())
        return done.ranges()

    def _found_above_low(self) -> list[Range]:
        """Return what a recovery found done, above the first message that is not, which may be held."""
        low = self.low
        return [(max(first, low), end) for first, end in self.found_done.ranges() if end > low]

    @property
    def row(self) -> ParkedRow:
        """The row for a summary, which is followed by `done_ranges`."""
        found = sum(end - first for first, end in self._found_above_low())
        return ParkedRow(self.number, self.low, self.unread + len(self._order) + found, self.target)


class ParkedLog:
    """The parked log of one partition.

    Args:
        found: what a recovery found in the journal.
        span: the first offset that the log holds, and its end.
        pointer: the journal offset from which the recovery read.
        journal_end: the journal's end when it began.
    """

    __slots__ = (
        "_end",
        "_filing_from",
        "_journal_end",
        "_logs",
        "_marked",
        "_names",
        "_next_number",
        "_numbers",
        "committed_low",
        "trimmed",
    )

    def __init__(self, found: Mapping[int, FoundParked], span: Range, pointer: int, journal_end: int) -> None:
        start, self._end = span
        self._journal_end = journal_end
        self.trimmed = start
        """The offset below which the log was trimmed."""
        self.committed_low = start
        """The low watermark at our last commit; nothing may be deleted above it.

        Until our first one, the log may hold messages of an owner that has taken over since the journal was read.
        """
        self._logs: dict[str, TargetLog] = {}
        self._numbers: dict[str, int] = {}
        """The numbers of all targets of which messages were filed, committed or not."""
        self._names: dict[int, str] = {}
        """The targets by number."""
        self._next_number = max(found, default=0) + 1
        self._marked: set[str] = set()
        self._filing_from: int | None = None
        """An end of the journal from before the record of the open transaction that files messages; None: no such."""
        for number, one in found.items():
            log = TargetLog(one.row.target, number, pointer)
            log.recover(max(one.row.first, start), self._end, one.row.messages, one.done)
            self._logs[one.row.target] = log
            self._name(one.row.target, number)

    def __iter__(self) -> Iterator[TargetLog]:
        return iter(self._logs.values())

    def of(self, target: str) -> TargetLog | None:
        """Return the messages of a target; None if it has none there that are not done."""
        return self._logs.get(target)

    def vague(self, target: str) -> dict[str, TargetLog]:
        """Return the other targets of which a reading for a target may find out where their messages are."""
        return {log.target: log for log in self._logs.values() if log.is_vague and log.target != target}

    def unread(self, target: str) -> int:
        """Return how many messages of a target are there, and are not held in memory."""
        log = self._logs.get(target)
        return 0 if log is None else log.unread

    # -- filing -------------------------------------------------------------------------------------------------------

    def source_of(self, target: str) -> Source:
        """Return the source of the messages of a target, which may be new."""
        if target not in self._numbers:
            self._name(target, self._next_number)
            self._next_number += 1
        return Source(PARKED, self._numbers[target])

    def _name(self, target: str, number: int) -> None:
        self._numbers[target] = number
        self._names[number] = target

    def begin_filing(self) -> None:
        """Note that a transaction that files messages is open; `end_filing` follows."""
        self._filing_from = self._journal_end

    def entry(self, runs: Iterable[FiledRun]) -> ParkedEntry:
        """Return the journal's record of a transaction that files messages.

        Args:
            runs: where they are in the log. A record that began before them would let a take-over read what was there.
        """
        return ParkedEntry(
            [ParkedRow(run.source.bucket, run.first, run.records, self._names[run.source.bucket]) for run in runs]
        )

    def reach(self) -> IndexPart:
        """Return what a summary says of how far the log reaches: its rows say only where the messages begin."""
        return IndexPart(PARKED, self._end, self._end, [])

    def filed(self, run: FiledRun) -> None:
        """Note messages of a target that a committed transaction wrote next to each other."""
        target = self._names[run.source.bucket]
        if target not in self._logs:
            pointer = self._journal_end if self._filing_from is None else self._filing_from
            self._logs[target] = TargetLog(target, run.source.bucket, pointer)
        self._logs[target].add(run.first, run.end, run.records)
        self._end = max(run.end, self._end)

    @property
    def end(self) -> int:
        """One above the last offset of the log that is known."""
        return self._end

    def end_filing(self) -> None:
        """Note that the transaction that files messages is over, and `filed` was told if it committed."""
        self._filing_from = None

    # -- done offsets -------------------------------------------------------------------------------------------------

    def mark(self, source: Source, offsets: Sequence[int]) -> None:
        """Mark offsets as done, tentatively."""
        target = self._names[source.bucket]
        self._logs[target].mark(offsets)
        self._marked.add(target)

    def unmark(self, source: Source, offsets: Sequence[int]) -> None:
        """Remove marks: their transaction aborted."""
        self._logs[self._names[source.bucket]].unmark(offsets)

    def make_final(self) -> None:
        """Make the marks final, because they are committed."""
        for target in self._marked:
            if (log := self._logs.get(target)) is None:
                continue
            log.make_final()
            self.tidy(log)
        self._marked.clear()

    def tidy(self, log: TargetLog) -> None:
        """Forget a target that was read to the end, if nothing of it is left."""
        if log.is_over:
            self._logs.pop(log.target, None)

    # -- the checkpoint -----------------------------------------------------------------------------------------------

    @property
    def pointer(self) -> int | None:
        """The journal offset from which a recovery must read; None if nothing is in the log, or on its way there."""
        pointers = [log.pointer for log in self._logs.values()]
        if self._filing_from is not None:
            pointers.append(self._filing_from)
        return min(pointers, default=None)

    def note_journal_end(self, end: int) -> None:
        """Note an end of the journal that was requested earlier."""
        self._journal_end = max(self._journal_end, end)

    def summary(self) -> Iterator[ParkedEntry]:
        """Return all that is in the log, as parked records; `done_ranges` must follow them in the journal."""
        return whole([self._bounded(log.row) for log in self._logs.values()]) if self._logs else iter(())

    def _bounded(self, row: ParkedRow) -> ParkedRow:
        """Count no more messages than the log has offsets.

        Somebody may have deleted messages that wait. They are missed only when the log is read, and until then no
        take-over must find that the log ends before the last one of so many.
        """
        return row._replace(messages=min(row.messages, self._end - row.first))

    def done_ranges(self) -> Iterator[tuple[Source, Iterable[Range]]]:
        """Yield for each target the offsets that are done above its first one that is not."""
        for log in self._logs.values():
            if ranges := log.done_ranges():
                yield log.source, ranges

    def sum_up(self, journal_end: int) -> None:
        """Advance the pointers: a summary was written at or after this end of the journal."""
        for log in self._logs.values():
            log.pointer = max(log.pointer, journal_end)

    def note(self) -> None:
        """Note that a transaction or a checkpoint of ours is committed: nobody had taken the partition over by then."""
        self.committed_low = max(self.committed_low, self.low)

    @property
    def low(self) -> int:
        """The first offset that may not be done; the log's end if all is."""
        return min(chain((self._end,), (log.low for log in self._logs.values())))


def _without(ranges: Iterable[Range], first: int, end: int) -> Iterator[Range]:
    """Return what is left of ranges without a part."""
    for one in ranges:
        yield from ((a, b) for a, b in ((one[0], min(one[1], first)), (max(one[0], end), one[1])) if a < b)
