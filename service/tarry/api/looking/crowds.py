"""Crowds: buckets of the overflow wheel that hold too much, or too scattered, to be read for one page; pure.

A page lists messages by due time. But the records of a bucket stand in the order in which they were filed, so to find
the first ones by due time all must be read. A crowd is listed in the order of its log instead, as far as the index
tells of it, partition after partition. A page of it costs what it shows. What else is due in its range comes then, by
due time: what the index does not tell of, and what is still in the intake.

    by due time ... | the crowd, as it was filed | the rest of its range, by due time | by due time ...

What waits throughout is listed once, because of what can happen to a bucket that is open:

- It is filled from the intake. What came after the crowd began is behind `below`, and belongs to the rest.
- It is closed, and brought down. Then the cursor expires.
- Its first records are filed again, so that the log can be trimmed. Such a copy is behind `log_ends`, and its offset in
  the intake is below `lows`: before the crowd began it was in no intake. Then the cursor expires, too.

A bucket of a level above cannot be brought down into it: while the upper one holds messages, this one is no crowd.
"""

from collections.abc import Mapping, Sequence
from http import HTTPStatus
from typing import Final, NamedTuple

from tarry.api.problems import ProblemError
from tarry.core.progress.source import Source
from tarry.core.wheel.levels import Bucket
from tarry.kafka.backlog import Backlog
from tarry.kafka.backlog_index import READ_OVER, DueRange, indexed
from tarry.kafka.inspector import Listed, States, Waiting

MOST: Final = 5_000
"""How many offsets are read for a page, about."""

JUMP: Final = 500
"""How many offsets are read in the time that a jump to another place of a log takes, about."""


class Crowd(NamedTuple):
    """A crowd that is listed.

    Attributes:
        level: its level.
        from_ms: the start of its bucket.
        until_ms: the end of its bucket.
        below: by partition, the end of what the index told of its log when the crowd began.
        log_ends: by partition, the end of its log then.
        lows: by partition, the low watermark of the intake then.
        partition: where the next page goes on; behind the last one: the crowd was listed.
        offset: there, in the log of its level.
    """

    level: int
    from_ms: int
    until_ms: int
    below: Sequence[int]
    log_ends: Sequence[int]
    lows: Sequence[int]
    partition: int = 0
    offset: int = 0

    @property
    def is_listed(self) -> bool:
        """Whether the rest of its range comes now."""
        return self.partition >= len(self.below)

    @property
    def bucket(self) -> Bucket:
        """Its bucket."""
        return Bucket(self.level, self.from_ms)

    @property
    def listed(self) -> Listed:
        """What the rest of its range is without."""
        return Listed(Source(self.level, self.from_ms // (self.until_ms - self.from_ms)), self.below)

    def check(self, backlogs: Sequence[Backlog]) -> None:
        """Check that its bucket was not closed.

        Raises:
            ProblemError: it was.
        """
        if not all(_is_open(one, self.level, self.from_ms) for one in backlogs):
            raise _moved()

    def check_record(self, found: Waiting) -> None:
        """Check that a record of the rest of its range is no copy of one that was listed.

        Raises:
            ProblemError: it may be one.
        """
        number = found.place[1]
        is_new = found.source.level == self.level and found.offset >= self.log_ends[number]
        if is_new and found.sequence < self.lows[number] and found.source == self.listed.source:
            raise _moved()


def _moved() -> ProblemError:
    return ProblemError(
        HTTPStatus.GONE,
        "cursor: has expired, because the messages that it lists were moved; begin again without one, or with due_from",
    )


def _is_open(backlog: Backlog, level: int, from_ms: int) -> bool:
    """Whether a bucket is open; nothing waits in the levels of a partition that nobody has served."""
    if backlog.checkpoint is None:
        return True
    closed_ms = backlog.checkpoint.closed_ms  # a cursor may be of a level that is not there (any more)
    return level <= len(closed_ms) and closed_ms[level - 1] <= from_ms


def _is_still(backlog: Backlog, bucket: DueRange) -> bool:
    """Whether a bucket is open, and no closed one above it still has messages that may come down into it."""
    checkpoint, end_ms = backlog.checkpoint, bucket.until_ms or 0
    if checkpoint is None:
        return True
    above = zip(checkpoint.done_ms[bucket.level :], checkpoint.closed_ms[bucket.level :], strict=True)
    return _is_open(backlog, bucket.level, bucket.from_ms) and not any(
        done_ms < end_ms and closed_ms > bucket.from_ms for done_ms, closed_ms in above
    )


def begun(backlogs: Sequence[Backlog], states: States, bucket: DueRange) -> Crowd:
    """Return a crowd whose first page comes now.

    Args:
        backlogs: all partitions of the intake.
        states: from `Inspector.journals`.
        bucket: its bucket.
    """
    below, log_ends = [], []
    for backlog in backlogs:
        stretch = next((one for one in backlog.stretches() if one.level == bucket.level), None)
        below.append(0 if stretch is None else indexed(stretch, states[backlog.place]).end)
        log_ends.append(0 if stretch is None else stretch.end)
    lows = [one.low for one in backlogs]
    return Crowd(bucket.level, bucket.from_ms, bucket.until_ms or 0, below, log_ends, lows)


class Costs(NamedTuple):
    """How many offsets must be read to list what waits by due time, about.

    Attributes:
        of_buckets: the open buckets.
        others: what is being brought down, and what the index does not tell of.
    """

    of_buckets: Mapping[DueRange, int]
    others: int

    @property
    def total(self) -> int:
        """For all that waits in the levels."""
        return sum(self.of_buckets.values()) + self.others

    def crowds(self, backlogs: Sequence[Backlog], most: int) -> list[DueRange]:
        """Return the buckets that are crowds, by their starts; none overlaps another one.

        Args:
            backlogs: all partitions of the intake.
            most: how much a bucket may cost that is none.
        """
        found: list[DueRange] = []
        dear = [bucket for bucket, cost in self.of_buckets.items() if cost > most]
        for bucket in sorted(dear, key=lambda one: (one.from_ms, -one.level)):
            is_apart = not found or bucket.from_ms >= (found[-1].until_ms or 0)
            if is_apart and all(_is_still(one, bucket) for one in backlogs):
                found.append(bucket)
        return found


def costs_of(backlogs: Sequence[Backlog], states: States) -> Costs:
    """Return what it costs to list each bucket."""
    found: dict[DueRange, int] = {}
    others = 0
    for backlog in backlogs:
        for stretch in backlog.stretches():
            assert backlog.checkpoint is not None  # noqa: S101 - it has levels
            width_ms = backlog.checkpoint.geometry.width_of(stretch.level)
            known, last, costs = indexed(stretch, states[backlog.place]), dict[int, int](), dict[int, int]()
            others += max(stretch.end - known.end - stretch.is_settled, 0)
            for number, first, end, records in known.runs:
                if records:
                    over = first - last.get(number, first - JUMP)
                    costs[number] = costs.get(number, 0) + end - first + (over if over <= READ_OVER else JUMP)
                    last[number] = end
                else:
                    others += end - first
            for number, cost in costs.items():
                if (number + 1) * width_ms > stretch.from_ms:
                    bucket = DueRange(stretch.level, number * width_ms, (number + 1) * width_ms)
                    found[bucket] = found.get(bucket, 0) + cost
    return Costs(found, others)
