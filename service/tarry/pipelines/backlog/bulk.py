"""Run a plan: send the cancels, and the messages that replace the cancelled ones.

1. Register the plan's transactional id. This aborts the open transaction of a killed run, and fences a run that is
   still alive.
2. Wait until all earlier transactions have ended, and read the waiting messages. A message with a committed cancel no
   longer waits, and its cancel was committed together with the replacement. So the messages of the plan that still
   wait are those still to be processed. A new plan does not need this step.
3. Send each cancel with its replacement, some hundreds in one transaction, to the partition of the old message, in the
   order of the old messages. Skip messages that are due too soon. The replacement of a named message needs no cancel.
4. Wait for the results of the cancels. A cancel that came too late had no effect: both messages are delivered.
   Of a named message, wait for the result of the replacement: it was skipped if the message waited no more.
"""

from collections.abc import Callable, Sequence
from itertools import islice
from typing import Final, NamedTuple

from confluent_kafka import KafkaException, Message
from pyspark.sql import DataFrame, Row
from pyspark.sql import functions as f

from tarry.clock import Clock, SystemClock
from tarry.core.request.intake_policy import IntakePolicy
from tarry.errors import BrokerError, UsageError
from tarry.headers import CANCEL, Outcome
from tarry.kafka.errors import error_of
from tarry.kafka.settings import TRANSACTION_TIMEOUT_MS
from tarry.kafka.topics import RESULTS
from tarry.kafka.transaction import ProducedHeaders, Transactor
from tarry.kafka.types import Place
from tarry.pipelines import archive
from tarry.pipelines.backlog.plan import COLUMNS
from tarry.pipelines.backlog.waiting import waiting
from tarry.pipelines.topics import TopicTables

TOLD_EVERY: Final = 10_000
LOOK_EVERY_S: Final = 1.0

_KEY: Final = ("partition", "id", "due_ms")

_OF_NAMED: Final = (Outcome.SCHEDULED, Outcome.SKIPPED, Outcome.DUPLICATE, Outcome.DEAD)
"""The outcomes of the replacement of a named message."""


class BulkDone(NamedTuple):
    """The counts of a run.

    Attributes:
        planned: messages in the plan.
        sent: messages that this run cancelled or shifted.
        skipped: messages that no longer waited: an earlier run processed them, they fired, or another client cancelled
            them.
        too_soon: messages that stay unchanged because they are due too soon.
        too_late: cancels that came too late; shifted messages are then delivered twice.
        refused: cancels, and replacements of named messages, that became dead letters.
        unanswered: cancels, and replacements of named messages, without a result yet.
        missed: named messages that waited no more when their replacement was read. It was skipped.
    """

    planned: int
    sent: int
    skipped: int
    too_soon: int
    too_late: int
    refused: int
    unanswered: int
    missed: int = 0


class Run:
    """A run of a plan.

    Args:
        topics: the topics of the cluster.
        group: the service's consumer group.
        policy: the policy of the intake.
        margin_ms: messages that are due within this time stay unchanged.
        at_once: maximum messages in a transaction.
        wait_s: how long to wait for the results of the cancels.
        on_progress: called with one line for each step.
    """

    def __init__(
        self,
        topics: TopicTables,
        group: str,
        policy: IntakePolicy,
        *,
        margin_ms: int,
        at_once: int,
        wait_s: float,
        on_progress: Callable[[str], None],
    ) -> None:
        self._topics = topics
        self._group = group
        self._policy = policy
        self._margin_ms = margin_ms
        self._at_once = at_once
        self._wait_s = wait_s
        self._on_progress = on_progress
        self._clock: Clock = SystemClock()

    def run(self, planned: DataFrame, *, is_new: bool) -> BulkDone:
        """Run the part of a plan that is not done yet.

        Args:
            planned: the written plan.
            is_new: this process has just made the plan, so no other run can have processed it.

        Raises:
            UsageError: another run of the same plan fenced this one, or the brokers do not answer: run the plan again.
        """
        first = planned.head()
        if first is None:
            return BulkDone(0, 0, 0, 0, 0, 0, 0)
        if first.intake != self._policy.topic:
            raise UsageError(f"the plan is for {first.intake}, not for {self._policy.topic}")
        count = planned.count()
        results_from = self._topics.ends([first.intake + RESULTS])
        transactor = Transactor(
            self._topics.cluster,
            f"tarry-plan-{first.plan}",
            properties={"message.timeout.ms": TRANSACTION_TIMEOUT_MS},
        )
        sent, too_soon = 0, 0
        try:
            transactor.renew()
            todo = planned if is_new else self._still_waiting(planned).localCheckpoint()
            left = count if is_new else todo.count()
            rows = todo.orderBy("partition", "offset").toLocalIterator()
            while batch := list(islice(rows, self._at_once)):
                soon_ms = self._clock.now_ms() + self._margin_ms
                chosen = [row for row in batch if row.due_ms >= soon_ms]
                _transact(transactor, chosen)
                told, too_soon = sent // TOLD_EVERY, too_soon + len(batch) - len(chosen)
                sent += len(chosen)
                if sent // TOLD_EVERY > told:
                    self._on_progress(f"{sent:,} of {left:,}")
        except BrokerError as error:
            raise UsageError(f"{error}; {sent:,} messages are done: run the plan again") from error
        finally:
            transactor.close()
        found = self._outcomes(results_from, todo, sent)
        counts = (Outcome.CANCEL_TOO_LATE, Outcome.SKIPPED, Outcome.DEAD)
        too_late, missed, refused = (found.get(outcome, 0) for outcome in counts)
        return BulkDone(count, sent, count - left, too_soon, too_late, refused, sent - sum(found.values()), missed)

    def _still_waiting(self, planned: DataFrame) -> DataFrame:
        found = waiting(self._topics, self._group, self._policy, settled=True, on_progress=self._on_progress)
        # The service may not have read the replacement of a named message yet: then both are found.
        sent = found.select("partition", f.col("id").alias("new_id"))
        waits = planned.join(found.select("partition", "offset", "id", "due_ms"), ["offset", *_KEY], "left_semi")
        return waits.join(sent, ["partition", "new_id"], "left_anti").select(*COLUMNS)

    def _outcomes(self, starts: dict[Place, int], todo: DataFrame, sent: int) -> dict[str, int]:
        """Count the outcomes of what was sent."""
        if not sent:
            return {}
        self._on_progress(f"waiting for the results of {sent:,} messages")
        is_named = f.col("name").isNotNull()
        mine = todo.select(
            "partition",
            f.when(is_named, f.col("new_id")).otherwise(f.col("id")).alias("id"),
            f.when(is_named, f.col("new_due_ms")).otherwise(f.col("due_ms")).alias("due_ms"),
            is_named.alias("is_named"),
        ).localCheckpoint()
        until_ms = self._clock.monotonic_ms() + int(self._wait_s * 1_000)
        while True:
            told = self._told(starts, mine)
            if sum(told.values()) >= sent or self._clock.monotonic_ms() > until_ms:
                return told
            self._clock.sleep(LOOK_EVERY_S)

    def _told(self, starts: dict[Place, int], mine: DataFrame) -> dict[str, int]:
        """The number of cancels and of replacements by outcome. If one has several results, the last one counts."""
        records = self._topics.read(starts, self._topics.ends([self._policy.topic + RESULTS]), may_be_trimmed=True)
        is_of_cancel = f.col("cancel_source").isNotNull()
        told = archive.results(records).where(is_of_cancel | f.col("outcome").isin(*_OF_NAMED))
        told = told.withColumn("is_named", ~is_of_cancel).select(*_KEY, "is_named", "offset", "outcome")
        last = told.groupBy(*_KEY, "is_named").agg(f.max_by("outcome", "offset").alias("outcome"))
        rows = mine.join(last, [*_KEY, "is_named"]).groupBy("outcome").count().collect()
        return {row.outcome: row["count"] for row in rows}


def _transact(transactor: Transactor, rows: Sequence[Row]) -> None:
    """Send cancels and replacements in one transaction.

    Raises:
        BrokerError: the transaction is not committed, or its outcome is unknown.
    """
    if not rows:
        return
    failures: list[str] = []

    def on_failure(error: object, _record: Message) -> None:
        failures.append(str(error))

    transactor.begin()
    try:
        for row in rows:
            if row.name is None:
                handle = [(CANCEL, row.handle.encode())]
                transactor.produce(row.intake, row.partition, None, None, handle, on_failure)
            if row.new_id is not None:
                headers: ProducedHeaders = [
                    (key, None if value is None else bytes(value)) for key, value in row.headers
                ]
                transactor.produce(row.intake, row.partition, _bytes(row.key), _bytes(row.value), headers, on_failure)
    except KafkaException as exception:
        raise BrokerError(f"could not send to {row.intake}: {error_of(exception).str()}") from exception
    transactor.deliver(lambda: bool(failures))
    if failures:
        raise BrokerError(f"could not send to {row.intake}: {failures[0]}")
    transactor.commit()


def _bytes(value: bytearray | None) -> bytes | None:
    return None if value is None else bytes(value)
