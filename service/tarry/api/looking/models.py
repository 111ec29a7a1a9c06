"""The answers of the lists of `/v1`. Times are RFC 3339 in JSON, and milliseconds since the epoch inside."""

from typing import Annotated, Literal

from pydantic import BaseModel, Field, PlainSerializer, WithJsonSchema

from tarry.api.looking.shown import Shown
from tarry.units import format_instant

Instant = Annotated[
    int,
    PlainSerializer(format_instant, return_type=str),
    WithJsonSchema({"type": "string", "format": "date-time"}, mode="serialization"),
]


class Answer(BaseModel):
    """What each answer says of itself.

    Attributes:
        as_of: when Kafka was read for it.
        away: why Kafka could not be read since; null: it was read just now.
    """

    as_of: Instant
    away: str | None = None


class Problem(BaseModel):
    """Something that is not well.

    Attributes:
        kind: what it is.
        intake: of this intake.
        count: how many partitions, messages or targets.
        since: since when.
        text: one line for people.
        runbook: the section of `docs/operations.md` that says what to do.
    """

    kind: Literal["late", "dead", "parked", "paused", "quarantined", "not-served", "clock"]
    intake: str | None
    count: int
    since: Instant | None = None
    text: str
    runbook: str


class Health(Answer):
    """Whether all is well.

    Attributes:
        is_well: whether there is no problem.
        problems: what is not well.
        figures_as_of: when the owners of the intake that says least published their figures last; null: one never did.
    """

    is_well: bool
    problems: list[Problem]
    figures_as_of: Instant | None = None


class IntakeRow(BaseModel):
    """One intake.

    Attributes:
        intake: its topic.
        exists: whether its topics exist.
        partitions: how many.
        at_most: how many messages wait, at most.
        in_memory_at_most: how many of them are in memory, or not read yet.
        parked: how many wait for targets that are away.
        dead: how many dead letters were not sent again.
        names: under how many names messages wait.
        late_since: since when a message has been due that was not delivered.
        not_served: the partitions that no process serves.
        max_delay_ms: the longest delay that it accepts.
        delay_ms: its fixed delay.
        targets: the globs of the targets that it accepts.
        target: its fixed target.
        dialect: the scheduler whose headers it reads.
    """

    intake: str
    exists: bool = True
    partitions: int = 0
    at_most: int = 0
    in_memory_at_most: int = 0
    parked: int = 0
    dead: int = 0
    names: int = 0
    late_since: Instant | None = None
    not_served: list[int] = Field(default_factory=list)
    max_delay_ms: int
    delay_ms: int | None = None
    targets: list[str] = Field(default_factory=list)
    target: str | None = None
    dialect: str | None = None


class Intakes(Answer):
    """All configured intakes."""

    intakes: list[IntakeRow]


class PartitionRow(BaseModel):
    """One partition of an intake.

    Attributes:
        intake: its topic.
        partition: its number.
        state: whether a process serves it; `idle`: it is assigned to one that has not taken it over.
        owner: the process that took it over last.
        member: the member of the group to which it is assigned, and its host.
        owned_since: when the owner took it over.
        stands_by: what takes over if this member ends.
        at_most: how many messages wait, at most.
        in_memory_at_most: how many of them are in memory, or not read yet.
        parked_at_most: how many wait for targets that are away.
        journal_records: how many records of the journal a take-over reads.
        names: under how many names messages wait.
        late_since: since when a message has been due that was not delivered.
        refusal: why no process can take it over.
        figures_as_of: when its owner has published the figures below; null: never.
        figures_are_stale: whether that is so long ago that the owner may be gone.
        held: how many of its messages are in memory.
        memory_bytes: how much memory they take.
        process_bytes: the memory that the owner's process occupies.
        process_takeovers: how many partitions that process has taken over since its start.
        clock_skew_ms: the clock of its machine less the brokers'.
        obeyed: the offset of the log of pauses below which it obeys.
        kept_by: processes that keep its state, because the group may give it back to them.
    """

    intake: str
    partition: int
    state: Literal["served", "idle", "unassigned", "quarantined", "new"]
    owner: str | None = None
    member: str | None = None
    owned_since: Instant | None = None
    stands_by: str = ""
    at_most: int = 0
    in_memory_at_most: int = 0
    parked_at_most: int = 0
    journal_records: int = 0
    names: int = 0
    late_since: Instant | None = None
    refusal: str | None = None
    figures_as_of: Instant | None = None
    figures_are_stale: bool = False
    held: int | None = None
    memory_bytes: int | None = None
    process_bytes: int | None = None
    process_takeovers: int | None = None
    clock_skew_ms: int | None = None
    obeyed: int | None = None
    kept_by: list[str] = Field(default_factory=list)


class Partitions(Answer):
    """The partitions of all intakes, or of one."""

    group: str
    group_state: str
    partitions: list[PartitionRow]


class TargetRow(BaseModel):
    """One target of an intake.

    Attributes:
        intake: the intake.
        target: the topic.
        figures_as_of: when the owners published the figures of deliveries last; null: never.
        figures_are_stale: whether that is so long ago that they may be gone.
        delivered_per_s: messages a second, over the minute before.
        p50_ms: of that minute's deliveries, half were at most this late.
        p99_ms: of that minute's deliveries, 99 of 100 were at most this late.
        worst_ms: the latest one of that minute.
        last_delivery: the last known one, to within the seconds of a period.
        parked: how many messages are due and wait because it is away or paused: in memory, and in the parked log.
        parked_since: since when.
        dead: how many of its dead letters were not sent again.
        paused_since: since when deliveries to it are paused.
        paused_until: when that ends by itself.
        paused_by: who paused it.
        paused_reason: why.
    """

    intake: str
    target: str
    figures_as_of: Instant | None = None
    figures_are_stale: bool = False
    delivered_per_s: float = 0.0
    p50_ms: int | None = None
    p99_ms: int | None = None
    worst_ms: int | None = None
    last_delivery: Instant | None = None
    parked: int = 0
    parked_since: Instant | None = None
    dead: int = 0
    paused_since: Instant | None = None
    paused_until: Instant | None = None
    paused_by: str | None = None
    paused_reason: str | None = None


class Targets(Answer):
    """The targets of recent messages."""

    targets: list[TargetRow]


class DueRow(BaseModel):
    """How many messages wait that are due in a range of time, at most.

    Attributes:
        due_from: none is due before.
        due_until: all are due before; null: not known.
        at_most: how many.
        resolution_ms: the widest range by which their due times are known; the count is spread over it.
    """

    due_from: Instant | None
    due_until: Instant | None
    at_most: int
    resolution_ms: int


class Pending(Answer):
    """What waits, by due time.

    Attributes:
        intake: the intake.
        at_most: how many messages, at most.
        rows: by due time.
        parked_at_most: those that are overdue because their targets are away; in no row.
    """

    intake: str
    at_most: int
    rows: list[DueRow]
    parked_at_most: int


class MessageRow(BaseModel):
    """A message that waits.

    Attributes:
        handle: by which it is found and cancelled; null if it has no due time.
        intake: its intake.
        partition: the partition.
        offset: its offset in the intake.
        kind: `dead`: it becomes a dead letter once the service reads it.
        id: 36 characters.
        due: its due time.
        target: its target.
        where: in the intake, in a level of the overflow wheel, or parked.
        level: the level; null elsewhere.
        level_offset: the offset in the level's log; null elsewhere.
        schedule: the id of the schedule of which it is an occurrence.
        key: its key.
        hidden: the parts that this principal may not see.
    """

    handle: str | None
    intake: str
    partition: int
    offset: int
    kind: Literal["message", "dead"]
    id: str
    due: Instant | None
    target: str | None
    where: Literal["memory", "level", "parked"]
    level: int | None = None
    level_offset: int | None = None
    schedule: str | None = None
    key: Shown | None = None
    hidden: list[str] = Field(default_factory=list)


class Messages(Answer):
    """A page of messages that wait.

    Attributes:
        messages: the page.
        next: the cursor of the next page; null: there is none.
        searched: how many records were read for this page.
        complete: whether all were read that could belong before `next`; if not, the limit of time or bytes was met.
        is_sorted: whether all that is due earlier is on earlier pages; false: the page is of a range of due times that
            holds too many to sort, and lists them as they were filed.
    """

    intake: str
    messages: list[MessageRow]
    next: str | None = None
    searched: int = 0
    complete: bool = True
    is_sorted: bool = True


class LetterRow(BaseModel):
    """A dead letter.

    Attributes:
        intake: the intake.
        partition: of the topic of dead letters.
        offset: there.
        at: when it was written.
        code: why.
        detail: one line; null if it is hidden, because it may quote a header.
        target: the target that the message had.
        id: of the message.
        is_sent_again: whether it was redriven, or dismissed.
        is_dismissed: whether it was dismissed.
        key: its key.
        name: its name.
        hidden: the parts that this principal may not see.
    """

    intake: str
    partition: int
    offset: int
    at: Instant
    code: str
    detail: str | None = None
    target: str | None = None
    id: str | None = None
    is_sent_again: bool = False
    is_dismissed: bool = False
    key: Shown | None = None
    name: Shown | None = None
    hidden: list[str] = Field(default_factory=list)


class DeadCount(BaseModel):
    """How many dead letters have a code and a target."""

    code: str
    target: str | None
    count: int
    first: Instant
    last: Instant


class DeadHour(BaseModel):
    """How many dead letters were written in an hour."""

    hour: Instant
    count: int


class Dead(Answer):
    """Dead letters: counts, and a page, the newest first.

    Attributes:
        open: how many were not sent again, among those that are counted.
        counts: by code and target.
        hours: over time.
        complete: whether the whole topic was read; if not, the next answer counts more.
        forgotten: how many older ones are not listed here, only in the topic.
    """

    intake: str
    open: int
    counts: list[DeadCount]
    hours: list[DeadHour]
    letters: list[LetterRow]
    next: str | None = None
    searched: int = 0
    complete: bool = True
    forgotten: int = 0


class RetryKey(BaseModel):
    """A key in trouble.

    Attributes:
        partition: of the topic.
        key: the key.
        head: the offset of the message whose failure began it.
        behind: how many messages of the key wait behind the head.
        number: which message of the key queue has its turn.
        due: when the head comes back.
        attempts: how often the head has failed.
        since: since when the key is in trouble; null: the consumer did not say.
        is_stopped: whether the messages of the key go to the dead letters.
    """

    partition: int
    key: Shown | None = None
    head: int
    behind: int
    number: int
    due: Instant
    attempts: int = 0
    since: Instant | None = None
    is_stopped: bool


class RetryGroup(BaseModel):
    """A group of consumers that retry.

    Attributes:
        topic: the topic that it reads.
        group: its consumer group.
        dead: its dead-letter topic.
        dead_at_most: how many dead letters are there, at most.
        in_trouble: how many keys are in trouble.
        behind: how many messages wait in their key queues.
        keys: the keys that have waited longest.
        is_whole: whether all keys are listed.
    """

    topic: str
    group: str
    dead: str
    dead_at_most: int
    in_trouble: int
    behind: int
    keys: list[RetryKey]
    is_whole: bool = True


class Retries(Answer):
    """All groups of consumers that retry."""

    groups: list[RetryGroup]


class OutcomeRow(BaseModel):
    """The outcome of an occurrence of a schedule.

    Attributes:
        outcome: as in its result.
        due: when it was due.
        at: when it was decided.
        occurrence: its number.
    """

    outcome: str
    due: Instant
    at: Instant
    occurrence: int


class ScheduleRow(BaseModel):
    """A schedule.

    Attributes:
        intake: its intake.
        partition: the partition.
        id: of the schedule.
        handle: of the occurrence that comes next.
        occurrence: its number.
        state: of that occurrence.
        next: when it is due.
        then: the times after it.
        last: the outcomes of the last occurrences, the newest first, as far as they are among the last 2,000 results of
            the partition.
        every: the rule, if it is an interval.
        cron: the rule, if it is a cron rule.
        zone: the zone of the cron rule.
        until: when it ends.
        target: its target.
        key: its key.
        name: its name.
        hidden: the parts that this principal may not see.
    """

    intake: str
    partition: int
    id: str
    handle: str
    occurrence: int
    state: Literal["waiting", "overdue", "parked"]
    next: Instant
    then: list[Instant]
    last: list[OutcomeRow] = Field(default_factory=list)
    every: str | None = None
    cron: str | None = None
    zone: str | None = None
    until: Instant | None = None
    target: str | None = None
    key: Shown | None = None
    name: Shown | None = None
    hidden: list[str] = Field(default_factory=list)


class Schedules(Answer):
    """The schedules of an intake, by due time.

    Attributes:
        searched: how many waiting records were read.
        complete: whether all were read; if not, the limit of time was met, and there may be more schedules.
    """

    intake: str
    schedules: list[ScheduleRow]
    searched: int = 0
    complete: bool = True
