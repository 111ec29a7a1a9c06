"""`archive`: results and dead letters as Delta tables, partitioned by hour, each record exactly once.

The Delta commit that adds a batch's rows also records the stream and the batch number, so Delta skips a batch that is
repeated after a crash. The position of the stream is in its checkpoint, beside the table.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Final

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as f

from tarry.errors import UsageError
from tarry.headers import ERROR, ERROR_DETAIL, Outcome
from tarry.kafka.topics import DEAD, RESULTS
from tarry.pipelines import streaming
from tarry.pipelines.columns import text_header
from tarry.pipelines.files import Files
from tarry.pipelines.topics import TopicTables
from tarry.units import MAX_EPOCH_MS

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery

RESULT: Final = (
    "v int, outcome string, id string, source string, due_ms long, at_ms long, target string, reason string, "
    "cancel_source string, replaced_by string, schedule string, occurrence long"
)
"""The fields of a result's value."""

ENDS: Final = (
    Outcome.FIRED,
    Outcome.CANCELLED,
    Outcome.REPLACED,
    Outcome.SKIPPED,
    Outcome.DUPLICATE,
    Outcome.DEAD,
)
"""The final outcomes: after one of them a message no longer waits."""

ROWS_A_BATCH: Final = 1_000_000


@dataclass(frozen=True, slots=True)
class _Table:
    name: str
    suffix: str
    rows: Callable[[DataFrame], DataFrame]


def results(records: DataFrame) -> DataFrame:
    """Results, one row for each record of `*.results`.

    Columns: hour (text, `2030-01-31T12`, of the event, in UTC), intake, partition, offset, written (timestamp), the
    fields of a result, and `unreadable`: the value of a record that is no valid result; its fields are null. A result
    without a time between 1970 and 9999 is not valid.
    """
    read = f.from_json(f.col("value").cast("string"), RESULT)
    fields = [name.split()[0] for name in RESULT.split(", ")]
    return (
        records.withColumn("result", read)
        # Spark fails on a time outside this range.
        .withColumn("is_result", f.col("result.outcome").isNotNull() & f.col("result.at_ms").between(0, MAX_EPOCH_MS))
        .withColumn("is_result", f.coalesce("is_result", f.lit(False)))
        .select(
            _hour(f.when(f.col("is_result"), f.timestamp_millis(f.col("result.at_ms"))).otherwise(f.col("timestamp"))),
            _intake(RESULTS),
            "partition",
            "offset",
            f.col("timestamp").alias("written"),
            *[f.when(f.col("is_result"), f.col(f"result.{name}")).alias(name) for name in fields],
            f.when(~f.col("is_result"), f.col("value")).alias("unreadable"),
        )
    )


def dead_letters(records: DataFrame) -> DataFrame:
    """Dead letters, one row for each record of `*.dead`.

    Columns: hour (text, as in `results`, of the record's timestamp), intake, partition, offset, written (timestamp),
    error, detail, key, value, and all headers of the record.
    """
    last_first = f.reverse("headers")  # of several errors the last one is the service's
    return records.select(
        _hour(f.col("timestamp")),
        _intake(DEAD),
        "partition",
        "offset",
        f.col("timestamp").alias("written"),
        text_header(ERROR, last_first).alias("error"),
        text_header(ERROR_DETAIL, last_first).alias("detail"),
        "key",
        "value",
        "headers",
    )


_TABLES: Final = (_Table("results", RESULTS, results), _Table("dead", DEAD, dead_letters))


def archive(
    topics: TopicTables,
    intakes: Iterable[str],
    lake: str,
    *,
    every_ms: int | None,
    may_be_trimmed: bool,
    on_progress: Callable[[str], None],
) -> dict[str, streaming.BatchDone]:
    """Add new results and dead letters to the tables `results` and `dead` of a lake.

    Args:
        topics: the topics to read.
        intakes: the intakes whose results and dead letters are archived.
        lake: a directory on any file system that Spark supports; the checkpoints are in its `_checkpoints`.
        every_ms: the interval between batches; None: run once.
        may_be_trimmed: continue if records were deleted before they were archived.
        on_progress: called with one line for each batch.

    Returns:
        The batches and rows that were added to each table.

    Raises:
        UsageError: a topic or the checkpoint of a table is missing, or Spark failed.
    """
    names = list(intakes)
    topics.places([f"{name}{table.suffix}" for name in names for table in _TABLES])
    for table in _TABLES:
        _refuse_without_checkpoint(topics.spark, lake, table.name)
    queries: list[StreamingQuery] = []
    for table in _TABLES:
        source = topics.stream([f"{name}{table.suffix}" for name in names], may_be_trimmed=may_be_trimmed)
        rows = table.rows(source.option("maxOffsetsPerTrigger", ROWS_A_BATCH).load())
        writer = (
            rows.writeStream.format("delta")
            .queryName(table.name)
            .partitionBy("hour")
            .option("checkpointLocation", _checkpoint(lake, table.name))
            # Results get new fields: a table from before has null there.
            .option("mergeSchema", "true")
        )
        queries.append(streaming.trigger(writer, every_ms).start(_table(lake, table.name)))
    return streaming.run(queries, on_progress)


def _hour(instant: Column) -> Column:
    return f.date_format(instant, "yyyy-MM-dd'T'HH").alias("hour")


def _intake(suffix: str) -> Column:
    return f.expr(f"substring(topic, 1, length(topic) - {len(suffix)})").alias("intake")


def _table(lake: str, name: str) -> str:
    return f"{lake.rstrip('/')}/{name}"


def _checkpoint(lake: str, name: str) -> str:
    return f"{lake.rstrip('/')}/_checkpoints/{name}"


def _refuse_without_checkpoint(spark: SparkSession, lake: str, name: str) -> None:
    """Refuse a table without its checkpoint: a new checkpoint begins at the first record and would repeat all rows."""
    table, checkpoint = _table(lake, name), _checkpoint(lake, name)
    files = Files(spark)
    if files.exists(f"{table}/_delta_log") and not files.exists(checkpoint):
        raise UsageError(
            f"the table {PurePosixPath(table).name} exists, but its checkpoint {checkpoint} is missing: its rows would"
            " be archived twice; restore the checkpoint, or name another lake"
        )
