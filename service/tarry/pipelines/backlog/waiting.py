"""What waits in an intake, as a table: in the intake itself, in memory, and in the buckets of the overflow wheel.

Messages move from the intake down the levels and out to the results, each in one transaction with a record of the
journal. So the journal says first what is done; then the logs are read in the order in which messages move, each to the
end that it has when its turn comes, and kept before the next is read, because what moves on is deleted where it was. No
message is missed like that, and one that was met twice is one row. What the results tell of the time since is taken off
in the end.
"""

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing
from typing import Final

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession, Window
from pyspark.sql import functions as f

from tarry.clock import SystemClock
from tarry.core.request.intake_policy import IntakePolicy
from tarry.core.wheel.levels import slots_of
from tarry.errors import ConfigError, UsageError
from tarry.kafka.backlog import Backlog
from tarry.kafka.inspector import DoneSets, Inspector
from tarry.kafka.partition_logs import slot_of
from tarry.kafka.topics import RESULTS, wheel_topic
from tarry.kafka.types import Place
from tarry.pipelines import archive, streaming
from tarry.pipelines.backlog.filed import filed
from tarry.pipelines.columns import place
from tarry.pipelines.requests import requests
from tarry.pipelines.topics import Topics

COLUMNS: Final = ("intake", "partition", "offset", "level", "id", "target", "due_ms", "key", "value", "headers")
"""What a table of waiting messages has: the place in the intake, the level (0: the intake), and the message."""

_TYPES: Final = (
    "intake string, partition int, offset long, level int, id string, target string, due_ms long, key binary, "
    "value binary, headers array<struct<key: string, value: binary>>"
)


def waiting(
    spark: SparkSession,
    topics: Topics,
    group: str,
    policy: IntakePolicy,
    *,
    settled: bool = False,
    on_progress: Callable[[str], None],
) -> DataFrame:
    """The messages that wait in an intake, one row each, without those that a cancel waits for.

    Id, target and due time are null where `requests` is not sure of them: of records that the service has not filed,
    and in a dialect.

    Args:
        spark: the session.
        topics: where to read.
        group: the service's.
        policy: the intake's.
        settled: wait for transactions that clients have open on the intake.
        on_progress: told of each step.

    Raises:
        UsageError: there is no such intake, or it is served by a later version.
        BrokerError: no answer, or a transaction stays open.
    """
    intake = policy.topic
    # Of what is told below these ends, the journal has it too.
    results_from = topics.ends([intake + RESULTS])
    with closing(Inspector(topics.cluster, group, SystemClock())) as looking:
        backlogs = looking.survey(intake)
        done = looking.done(backlogs)
    done_offsets = _done_offsets(spark, backlogs, done).localCheckpoint()
    on_progress(f"{intake}: reading what waits there")
    begins = {backlog.place: backlog.low for backlog in backlogs}
    ends = topics.settled_ends([intake]) if settled else topics.ends([intake])
    records = _records(topics, [intake], begins, ends, done_offsets)
    asked = requests(records, policy).withColumns({"intake": f.lit(intake), "level": f.lit(0)})
    met = [asked.select(*COLUMNS, "is_cancel").localCheckpoint()]
    geometries = {backlog.checkpoint.geometry for backlog in backlogs if backlog.checkpoint is not None}
    if len(geometries) > 1:
        raise UsageError(f"{intake}: its overflow wheel is being changed; try again when all partitions are served")
    for geometry in geometries:
        begins = _begins(backlogs)
        for level in range(geometry.levels, 0, -1):
            name = wheel_topic(intake, level)
            on_progress(f"{intake}: reading level {level}")
            records = _records(topics, [name], begins, topics.settled_ends([name]), done_offsets)
            met.append(filed(records, slots_of(geometry)).select(*COLUMNS, "is_cancel").localCheckpoint())
    results = topics.read(results_from, topics.settled_ends([intake + RESULTS]), may_be_trimmed=True)
    return left(met, archive.results(results).localCheckpoint())


def left(met: Iterable[DataFrame], results: DataFrame) -> DataFrame:
    """What waits, of what was met in the logs.

    Args:
        met: tables with `COLUMNS` and `is_cancel`, in the order in which they were read.
        results: what was told meanwhile (`archive.results`).
    """
    union, *more = met
    for one in more:
        union = union.unionByName(one)
    # The newest place counts: of two levels the lower one, and of the intake and a level the level.
    newest = Window.partitionBy("partition", "offset").orderBy(f.col("level") == 0, "level")
    messages = union.where(~f.col("is_cancel")).withColumn("turn", f.row_number().over(newest)).where("turn = 1")
    ended = results.where(f.col("outcome").isin(*archive.ENDS)).select("source").distinct()
    same = ["partition", "id", "due_ms"]
    # A cancel takes what stands in front of it; what comes behind is a new message.
    cancels = union.where("is_cancel").groupBy(*same).agg(f.max("offset").alias("cancel"))
    messages = messages.join(cancels, same, "left").where("cancel is null or offset > cancel").drop("cancel")
    # A second one with the same id and due time will be told of as a duplicate.
    firsts = (
        messages.groupBy(*same).agg(f.min("offset").alias("first"), f.count("*").alias("n")).where("n > 1").drop("n")
    )
    return (
        messages.withColumn("source", place("intake"))
        .join(ended, "source", "left_anti")
        .join(firsts, same, "left")
        .where("first is null or offset = first")
        .select(*COLUMNS)
    )


def refuse_bad(spark: SparkSession, where: str) -> None:
    """Refuse what is no predicate, before anything is read.

    Raises:
        ConfigError: it is none.
    """
    # Not from a list, for which Spark would start Python workers.
    nothing = spark.range(0).select(f.from_json(f.lit("{}"), _TYPES).alias("message")).select("message.*")
    selected(nothing, where)


def selected(messages: DataFrame, where: str) -> DataFrame:
    """Those waiting messages for which a predicate holds; of null due time or id, none.

    The predicate is SQL over `target`, `id`, `due` (a timestamp), `due_ms`, `level`, `partition`, `offset`, `key` and
    `value` as text (null where they are no UTF-8), `key_bytes`, `value_bytes`, and `headers['name']` as text.

    Args:
        messages: a table of waiting messages.
        where: the predicate.

    Raises:
        ConfigError: it is none.
    """
    names = f.array_distinct(f.coalesce(f.transform("headers", lambda one: one["key"]), f.array()))
    value_of = f.transform(
        names,
        lambda name: f.try_validate_utf8(
            f.get(f.filter("headers", lambda one: one["key"] == name), f.lit(0))["value"].cast("string")
        ),
    )
    view = messages.where("id is not null and due_ms is not null and target is not null").select(
        f.struct(*COLUMNS).alias("__message"),
        "target",
        "id",
        f.timestamp_millis("due_ms").alias("due"),
        "due_ms",
        "level",
        "partition",
        "offset",
        f.try_validate_utf8(f.col("key").cast("string")).alias("key"),
        f.try_validate_utf8(f.col("value").cast("string")).alias("value"),
        f.col("key").alias("key_bytes"),
        f.col("value").alias("value_bytes"),
        f.map_from_arrays(names, value_of).alias("headers"),
    )
    try:
        return view.where(where).select("__message.*")
    except PySparkException as error:
        raise ConfigError(f"--where: {streaming.reason(error)}") from error


def _begins(backlogs: Sequence[Backlog]) -> dict[Place, int]:
    """Where what waits in slots begins."""
    return {
        slot_of(backlog.place, backlog.checkpoint.geometry, source): begin
        for backlog in backlogs
        if backlog.checkpoint is not None
        for source, begin in backlog.begins().items()
        if source in backlog.spans
    }


def _records(
    topics: Topics, names: Sequence[str], begins: dict[Place, int], ends: dict[Place, int], done: DataFrame
) -> DataFrame:
    starts = {at: max(start, begins.get(at, 0)) for at, start in topics.starts(names).items()}
    records = topics.read(starts, ends, may_be_trimmed=True)
    return records.join(done, ["topic", "partition", "offset"], "left_anti")


def _done_offsets(spark: SparkSession, backlogs: Sequence[Backlog], done: DoneSets) -> DataFrame:
    """What is done above the watermarks: topic, partition, offset."""
    # As text, which Spark reads by itself: rows from Python would take a process of Python's for each of its tasks.
    ranges = json.dumps(list(_done_ranges(backlogs, done)))
    read = f.from_json(f.lit(ranges), "array<struct<topic: string, partition: int, first: long, last: long>>")
    rows = spark.range(1).select(f.inline(read))
    return rows.select("topic", "partition", f.explode(f.sequence("first", "last")).alias("offset"))


def _done_ranges(backlogs: Sequence[Backlog], done: DoneSets) -> Iterator[dict[str, str | int]]:
    for backlog in backlogs:
        slots = backlog.begins()
        for source, offsets in done[backlog.place].items():
            at, low = backlog.place, backlog.low
            if source.level:
                if backlog.checkpoint is None or source not in slots:
                    continue
                at, low = slot_of(at, backlog.checkpoint.geometry, source), slots[source]
            for first, end in offsets.ranges():
                if end > low:
                    topic, partition = at
                    yield {"topic": topic, "partition": partition, "first": max(first, low), "last": end - 1}
