"""`schedule`: the rows of a table as delayed messages in an intake, each once, however often it runs.

A row's message has an id made of the job's name and the row's key. A run sends what the intake does not know: neither
waiting nor in its results. So a run that was killed is made good by the next one, and one more does nothing.

Messages of one key are sent by one task in the order of their due times. What is to be sent is cut into slices by key:
between them a run keeps to its rate, tells how far it is, and can be ended.
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
from tarry.core.request.header_values import Fault
from tarry.core.request.intake_policy import IntakePolicy
from tarry.core.request.target_names import TargetNames
from tarry.errors import UsageError
from tarry.headers import TARGET, ErrorCode
from tarry.kafka.intake_topics import DEFAULT_MAX_MESSAGE_BYTES
from tarry.pipelines.schedule.known_ids import known_ids
from tarry.pipelines.schedule.messages import (
    Expressions,
    Limits,
    Verdict,
    ask,
    judge,
    namespace_of,
    placed_by,
    records,
    verdict_rows,
)
from tarry.pipelines.schedule.state import JobState
from tarry.pipelines.schedule.tables import Table, read_table
from tarry.pipelines.streaming import reason
from tarry.pipelines.topics import Topics

SHARDS: Final = 1_024
"""Rows are spread over so many shards by key, and a slice is some of them."""

SLICE_ROWS: Final = 200_000
"""Of a slice, where no rate is asked for."""

SLICE_S: Final = 5
"""What a slice should take, where a rate is asked for."""


@dataclass(frozen=True, slots=True)
class Plan:
    """A job.

    Args:
        job: its name.
        table: where the rows are.
        where: which rows; None: all.
        asked: what is to be made of a row.
        policy: of the intake.
        state: the directory of the job's state.
        rejects: the directory of the rows that can't be sent.
        base_ms: what delays count from, if this is the job's first run; None: now.
        spread_ms: due times are put off by less than this, by key.
        rate: rows a second; None: as fast as it goes.
        refuse_past: whether rows are rejected whose due time has passed.
    """

    job: str
    table: Table
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
    spark: SparkSession,
    topics: Topics,
    plan: Plan,
    *,
    clock: Clock,
    stop: Event,
    on_progress: Callable[[str], None],
) -> dict[str, Any]:
    """Send the rows of a table that the intake does not know.

    Args:
        spark: the session.
        topics: of the cluster.
        plan: the job.
        clock: for the base time, for what has passed, and for the rate.
        stop: ends the run after the slice that is being sent.
        on_progress: told of what goes on.

    Returns:
        The summary: `job`, `rows`, `sent`, `known`, `rejected` (by code), `base_ms`; `rejects`, where they are, if
        there are any; and `left`, what was not sent any more because of `stop`.

    Raises:
        UsageError: what is asked for does not fit the table, the intake, or the job's earlier runs.
    """
    intake = _checked(plan.policy)
    state = JobState(spark, plan.state, plan.job)
    with ExitStack() as until_the_end:
        until_the_end.enter_context(state.claimed(clock))
        until_the_end.enter_context(_null_for_errors(spark))
        limits = topics.look_at([intake])[intake]
        if not limits.partitions:
            raise UsageError(f"there is no topic {intake}: `tarry serve` makes it")
        now_ms = clock.now_ms()
        rows = read_table(spark, plan.table)
        rows = rows if plan.where is None else _chosen(rows, plan.where)
        # The base time is kept when the table and the expressions are known to fit each other.
        ask(rows, plan.asked, namespace_of(plan.job), now_ms)
        base_ms = state.base_ms(intake, now_ms if plan.base_ms is None else plan.base_ms)
        asked = ask(rows, plan.asked, namespace_of(plan.job), base_ms, plan.spread_ms)
        known = known_ids(topics, intake, on_progress, until_the_end)
        verdicts = verdict_rows(spark, _verdicts(topics, plan.policy, _targets(asked)))
        max_bytes = min(topics.max_request_bytes, limits.max_bytes or DEFAULT_MAX_MESSAGE_BYTES)
        judged = judge(
            asked,
            known,
            verdicts,
            Limits(now_ms, plan.policy.max_delay_ms, max_bytes, plan.refuse_past),
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
            on_progress(f"rejected: {count:,} rows: {code}, such as {examples[code]!r}")
        if rejected:
            summary["rejects"] = f"{plan.rejects.rstrip('/')}/run={now_ms}"
            rejects(messages).write.parquet(summary["rejects"])
        pace = _Pace(plan.rate, clock, stop)
        total = sum(shards.values())
        for first, last, count in slices(shards, SLICE_ROWS if plan.rate is None else plan.rate * SLICE_S):
            if not pace.wait(summary["sent"]):
                break
            wanted = f.col("shard").between(first, last) & f.col("code").isNull() & ~f.col("is_known")
            topics.write(records(messages.where(wanted), intake))
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
    """Messages of one key together, in the order in which they are to be sent; with the column `shard`.

    Args:
        judged: as `judge` gives it.
        order: the columns that order equal due times.
    """
    partitions = int(judged.sparkSession.conf.get("spark.sql.shuffle.partitions") or "200")
    shard = f.pmod(f.xxhash64(placed_by()), f.lit(SHARDS)).cast("int")
    return (
        judged.withColumn("shard", shard)
        # By number: so many that Spark would divide them itself, it might divide a key.
        .repartition(partitions, placed_by())
        .sortWithinPartitions("shard", "due_ms", *order, "row_key")
    )


def rejects(messages: DataFrame) -> DataFrame:
    """The rows that can't be sent, as they are kept: `reason`, `detail`, `row_key`, `row`."""
    return messages.where(f.col("code").isNotNull()).select(f.col("code").alias("reason"), "detail", "row_key", "row")


def slices(shards: Mapping[int, int], most: float) -> Iterator[tuple[int, int, int]]:
    """Cut shards into slices of about so many rows.

    Args:
        shards: rows by shard.
        most: rows of a slice; one shard may have more.

    Yields:
        The first and the last shard, and the rows.
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
    """Keeps to a rate.

    Args:
        rate: rows a second, or None.
        clock: monotonic.
        stop: ends the waiting.
    """

    def __init__(self, rate: float | None, clock: Clock, stop: Event) -> None:
        self._rate = rate
        self._clock = clock
        self._stop = stop
        self._started_ms = clock.monotonic_ms()

    def wait(self, sent: int) -> bool:
        """Wait until more may be sent; tell whether to go on."""
        if self._rate is not None:
            due_ms = self._started_ms + sent / self._rate * 1_000
            self._stop.wait(max(0.0, due_ms - self._clock.monotonic_ms()) / 1_000)
        return not self._stop.is_set()

    def reached(self, sent: int) -> float:
        """Rows a second until now."""
        return sent / max(1, self._clock.monotonic_ms() - self._started_ms) * 1_000


def _checked(policy: IntakePolicy) -> str:
    if policy.fixed_delay_ms is not None:
        raise UsageError(f"{policy.topic} has a fixed delay: what is sent to it can't say when it is due")
    if policy.dialect is not None:
        raise UsageError(f"{policy.topic} takes the headers of {policy.dialect}, which this job does not write")
    return policy.topic


@contextmanager
def _null_for_errors(spark: SparkSession) -> Iterator[None]:
    """Expressions give null where they fail: one bad row must not end the job."""
    name = "spark.sql.ansi.enabled"
    before = spark.conf.get(name)
    spark.conf.set(name, "false")
    try:
        yield
    finally:
        spark.conf.set(name, before or "true")


def _targets(asked: DataFrame) -> list[str]:
    return [row["target"] for row in asked.where("code is null").select("target").distinct().collect()]


def _verdicts(topics: Topics, policy: IntakePolicy, names: Sequence[str]) -> list[Verdict]:
    """What the intake's policy and the broker say of targets."""
    reader = TargetNames(policy, TARGET)
    read = {name: reader.read({TARGET: name.encode()}) for name in names}
    there = topics.look_at([name for name, found in read.items() if not isinstance(found, Fault)])
    verdicts = []
    for name, found in read.items():
        if isinstance(found, Fault):
            verdicts.append(Verdict(name, found.code, found.detail))
        elif (target := there[name]).partitions:
            verdicts.append(Verdict(name, max_bytes=target.max_bytes, compacted=target.compacted))
        else:
            verdicts.append(Verdict(name, ErrorCode.UNKNOWN_TARGET, "there is no such topic"))
    return verdicts
