"""Executes one operation, so that each of its records is handled once whatever happens to this process.

1. Register the transactional id of the operation's track. This fences whoever executed one before, and aborts what it
   had not committed.
2. Read `I.operations` to its end: how far the operation is, is known now, and nobody else can write it any more.
3. Execute the steps. The transaction of a step holds its records and the progress with it.
4. Write how it ended.

For dead letters the transactional id is that of `tarry redrive`, so a command and an operation exclude each other, too.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from itertools import chain
from typing import Final

from tarry.api.operations.letters import LetterSteps, has_notes
from tarry.api.operations.picked import Bits
from tarry.api.operations.records import LONGEST_TEXT, Act, Asked, Progress, State, key_of, value_of
from tarry.api.operations.steps import Left, Step
from tarry.api.operations.table import Row
from tarry.api.operations.waiting import WaitingSteps
from tarry.client.retry.core.message import OutgoingRecord
from tarry.client.retry.redrive import keys_are_names, redrive_id
from tarry.client.retry.writing import RefusedRecord, deliver
from tarry.clock import Clock
from tarry.config import Config
from tarry.errors import RetriableError, UsageError
from tarry.kafka.errors import is_refusal
from tarry.kafka.inspector import Inspector
from tarry.kafka.origins import topic_id_of
from tarry.kafka.rights import DENIED
from tarry.kafka.settings import Cluster
from tarry.kafka.status import statuses_of
from tarry.kafka.topics import DEAD, NO_TOPIC, OPERATIONS, TopicAdmin
from tarry.kafka.transaction import Transactor
from tarry.service.app import policy_at

TELL_EVERY_MS: Final = 2_000
"""How often progress is written while nothing is handled: other replicas must hear of it."""


class NotNowError(RetriableError):
    """The operation goes on elsewhere, or later: this replica ends."""


class _StoppedError(Exception):
    """Somebody has stopped the operation."""


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What an operation needs of the process around it.

    Attributes:
        cluster: the Kafka cluster.
        settings: the configuration.
        clock: wall and monotonic time.
        replica: the name of this process.
        on_event: takes the name and the fields of an event for the log.
        caught_up: reads the operations of an intake to their end, and returns one of them; None: it is not there.
        find: returns an operation as it is known now.
        is_ending: whether this process ends.
    """

    cluster: Cluster
    settings: Config
    clock: Clock
    replica: str
    on_event: Callable[..., None]
    caught_up: Callable[[str, str], Row | None]
    find: Callable[[str, str], Row | None]
    is_ending: Callable[[], bool]


def transactional_id(asked: Asked) -> str:
    """Return the transactional id of an operation's track."""
    return redrive_id(asked.intake + DEAD) if asked.act.is_of_letters else f"tarry-operations.{asked.intake}"


class Execution:
    """One operation on its way. For one thread.

    Args:
        around: the process.
        asked: the operation.
    """

    def __init__(self, around: Surroundings, asked: Asked) -> None:
        self._around = around
        self._asked = asked
        self._transactor = Transactor(around.cluster, transactional_id(asked))
        self._handled = Bits(len(asked.picked))
        self._done = 0
        self._failed: Counter[str] = Counter()
        self._told_ms = 0
        self._written: Progress | None = None
        """The progress that this execution has written last."""
        self._look_again: Callable[[Step], Step] = lambda step: step
        """Takes from a step, right before its transaction, what must be left by now."""

    def run(self) -> None:
        """Execute what is left of it.

        Raises:
            NotNowError: this process ends.
            FatalError: another replica, or a command, has fenced this one.
            BrokerError: Kafka does not answer; to run it again goes on where this run ended.
        """
        around, asked = self._around, self._asked
        try:
            self._transactor.renew()
            row = around.caught_up(asked.intake, asked.id)
            if row is None or row.state.is_over:
                return
            state, error = State.DONE, ""
            try:
                self._resume(row)
                self._tell(State.RUNNING)
                self._pace()
                group, pace = around.settings.service.group, lambda _read, _more: self._pace()
                with closing(Inspector(around.cluster, group, around.clock, pace)) as inspector:
                    for step in self._steps(inspector):
                        self._execute(inspector, step)
                        self._pace()
                self._leave_the_rest()
            except _StoppedError:
                state = State.STOPPED
            except UsageError as problem:
                state, error = State.FAILED, str(problem)[:LONGEST_TEXT]
            except NotNowError:
                self._tell(State.WAITING, replica="")
                raise
            self._tell(state, error=error)
            fields = {"act": str(asked.act), "done": self._done, "failed": self._failed.total()}
            around.on_event("operation_over", id=asked.id, intake=asked.intake, state=str(state), **fields)
        finally:
            self._transactor.close()

    def _resume(self, row: Row) -> None:
        if row.progress is not None:
            try:
                self._handled = Bits.of(row.progress.handled, len(self._asked.picked))
            except ValueError as error:
                raise UsageError(f"operation {self._asked.id}: its progress cannot be read: {error}") from error
            self._done, self._failed = row.progress.done, Counter(row.progress.failed)

    def _steps(self, inspector: Inspector) -> Iterator[Step]:
        around, asked = self._around, self._asked
        admin = inspector.admin
        topic = asked.intake + DEAD if asked.act.is_of_letters else asked.intake
        if topic_id_of(admin, topic) != asked.topic_id:
            raise UsageError(f"{topic} was deleted and created again after the dry run: the operation has ended")
        if asked.act is Act.REDRIVE:
            as_names = keys_are_names(around.cluster, admin, asked.intake, self._warn)
            return LetterSteps(inspector, asked, around.clock, keys_are_names=as_names).steps(self._handled)
        if asked.act is Act.DISMISS:
            return LetterSteps(inspector, asked, around.clock).steps(self._handled)
        topics = TopicAdmin(admin)
        statuses = statuses_of(asked.intake, around.cluster, topics, inspector.offsets, around.clock, self._warn)
        policies = list(dict.fromkeys(one.policy for one in statuses.values()))
        own = [policy_at(around.settings, asked.intake)]
        waiting = WaitingSteps(inspector, asked, policies or own, around.clock)
        self._look_again = waiting.look_again
        return waiting.steps(self._handled)

    def _warn(self, text: str) -> None:
        self._around.on_event("status_not_read", intake=self._asked.intake, reason=text)

    def _execute(self, inspector: Inspector, step: Step) -> None:
        """Execute a step; what Kafka refuses for good is left as it is."""
        step = self._look_again(step)
        refused = self._commit(step.writes, step.left)
        if refused is None:
            return
        self._renew(inspector, refused)
        # One of the records is refused, and it is not always told which one: each has a transaction of its own.
        self._commit([], step.left)
        for number, records in step.writes:
            self._pace()
            alone = self._look_again(Step([(number, records)]))
            refused = self._commit(alone.writes, alone.left)
            if refused is not None:
                self._renew(inspector, refused)
                self._commit([], [(number, refused.error.name().lower())])

    def _commit(
        self, writes: Sequence[tuple[int, Sequence[OutgoingRecord]]], left: Sequence[tuple[int, str]]
    ) -> RefusedRecord | None:
        """Write records and the progress with them in one transaction; or return what is refused, and leave it open.

        Raises:
            UsageError: this user may not write there, or the topic is gone.
            RetriableError: Kafka does not take them now.
        """
        done, failed, handled = self._done + len(writes), self._failed.copy(), self._handled.copy()
        failed.update(why for _, why in left)
        numbers = [*(number for number, _ in writes), *(number for number, _ in left)]
        handled.update(numbers)
        progress = self._progress(State.RUNNING, done, failed, handled)
        records = chain.from_iterable(records for _, records in writes)
        self._transactor.begin()
        refused = deliver(self._transactor, chain(records, [self._record(progress)]))
        if refused is None:
            self._transactor.commit()
            self._done, self._failed, self._written = done, failed, progress
            self._handled.update(numbers)  # in place: the steps look at it
            self._told_ms = self._around.clock.monotonic_ms()
            return None
        if is_refusal(refused.error) and writes and refused.error.code() not in DENIED | NO_TOPIC:
            return refused
        self._transactor.abort()
        self._transactor.renew()
        if refused.error.code() in DENIED | NO_TOPIC:
            raise UsageError(f"could not write to {refused.topic}: {refused.error.str()}")
        raise _could_not(refused)

    def _renew(self, inspector: Inspector, refused: RefusedRecord) -> None:
        """Abort, and register again: after a refused record, the client library may lose the next ones without a word.

        Until this is registered again, a command or another replica may do what this execution was about to do.

        Raises:
            RetriableError: one has: what is left must be found out anew.
        """
        asked, logs = self._asked, []
        if asked.act.is_of_letters:
            logs = [(asked.intake + DEAD, partition) for partition in asked.picked.partitions]
        # With the transaction still open: if somebody else has registered by now, the abort fails.
        before = inspector.offsets.ends(logs, committed=False) if logs else {}
        self._transactor.abort()
        self._transactor.renew()
        row = self._around.caught_up(asked.intake, asked.id)
        after = inspector.offsets.ends(logs, committed=False) if logs else {}
        is_alone = row is not None and row.progress == self._written
        if not is_alone or any(has_notes(inspector, log, before[log], after[log]) for log in logs):
            raise _could_not(refused)

    def _leave_the_rest(self) -> None:
        """Count what was not found: messages that wait no more, and letters that Kafka has no more."""
        why = Left.GONE if self._asked.act.is_of_letters else Left.NOT_WAITING
        rest = [(number, str(why)) for number in range(len(self._asked.picked)) if number not in self._handled]
        if rest:
            self._commit([], rest)

    def _tell(self, state: State, *, replica: str | None = None, error: str = "") -> None:
        """Write how far it is, alone."""
        progress = self._progress(state, self._done, self._failed, self._handled, replica, error)
        self._transactor.begin()
        refused = deliver(self._transactor, [self._record(progress)])
        if refused is not None:
            self._transactor.abort()
            raise _could_not(refused)
        self._transactor.commit()
        self._written = progress
        self._told_ms = self._around.clock.monotonic_ms()

    def _progress(
        self,
        state: State,
        done: int,
        failed: Counter[str],
        handled: Bits,
        replica: str | None = None,
        error: str = "",
    ) -> Progress:
        who = self._around.replica if replica is None else replica
        return Progress(state, done, dict(failed), handled.text(), self._around.clock.now_ms(), who, error)

    def _record(self, progress: Progress) -> OutgoingRecord:
        key, value = key_of(self._asked.id, progress), value_of(progress)
        return OutgoingRecord(self._asked.intake + OPERATIONS, 0, key, value, [])

    def _pace(self) -> None:
        """Look whether to go on, and let others hear of the operation from time to time.

        Raises:
            NotNowError: this process ends.
        """
        around = self._around
        if around.is_ending():
            raise NotNowError("this replica ends")
        row = around.find(self._asked.intake, self._asked.id)
        if row is not None and row.stop is not None:
            raise _StoppedError
        if around.clock.monotonic_ms() - self._told_ms > TELL_EVERY_MS:
            self._tell(State.RUNNING)


def _could_not(refused: RefusedRecord) -> RetriableError:
    return RetriableError(f"could not write to {refused.topic}: {refused.error.str()}", refused.error.name())
