"""The answers about bulk acts, operations and who did what: for `/v1` and the console."""

from pydantic import BaseModel, Field

from tarry.api.looking.models import Answer, Instant, LetterRow, MessageRow
from tarry.api.operations.records import Act, State


class DryRun(BaseModel):
    """What a bulk act would do: nothing was changed.

    Attributes:
        act: the act.
        intake: the intake.
        count: how many records it is about.
        complete: whether these are all that fit; if not, do it again after the operation.
        by_target: how many are for each target; an empty name: without one.
        by_code: how many dead letters have each code.
        left_out: how many fit and are left as they are, by a word that says why.
        letters: the first dead letters.
        messages: the first messages.
        token: executes it, for exactly these records; null: there are none.
        token_until: until when.
    """

    act: Act
    intake: str
    count: int
    complete: bool
    by_target: dict[str, int]
    by_code: dict[str, int] = Field(default_factory=dict)
    left_out: dict[str, int] = Field(default_factory=dict)
    letters: list[LetterRow] = Field(default_factory=list)
    messages: list[MessageRow] = Field(default_factory=list)
    token: str | None
    token_until: Instant | None


class OperationRow(BaseModel):
    """An operation.

    Attributes:
        id: its id.
        act: what it does.
        intake: in which intake.
        state: how far it is.
        total: how many records it is about.
        done: with how many it has done what it was asked to do.
        failed: how many were left as they are, by a word that says why.
        by_target: how many are for each target; an empty name: without one.
        by_code: how many dead letters have each code.
        by_ms: by how much `move` changes the due times.
        who: who asked.
        reason: why.
        at: when.
        changed: when it was heard of last.
        replica: which process executes it.
        stopped_by: who has stopped it.
        stop_reason: why.
        error: why it has failed as a whole.
    """

    id: str
    act: Act
    intake: str
    state: State
    total: int
    done: int
    failed: dict[str, int]
    by_target: dict[str, int]
    by_code: dict[str, int]
    by_ms: int
    who: str
    reason: str
    at: Instant
    changed: Instant | None
    replica: str | None
    stopped_by: str | None
    stop_reason: str | None
    error: str | None

    @property
    def left(self) -> int:
        """How many records were left as they are."""
        return sum(self.failed.values())

    @property
    def is_over(self) -> bool:
        """Whether nothing follows."""
        return self.state.is_over


class Operations(Answer):
    """Operations, the newest first."""

    operations: list[OperationRow]


class AuditRow(BaseModel):
    """Something that somebody did.

    Attributes:
        at: when.
        who: who.
        act: what.
        intake: in which intake.
        target: for messages to this target.
        handle: of the message.
        operation: the id of the operation.
        records: how many records the operation is about.
        reason: why.
    """

    at: Instant
    who: str
    act: str
    intake: str
    target: str | None = None
    handle: str | None = None
    operation: str | None = None
    records: int | None = None
    reason: str | None = None


class Audit(Answer):
    """Who did what, the newest first."""

    acts: list[AuditRow]
