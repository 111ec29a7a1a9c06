"""The log of one level: which of its open buckets hold records, and where; and up to which offset all of it is done.

The log is the truth, and this index of it may be lost. The runs of what this process files are known from the delivery
reports, and are *told* to the journal soon after. What a take-over finds in the log and the journal does not tell of is
*surveyed* once: each record is read, and belongs to a bucket by its own due time. Until then no bucket of the level is
closed.

    low ................ surveyed ............ survey end .......... end
    first offset that is         not known yet             filed since, known
    not done; the journal
    tells of what is here

Records that the service has not filed belong to no bucket. They become dead letters when they are met: in the survey,
among the records of a bucket, or in a gap. The records of a transaction stand next to each other, and one marker comes
after them. So any other *gap* between two runs holds something else: records that were aborted, or strangers. Gaps are
read as well.
"""

from collections.abc import Iterable, Iterator, Mapping
from itertools import chain
from operator import attrgetter
from typing import TYPE_CHECKING

from tarry.core.progress.done_set import DoneSet
from tarry.core.progress.index import FoundIndex, IndexPart, IndexRun, within
from tarry.core.wheel.runs import Runs, clipped, joined

if TYPE_CHECKING:
    from tarry.core.progress.journal import Range


MOST_UNTOLD = 10_000
"""The most runs of filings that are kept apart until the journal tells of them.

Nothing can be told of what is behind a stranger that is no dead letter yet.
"""


class Strangers:
    """The records of a level's log that the service has not filed.

    Args:
        found_done: the offsets of those that a recovery found done.
        pointer: the journal offset from which that recovery read.
    """

    __slots__ = ("_done", "_held", "pointer")

    def __init__(self, found_done: DoneSet, pointer: int) -> None:
        self._held: set[int] = set()
        self._done = found_done
        self.pointer = pointer
        """An end of the journal from before any of them was done."""

    @property
    def first_held(self) -> int | None:
        """The first offset that is not done; None if there is none."""
        return min(self._held, default=None)

    @property
    def is_empty(self) -> bool:
        """Whether none must be remembered."""
        return not self._held and not self._done.end

    def meet(self, offset: int, journal_end: int) -> bool:
        """Note that one was read; return whether it is to become a dead letter: it is not one yet, and not done."""
        if offset in self._held or offset in self._done:
            return False
        if self.is_empty:
            self.pointer = journal_end
        self._held.add(offset)
        return True

    def mark(self, offsets: Iterable[int]) -> None:
        """Mark some as done, tentatively."""
        for offset in offsets:
            self._held.discard(offset)
            self._done.add([(offset, offset + 1)])

    def unmark(self, offsets: Iterable[int]) -> None:
        """Remove marks: their transaction aborted."""
        gone = set(offsets)
        self._held |= gone
        kept = [offset for start, end in self._done.ranges() for offset in range(start, end) if offset not in gone]
        self._done = DoneSet([(offset, offset + 1) for offset in kept], 0)

    def forget(self, low: int) -> None:
        """Forget those below an offset below which all of the log is done."""
        if self._done.end and self._done.end <= low:
            self._done = DoneSet()

    def done_ranges(self) -> "list[Range]":
        """Return the offsets of those that are done."""
        return self._done.ranges()


def _index_runs(of: Mapping[int, Runs]) -> Iterator[IndexRun]:
    """Yield the runs of buckets as the index names them."""
    return (IndexRun(bucket, *row) for bucket, runs in of.items() for row in runs.rows())


def _joined(some: Iterable[IndexRun]) -> list[IndexRun]:
    """Return runs, with those of a bucket joined that are close to each other."""
    found: dict[int, Runs] = {}
    for bucket, *run in sorted(some, key=attrgetter("first")):
        found.setdefault(bucket, Runs()).add(*run)
    return list(_index_runs(found))


class LevelLog:
    """What is known of one level's log.

    Args:
        level: the level.
        start: the first offset that the log holds.
        begin: the offset below which all is done.
        end: the log's end when the take-over began.
        strangers: the records that the service has not filed.
        found: what the journal tells of the log; None if nothing.
    """

    __slots__ = (
        "_committed_low",
        "_gaps",
        "_marker",
        "_most_untold",
        "_runs",
        "_surveyed",
        "_told_to",
        "_untold",
        "end",
        "is_surveyed",
        "level",
        "strangers",
        "survey_end",
        "surveyed_to",
        "trimmed",
    )

    def __init__(
        self, level: int, start: int, begin: int, end: int, strangers: Strangers, found: FoundIndex | None = None
    ) -> None:
        self.level = level
        self.end = max(begin, end)
        """One above the last offset that is known."""
        known = found if found is not None and begin <= found.end <= self.end else FoundIndex(begin)
        self.surveyed_to = known.end
        self.survey_end = self.end
        self.is_surveyed = self.surveyed_to >= self.survey_end
        """Whether all records are known that a take-over found; not before it was read to its end."""
        self.strangers = strangers
        self._runs: dict[int, Runs] = {}
        for run in within(known.runs, begin, known.end):
            self._add(run)
        self._untold: list[IndexRun] = []
        """The runs that the journal does not tell of yet."""
        self._most_untold = MOST_UNTOLD
        """How many of them are kept before those close to each other are joined."""
        self._told_to = self.surveyed_to
        """The journal tells of what is below this offset."""
        self._surveyed: dict[int, Runs] = {}
        """The runs that the survey has found so far."""
        self._gaps: list[Range] = []
        """Offsets between two transactions that were not read yet."""
        self._marker = 0
        """How many offsets behind the end hold no record: 1 for the marker of a transaction of ours, or 0."""
        self._committed_low = begin
        self.trimmed = start
        """The offset below which the broker has deleted all records, as far as known."""

    # -- what is known ----------------------------------------------------------------------------------------------

    def survey(self, bucket: int, offset: int) -> None:
        """Note a record of an open bucket that was read."""
        if self.surveyed_to <= offset < self.survey_end:
            self.surveyed_to = offset + 1
            self._surveyed.setdefault(bucket, Runs()).add(offset, offset + 1, 1)

    def unknown(self) -> "list[Range]":
        """Return the offsets that must be read to know all records of the log, ascending."""
        # If all offsets are read, the last one is: what was found counts from then on.
        survey = [] if self.is_surveyed else [(min(self.surveyed_to, self.survey_end - 1), self.survey_end)]
        return survey + self._gaps

    def read_unknown(self, upto: int) -> None:
        """Note that what was unknown below an offset was read."""
        self._gaps = [(first, end) for first, end in self._gaps if end > upto]
        if upto >= self.survey_end:
            self._end_survey()

    def _end_survey(self) -> None:
        self.surveyed_to, self.is_surveyed = self.survey_end, True
        for bucket, runs in self._surveyed.items():
            self._runs.setdefault(bucket, Runs()).merge(runs)
        self._untold += _index_runs(self._surveyed)
        self._surveyed = {}

    def _add(self, run: IndexRun) -> None:
        self._runs.setdefault(run.bucket, Runs()).add(run.first, run.end, run.records)

    def filed(self, bucket: int, first: int, end: int, count: int) -> None:
        """Note a run that a committed transaction has written."""
        run = IndexRun(bucket, first, end, count)
        self._add(run)
        self._untold.append(run)
        if len(self._untold) > self._most_untold:
            self._untold = _joined(self._untold)
            self._most_untold = max(MOST_UNTOLD, 2 * len(self._untold))
        if first > self.end + self._marker:
            self._gaps.append((self.end, first))
        self.end, self._marker = end, 0

    def end_transaction(self) -> None:
        """Note that the transaction of the last runs is committed: a marker comes after its records."""
        self._marker = 1

    def part_with(self, count: int) -> IndexPart:
        """Return a part of the index that says only how far the log reaches, once so many more records are in it."""
        end = self.end + self._marker + count
        return IndexPart(self.level, end, end, [])

    def reach(self) -> IndexPart:
        """Return a part of the index that says only how far the log reaches, without the marker of a transaction."""
        return IndexPart(self.level, self.end, self.end, [])

    def is_in_gap(self, offset: int) -> bool:
        """Whether a record at an offset is none that the service has filed."""
        return any(first <= offset < end for first, end in self._gaps)

    def holds_any(self, bucket: int) -> bool:
        """Whether an open bucket holds records."""
        return bucket in self._runs

    def count_of(self, bucket: int) -> int:
        """Return the number of records of an open bucket."""
        return self._runs[bucket].count if bucket in self._runs else 0

    def counts(self) -> Iterator[tuple[int, int]]:
        """Yield open buckets with the number of their records; a bucket may come twice."""
        for bucket, runs in chain(self._runs.items(), self._surveyed.items()):
            yield bucket, runs.count

    @property
    def not_surveyed(self) -> int:
        """The number of offsets that are not surveyed."""
        return self.survey_end - self.surveyed_to

    @property
    def count(self) -> int:
        """The number of records of open buckets, and of offsets that are not surveyed."""
        return sum(count for _, count in self.counts()) + self.not_surveyed

    def close(self, bucket: int) -> Runs:
        """Take the runs of a bucket that is closed now."""
        return self._runs.pop(bucket)

    def take(self, below: int, done_below: int) -> "list[Range]":
        """Take the runs of the buckets below one, which were closed before the take-over.

        Args:
            below: the first bucket that is open.
            done_below: the first bucket that is not done.

        Returns:
            The runs of those that are not done, joined.
        """
        closed = {bucket: self._runs.pop(bucket) for bucket in list(self._runs) if bucket < below}
        return joined(chain.from_iterable(runs for bucket, runs in closed.items() if bucket >= done_below))

    def survey_closed(self, bucket: int) -> "Range":
        """Return the offsets that are not surveyed, as a run of a closed range; the journal will be told so.

        Args:
            bucket: the last bucket of the range.
        """
        self._untold.append(IndexRun(bucket, self.surveyed_to, self.survey_end, 0))
        return self.surveyed_to, self.survey_end

    # -- the index in the journal -----------------------------------------------------------------------------------

    @property
    def _known_to(self) -> int:
        """The offset below which all is known and no stranger is on its way: what is told is not surveyed again."""
        known = self.end if self.is_surveyed else self._told_to
        held = self.strangers.first_held
        firsts = [first for first, _ in self._gaps]
        return min([*firsts, known if held is None else min(known, held)])

    @property
    def run_count(self) -> int:
        """The number of runs of open buckets."""
        return sum(map(len, self._runs.values()))

    def news(self, least: int) -> IndexPart | None:
        """Return what the journal does not tell of yet; None if it is less than so many offsets, or must wait."""
        begin, end = self._told_to, self._known_to
        news = within(self._untold, begin, end)
        if not news or end - begin < least:
            return None
        return IndexPart(self.level, begin, end, _joined(news))

    def whole(self, closed: "Iterable[tuple[int, Iterable[Range]]]") -> IndexPart:
        """Return all that is known.

        Args:
            closed: for each range that is closed and not done its last bucket, and its runs.
        """
        of_closed = (IndexRun(bucket, first, end, 0) for bucket, ranges in closed for first, end in ranges)
        begin, end = self._committed_low, max(self._committed_low, self._known_to)
        return IndexPart(self.level, begin, end, within([*_index_runs(self._runs), *of_closed], begin, end))

    def told(self, part: IndexPart) -> None:
        """Note that this is in the journal, committed."""
        self._told_to = max(self._told_to, part.end)
        self._untold = within(self._untold, part.end, max(part.end, self.end, self.survey_end))

    # -- refiling -----------------------------------------------------------------------------------------------------

    def cut(self, most: int, closed: Iterable[int]) -> int:
        """Return the offset below which records of open buckets are to be filed again: nothing else below it is needed.

        Args:
            most: the highest one.
            closed: the low watermark of each range that is closed and not done: it is drained soon, and frees the log.
        """
        return min(most, self._low_of_others(closed))

    def below(self, cut: int) -> "list[Range]":
        """Return where records of open buckets are below an offset, ascending."""
        return joined(clipped(chain.from_iterable(self._runs.values()), 0, cut))

    def refiled(self, cut: int, moved: Mapping[int, int]) -> None:
        """Note that all records of open buckets below an offset were filed again, behind it.

        Args:
            cut: the offset.
            moved: how many they are, by bucket.
        """
        for bucket, runs in self._runs.items():
            runs.drop_below(cut, moved.get(bucket, 0))
        self._runs = {bucket: runs for bucket, runs in self._runs.items() if runs}

    # -- trimming ---------------------------------------------------------------------------------------------------

    def low(self, closed: Iterable[int]) -> int:
        """Return the first offset that is not done; the end that is known if there is none.

        Args:
            closed: the same of each range that is closed and not done.
        """
        firsts = [runs.first for runs in self._runs.values()]
        firsts += [runs.first for runs in self._surveyed.values()]
        firsts += [first for first, _ in self.unknown()]
        return min([*firsts, self._low_of_others(closed)])

    def _low_of_others(self, closed: Iterable[int]) -> int:
        """Return the first offset that is not done, of records that belong to no open bucket; the end if none is."""
        held = self.strangers.first_held
        return min([*closed, self.end if held is None else held])

    def note(self, low: int) -> None:
        """Note that a checkpoint with this low watermark is committed."""
        self._committed_low = max(self._committed_low, low)
        self.strangers.forget(self._committed_low)

    @property
    def committed_low(self) -> int:
        """The low watermark in the committed checkpoint: nobody reads below it, so records may be deleted."""
        return self._committed_low
