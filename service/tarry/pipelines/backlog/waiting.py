"""The waiting messages of an intake as a table: in the intake, in memory, in buckets of the overflow wheel, or parked.

Messages move from the intake down the levels, perhaps to the parked log, and out to the results. Each move is one
transaction with a record of the journal. The job therefore reads the journal first, and leaves out the offsets that are
done. Then it reads the logs in the order in which messages move, each log to its end at that moment. It stores each
log's records before it reads the next log, because the service deletes moved messages from their old place. In this
way the job misses no message. A message that it meets twice becomes one row. Finally it removes the messages that have
ended since, by their results.

The logs also hold superseded copies: messages that were replaced or cancelled by name, and are dropped when the service
meets them. The journal says which message waits under each name, so the job leaves these copies out.
"""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from typing import Final

from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame, SparkSession, Window
from pyspark.sql import functions as f

from tarry.clock import SystemClock
from tarry.core.progress.name_index import ENTRY_BYTES, HASH_BYTES, NameIndex
from tarry.core.request.intake_policy import IntakePolicy
from tarry.errors import ConfigError, UsageError
from tarry.kafka.backlog import Backlog
from tarry.kafka.inspector import Inspector, States
from tarry.kafka.partition_logs import level_log_of
from tarry.kafka.topics import PARKED, RESULTS, wheel_topic
from tarry.kafka.types import Place
from tarry.pipelines import archive, streaming
from tarry.pipelines.backlog.filed import due_ms, filed, target
from tarry.pipelines.columns import place
from tarry.pipelines.requests import is_named, requests
from tarry.pipelines.topics import TopicTables

COLUMNS: Final = ("intake", "partition", "offset", "level", "id", "target", "due_ms", "key", "value", "headers")
"""The columns of a table of waiting messages: place in the intake, level, and the message.

The level is 0 in the intake, and -1 in the parked log.
"""

_TYPES: Final = (
    "intake string, partition int, offset long, level int, id string, target string, due_ms long, key binary, "
    "value binary, headers array<struct<key: string, value: binary>>"
)


def waiting(
    topics: TopicTables,
    group: str,
    policy: IntakePolicy,
    *,
    settled: bool = False,
    on_progress: Callable[[str], None],
) -> DataFrame:
    """The waiting messages of an intake, one row each, without messages that have a pending cancel.

    Id, target and due time are null if `requests` is not sure of them. This is possible for records that the service
    has not filed, and in intakes with a dialect.

    Args:
        topics: the topics to read.
        group: the service's consumer group.
        policy: the policy of the intake.
        settled: wait until open transactions of clients on the intake have ended.
        on_progress: called with one line for each step.

    Raises:
        UsageError: the intake does not exist, or a later version of tarry serves it.
        BrokerError: the brokers do not answer, or a transaction stays open.
    """
    intake = policy.topic
    # The journal covers all results below these ends.
    results_from = topics.ends([intake + RESULTS])
    with closing(Inspector(topics.cluster, group, SystemClock())) as looking:
        backlogs, states = looking.look(intake)
    is_done = _done_table(topics.spark, backlogs, states).localCheckpoint()
    names = _Names(topics.spark, backlogs, states)
    on_progress(f"{intake}: reading the intake")
    begins = {backlog.place: backlog.low for backlog in backlogs}
    ends = topics.settled_ends([intake]) if settled else topics.ends([intake])
    records = _records(topics, intake, begins, ends, is_done, f.lit(0))
    asked = requests(records, policy).withColumns({"intake": f.lit(intake), "level": f.lit(0)})
    asked = names.without_superseded(asked, is_named(policy))
    met = [asked.select(*COLUMNS, "is_cancel").localCheckpoint()]
    # Not their stretches: a log without one may still hold done records, and get new ones before it is read.
    checkpoints = {one.place[1]: one.checkpoint for one in backlogs if one.checkpoint is not None}
    geometries = {checkpoint.geometry for checkpoint in checkpoints.values()}
    if len(geometries) > 1:
        raise UsageError(f"{intake}: its overflow wheel is changing; try again when all partitions are served")
    for geometry in geometries:
        for level in range(geometry.levels, 0, -1):
            name = wheel_topic(intake, level)
            on_progress(f"{intake}: reading level {level}")
            begins = {(name, partition): one.low[level - 1] for partition, one in checkpoints.items()}
            from_ms = {partition: one.done_ms[level - 1] for partition, one in checkpoints.items()}
            bucket = f.floor(due_ms() / geometry.width_of(level))
            while begins:
                ends = topics.settled_ends([name])
                if all(begins.get(log, 0) >= end for log, end in ends.items()):
                    break  # Spark would run a job for an empty table
                records = _records(topics, name, begins, ends, is_done, bucket)
                met.append(_not_before(names.of_logs(records), from_ms).select(*COLUMNS, "is_cancel").localCheckpoint())
                # A log that was trimmed meanwhile: what waited there was filed again, behind the end.
                starts = topics.starts([name])
                begins = dict(ends) if any(starts[log] > begin for log, begin in begins.items()) else {}
    if checkpoints:
        on_progress(f"{intake}: reading the parked log")
        met.append(_parked(topics, intake, backlogs, states, names).select(*COLUMNS, "is_cancel").localCheckpoint())
    results = topics.read(results_from, topics.settled_ends([intake + RESULTS]), may_be_trimmed=True)
    return left(met, archive.results(results).localCheckpoint())


def left(met: Iterable[DataFrame], results: DataFrame) -> DataFrame:
    """The messages that still wait, among those found in the logs.

    Args:
        met: tables with `COLUMNS` and `is_cancel`, in the order in which they were read.
        results: the results that were written in the meantime (`archive.results`).
    """
    union, *more = met
    for one in more:
        union = union.unionByName(one)
    # The newest place of a message counts: the parked log, the lowest level, and a level before the intake.
    newest = Window.partitionBy("partition", "offset").orderBy(f.col("level") == 0, "level")
    messages = union.where(~f.col("is_cancel")).withColumn("turn", f.row_number().over(newest)).where("turn = 1")
    ended = results.where(f.col("outcome").isin(*archive.ENDS)).select("source").distinct()
    same = ["partition", "id", "due_ms"]
    # A cancel applies to messages before it; a message after it is a new one.
    cancels = union.where("is_cancel").groupBy(*same).agg(f.max("offset").alias("cancel"))
    messages = messages.join(cancels, same, "left").where("cancel is null or offset > cancel").drop("cancel")
    # A second message with the same id and due time will get the result `duplicate`.
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


class _Names:
    """Which named messages wait, as the journal said.

    Args:
        spark: the session.
        backlogs: the partitions of the intake.
        states: their journals.
    """

    def __init__(self, spark: SparkSession, backlogs: Sequence[Backlog], states: States) -> None:
        found = {backlog.place[1]: states[backlog.place] for backlog in backlogs}
        # What is decided later has its result later, too.
        decided = {partition: state.decided_below for partition, state in found.items()}
        checkpoints = {one.place[1]: one.checkpoint for one in backlogs if one.checkpoint is not None}
        adopted = {partition: one.names_complete_from for partition, one in checkpoints.items()}
        self._decided, self._adopted = _of_partition(decided), _of_partition(adopted)
        self._has_adopted = any(adopted.values())
        indexes = {partition: state.names.index for partition, state in found.items()}
        packed = {partition: _packed(index) for partition, index in indexes.items() if index.count}
        self._table = _names_table(spark, packed).localCheckpoint()

    def of_logs(self, records: DataFrame) -> DataFrame:
        """Filed messages without superseded copies; columns as of `filed`."""
        return self.without_superseded(filed(records), f.col("name").isNotNull())

    def without_superseded(self, messages: DataFrame, has_name: Column) -> DataFrame:
        """Messages without those that were replaced or cancelled by name.

        Args:
            messages: with partition, offset in the intake, and `name` unless they are in the intake.
            has_name: whether a message has a name.
        """
        offsets = self._table.select("partition", "offset", f.expr("true").alias("is_current"))
        found = messages.join(f.broadcast(offsets), ["partition", "offset"], "left")
        superseded = has_name & f.col("is_current").isNull() & (f.col("offset") < self._decided)
        if self._has_adopted and "name" in messages.columns:
            # A message that was adopted without an entry waits, unless another one waits under its name.
            taken = self._table.select("partition", "name", f.expr("true").alias("is_taken"))
            found = found.join(f.broadcast(taken), ["partition", "name"], "left")
            superseded &= (f.col("offset") >= self._adopted) | f.col("is_taken").isNotNull()
        return found.where(~superseded)


def _of_partition(numbers: Mapping[int, int]) -> Column:
    """A number for each partition; 0 for others."""
    known = f.create_map(*[f.lit(one) for pair in numbers.items() for one in pair])
    return f.coalesce(f.try_element_at(known, "partition"), f.lit(0)) if numbers else f.lit(0)


def _packed(index: NameIndex) -> bytes:
    return b"".join(index.shard(number).entries for number in range(index.shards))


def _names_table(spark: SparkSession, packed: Mapping[int, bytes]) -> DataFrame:
    """What waits under each name: partition, the name's hash, and the message's offset in the intake.

    Args:
        spark: the session.
        packed: the entries of the index, by partition.
    """
    table = spark.range(0).selectExpr("0 as partition", "cast(null as binary) as entry")
    for partition, entries in packed.items():
        starts = f.sequence(f.lit(1), f.lit(len(entries) - ENTRY_BYTES + 1), f.lit(ENTRY_BYTES))
        each = f.transform(starts, lambda at: f.substr(f.lit(entries), at, f.lit(ENTRY_BYTES)))  # noqa: B023
        table = table.unionAll(spark.range(1).select(f.lit(partition).alias("partition"), f.explode(each)))
    offset = f.conv(f.hex(f.substring("entry", HASH_BYTES + 1, 6)), 16, 10).cast("long")
    return table.select("partition", f.substring("entry", 1, HASH_BYTES).alias("name"), offset.alias("offset"))


def _parked(topics: TopicTables, intake: str, backlogs: Sequence[Backlog], states: States, names: _Names) -> DataFrame:
    """The messages in the parked log of an intake that are not done."""
    name = intake + PARKED
    ends, starts = topics.settled_ends([name]), topics.starts([name])
    records = topics.read(starts, ends, may_be_trimmed=True)
    # As JSON text, as in `_done_table`.
    rows = [
        {"at": backlog.place[1], "to": one.row.target, "first": one.row.first, "done": one.done.ranges()}
        for backlog in backlogs
        for one in states[backlog.place].parked.found.values()
    ]
    form = "array<struct<at: int, to: string, first: long, done: array<array<long>>>>"
    known = topics.spark.range(1).select(f.inline(f.from_json(f.lit(json.dumps(rows)), form)))
    since = {backlog.place[1]: backlog.parked_from for backlog in backlogs}
    unknown_from = f.create_map(*[f.lit(one) for pair in since.items() for one in pair])
    is_of = (f.col("partition") == f.col("at")) & (f.col("target_name") == f.col("to"))
    is_done = f.exists("done", lambda one: f.col("offset").between(one[0], one[1] - 1))
    # What was parked after the journal was read is not in `known`.
    waits = ((f.col("offset") >= f.col("first")) & ~is_done) | (
        f.col("offset") >= f.coalesce(f.try_element_at(unknown_from, "partition"), f.lit(0))
    )
    found = records.withColumn("target_name", target()).join(f.broadcast(known), is_of, "left").where(waits)
    return names.of_logs(found)


def _not_before(messages: DataFrame, from_ms: Mapping[int, int]) -> DataFrame:
    """The messages of a level that may wait: those of earlier buckets are done, and not deleted yet.

    Args:
        messages: of one level.
        from_ms: for each partition that has a checkpoint the start of the level's first bucket that is not done.
    """
    starts = f.create_map(*[f.lit(one) for pair in from_ms.items() for one in pair])
    return messages.where(f.col("due_ms") >= f.coalesce(f.try_element_at(starts, "partition"), f.lit(0)))


def refuse_bad(spark: SparkSession, where: str) -> None:
    """Refuse an invalid predicate, before any record is read.

    Raises:
        ConfigError: the predicate is not valid.
    """
    # Not from a Python list: Spark would start Python workers for it.
    nothing = spark.range(0).select(f.from_json(f.lit("{}"), _TYPES).alias("message")).select("message.*")
    matching_messages(nothing, where)


def matching_messages(messages: DataFrame, where: str) -> DataFrame:
    """The waiting messages that match a predicate, without messages whose id, due time or target is null.

    The predicate is SQL over `target`, `id`, `due` (a timestamp), `due_ms`, `level`, `partition`, `offset`, `key` and
    `value` as text (null if they are not UTF-8), `key_bytes`, `value_bytes`, and `headers['name']` as text.

    Args:
        messages: a table of waiting messages.
        where: the predicate.

    Raises:
        ConfigError: the predicate is not valid.
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


def _records(
    topics: TopicTables,
    name: str,
    begins: dict[Place, int],
    ends: dict[Place, int],
    done: DataFrame,
    bucket: Column,
) -> DataFrame:
    """The records of a topic that are not done: a record is done only if the journal names its bucket with its offset.

    Args:
        topics: the topics to read.
        name: the topic.
        begins: for each partition an offset below which all is done.
        ends: for each partition where to stop.
        done: from `_done_table`.
        bucket: the number of a record's bucket; 0 for the intake.
    """
    starts = {at: max(start, begins.get(at, 0)) for at, start in topics.starts([name]).items()}
    records = topics.read(starts, ends, may_be_trimmed=True).withColumn("bucket", bucket).alias("record")
    is_done = (
        (f.col("record.topic") == f.col("done.topic"))
        & (f.col("record.partition") == f.col("done.partition"))
        & (f.col("record.bucket") == f.col("done.bucket"))
        & f.col("record.offset").between(f.col("done.first"), f.col("done.last"))
    )
    # Broadcast: the ranges come from the driver in any case, and a shuffle would move the records with their values.
    return records.join(f.broadcast(done.alias("done")), is_done, "left_anti").drop("bucket")


def _done_table(spark: SparkSession, backlogs: Sequence[Backlog], states: States) -> DataFrame:
    """The offsets that are done above the low watermarks, as ranges: topic, partition, bucket, first, last."""
    # As JSON text, which Spark parses itself: for Python rows it would start a Python process for each task.
    ranges = json.dumps(list(_done_ranges(backlogs, states)))
    form = "array<struct<topic: string, partition: int, bucket: long, first: long, last: long>>"
    return spark.range(1).select(f.inline(f.from_json(f.lit(ranges), form)))


def _done_ranges(backlogs: Sequence[Backlog], states: States) -> Iterator[dict[str, str | int]]:
    for backlog in backlogs:
        levels = () if backlog.checkpoint is None else backlog.checkpoint.low
        lows = dict(enumerate((backlog.low, *levels)))
        for source, offsets in states[backlog.place].done.items():
            if source.level not in lows:
                continue
            low, (topic, partition) = lows[source.level], level_log_of(backlog.place, source.level)
            place: dict[str, str | int] = {"topic": topic, "partition": partition, "bucket": source.bucket}
            for first, end in offsets.ranges():
                if end > low:
                    yield {**place, "first": max(first, low), "last": end - 1}
