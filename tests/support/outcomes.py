"""Checks one partition after each commit: compares the records that were sent with their outcomes."""

from collections import Counter
from dataclasses import dataclass, field

from tarry.core.batch import Batch
from tarry.core.message import Headers, HeldMessage
from tarry.headers import Outcome


def is_refused(offset: int) -> bool:
    """Whether the levels of the overflow wheel permanently refuse a record; it can fire only if it is never filed."""
    return offset % 41 == 0  # not random: after a take-over, the record must be refused again


@dataclass(slots=True)
class Sent:
    """A record of the intake, and its outcome.

    Attributes:
        timestamp_ms: when it was sent.
        headers: its headers.
        due_ms: its due time; for a cancel, the due time of its message.
        target: its target; empty for a cancel.
        cancels: for a cancel, the offset of its message.
        accepted_at: the step in which an owner had read it before it was due; for a cancel, also its message.
        outcome: its outcome.
    """

    timestamp_ms: int
    headers: Headers
    due_ms: int
    target: str
    cancels: int | None = None
    accepted_at: int | None = None
    outcome: Outcome | None = None


@dataclass(slots=True)
class Judge:
    """Checks every commit, and fails at the first fault.

    Attributes:
        intake: the records that were sent, by offset.
    """

    intake: dict[int, Sent] = field(default_factory=dict)
    step: int = 0
    """Counts the commits."""
    fired_from: Counter[int] = field(default_factory=Counter)
    """The number of messages fired from each level; level 0 is the intake."""
    _left: dict[str, list[tuple[int, int, int]]] = field(default_factory=dict)
    """The messages fired to each target: due time, offset in the intake, step."""

    def waiting(self) -> int:
        """How many records have no outcome yet."""
        return sum(sent.outcome is None for sent in self.intake.values())

    def accept(self, offset: int, now_ms: int) -> None:
        """An owner has read a record."""
        sent = self.intake[offset]
        is_known = sent.cancels is None or self.intake[sent.cancels].accepted_at is not None
        if now_ms < sent.due_ms and sent.accepted_at is None and is_known:
            sent.accepted_at = self.step

    def committed(self, batch: Batch, taken_ms: int) -> None:
        """Check a batch that was taken at a time and is committed now."""
        self.step += 1
        assert not batch.retired
        for dead in batch.dead:
            assert is_refused(dead.sequence), "dead without a cause"
            self._settle(dead.sequence, Outcome.DEAD)
        for message in batch.due:
            assert message.due_ms <= taken_ms, "early"
            self._settle(message.sequence, Outcome.FIRED)
            self._judge_order(message)
            self.fired_from[message.source.level] += 1
            self._left.setdefault(message.target, []).append((message.due_ms, message.sequence, self.step))
        for outcome, message, cancel, _ in batch.resolutions:
            self._settle(message.sequence, outcome)
            if cancel is not None:
                self._settle(cancel.sequence, outcome)
                assert self.intake[cancel.sequence].cancels == message.sequence
            elif (sent := self.intake[message.sequence]).cancels is not None:
                assert outcome is Outcome.CANCEL_TOO_LATE
                taken_back = self.intake[sent.cancels].outcome in {Outcome.CANCELLED, Outcome.DEAD}
                lost = sent.accepted_at is not None and not taken_back
                assert not lost, "a cancel that was in time was too late"

    def _settle(self, offset: int, outcome: Outcome) -> None:
        sent = self.intake[offset]
        assert sent.outcome is None, f"{outcome}, and {sent.outcome} before"
        sent.outcome = outcome

    def _judge_order(self, message: HeldMessage) -> None:
        sent = self.intake[message.sequence]
        assert (message.due_ms, message.target) == (sent.due_ms, sent.target)
        if sent.accepted_at is not None:
            left = self._left.get(message.target, [])
            ahead = [(due_ms, offset) for due_ms, offset, step in left if step > sent.accepted_at]
            assert max(ahead, default=(0, 0)) < (message.due_ms, message.sequence), "out of order"
