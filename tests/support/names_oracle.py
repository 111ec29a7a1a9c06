"""Judges what is committed about named messages, from the records that were sent alone.

Named records are decided in the order of the intake. What a decision may answer follows from the message that was
scheduled last under its name, and from whether that one has left since. What left between the reading of a record and
the commit of its decision may count as waiting, or not.

A schedule waits from one occurrence to the next: also while its next record is in the intake, and not decided.
"""

from collections import Counter
from dataclasses import dataclass, field, replace

from tarry.core.batch import Answer, Batch, Decision, Resolution
from tarry.core.message import Headers, HeldMessage
from tarry.core.progress.name_index import CONTINUES
from tarry.core.request.naming import Condition, hash_of
from tarry.core.request.occurrence import Follower, Occurrence
from tarry.headers import ErrorCode, Outcome, occurrence_id
from tests.support.outcomes import is_refused

KEY = b"k"


def is_doomed(offset: int) -> bool:
    """Whether a message becomes a dead letter, unless it is replaced or cancelled before."""
    return offset % 11 == 3  # not random: after a crash, the same messages must become dead letters again


@dataclass(slots=True)
class Record:
    """A record of the intake, and what became of it.

    Attributes:
        timestamp_ms: when it was sent.
        headers: its headers.
        id: its id; of a cancel by handle, that of its message; empty for other records.
        due_ms: its due time, or that of its message; None for a cancel by name.
        target: its target; empty for a cancel.
        name: its name; None if it has none.
        condition: the condition of a named message.
        is_by_name: whether it is a cancel by name.
        is_by_handle: whether it is a cancel by handle.
        is_rejected: whether it can never be delivered.
        accepted_at: the step in which an owner had read it before it was due.
        read_at: the step in which it was read last.
        outcome: its outcome.
        ended_at: the step in which that was committed.
        superseded_by: the offset of the record that replaced or cancelled it by name.
        is_refused: whether it was decided to become a dead letter: it is rejected, or there were too many names.
        replaced_at: the step in which it was read, if it replaced another message then.
        is_scheduled: whether a result said that it was scheduled.
        schedule: the id of its schedule; empty if it is not repeated.
        every_ms: the interval of its schedule.
        follows: the offset of the occurrence that it follows, if the service wrote it.
    """

    timestamp_ms: int
    headers: Headers
    id: bytes
    due_ms: int | None
    target: str = ""
    name: bytes | None = None
    condition: Condition = Condition.ALWAYS
    is_by_name: bool = False
    is_by_handle: bool = False
    is_rejected: bool = False
    accepted_at: int | None = None
    read_at: int = 0
    outcome: Outcome | None = None
    ended_at: int | None = None
    superseded_by: int | None = None
    is_refused: bool = False
    replaced_at: int | None = None
    is_scheduled: bool = False
    schedule: bytes = b""
    every_ms: int = 0
    follows: int | None = None


@dataclass(slots=True)
class Oracle:
    """Checks every commit, and fails at the first fault.

    Attributes:
        records: the records that were sent, by offset.
        keeps_order: whether the order is judged: not after the clock was set back.
        seen: counts outcomes and reasons.
    """

    records: dict[int, Record] = field(default_factory=dict)
    keeps_order: bool = True
    step: int = 0
    latest_ms: int = 0
    seen: Counter[str] = field(default_factory=Counter)
    limit: int = 1 << 62
    left_behind: set[int] = field(default_factory=set)
    """Dead letters that were refused: after the next take-over they may fire, late, if they can."""
    _last: dict[bytes, int] = field(default_factory=dict)
    """For each name the offset of the message that was scheduled last, if no record superseded it."""
    _next: dict[int, int] = field(default_factory=dict)
    """By the offset of an occurrence that was delivered: its next record, which is not decided."""
    _decided_below: int = 0
    _left: dict[str, list[tuple[int, int, int]]] = field(default_factory=dict)

    def waiting(self) -> int:
        """How many records have no outcome yet."""
        return sum(record.outcome is None for record in self.records.values())

    def names(self) -> dict[bytes, int]:
        """Return the offset of the message that waits under each name, or continues, by the name's hash."""
        waits = {name: offset for name, offset in self._last.items() if self.records[offset].outcome is None}
        waits |= {name: CONTINUES | offset for name, offset in self._last.items() if offset in self._next}
        return {hash_of(KEY, name): offset for name, offset in waits.items()}

    def followed(self, message: Occurrence, follower: Follower, offset: int, at_ms: int) -> Record:
        """Check the next record of a schedule, which a committed transaction wrote; return it.

        Args:
            message: the occurrence that was delivered.
            follower: the next record.
            offset: its offset in the intake.
            at_ms: when the occurrence was delivered.
        """
        record = self.records[message.sequence]
        assert record.name is not None
        assert (record.schedule, self._last[record.name]) == (message.schedule, message.sequence)
        due_ms = max(at_ms, message.due_ms)
        due_ms += record.every_ms - due_ms % record.every_ms
        assert follower.due_ms == due_ms, "off its rule"
        self._next[message.sequence] = offset
        headers = [(name, value.encode() if isinstance(value, str) else value) for name, value in follower.headers]
        id_ = occurrence_id(record.schedule, due_ms)
        return replace(
            Record(at_ms, headers, id_, due_ms, record.target, record.name),
            schedule=record.schedule,
            every_ms=record.every_ms,
            follows=message.sequence,
        )

    def accept(self, offset: int, now_ms: int) -> None:
        """An owner reads a record."""
        record = self.records[offset]
        record.read_at = self.step
        if record.due_ms is not None and now_ms < record.due_ms and record.accepted_at is None:
            record.accepted_at = self.step

    def committed(self, batch: Batch, taken_ms: int) -> None:
        """Check a batch that was taken at a time and is committed now."""
        self.step += 1
        self.latest_ms = max(self.latest_ms, taken_ms)
        for decision in batch.decisions:
            self._judge_decision(decision)
        for message in batch.due:
            record = self.records[message.sequence]
            assert message.due_ms <= taken_ms, "early"
            assert (message.due_ms, message.target, message.id) == (record.due_ms, record.target, record.id)
            self._must_be_decided(message.sequence)
            assert not record.is_refused, "a message of a name too many was delivered"
            self._end(message.sequence, Outcome.FIRED)
            self._judge_order(message)
        for dead in batch.dead:
            self.judge_dead(dead.sequence, dead.code)
        for resolution in batch.resolutions:
            self._judge_resolution(resolution)
        for copy in batch.dropped:
            of_copy = self.records[copy.sequence]
            assert of_copy.superseded_by is not None, f"{copy.sequence} was dropped, and nothing superseded it"
            self.seen["dropped"] += 1

    def judge_dead(self, offset: int, code: str) -> None:
        """Check a dead letter that is committed."""
        record = self.records[offset]
        self._must_be_decided(offset)
        assert record.is_rejected is (code == ErrorCode.BAD_TARGET)
        assert (record.is_refused and not record.is_rejected) is (code == ErrorCode.TOO_MANY_NAMES)
        self._end(offset, Outcome.DEAD)
        self.seen[code] += 1

    def _must_be_decided(self, offset: int) -> None:
        assert self.records[offset].name is None or offset < self._decided_below, "not decided"

    def _end(self, offset: int, outcome: Outcome) -> None:
        record = self.records[offset]
        assert record.outcome is None, f"{offset}: {outcome}, and {record.outcome} before"
        record.outcome, record.ended_at = outcome, self.step
        self.seen[outcome] += 1

    # -- named records ------------------------------------------------------------------------------------------------

    def _judge_decision(self, decision: Decision) -> None:
        offset = decision.offset
        record = self.records[offset]
        assert record.name is not None
        passed = [at for at, one in self.records.items() if one.name and self._decided_below <= at < offset]
        assert offset >= self._decided_below, f"{offset} was decided twice"
        assert not passed, f"{passed} were not decided"
        self._decided_below = offset + 1
        last = self._last.get(record.name)
        found = [self._of(answer) for answer in decision.answers]
        if record.follows is not None:
            assert not found
            self._judge_next(offset, record, last, is_taken=decision.record is None)
            return
        if decision.record is None and decision.change[1:17] != hash_of(KEY, record.name):
            is_full = len(self.names()) + self._ended_since(record.read_at) >= self.limit
            assert record.is_rejected or is_full, "refused without a cause"
            assert not found
            assert record.is_rejected or last is None or self.records[last].outcome is not None
            record.is_refused = True
            return
        allowed = self._allowed(offset, record, last)
        assert found in allowed, f"{offset}: answered {found}, but {allowed} would be right"
        assert (decision.record is None) is (not found or found[-1][0] in {Outcome.REPLACED, Outcome.SCHEDULED})
        self._apply(offset, record, last, found)

    def _judge_next(self, offset: int, record: Record, last: int | None, *, is_taken: bool) -> None:
        """Check the decision on the next record of a schedule."""
        assert record.name is not None
        continues = last is not None and last == record.follows and self._next.get(last) == offset
        assert is_taken is continues, f"{offset}: taken {is_taken}, and the schedule continues {continues}"
        if last is not None and continues:
            del self._next[last]
            self._last[record.name] = offset
            self.seen["continued"] += 1
        else:
            record.outcome, record.ended_at = Outcome.SKIPPED, self.step
            self.seen["not continued"] += 1

    @staticmethod
    def _of(answer: Answer) -> tuple[Outcome, int, int | None, str]:
        return answer.outcome, answer.offset, None if answer.other is None else answer.other[1], answer.reason

    def _ended_since(self, step: int) -> int:
        ended = (record.ended_at for record in self.records.values() if record.name and not record.is_by_name)
        return sum(at is not None and at >= step for at in ended)

    def _allowed(
        self, offset: int, record: Record, last: int | None
    ) -> list[list[tuple[Outcome, int, int | None, str]]]:
        """Return the answers that may be given: as if the last message of the name waits, or as if it does not."""
        allowed: list[list[tuple[Outcome, int, int | None, str]]] = []
        if not record.schedule and any(self._is_original(one, offset) for one in self._alike(offset)):
            allowed.append([(Outcome.DUPLICATE, offset, None, "delivered")])
        if last is not None and last in self._next:
            both = (None, self._next[last])
            return [*allowed, *(self._answers(offset, record, last, following) for following in both)]
        if last is not None:
            waited = self.records[last]
            if waited.outcome is None or (waited.ended_at or 0) > record.read_at:
                answers = self._answers(offset, record, last)
                is_taken = any(one[0] in {Outcome.REPLACED, Outcome.CANCELLED} for one in answers)
                if waited.outcome is None or not is_taken:
                    allowed.append(answers)
        if last is None or self.records[last].outcome is not None:
            allowed.append(self._answers(offset, record, None))
        return allowed

    def _alike(self, offset: int) -> list[Record]:
        """Return the other messages with the id and the due time of a message."""
        record = self.records[offset]
        same = ((at, one) for at, one in self.records.items() if (one.id, one.due_ms) == (record.id, record.due_ms))
        return [one for at, one in same if one.target and at != offset]

    def _answers(
        self, offset: int, record: Record, last: int | None, following: int | None = None
    ) -> list[tuple[Outcome, int, int | None, str]]:
        assert not record.is_rejected
        if record.is_by_name:
            if last is None:
                return [(Outcome.CANCEL_TOO_LATE, offset, None, "")]
            return [(Outcome.CANCELLED, last, offset, ""), (Outcome.CANCELLED, offset, last, "")]
        if last is not None:
            waits = self.records[last if following is None else following]
            if (waits.id, waits.due_ms) == (record.id, record.due_ms):
                return [(Outcome.DUPLICATE, offset, last, "")]
            if record.condition is Condition.ABSENT:
                return [(Outcome.SKIPPED, offset, last, "waiting")]
        elif record.condition is Condition.PRESENT:
            return [(Outcome.SKIPPED, offset, None, "not-waiting")]
        answers: list[tuple[Outcome, int, int | None, str]] = []
        if last is not None:
            answers.append((Outcome.REPLACED, last, offset, ""))
        if record.condition is not Condition.ALWAYS:
            answers.append((Outcome.SCHEDULED, offset, last, ""))
        return answers

    def _apply(
        self, offset: int, record: Record, last: int | None, found: list[tuple[Outcome, int, int | None, str]]
    ) -> None:
        assert record.name is not None
        is_done = False
        for outcome, of, _, reason in found:
            if outcome is Outcome.SCHEDULED:
                assert not record.is_scheduled
                record.is_scheduled = True
                self.seen[outcome] += 1
                continue
            is_done = is_done or of == offset
            has_left = of in self._next
            if of in self._next and outcome in {Outcome.REPLACED, Outcome.CANCELLED}:
                del self._next[of]
                self.seen["ended between two occurrences"] += 1
            else:
                self._end(of, outcome)
            self.seen[reason] += 1
            if of != offset:
                assert of == last
                record.replaced_at = record.read_at
                if not has_left:
                    self.records[of].superseded_by = offset
                del self._last[record.name]
        if not is_done:
            self._last[record.name] = offset

    # -- other records ------------------------------------------------------------------------------------------------

    def _judge_resolution(self, resolution: Resolution) -> None:
        outcome, message, cancel, _ = resolution
        offset, record = message.sequence, self.records[message.sequence]
        self._must_be_decided(offset)
        same = {at: one for at, one in self.records.items() if (one.id, one.due_ms) == (record.id, record.due_ms)}
        messages = {at: one for at, one in same.items() if one.target and at != offset}
        if outcome is Outcome.CANCELLED:
            assert cancel is not None
            of_cancel = self.records[cancel.sequence]
            assert of_cancel.is_by_handle
            assert cancel.sequence > offset
            assert cancel.sequence in same
            self._end(cancel.sequence, outcome)
        elif outcome is Outcome.DUPLICATE:
            assert any(self._is_original(one, offset) for one in messages.values()), f"{offset} is no duplicate"
            self.seen["duplicate without a name"] += record.name is None
            was_delivered = any(
                one.outcome is Outcome.FIRED and (one.ended_at or 0) < (record.replaced_at or 0)
                for one in messages.values()
            )
            assert record.schedule or not was_delivered, (
                f"{offset} replaced a message, and is a duplicate of one that was delivered before"
            )
        elif outcome is Outcome.CANCEL_TOO_LATE:
            assert record.is_by_handle
            missed = [at for at, one in messages.items() if at < offset and one.outcome is None]
            missed = [at for at in missed if not self._may_be_superseded(self.records[at])]
            missed = [at for at in missed if not (self.records[at].is_refused or is_doomed(at) or is_refused(at))]
            assert not missed or (record.due_ms or 0) <= self.latest_ms, f"{offset}: {missed} could be cancelled"
        else:
            assert outcome is Outcome.PURGED
        self._end(offset, outcome)

    def _may_be_superseded(self, record: Record) -> bool:
        """Whether a record of its name is not decided yet, as far as commits tell."""
        undecided = (one for at, one in self.records.items() if at >= self._decided_below)
        return record.name is not None and any(one.name == record.name for one in undecided)

    @staticmethod
    def _is_original(one: Record, offset: int) -> bool:
        """Whether a message makes one at an offset its duplicate: it waits or was delivered, or did in front of it."""
        if one.superseded_by is not None:
            return one.superseded_by > offset
        return one.outcome not in {Outcome.SKIPPED, Outcome.DUPLICATE}

    def _judge_order(self, message: HeldMessage) -> None:
        record, left = self.records[message.sequence], self._left.setdefault(message.target, [])
        may_be_late = message.sequence in self.left_behind or is_refused(message.sequence)
        if record.accepted_at is not None and self.keeps_order and not may_be_late:
            ahead = [(due_ms, offset) for due_ms, offset, step in left if step > record.accepted_at]
            assert max(ahead, default=(0, 0)) < (message.due_ms, message.sequence), f"{message.sequence}: out of order"
        left.append((message.due_ms, message.sequence, self.step))
