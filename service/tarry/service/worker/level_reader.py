"""Reading the logs of levels: all that is to be read of a log is one plan, because a consumer has one position a log.

    to read        bucket A 0-300, 9000-9300     bucket B 300-600, 9300-9400
    plan           0-600, jump, 9000-9400

What is added later joins the plan if all of it is ahead of the position; otherwise it waits for the next plan.
"""

from collections.abc import Callable, Iterable, Sequence
from itertools import filterfalse
from typing import TYPE_CHECKING

from confluent_kafka import Message

from tarry.core.partition import PartitionState
from tarry.core.wheel.closed_range import ClosedRange
from tarry.core.wheel.overflow import ToRead
from tarry.core.wheel.refiling import Refiling
from tarry.core.wheel.runs import joined
from tarry.errors import LogError
from tarry.kafka.partition_logs import level_log_of
from tarry.kafka.reader import Reader
from tarry.kafka.record_headers import headers_of
from tarry.kafka.types import Place

if TYPE_CHECKING:
    from tarry.core.progress.journal import Range

READ_MOST = 5_000

AHEAD = 2_000
"""The number of records of a level above the first that are moved at once, before the even pace begins."""


class LevelReader:
    """Reads the logs of levels.

    Args:
        new_reader: makes a consumer without a group.
    """

    def __init__(self, new_reader: Callable[[], Reader]) -> None:
        self._new_reader = new_reader
        self._reader: Reader | None = None
        self._logs: dict[Place, _LogPlan] = {}
        self._errors: list[LogError] = []
        """What was found wrong in a fetch: its records of other partitions are taken in before that is raised."""

    @property
    def is_open(self) -> bool:
        """Whether anything is to be read."""
        return bool(self._logs)

    def open(self, state: PartitionState, to_read: ToRead) -> None:
        """Read something of a partition's level to its end, unless that is planned already."""
        log = level_log_of(state.place, to_read.level)
        plan = self._logs.get(log)
        if plan is None:
            plan = self._logs[log] = _LogPlan(state, to_read.level)
        plan.add(to_read)

    def needs_from(self, log: Place) -> int | None:
        """Return the offset of a log below which nothing will be read; None if nothing of the log is to be read.

        What is below it may be done and committed, but a reader that has not passed it yet asks the broker for it.
        """
        return self._logs[log].needs_from if log in self._logs else None

    def is_due(self, now_ms: int) -> bool:
        """Return whether anything is behind its pace, or an error is to be raised.

        The pace is even over three quarters of a bucket's lead. So all its records are on the level below before that
        level needs them, and ten minutes' messages never move within seconds.
        """
        return bool(self._errors) or any(plan.is_due(now_ms) for plan in self._logs.values())

    def read(self, now_ms: int) -> None:
        """Read on, without waiting.

        Raises:
            LogError: a partition must be taken over again; the others are read on.
        """
        self._forget_ended()
        if self._logs:
            self._read_on(now_ms)
        if self._errors:
            raise self._errors.pop(0)

    def _read_on(self, now_ms: int) -> None:
        if self._reader is None:
            self._reader = self._new_reader()
        for log, plan in self._logs.items():
            if plan.position is None:
                self._reader.open({log: plan.begin()})
        records, reached = self._reader.read(READ_MOST, 0)
        self._take(records, now_ms)
        for log, position in reached.items():
            if log in self._logs:
                self._logs[log].pass_by(position, now_ms)
        for log in [log for log, plan in self._logs.items() if plan.must_seek]:
            self._go_on(log)

    def _forget_ended(self) -> None:
        """Forget refilings that ended early; nothing else of a log may be left to read then."""
        for log, plan in list(self._logs.items()):
            plan.forget_ended()
            if plan.is_empty:
                if plan.position is not None and self._reader is not None:
                    self._reader.shut([log])
                del self._logs[log]

    def _take(self, records: Iterable[Message], now_ms: int) -> None:
        for record in records:
            log = (record.topic() or "", record.partition() or 0)
            plan = self._logs.get(log)
            if plan is None:
                continue
            offset = record.offset() or 0
            plan.pass_by(offset, now_ms)
            if plan.wants(offset):
                key, value, headers = record.key(), record.value(), headers_of(record)
                try:
                    plan.state.level_records.accept(plan.present, offset, key, value, headers, now_ms)
                except LogError as error:
                    self._errors.append(error)
                    self._drop([log])
                    continue
            plan.pass_by(offset + 1, now_ms)

    def _go_on(self, log: Place) -> None:
        """Jump to the next run of a log, begin its next plan, or end reading it."""
        assert self._reader is not None, "it has just read"  # noqa: S101
        plan = self._logs[log]
        self._reader.shut([log])
        if plan.is_empty:
            del self._logs[log]
        else:
            self._reader.open({log: plan.begin()})

    def forget(self, gone: set[Place]) -> None:
        """Forget partitions that are no longer ours."""
        self._errors = [error for error in self._errors if error.log not in gone]
        self._drop([log for log, plan in self._logs.items() if plan.state.place in gone])

    def _drop(self, logs: Sequence[Place]) -> None:
        opened = [log for log in logs if self._logs[log].position is not None]
        for log in logs:
            del self._logs[log]
        if opened and self._reader is not None:
            self._reader.shut(opened)

    def close(self) -> None:
        """Close the reader."""
        if self._reader is not None:
            self._reader.close()


def _has_ended(to_read: ToRead) -> bool:
    return isinstance(to_read.range, Refiling) and to_read.range.is_given_up


class _LogPlan:
    """What is to be read of one log, and how far it is read.

    Attributes:
        state: the partition that the log belongs to.
        level: the log's level.
        position: the next offset to read; None before the first.
        must_seek: whether what is read next begins elsewhere.
        present: what the present plan reads.
    """

    def __init__(self, state: PartitionState, level: int) -> None:
        self.state = state
        self.level = level
        self.position: int | None = None
        self.must_seek = False
        self.present: list[ToRead] = []
        self._later: list[ToRead] = []
        self._runs: list[Range] = []
        """The joined runs of the present plan from the position on, the last one first."""
        self._next = 0
        self._read = self._total = 0

    @property
    def needs_from(self) -> int:
        """The offset below which nothing will be read."""
        begins = [one.runs[0][0] for one in self._later]
        if self.position is None:
            begins += [one.runs[0][0] for one in self.present]
        elif self.present:
            begins.append(self.position)
        return min(begins, default=0)

    @property
    def is_empty(self) -> bool:
        return not self.present and not self._later

    def add(self, to_read: ToRead) -> None:
        if any(one.range is to_read.range for one in [*self.present, *self._later]):
            return
        position = self.position
        if position is not None and not self.must_seek and to_read.runs[0][0] >= position and self._runs:
            self.present.append(to_read)
            self._plan(position)
        else:
            self._later.append(to_read)

    def forget_ended(self) -> None:
        """Forget a refiling that ended early: what else is to be read must not wait until its runs are read over."""
        if not any(map(_has_ended, [*self.present, *self._later])):
            return
        self.present = list(filterfalse(_has_ended, self.present))
        self._later = list(filterfalse(_has_ended, self._later))
        position = self.position or 0
        self._plan(position)
        self.must_seek = self.must_seek or not self._runs or position < self._runs[-1][0]

    def begin(self) -> int:
        """Begin at the first offset, or go on at the next run; return the offset."""
        if not self._runs:
            self.present, self._later = [*self.present, *self._later], []
            self._plan(0)
            self._read = 0
        self.must_seek = False
        self.position = self._runs[-1][0]
        return self.position

    def _plan(self, position: int) -> None:
        """Join the runs of all that is to be read."""
        ahead = [(max(first, position), end) for one in self.present for first, end in one.runs if end > position]
        self._runs = joined(ahead)[::-1]
        self._total = self._read + sum(end - first for first, end in self._runs)
        self._note_next()

    def _note_next(self) -> None:
        """Note the next position at which something ends: the present run, or a part of the plan within it."""
        ends = [one.runs[-1][1] for one in self.present]
        self._next = min([*ends, self._runs[-1][1]] if self._runs else ends, default=0)

    def wants(self, offset: int) -> bool:
        """Whether a record is within a run: not of an earlier position, and not behind the run."""
        return not self.must_seek and bool(self._runs) and self._runs[-1][0] <= offset < self._runs[-1][1]

    def pass_by(self, position: int, now_ms: int) -> None:
        """Note that the reader has come to a position."""
        if self.must_seek or self.position is None or position <= self.position:
            return
        if position >= self._next:
            self._pass_ends(self.position, position, now_ms)
            return
        self._read += position - self.position
        self.position = position

    def _pass_ends(self, before: int, position: int, now_ms: int) -> None:
        """Go on to a position behind the end of a run, or of a part of the plan."""
        while self._runs and position >= self._runs[-1][1]:
            first, end = self._runs.pop()
            self._read += end - max(first, before)
            self.position = before = end
        ended = [one for one in self.present if one.runs[-1][1] <= position]
        self.present = [one for one in self.present if one.runs[-1][1] > position]
        # Not only at the end of a joined run: whoever goes on after this plan is dropped would have nothing to read.
        for one in ended:
            self.state.level_records.reach_end(one, now_ms)
        self.must_seek = not self._runs or position < self._runs[-1][0]
        if not self.must_seek:
            self._read += position - before
            self.position = position
        self._note_next()

    def is_due(self, now_ms: int) -> bool:
        """Whether the plan is behind an even pace over three quarters of the lead of what it reads."""
        if self.position is None or self.must_seek:
            return True
        spans = [one.range.span for one in self.present if isinstance(one.range, ClosedRange)]
        if len(spans) < len(self.present):
            return True
        lead_ms = self.state.overflow.levels.lead_ms(self.level)
        from_ms = min(span.start_ms for span in spans) - lead_ms
        passed = max(0, now_ms - from_ms) / (lead_ms * 3 / 4)
        return self._read <= self._total * passed + AHEAD
