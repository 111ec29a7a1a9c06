"""The content of one transaction for one partition: a batch to deliver, or messages to file."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from operator import attrgetter
from typing import TYPE_CHECKING, NamedTuple

from tarry.core.expiry import expired
from tarry.core.message import BY_DUE, DeadMessage, HeldMessage
from tarry.core.progress.source import INTAKE, PARKED, Offsets, Source
from tarry.core.request.occurrence import Follower, Occurrence
from tarry.headers import Outcome

if TYPE_CHECKING:
    from tarry.core.progress.index import IndexPart

UNBOUNDED = 1 << 62
"""The byte limit of a transaction that has none."""

_size_bytes: Callable[[object], int] = attrgetter("size_bytes")


class Resolution(NamedTuple):
    """A message, a cancel or a purge that is done without a delivery.

    Attributes:
        outcome: cancelled, duplicate, cancel too late, or purged.
        message: the message; for a cancel that came too late, the cancel; for a purge, the purge.
        cancel: the cancel that took the message, or None.
        is_taken: whether a cancel took a duplicate, as well as the message whose duplicate it is.
    """

    outcome: Outcome
    message: HeldMessage
    cancel: HeldMessage | None = None
    is_taken: bool = False

    @property
    def records(self) -> tuple[HeldMessage, ...]:
        """The records that this completes: the message, and the cancel if there is one."""
        return (self.message,) if self.cancel is None else (self.message, self.cancel)


class Answer(NamedTuple):
    """A result of a decision on a named record.

    Attributes:
        outcome: what became of the record with the id.
        id: 36 ASCII characters.
        offset: of that record in the intake.
        due_ms: its due time; None if it has none.
        target: its target; None if that is not known.
        other: the name of a field of the result, and the offset of the record that it names; None if there is no other.
        reason: why it was skipped; else empty.
    """

    outcome: Outcome
    id: bytes
    offset: int
    due_ms: int | None
    target: str | None
    other: tuple[str, int] | None = None
    reason: str = ""


ANSWER_BYTES = 300
"""About how many bytes an answer takes in a transaction."""


class Decision(NamedTuple):
    """What was decided on a named record, to be committed.

    Attributes:
        offset: of the record in the intake.
        record: the record, if the decision completes it: a cancel, a duplicate, or a message that is skipped.
        change: what changes in the index of names, in the journal's form; empty if nothing does.
        answers: the results.
    """

    offset: int
    record: HeldMessage | None
    change: bytes
    answers: tuple[Answer, ...]

    @property
    def size_bytes(self) -> int:
        """About how many bytes a transaction writes for it."""
        size = 0 if self.record is None else self.record.size_bytes
        return size + len(self.change) + ANSWER_BYTES * len(self.answers)


@dataclass(slots=True)
class Batch:
    """The messages that one transaction delivers, writes as dead letters, or completes without a delivery."""

    due: list[HeldMessage] = field(default_factory=list)
    dead: list[DeadMessage] = field(default_factory=list)
    retired: list[HeldMessage] = field(default_factory=list)
    """The messages that were due and became dead letters when they fired; their letters are in `dead`."""
    unfollowed: list[Resolution] = field(default_factory=list)
    """Those of duplicates that became dead letters, as they cannot be followed; their messages are in `retired`."""
    resolutions: list[Resolution] = field(default_factory=list)
    decisions: list[Decision] = field(default_factory=list)
    """The decisions on named records that the transaction commits, in the order of the intake."""
    dropped: list[HeldMessage | DeadMessage] = field(default_factory=list)
    """Superseded copies of named messages, which are done without a result."""
    followers: list[tuple[Occurrence, Follower]] = field(default_factory=list)
    """The occurrences whose schedules continue, each with the next record, which the transaction writes."""

    def __len__(self) -> int:
        return len(self.due) + len(self.dead) + len(self.resolutions) + len(self.decisions) + len(self.dropped)

    @property
    def size_bytes(self) -> int:
        """The approximate number of bytes that the transaction writes for the batch."""
        records = sum(record.size_bytes for resolution in self.resolutions for record in resolution.records)
        decisions = sum(map(_size_bytes, self.decisions))
        return sum(map(_size_bytes, self.due)) + sum(map(_size_bytes, self.dead)) + records + decisions

    @property
    def named(self) -> list[HeldMessage | DeadMessage]:
        """The messages with names that the transaction delivers, writes as dead letters, or completes."""
        records: list[HeldMessage | DeadMessage] = [*self.due, *self.dead]
        records += [record for resolution in self.resolutions for record in resolution.records]
        return [record for record in records if record.name is not None]

    @property
    def occurrences(self) -> list[Occurrence]:
        """The occurrences of schedules that it delivers, or that were delivered before."""
        before = [one.message for one in self.resolutions if one.outcome is Outcome.DUPLICATE and not one.is_taken]
        return [message for message in (*self.due, *before) if isinstance(message, Occurrence)]

    def give_up(self, messages: Mapping[int, tuple[str, str]]) -> None:
        """Turn messages that can never be delivered into dead letters of this batch. Call this before `settle`.

        Args:
            messages: error code and detail, by the message's offset in the intake.
        """
        kept: list[HeldMessage] = []
        for message in self.due:
            if message.sequence in messages:
                code, detail = messages[message.sequence]
                self.retired.append(message)
                self.dead.append(DeadMessage.of(message, code, detail))
            else:
                kept.append(message)
        self.due = kept

    def end_schedules(self, messages: Mapping[int, tuple[str, str]]) -> None:
        """Turn occurrences that cannot be followed into dead letters, also those that were delivered before.

        Args:
            messages: as for `give_up`.
        """
        self.give_up(messages)
        before = {one.sequence for one in self.occurrences if one.sequence in messages}
        if before:
            self.unfollowed = [one for one in self.resolutions if one.message.sequence in before]
            self.resolutions = [one for one in self.resolutions if one.message.sequence not in before]
            self.retired += [one.message for one in self.unfollowed]
            self.dead += [DeadMessage.of(one.message, *messages[one.message.sequence]) for one in self.unfollowed]

    def expire(self, now_ms: int) -> None:
        """Turn messages that have expired into dead letters of this batch. Call this before `settle`.

        Args:
            now_ms: wall time, which their results have, too.
        """
        late = {one.sequence: expired(one.expires_ms, now_ms) for one in self.due if one.expires_ms < now_ms}
        if late:
            self.give_up(late)

    def split_off(self, is_apart: Callable[[DeadMessage], bool]) -> tuple[list[DeadMessage], list[HeldMessage]]:
        """Remove dead letters that another transaction will write. Call this before `settle`.

        Args:
            is_apart: whether a letter is to be removed.

        Returns:
            The removed letters, and the messages for those letters whose messages were due.
        """
        apart = [dead for dead in self.dead if is_apart(dead)]
        if not apart:
            return [], []
        gone = {dead.location for dead in apart}
        self.dead = [dead for dead in self.dead if dead.location not in gone]
        retired = [message for message in self.retired if message.location in gone]
        self.retired = [message for message in self.retired if message.location not in gone]
        return apart, retired

    def reinstate(self) -> None:
        """Make messages that became dead letters in this batch due again, in order: the transaction aborted."""
        retired = {message.location for message in self.retired}
        self.dead = [dead for dead in self.dead if dead.location not in retired]
        before = {resolution.message.location for resolution in self.unfollowed}
        due = [message for message in self.retired if message.location not in before]
        self.due = sorted([*self.due, *due], key=BY_DUE)
        self.resolutions[:0] = [one for one in self.unfollowed if one.message.location in retired]
        self.retired, self.unfollowed = [], []
        self.followers = []

    def offsets(self) -> dict[Source, list[int]]:
        """Return the offsets that the transaction completes, by log."""
        offsets: dict[Source, list[int]] = {INTAKE: []}
        own = offsets[INTAKE]
        for message in self.due:
            if type(message) is not HeldMessage and message.source is not INTAKE:
                offsets.setdefault(message.source, []).append(message.offset)
            else:
                own.append(message.sequence)
        for resolution in self.resolutions:
            for record in resolution.records:
                offsets.setdefault(record.source, []).append(record.offset)
        for dead in self.dead:
            offsets.setdefault(dead.source, []).append(dead.offset)
        own += [decision.offset for decision in self.decisions if decision.record is not None]
        for copy in self.dropped:
            offsets.setdefault(copy.source, []).append(copy.offset)
        return offsets


class FiledRun(NamedTuple):
    """Records of a bucket, or of a target in the parked log, that one transaction wrote next to each other.

    Attributes:
        source: the bucket or target.
        first: the offset of the first record.
        end: one above the offset of the last one.
        records: how many there are.
    """

    source: Source
    first: int
    end: int
    records: int


class Filing:
    """The messages of one partition that one transaction files.

    Args:
        records: pairs of a message and the bucket that it goes to, or its target in the parked log; those of a bucket
            or target next to each other.
    """

    __slots__ = ("offsets", "reaching", "records", "runs", "size_bytes", "telling")

    def __init__(self, records: list[tuple[HeldMessage, Source]]) -> None:
        self.records = records
        offsets: dict[Source, list[int]] = {}
        size_bytes = 0
        for message, _ in records:
            size_bytes += message.size_bytes
            offsets.setdefault(message.source, []).append(message.offset)
        self.size_bytes = size_bytes
        """The approximate number of bytes that the transaction writes."""
        self.offsets: Offsets = offsets
        """The offsets that the transaction completes, by source."""
        self.runs: list[FiledRun] = []
        """Where the transaction wrote them, in the order of writing."""
        self.telling: list[IndexPart] = []
        """What the transaction tells the journal of earlier ones."""
        self.reaching: list[IndexPart] = []
        """What it tells of itself before its records are delivered: how far the levels' logs reach, at least."""

    def __len__(self) -> int:
        return len(self.records)

    @property
    def parked(self) -> list[HeldMessage]:
        """The messages that go to the parked log."""
        return [message for message, source in self.records if source.level == PARKED]


@dataclass(frozen=True, slots=True)
class Settlement:
    """The values that a transaction commits for one partition.

    Attributes:
        low: the low watermark, which is the offset to commit.
        metadata: the checkpoint's text, which is the metadata of that offset.
        journal: the record to write to the journal.
        before: records to write to the journal before that one: about names; without a batch also a summary, which is
            the offsets done above the watermarks, written again, and the index of the levels' logs.
    """

    low: int
    metadata: str
    journal: bytes
    before: tuple[bytes, ...] = ()


def fitting(sizes: Sequence[int], limit_bytes: int) -> int:
    """Return how many sizes, counted from the first, add up to at most `limit_bytes`; at least 1 if there are any."""
    count = 0
    for size in sizes:
        limit_bytes -= size
        if limit_bytes < 0 and count:
            break
        count += 1
    return count
