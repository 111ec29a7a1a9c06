"""Filing: messages that are due beyond the hot window go to buckets of the overflow wheel, in side transactions.

Messages that have waited long for their target go to the parked log, in the same transactions.

A broker refuses a batch as a whole, and does not name the record that it refuses. So after a refusal the records of the
transaction are sent again, each in a batch of its own. A record that is refused then becomes a dead letter of the next
firing transaction. If a log cannot be written to at present (no leader, too few in-sync replicas, no right to write),
the service waits for it, and no message becomes a dead letter for that.

A bucket is closed only between two filings of its partition. So its end is certain, and nothing is filed to a closed
bucket.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import groupby
from operator import itemgetter
from typing import TYPE_CHECKING, Any

from confluent_kafka import KafkaError, KafkaException

from tarry.core.batch import FiledRun, Filing
from tarry.core.delivery import filed_cancel_result, source_prefix
from tarry.core.message import HeldCancel, HeldMessage
from tarry.core.partition import Only, PartitionState
from tarry.core.progress.source import INTAKE, Source
from tarry.core.wheel.filed import filed_headers
from tarry.errors import LogError
from tarry.headers import ErrorCode
from tarry.kafka.clients import Clients
from tarry.kafka.errors import error_of
from tarry.kafka.partition_logs import level_log_of
from tarry.kafka.refusals import end_lost
from tarry.kafka.settings import ALONE_BYTES, BATCH_BYTES
from tarry.kafka.topics import JOURNAL, RESULTS
from tarry.service.metrics.families import FILED
from tarry.service.worker.batches import MOST_ALONE, Bound, rotated, take_batches
from tarry.service.worker.connections import GroupProducer
from tarry.service.worker.context import Context
from tarry.service.worker.side_transactions import Attempt, SideTransactions
from tarry.service.worker.verdicts import Verdict, refusal_of

if TYPE_CHECKING:
    from tarry.kafka.transaction import OnFailure

FILE_EVERY_MS = 50
"""The least time from the start of one filing to the next: a message that waits longer than a minute is not urgent."""

BACKOFF_MS = 500
"""How long to wait before the next filing, after one failed for a cause that passes."""


@dataclass(slots=True, kw_only=True)
class _Attempt(Attempt[Filing]):
    """An open transaction.

    Attributes:
        alone: whether each record goes in a batch of its own.
        refusal: why it must be aborted, because a record is refused permanently.
        verdicts: why records are refused, for those that are known, by partition and offset in the intake.
        runs: where the records are in the logs of the levels.
        is_told: whether the journal's records that need their offsets are written.
    """

    alone: bool
    refusal: str = ""
    verdicts: dict[PartitionState, dict[int, Verdict]] = field(default_factory=dict)
    runs: "list[_Run]" = field(default_factory=list)
    is_told: bool = False

    @property
    def is_refused(self) -> bool:
        return bool(self.refusal)

    def __len__(self) -> int:
        return sum(len(filing) for _, filing in self.batches)

    def told(self, state: PartitionState) -> list[FiledRun]:
        """Return where records of a partition are, of runs of which it is known."""
        return [run.told() for run in self.runs if run.state is state and run.is_known]


class _Run:
    """The records of one bucket, or of one parked target, in a transaction: next to each other in their log.

    Args:
        state: the partition.
        source: the bucket, or the target in the parked log.
        count: how many records there are.
    """

    __slots__ = ("_count", "_first", "_last", "source", "state")

    def __init__(self, state: PartitionState, source: Source, count: int) -> None:
        self.state = state
        self.source = source
        self._count = count
        self._first = self._last = -1

    @property
    def is_known(self) -> bool:
        """Whether any of its offsets is known."""
        return self._last >= 0

    def note(self, offset: int) -> None:
        """Note the offset of the first record, or of the last one."""
        self._first = offset if self._first < 0 else min(offset, self._first)
        self._last = max(offset, self._last)

    def told(self) -> FiledRun:
        """Return where the records are."""
        return FiledRun(self.source, self._first, self._last + 1, self._count)


class Filer(SideTransactions[_Attempt]):
    """Files messages.

    Args:
        producer: a producer that nothing else uses.
        clients: waits for brokers in the background.
        most: the most messages in one transaction.
        context: time, the log and the metrics.
    """

    def __init__(self, producer: GroupProducer, clients: Clients, most: int, context: Context) -> None:
        super().__init__(producer, clients, context)
        self._most = most
        self._suspects = 0
        """How many messages at the head of the queue were in a refused transaction, and must be sent one a batch."""
        self._bound = Bound()
        self._next_ms = 0
        self._turns = 0

    def turn(
        self, states: Sequence[PartitionState], held_up: Sequence[PartitionState], *, is_hurried: bool = False
    ) -> None:
        """Look after the open transaction, or begin one, without waiting.

        Args:
            states: all partitions.
            held_up: the partitions of which nothing must be filed to buckets now.
            is_hurried: whether to read the intakes is more urgent than to file what was read. What is on its way down
                from a bucket is filed nevertheless: what is due soon waits for it.

        Raises:
            RetriableError: no producer can be built for now.
            LogError: a log has lost its end.
            FatalError: a transaction's fate is unknown: drop the states and take over again.
        """
        if self._attempt is not None:
            self._look(self._attempt)
            return
        now_ms = self._clock.monotonic_ms()
        if now_ms < self._next_ms or not self._producer.is_ready():
            return
        wall_ms = self._clock.now_ms()
        only = partial(_only, held_up, is_hurried)
        waiting = [state for state in states if state.has_to_file(wall_ms, only(state))]
        if waiting:
            self._next_ms = now_ms + FILE_EVERY_MS
            if self._producer.fits():
                self._take(waiting, only)
            else:
                self._producer.renew()

    def forget(self) -> None:
        """Forget the open transaction, because the states and the producer were dropped."""
        super().forget()
        self._suspects = 0

    # -- 1 ----------------------------------------------------------------------------------------------------------

    def _bound_of(self, _attempt: _Attempt) -> Bound:
        return self._bound

    def _fitting_bytes(self) -> int:
        return ALONE_BYTES if self._suspects > 0 else BATCH_BYTES

    def _take(self, states: Sequence[PartitionState], only: Callable[[PartitionState], Only | None]) -> None:
        self._turns += 1
        now_ms = self._clock.now_ms()
        alone = self._suspects > 0
        most = min(self._most, self._suspects, MOST_ALONE) if alone else self._most
        filings = take_batches(
            rotated(states, self._turns),
            most,
            self._bound.bytes,
            lambda state, room, size: state.take_to_file(room, now_ms, size, only(state)),
        )
        if filings:
            self._begin(_Attempt(batches=filings, alone=alone))

    def _write(self, attempt: _Attempt, state: PartitionState, batch: Filing) -> None:
        produce = self._transactor.produce
        for source, records in groupby(batch.records, itemgetter(1)):
            log, messages = level_log_of(state.place, source.level), [message for message, _ in records]
            run = _Run(state, source, len(messages))
            attempt.runs.append(run)
            of_others: OnFailure = partial(self._not_filed, attempt, log[0], None)
            last = len(messages) - 1
            for at, message in enumerate(messages):
                # The records of a run are next to each other, so the offsets of the first and the last one are enough.
                report = of_others if 0 < at < last else partial(self._filed, attempt, log[0], None, run)
                if attempt.alone:
                    report = partial(self._filed, attempt, log[0], (state, message), run)
                try:
                    produce(*log, message.original_key, message.value, filed_headers(message), report)
                except KafkaException as exception:
                    error = error_of(exception)
                    if refusal_of(error) is None:
                        raise
                    report(error, None)
        prefix, now_ms = source_prefix(*state.place), self._clock.now_ms()
        for message, _ in batch.records:
            if type(message) is HeldCancel and message.source == INTAKE:  # one result, not one at each level
                result = filed_cancel_result(message, prefix, now_ms)
                produce(state.intake + RESULTS, state.partition, message.id, result, [], attempt.report_own)
        for record in state.journal_of(batch):
            produce(state.intake + JOURNAL, state.partition, None, record, [], attempt.report_own)

    def _filed(
        self,
        attempt: _Attempt,
        topic: str,
        alone: tuple[PartitionState, HeldMessage] | None,
        run: "_Run",
        error: KafkaError | None,
        record: Any,
    ) -> None:
        """Take the delivery report of a record whose offset must be known: the first or the last one of a run."""
        if error is not None:
            self._not_filed(attempt, topic, alone, error, record)
        elif (offset := record.offset()) is None or offset < 0:
            attempt.failure = attempt.failure or f"{topic}: delivered, without an offset"
        else:
            run.note(offset)

    def _not_filed(
        self,
        attempt: _Attempt,
        topic: str,
        alone: tuple[PartitionState, HeldMessage] | None,
        error: KafkaError | None,
        _record: Any,
    ) -> None:
        """Take the delivery report of a record to a level; `alone` is its message, if it had a batch of its own."""
        if error is None:
            return
        code, reason = refusal_of(error), f"{topic}: {error.str()}"
        if code is None or code is ErrorCode.BAD_TARGET:  # the topic is our own, so its name is not the message's fault
            attempt.failure = attempt.failure or reason
            return
        attempt.refusal = attempt.refusal or reason
        if alone is not None:
            state, message = alone
            attempt.verdicts.setdefault(state, {})[message.sequence] = (code, reason)

    def _end_early(self, _attempt: _Attempt) -> None:
        """Let it go on: a filing delivers nothing, and what is superseded is dropped when it is read again."""

    # -- 2 ----------------------------------------------------------------------------------------------------------

    def _write_last(self, attempt: _Attempt) -> bool:
        if attempt.is_told:
            return False
        attempt.is_told = True
        some = False
        for state, filing in attempt.batches:
            filing.runs = attempt.told(state)
            for record in state.journal_of_filed(filing):
                self._transactor.produce(state.intake + JOURNAL, state.partition, None, record, [], attempt.report_own)
                some = True
        return some

    def _confirm(self, attempt: _Attempt) -> None:
        self._clear(len(attempt))
        lost: list[LogError] = []
        for state, filing in attempt.batches:
            if state.lost_ends:
                # What this state knows of that log is of lost records, and now of new ones, so it must do nothing more.
                [one, *_] = state.lost_ends.values()
                lost.append(LogError(end_lost(state.place, one), level_log_of(state.place, one.level)))
            else:
                state.confirm_filed(filing)
                self._tally.count(FILED, len(filing), state.intake)
        if lost:
            raise LogError(str(lost[0]), lost[0].log, lost[1:])

    def _on_refusal(self, attempt: _Attempt) -> None:
        """Try again at once: without the refused record if it is known, else to find out which one it is."""
        if attempt.alone:  # the dead letter reports the refusal, so no event does
            self._clear(sum(map(len, attempt.verdicts.values())))
        else:
            self._on_event("filing_aborted", reason=attempt.refusal)
            self._suspects = len(attempt)
        self._abort(attempt)

    def _on_failure(self, attempt: _Attempt, reason: str) -> None:
        self._on_event("filing_aborted", reason=reason)
        self._abort(attempt)
        self._next_ms = self._clock.monotonic_ms() + BACKOFF_MS

    def _clear(self, messages: int) -> None:
        """Count this many suspects as filed or dead."""
        self._suspects = max(0, self._suspects - messages)

    def _put_back_batch(self, attempt: _Attempt, state: PartitionState, batch: Filing) -> None:
        state.note_ends(attempt.told(state))
        state.put_back_filed(batch, attempt.verdicts.get(state, {}))


def _only(held_up: Sequence[PartitionState], is_hurried: bool, state: PartitionState) -> Only | None:
    """Return what of a partition may be filed now; None for all."""
    if state in held_up:
        return "parked"
    return "moving" if is_hurried else None
