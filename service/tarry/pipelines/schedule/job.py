"""`schedule`: send the rows of a table to an intake as delayed messages; repeated runs send no row twice.

The id of a row's message is derived from the job's name and the row key. A run skips a row whose id is already in the
intake, in a bucket of its overflow wheel, or in its results. So after a killed run the next run sends the rest, and
another run sends nothing.

One task sends all messages of a key, in the order of their due times. The messages are divided into slices by key.
Between slices a run waits to keep its rate, reports its progress, and can be ended.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from threading import Event
from typing import Any, Final

from pyspark import StorageLevel
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from tarry.clock import Clock
from tarry.core.request.header_values import HeaderFault
from tarry.core.request.intake_policy import IntakePolicy
from tarry.core.request.target_names import TargetNames
from tarry.errors import UsageError
from tarry.headers import TARGET, ErrorCode
from tarry.kafka.intake_topics import DEFAULT_MAX_MESSAGE_BYTES
from tarry.pipelines.schedule.known_ids import known_ids
from tarry.pipelines.schedule.messages import (
    Expressions,
    IntakeLimits,
    TargetVerdict,
    ask,
    namespace_of,
    placed_by,
    records,
    validate_rows,
    verdict_rows,
)
from tarry.pipelines.schedule.state import JobState
from tarry.pipelines.schedule.tables import TableSource, read_table
from tarry.pipelines.streaming import reason
from tarry.pipelines.topics import TopicTables

SHARDS: Final = 1_024
"""The number of shards to which rows are assigned by a hash of their key. A slice is a range of shards."""

SLICE_ROWS: Final = 200_000
"""Rows of a slice if no rate is given."""

SLICE_S: Final = 5
"""Duration of a slice in seconds if a rate is given."""


@dataclass(frozen=True, slots=True)
class ScheduleParameters:
    """The parameters of a job.

    Args:
        job: the job's name.
        table: the table with the rows.
        where: a predicate that selects rows; None: all rows.
        asked: the expressions that make a message of a row.
        policy: the policy of the intake.
        state: the directory of the job's state.
        rejects: the directory of rejected rows.
        base_ms: the base time of delays, if this is the job's first run; None: now.
        spread_ms: due times are delayed by less than this, by key.
        rate: maximum rows a second; None: no limit.
        refuse_past: whether rows with a past due time are rejected.
    """

    job: str
    table: TableSource
    asked: Expressions
    policy: IntakePolicy
    state: str
    rejects: str
    where: str | None = None
    base_ms: int | None = None
    spread_ms: int = 0
    rate: float | None = None
    refuse_past: bool = False


def schedule(
    topics: TopicTables,
    plan: ScheduleParameters,
    *,
    clock: Clock,
    stop: Event,
    on_progress: Callable[[str], None],
) -> dict[str, Any]:
    """Send the rows of a table whose ids the intake does not know.

    Args:
        topics: the topics of the cluster.
        plan: the job.
        clock: for the base time, past due times and the rate.
        stop: when set, the run ends after the current slice.
        on_progress: called with one line for each step.

    Returns:
        The summary: `job`, `rows`, `sent`, `known`, `rejected` (by code), `base_ms`; `rejects`, the path of rejected
        rows, if there are any; and `left`, the rows that were not sent because of `stop`, if there are any.

    Raises:
        UsageError: the job does not fit the table, the intake, or its earlier runs.
    """
    intake = _checked(plan.policy)
    spark = topics.spark
    state = JobState(spark, plan.state, plan.job)
    with ExitStack() as until_the_end:
        until_the_end.enter_context(state.claimed(clock))
        until_the_end.enter_context(_null_for_errors(spark))
        limits = topics.look_at([intake])[intake]
        if not limits.partitions:
            raise UsageError(f"there is no topic {intake}: `tarry serve` creates it")
        now_ms = clock.now_ms()
        rows = read_table(spark, plan.table)
        rows = rows if plan.where is None else _chosen(rows, plan.where)
        # Store the base time only after the expressions have been checked against the table.
        ask(rows, plan.asked, namespace_of(plan.job), now_ms)
        base_ms = state.base_ms(intake, now_ms if plan.base_ms is None else plan.base_ms)
        asked = ask(rows, plan.asked, namespace_of(plan.job), base_ms, plan.spread_ms)
        known = known_ids(topics, intake, on_progress, until_the_end)
        verdicts = verdict_rows(spark, _verdicts(topics, plan.policy, _targets(asked)))
        max_bytes = min(topics.max_request_bytes, limits.max_bytes or DEFAULT_MAX_MESSAGE_BYTES)
        judged = validate_rows(
            asked,
            known,
            verdicts,
            IntakeLimits(now_ms, plan.policy.max_delay_ms, max_bytes, plan.refuse_past),
        )
        messages = sharded(judged, plan.asked.order).persist(StorageLevel.DISK_ONLY)
        until_the_end.callback(messages.unpersist)
        counted = (
            messages.groupBy("shard", "is_known", "code")
            .agg(f.count(f.lit(1)).alias("count"), f.min("detail").alias("detail"))
            .collect()
        )
        rejected: Counter[str] = Counter()
        examples: dict[str, str] = {}
        for row in counted:
            if row["code"] is not None:
                rejected[row["code"]] += row["count"]
                examples[row["code"]] = min(row["detail"], examples.get(row["code"], row["detail"]))
        shards = {row["shard"]: row["count"] for row in counted if row["code"] is None and not row["is_known"]}
        summary: dict[str, Any] = {
            "job": plan.job,
            "rows": sum(row["count"] for row in counted),
            "sent": 0,
            "known": sum(row["count"] for row in counted if row["is_known"]),
            "rejected": dict(sorted(rejected.items())),
            "base_ms": base_ms,
        }
        for code, count in summary["rejected"].items():
            on_progress(f"rejected: {count:,} rows: {code}, for example {examples[code]!r}")
        if rejected:
            summary["rejects"] = f"{plan.rejects.rstrip('/')}/run={now_ms}"
            rejected_rows(messages).write.parquet(summary["rejects"])
        pace = _Pace(plan.rate, clock, stop)
        total = sum(shards.values())
        for first, last, count in slices(shards, SLICE_ROWS if plan.rate is None else plan.rate * SLICE_S):
            if not pace.wait(summary["sent"]):
                break
            wanted = f.col("shard").between(first, last) & f.col("code").isNull() & ~f.col("is_known")
            topics.write(records(messages.where(wanted), intake, plan.asked.only_if))
            summary["sent"] += count
            on_progress(f"{summary['sent']:,} of {total:,} rows sent, {pace.reached(summary['sent']):,.0f}/s")
        if summary["sent"] < total:
            summary["left"] = total - summary["sent"]
        return summary


def _chosen(rows: DataFrame, where: str) -> DataFrame:
    try:
        return rows.where(where)
    except PySparkException as error:
        raise UsageError(f"--where: {reason(error)}") from error


def sharded(judged: DataFrame, order: Sequence[str]) -> DataFrame:
    """Group messages by key, in the order in which they are to be sent, and add the column `shard`.

    Args:
        judged: the result of `validate_rows`.
        order: the columns that order messages with equal due times.
    """
    partitions = int(judged.sparkSession.conf.get("spark.sql.shuffle.partitions") or "200")
    shard = f.pmod(f.xxhash64(placed_by()), f.lit(SHARDS)).cast("int")
    return (
        judged.withColumn("shard", shard)
        # With an explicit number: otherwise Spark may choose the partitions itself, and split a key.
        .repartition(partitions, placed_by())
        .sortWithinPartitions("shard", "due_ms", *order, "row_key")
    )


def rejected_rows(messages: DataFrame) -> DataFrame:
    """The rejected rows as they are stored: `reason`, `detail`, `row_key`, `row`."""
    return messages.where(f.col("code").isNotNull()).select(f.col("code").alias("reason"), "detail", "row_key", "row")


def slices(shards: Mapping[int, int], most: float) -> Iterator[tuple[int, int, int]]:
    """Group shards into slices.

    Args:
        shards: the number of rows by shard.
        most: maximum rows of a slice; a single shard may have more.

    Yields:
        The first shard, the last shard and the number of rows of each slice.
    """
    first, last, count = -1, -1, 0
    for shard, rows in sorted(shards.items()):
        if count and count + rows > most:
            yield first, last, count
            count = 0
        if not count:
            first = shard
        last = shard
        count += rows
    if count:
        yield first, last, count


class _Pace:
    """Limits the rate of rows.

    Args:
        rate: rows a second; None: no limit.
        clock: for monotonic time.
        stop: when set, ends the wait.
    """

    def __init__(self, rate: float | None, clock: Clock, stop: Event) -> None:
        self._rate = rate
        self._clock = clock
        self._stop = stop
        self._started_ms = clock.monotonic_ms()

    def wait(self, sent: int) -> bool:
        """Wait until the next slice may be sent; return False if the run must end instead."""
        if self._rate is not None:
            due_ms = self._started_ms + sent / self._rate * 1_000
            self._stop.wait(max(0.0, due_ms - self._clock.monotonic_ms()) / 1_000)
        return not self._stop.is_set()

    def reached(self, sent: int) -> float:
        """The rate so far, in rows a second."""
        return sent / max(1, self._clock.monotonic_ms() - self._started_ms) * 1_000


def _checked(policy: IntakePolicy) -> str:
    if policy.fixed_delay_ms is not None:
        raise UsageError(f"{policy.topic} has a fixed delay: its messages cannot have a due time of their own")
    if policy.dialect is not None:
        raise UsageError(f"{policy.topic} reads the headers of {policy.dialect}, which this job does not write")
    return policy.topic


@contextmanager
def _null_for_errors(spark: SparkSession) -> Iterator[None]:
    """Switch ANSI mode off, so that a failing expression gives null: one bad row must not end the job."""
    name = "spark.sql.ansi.enabled"
    before = spark.conf.get(name)
    spark.conf.set(name, "false")
    try:
        yield
    finally:
        spark.conf.set(name, before or "true")


def _targets(asked: DataFrame) -> list[str]:
    return [row["target"] for row in asked.where("code is null").select("target").distinct().collect()]


def _verdicts(topics: TopicTables, policy: IntakePolicy, names: Sequence[str]) -> list[TargetVerdict]:
    """The properties of targets, from the intake's policy and the brokers."""
    reader = TargetNames(policy, TARGET)
    read = {name: reader.read({TARGET: name.encode()}) for name in names}
    there = topics.look_at([name for name, found in read.items() if not isinstance(found, HeaderFault)])
    verdicts = []
    for name, found in read.items():
        if isinstance(found, HeaderFault):
            verdicts.append(TargetVerdict(name, found.code, found.detail))
        elif (target := there[name]).partitions:
            verdicts.append(TargetVerdict(name, max_bytes=target.max_bytes, compacted=target.compacted))
        else:
            verdicts.append(TargetVerdict(name, ErrorCode.UNKNOWN_TARGET, "there is no such topic"))
    return verdicts
