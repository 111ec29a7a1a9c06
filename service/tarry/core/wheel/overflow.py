"""The overflow wheel of one partition, bucket by bucket.

Kafka holds the messages, `Levels` decides where each belongs, and `OverflowWheel` tracks where each bucket's records
are and how far they are done. The states of a bucket:

    open      messages are filed to it (`LevelLog`)
    closed    its records are read, and each is placed again (`ClosedRange`)
    drained   level 1: all records are in memory; above: all are committed one level lower, except dead letters that
              were refused
    done      each record has fired, is a dead letter, or is in another bucket, committed

A committed record of a level's log waits if and only if

- its offset is at or above the level's `low`
- it is due at or after the level's `done`, the start of the first bucket that is not done
- no done record of the journal from the wheel's `pointer` on names its bucket and its offset.

All three are in the checkpoint, so a recovery needs nothing else: where the records are, it learns from the logs.

If only a small part of a log waits, what waits at its beginning is filed again at its end (`Refiling`).
"""

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import accumulate
from operator import attrgetter
from typing import NamedTuple

from tarry.core.batch import FiledRun
from tarry.core.message import HeldMessage, OrderKey
from tarry.core.progress.checkpoint import Checkpoint
from tarry.core.progress.done_set import DoneSet
from tarry.core.progress.index import IndexPart
from tarry.core.progress.journal import Range
from tarry.core.progress.recovered import Buckets
from tarry.core.progress.source import INTAKE, PARKED, Source
from tarry.core.wheel.closed_range import ClosedRange, Span
from tarry.core.wheel.level_log import LevelLog, Strangers
from tarry.core.wheel.levels import Levels
from tarry.core.wheel.passes import Passes
from tarry.core.wheel.refiling import Refiling
from tarry.core.wheel.runs import joined

LEAST_OF_A_PASS = 10
"""The least number of typical messages that a pass has room for, so that it progresses even if memory is full."""

SLACK = 2
"""A range's first pass gets up to this many times the memory that its messages are estimated to take.

A recovery does not know how large the messages are. With this reserve, one pass is usually enough.
"""

MOST_REFILED = 200_000
"""At most this many offsets of a log are filed again at a time: a summary names each, in three bytes at most."""

SPARSE = 4
"""What waits at the beginning of a log is filed again if less than one part in `SPARSE` of its offsets waits."""

STRANGE = 0
"""The bucket of records that the service has not filed."""


_by_start: Callable[[ClosedRange], int] = attrgetter("span.start_ms")


class Upkeep(NamedTuple):
    """How often the service does what keeps the levels' logs short, and their index ready for a take-over.

    Attributes:
        refile_from: nothing is filed again in a log of fewer offsets than this, from the first one that waits to the
            end.
        tell_from: a filing tells the journal where earlier ones wrote if these are so many offsets of a log; a
            take-over reads what is not told.
        index_after: a whole index is not written more often than once in so many records of the journal.
    """

    refile_from: int = 100_000
    tell_from: int = 5_000
    index_after: int = 100


USUAL = Upkeep()


class ToRead(NamedTuple):
    """Something to read in the log of a level.

    Attributes:
        level: the level.
        range: what is read: a closed range, or records to be filed again; None for what is not known of the log.
        runs: the offsets to read, ascending.
    """

    level: int
    range: ClosedRange | Refiling | None
    runs: list[Range]


class OverflowWheel:
    """The overflow wheel of one partition.

    Args:
        checkpoint: the checkpoint of the take-over.
        buckets: what the take-over found in logs and journal.
    """

    def __init__(self, checkpoint: Checkpoint, buckets: Buckets) -> None:
        self._geometry = checkpoint.geometry
        self._found_from = checkpoint.wheel_pointer
        """The journal offset from which the recovery read."""
        self._journal_end = buckets.journal_end
        self.levels = Levels(checkpoint.geometry, checkpoint.closed_ms)
        begins = {level: max(low, buckets.spans.get(level, (0, 0))[0]) for level, low in enumerate(checkpoint.low, 1)}
        self._found_done = {
            source: done
            for source, done in buckets.done.items()
            if done.end > begins.get(source.level, done.end) and self._may_wait(checkpoint, source)
        }
        """For each bucket that may hold records, and of which none is known yet, the offsets that are done."""
        self._logs: dict[int, LevelLog] = {}
        for level, begin in begins.items():
            start, end = buckets.spans.get(level, (0, 0))
            index = buckets.index.get(level)
            if index is not None:
                index = index.up_to_doubt(checkpoint.closed_ms[level - 1] // checkpoint.geometry.width_of(level))
            strangers = Strangers(self._found_done.pop(Source(level, STRANGE), DoneSet()), self._found_from)
            self._logs[level] = LevelLog(level, start, begin, end, strangers, index)
        self._closed: dict[int, list[ClosedRange]] = {level: [] for level in self._logs}
        """For each level the closed ranges, by due time, from the first one on that is not done.

        Neighbours that are done are one range.
        """
        self._reading: list[ClosedRange] = []
        """Those that are not read, in the order of their closing."""
        self._marked: list[ClosedRange] = []
        """Those of which offsets were marked as done since the last commit."""
        self._recovering: ClosedRange | None = None
        self.refiling: Refiling | None = None
        """What is filed again now; one log at a time."""
        self._refiled: list[Refiling] = []
        """What was filed again, while the committed low watermark is below the cut: a recovery meets it there."""
        self.upkeep = USUAL
        self._last_source = INTAKE
        """The last answer of `source_of`: most records have the bucket of the one before."""
        self._refusing: set[int] = set()
        """The levels of which a record could not be filed again: they are left alone."""
        for level, log in self._logs.items():
            self._recover(log, checkpoint.done_ms[level - 1], checkpoint.closed_ms[level - 1])

    def _may_wait(self, checkpoint: Checkpoint, source: Source) -> bool:
        return source.bucket == STRANGE or self._start_ms(source) >= checkpoint.done_ms[source.level - 1]

    def _recover(self, log: LevelLog, done_ms: int, closed_ms: int) -> None:
        """Restore what a checkpoint lists as closed and not done, as one range."""
        span, width_ms = Span(log.level, done_ms, closed_ms), self._geometry.width_of(log.level)
        found = {one: done for one, done in self._found_done.items() if self._is_within(one, span)}
        for source in found:
            del self._found_done[source]
        runs = log.take(closed_ms // width_ms, done_ms // width_ms)
        if done_ms >= closed_ms:
            return
        if not log.is_surveyed:
            runs = joined([*runs, log.survey_closed(self._last_bucket(span))])
        if not runs:
            return
        one = ClosedRange(span, runs, None, self._found_from, found)
        self._add(one)
        if log.level == 1:
            self._recovering = one

    def _add(self, one: ClosedRange) -> None:
        self._closed[one.span.level].append(one)
        self._reading.append(one)
        self.levels.drain(one.span.level, one.span.start_ms)

    def _is_within(self, source: Source, span: Span) -> bool:
        return source.level == span.level and span.start_ms <= self._start_ms(source) < span.end_ms

    def _last_bucket(self, span: Span) -> int:
        return span.end_ms // self._geometry.width_of(span.level) - 1

    def _start_ms(self, source: Source) -> int:
        return source.bucket * self._geometry.width_of(source.level)

    @property
    def has_levels(self) -> bool:
        """Whether there is an overflow wheel."""
        return bool(self._logs)

    @property
    def is_recovering(self) -> bool:
        """Whether what a take-over found closed at level 1 is not read yet: its messages may be overdue."""
        return self._recovering is not None

    @property
    def can_be_left(self) -> bool:
        """Whether the reading of closed ranges may be interrupted here and continued later: not within a pass."""
        return not any(one.passes is not None and one.passes.is_scanning for one in self._reading)

    @property
    def in_buckets(self) -> dict[int, int]:
        """How many messages wait at each level, at most: what is not read yet is counted by its offsets."""
        counts = {level: log.count for level, log in self._logs.items()}
        for one in self._ranges():
            counts[one.span.level] += max(0, one.unread)
        return counts

    def due_by(self, instants_ms: Sequence[int]) -> list[int]:
        """Count the messages of buckets that end by each of these instants, at most, and all messages of buckets.

        What is not surveyed yet counts among all only, because its due times are not known.

        Args:
            instants_ms: ascending.

        Returns:
            A count for each instant, and one of all.
        """
        counts = [0] * (len(instants_ms) + 1)
        for level, log in self._logs.items():
            for bucket, count in log.counts():
                counts[bisect_left(instants_ms, (bucket + 1) * self.levels.width_ms(level))] += count
            counts[-1] += log.not_surveyed
        for one in self._ranges():
            counts[bisect_left(instants_ms, one.span.end_ms)] += max(0, one.unread)
        return list(accumulate(counts))

    def _ranges(self) -> Iterator[ClosedRange]:
        """Yield the closed ranges, the lowest level first."""
        for ranges in self._closed.values():
            yield from ranges

    # -- filing -----------------------------------------------------------------------------------------------------

    def bucket_for(self, due_ms: int) -> Source:
        """Return the bucket that a message goes to.

        Raises:
            ValueError: the message is hot.
        """
        bucket = self.levels.bucket_for(due_ms)
        if bucket is None:
            raise ValueError(f"a message due at {due_ms} is hot and has no bucket")
        return Source(bucket.level, bucket.start_ms // self.levels.width_ms(bucket.level))

    def end_of(self, level: int) -> int:
        """Return one above the last offset of a level's log that is known."""
        return self._logs[level].end

    def filed(self, runs: Iterable[FiledRun]) -> None:
        """Note the records that a committed transaction has written to open buckets.

        Args:
            runs: where they are, in the order of writing.
        """
        levels = set()
        for source, first, end, count in runs:
            self._logs[source.level].filed(source.bucket, first, end, count)
            levels.add(source.level)
        for level in levels:
            self._logs[level].end_transaction()

    # -- closing ----------------------------------------------------------------------------------------------------

    @property
    def _incoming(self) -> int:
        """The number of messages that closed ranges of level 1 will still bring into memory."""
        return sum(max(0, one.unread) for one in self._reading if one.span.level == 1 and one.passes is None)

    @property
    def _is_behind_passes(self) -> bool:
        """Whether a range is larger than memory: closing another one would take the room of its passes."""
        return any(one.passes is not None and one.passes.is_oversized for one in self._reading)

    def close(self, room: int, now_ms: int) -> bool:
        """Close the buckets whose time has come. No message may be on its way to a bucket.

        Args:
            room: the number of messages of level 1 that memory has room for; one bucket may hold more.
            now_ms: wall time.

        Returns:
            Whether a bucket was closed. The checkpoint must then be committed before messages are filed by the new
            bounds.
        """
        some = False
        if self.refiling is not None and self.refiling.is_given_up:
            self._end_refiling(self.refiling)
        room -= self._incoming
        unknown = [level for level, log in self._logs.items() if not log.is_surveyed]
        while (bucket := self.levels.next_to_close(now_ms, unknown)) is not None:
            level, start_ms = bucket
            log, number = self._logs[level], start_ms // self.levels.width_ms(level)
            if log.holds_any(number):
                room -= log.count_of(number) if level == 1 else 0
                if level == 1 and (self._is_behind_passes or (room < 0 and self.levels.is_draining(1))):
                    break
                self._close(log, number, Span(level, start_ms, self.levels.end_ms(bucket)))
            elif (found := self._found_done.pop(Source(level, number), None)) is not None:
                self._remember(Span(level, start_ms, self.levels.end_ms(bucket)), found)
            self.levels.close(bucket)
            some = True
        return some

    def _close(self, log: LevelLog, number: int, span: Span) -> None:
        source = Source(span.level, number)
        if self.refiling is not None and self.refiling.level == span.level:
            self._end_refiling(self.refiling)
        # After a recovery from an old copy, a bucket that the copy lists as open may have been drained in part.
        found = self._found_done.pop(source, None)
        pointer = self._journal_end if found is None else self._found_from
        runs = log.close(number)
        done = {} if found is None else {source: found}
        self._add(ClosedRange(span, list(runs), runs.count, pointer, done))

    def _remember(self, span: Span, done: DoneSet) -> None:
        """Remember a bucket that was drained before a recovery, as long as one before it is not done."""
        if self._closed[span.level]:
            source = Source(span.level, self._last_bucket(span))
            one = ClosedRange(span, done.ranges(), 0, self._found_from, {source: done})
            self._closed[span.level].append(one)
            self._retire(one)

    # -- draining ---------------------------------------------------------------------------------------------------

    @property
    def gate(self) -> OrderKey:
        """The key, by due time and offset in the intake, from which on no message may fire yet."""
        gate = (self.levels.hot_below_ms, -1)
        for one in self._reading:
            if one.span.level == 1:
                gate = min(gate, one.gate)
        return gate

    def source_of(self, level: int, due_ms: int) -> Source:
        """Return the bucket that a record in a level's log belongs to."""
        last, bucket = self._last_source, due_ms // self.levels.width_ms(level)
        if last.bucket != bucket or last.level != level:
            self._last_source = last = Source(level, bucket)
        return last

    def range_of(self, level: int, due_ms: int) -> ClosedRange | None:
        """Return the closed range that a record in a level's log belongs to; None if its bucket is open, or done."""
        ranges = self._closed[level]
        at = bisect_right(ranges, due_ms, key=_by_start) - 1
        return ranges[at] if at >= 0 and ranges[at].covers(due_ms) else None

    def survey(self, level: int, offset: int, due_ms: int) -> bool:
        """Note a record in a level's log that was read: if its bucket is open, it is known from now on.

        Returns:
            Whether the log is as this index of it says: it has no record of the service where there should be none.
        """
        log = self._logs[level]
        if log.is_in_gap(offset):
            return False
        if self.levels.is_open(level, due_ms):
            log.survey(due_ms // self.levels.width_ms(level), offset)
        return True

    def meet(self, level: int, offset: int) -> bool:
        """Note a record that the service has not filed; return whether it is to become a dead letter."""
        log = self._logs[level]
        return offset >= log.committed_low and log.strangers.meet(offset, self._journal_end)

    def to_read(self, room_bytes: int, typical_bytes: int) -> Iterator[ToRead]:
        """Yield what is to be read.

        Args:
            room_bytes: free memory. A range of level 1 that probably holds more is read in passes.
            typical_bytes: the average size of a message.
        """
        room = room_bytes // typical_bytes
        for log in self._logs.values():
            if unknown := log.unknown():
                yield ToRead(log.level, None, unknown)
        if (again := self.refiling) is not None and not (again.is_given_up or again.is_read):
            yield ToRead(again.level, again, again.left_to_read())
        for one in self._reading:
            if one.passes is not None:
                if one.passes.is_scanning:
                    yield ToRead(one.span.level, one, one.left_to_read())
            else:
                if one.span.level == 1:
                    room -= self._begin(one, room, typical_bytes)
                yield ToRead(one.span.level, one, one.left_to_read())

    def _begin(self, one: ClosedRange, room: int, typical_bytes: int) -> int:
        """Begin to read a range of level 1, in passes if it may not fit; return how many messages it may bring now."""
        # A recovery does not know how large messages are: what it found may exceed the memory.
        if one.is_begun or (one is not self._recovering and one.unread <= room):
            one.is_begun = True
            return one.unread
        some = max(min(room, one.unread * SLACK), LEAST_OF_A_PASS)
        one.passes = Passes(one.span.start_ms, some * typical_bytes)
        return some

    @property
    def is_refiling(self) -> bool:
        """Whether records are read to be filed again."""
        return self.refiling is not None and not self.refiling.is_given_up

    @property
    def reserved_bytes(self) -> int:
        """The memory that the current passes may still take."""
        return sum(one.passes.room_bytes for one in self._reading if one.passes is not None)

    def begin_pass(self, limit_bytes: int) -> None:
        """Begin the next pass over the range at the gate. Call this when all before the gate has fired or is parked."""
        unread = [one for one in self._reading if one.span.level == 1]
        first = min(unread, key=lambda one: one.gate, default=None)
        if first is not None and first.passes is not None and not first.passes.is_scanning:
            first.begin_pass(limit_bytes)

    def reach_end(self, read: ToRead) -> list[HeldMessage]:
        """Note that something was read to its end.

        Returns:
            The messages of a pass, if there was one.
        """
        if read.range is None:
            self._logs[read.level].read_unknown(read.runs[-1][1])
            return []
        if isinstance(read.range, Refiling):
            read.range.reach_end()
            self._finish_refiling()
            return []
        messages = read.range.reach_end()
        if read.range is self._recovering:
            self._recovering = None  # if more passes are needed, what the first one brought must fire before them
        self._advance(read.range)
        return messages

    # -- refiling -----------------------------------------------------------------------------------------------------

    def _consider_refiling(self, log: LevelLog, low: int) -> None:
        """Begin to file again what waits at the beginning of a log, if that frees much of it."""
        span, level = log.end - low, log.level
        if self.refiling is not None or span < self.upkeep.refile_from or level in self._refusing or log.unknown():
            return
        # What was filed again by a refiling that ended early is counted twice.
        count = log.count - sum(len(done) for source, done in self._found_done.items() if source.level == level)
        if count * SPARSE >= span:
            return
        most = min(span // 2, MOST_REFILED)
        cut = log.cut(low + most, (one.low for one in self._closed[level] if not one.is_retired))
        if (cut - low) * 2 < most:
            return
        if runs := log.below(cut):
            found = {source: done for source, done in self._found_done.items() if source.level == level}
            open_ms = self.levels.closed_ms[level - 1]
            self.refiling = Refiling(level, open_ms, runs, cut, self._journal_end, found)

    def give_up_refiling(self) -> None:
        """Leave the log alone from now on, because a record cannot be filed again: it waits for its bucket to close."""
        if self.refiling is not None:
            self.refiling.is_given_up = True
            self._refusing.add(self.refiling.level)

    def _end_refiling(self, refiling: Refiling) -> None:
        """End the refiling early. What it has read and not filed again still waits where it was."""
        self.refiling = None
        refiling.is_given_up = True
        if refiling.done:
            self._found_from = min(self._found_from, refiling.pointer) if self._found_done else refiling.pointer
        for source, ranges in refiling.done_ranges():
            self._found_done.setdefault(source, DoneSet()).add(ranges)

    def _finish_refiling(self) -> None:
        """If all below the cut is filed again, forget it."""
        refiling = self.refiling
        if refiling is None or not refiling.is_done:
            return
        self.refiling = None
        self._refiled.append(refiling)
        log, level = self._logs[refiling.level], refiling.level
        log.refiled(refiling.cut, refiling.moved)
        for source in [one for one in self._found_done if one.level == level]:
            found = self._found_done.pop(source).ranges()
            refiling.take_in(source, found, self._found_from)
            left = DoneSet(found, refiling.cut)
            if left.end:
                self._found_done[source] = left

    # -- done offsets -----------------------------------------------------------------------------------------------

    def mark(self, source: Source, offsets: Sequence[int]) -> None:
        """Mark offsets as done, tentatively."""
        if source.bucket == STRANGE:
            self._logs[source.level].strangers.mark(offsets)
        elif self.levels.is_open(source.level, self._start_ms(source)):
            assert self.refiling is not None, "what is read of an open bucket is filed again"  # noqa: S101
            self.refiling.mark(source, offsets)
        else:
            one = self._of(source)
            one.ledger.mark(offsets)
            self._marked.append(one)

    def unmark(self, source: Source, offsets: Sequence[int]) -> None:
        """Remove marks: their transaction aborted."""
        if source.bucket == STRANGE:
            self._logs[source.level].strangers.unmark(offsets)
        else:
            self._of(source).ledger.unmark(offsets)

    def _of(self, source: Source) -> ClosedRange:
        found = self.range_of(source.level, self._start_ms(source))
        assert found is not None, "a record is handled until its range is done"  # noqa: S101
        return found

    def stay(self, source: Source, offset: int) -> None:
        """Note that a record is not moved down: it stays until it is done, and closing below does not wait for it."""
        if 1 < source.level < PARKED and source.bucket != STRANGE:
            one = self._of(source)
            one.staying.add(offset)
            self._advance(one)

    def make_final(self) -> None:
        """Make the marks final, because they are committed."""
        marked, self._marked = self._marked, []
        for one in marked:
            one.ledger.make_final()
            self._advance(one)
        self._finish_refiling()

    def _advance(self, one: ClosedRange) -> None:
        if one.is_read and one in self._reading:
            self._reading.remove(one)
        if not one.is_drained and (one.is_moved if one.span.level > 1 else one.is_read):
            one.is_drained = True
            self.levels.drained(one.span.level, one.span.start_ms)
        if one.is_done and not one.is_retired:
            self._retire(one)

    def _retire(self, one: ClosedRange) -> None:
        """Forget a range that is done, or remember it while one before it is not done."""
        one.retire()
        ranges = self._closed[one.span.level]
        at = ranges.index(one)
        for last in (at + 1, at):
            if 0 < last < len(ranges) and ranges[last].is_retired and ranges[last - 1].is_retired:
                ranges[last - 1].absorb(ranges.pop(last))
        if ranges[0].is_retired:
            del ranges[0]

    # -- the index in the journal -----------------------------------------------------------------------------------

    @property
    def run_count(self) -> int:
        """The number of runs of open buckets."""
        return sum(log.run_count for log in self._logs.values())

    def news(self, least: int = 1) -> list[IndexPart]:
        """Return what the journal does not tell of yet, of logs of which that is at least so many offsets."""
        return [part for log in self._logs.values() if (part := log.news(least)) is not None]

    def parts_with(self, counts: Mapping[int, int]) -> list[IndexPart]:
        """Return what a transaction that files records tells of itself: how far the logs reach then, at least.

        A new owner may be told too low an end of a log, by a leader that has just been elected or has just been
        replaced. It waits then until the log ends where the journal says.

        Args:
            counts: how many records it files, by level.
        """
        return [self._logs[level].part_with(count) for level, count in counts.items()]

    def reaches(self) -> list[IndexPart]:
        """Return how far the logs reach: the whole index may have to end before that."""
        return [log.reach() for log in self._logs.values()]

    def whole_index(self) -> list[IndexPart]:
        """Return all that is known of the logs."""
        return [log.whole(self._closed_runs(level)) for level, log in self._logs.items()]

    def _closed_runs(self, level: int) -> Iterator[tuple[int, Iterable[Range]]]:
        for one in self._closed[level]:
            if not one.is_retired:
                yield self._last_bucket(one.span), one.runs

    def told(self, parts: Iterable[IndexPart]) -> None:
        """Note that these are in the journal, committed."""
        for part in parts:
            self._logs[part.level].told(part)

    # -- the checkpoint ---------------------------------------------------------------------------------------------

    @property
    def pointer(self) -> int:
        """The journal offset from which a recovery of the wheel must read; 0 if there is none."""
        if not self._logs:
            return 0
        pointers = [one.pointer for one in self._ranges()]
        pointers += [log.strangers.pointer for log in self._logs.values() if not log.strangers.is_empty]
        pointers += [one.pointer for one in self._refilings()]
        return min([*pointers, self._found_from] if self._found_done else pointers, default=self._journal_end)

    def note_journal_end(self, end: int) -> None:
        """Note an end of the journal that was requested earlier, for the pointers of buckets that are closed later."""
        self._journal_end = max(self._journal_end, end)

    def _refilings(self) -> list[Refiling]:
        return self._refiled if self.refiling is None else [*self._refiled, self.refiling]

    def done_ranges(self) -> Iterator[tuple[Source, Iterable[Range]]]:
        """Yield the offsets that are done, for each bucket of which a recovery reads the journal."""
        for source, done in self._found_done.items():
            yield source, done.ranges()
        for one in self._refilings():
            yield from one.done_ranges()
        for log in self._logs.values():
            if ranges := log.strangers.done_ranges():
                yield Source(log.level, STRANGE), ranges
        for closed in self._ranges():
            yield from closed.done_ranges()

    def sum_up(self, journal_end: int) -> None:
        """Advance the pointers: `done_ranges` was written again, at or after this end of the journal."""
        self._found_from = max(self._found_from, journal_end)
        for one in self._ranges():
            one.pointer = max(one.pointer, journal_end)
        for again in self._refilings():
            again.pointer = max(again.pointer, journal_end)
        for log in self._logs.values():
            log.strangers.pointer = max(log.strangers.pointer, journal_end)

    @property
    def done_ms(self) -> tuple[int, ...]:
        """For each level the start of the first bucket that is not done."""
        return tuple(
            self._closed[level][0].span.start_ms if self._closed[level] else closed_ms
            for level, closed_ms in enumerate(self.levels.closed_ms, 1)
        )

    @property
    def low(self) -> tuple[int, ...]:
        """For each level the first offset of its log that is not done."""
        return tuple(
            log.low(one.low for one in self._closed[level] if not one.is_retired) for level, log in self._logs.items()
        )

    def note(self, lows: Sequence[int]) -> None:
        """Note that a checkpoint with these low watermarks, one of each level, is committed."""
        for log, low in zip(self._logs.values(), lows, strict=True):
            log.note(low)
            self._consider_refiling(log, low)
        self._refiled = [one for one in self._refiled if one.cut > self._logs[one.level].committed_low]

    @property
    def is_low_uncommitted(self) -> bool:
        """Whether more is done than the committed checkpoint says."""
        return any(low > log.committed_low for log, low in zip(self._logs.values(), self.low, strict=True))

    def to_trim(self) -> dict[int, int]:
        """Return the levels whose logs may be trimmed, and below which offset: the committed checkpoint says so."""
        return {level: log.committed_low for level, log in self._logs.items() if log.committed_low > log.trimmed}

    @property
    def untrimmed(self) -> int:
        """The number of offsets that may be trimmed and are not trimmed yet."""
        return sum(log.committed_low - log.trimmed for log in self._logs.values())

    def trimmed(self, level: int, below: int) -> None:
        """Note that the log of a level was trimmed."""
        log = self._logs[level]
        log.trimmed = max(log.trimmed, below)
