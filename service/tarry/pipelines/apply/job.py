"""The job: a stream of a change log's records, and what makes a killed run whole; and what was rejected, once more."""

from collections.abc import Callable, Mapping, Sequence
from typing import Final

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from tarry.errors import TarryError, UsageError
from tarry.kafka.types import Place
from tarry.pipelines import streaming
from tarry.pipelines.apply.batch import Batches, Rules, Target, Total
from tarry.pipelines.apply.changes import PLACE
from tarry.pipelines.topics import Topics

ROWS_A_BATCH: Final = 100_000
EVERYTHING: Final = Rules()


def apply(
    topics: Topics,
    names: Sequence[str],
    target: Target,
    checkpoint: str,
    *,
    rules: Rules = EVERYTHING,
    rows_a_batch: int = ROWS_A_BATCH,
    every_ms: int | None = None,
    on_progress: Callable[[str], None],
    on_end: Callable[[Total], None] = lambda _total: None,
) -> None:
    """Apply the changes of topics: those that are new, and then end, or on and on.

    Args:
        topics: where to read.
        names: of the topics with a change log.
        target: where to apply it.
        checkpoint: a directory for what the stream has read.
        rules: what is applied.
        rows_a_batch: at most so many records at once.
        every_ms: how often; None: once.
        on_progress: told of each batch.
        on_end: told what was done in all, however the run ends.

    Raises:
        UsageError: a topic is missing or was made anew, a table has no key, the rules end the run, the target failed,
            or Spark did.
    """
    _refuse_made_anew(target.next_offsets(), topics.ends(names), names)
    batches = Batches(target, rules, on_progress)
    source = topics.stream(names).option("maxOffsetsPerTrigger", rows_a_batch)
    writer = source.load().writeStream.foreachBatch(batches).queryName("apply").option("checkpointLocation", checkpoint)
    try:
        # The batches tell of themselves.
        streaming.run([streaming.trigger(writer, every_ms).start()], lambda _line: None)
    except UsageError as error:
        if isinstance(batches.error, TarryError):
            raise batches.error from error
        raise
    finally:
        on_end(batches.total)


def apply_rejected(
    spark: SparkSession,
    topics: Topics,
    names: Sequence[str],
    target: Target,
    *,
    rules: Rules = EVERYTHING,
    on_progress: Callable[[str], None],
) -> Total:
    """Apply what was rejected again, in one batch, with all later changes of the same rows.

    A rejected change alone would take its row back behind changes that were applied since. So the log is read again
    from the first rejected record on, and of the rows that rejected records change all changes are applied, in order.

    Args:
        spark: the session.
        topics: where to read.
        names: of the topics whose rejected records are meant.
        target: where to apply them.
        rules: what is applied.
        on_progress: told of what is done.

    Returns:
        What was done.

    Raises:
        UsageError: the log no longer holds a rejected record or what follows it; or what ends `apply`.
    """
    batches = Batches(target, rules, on_progress)
    rejected = target.rejects(spark).where(f.col("topic").isin(*names)).localCheckpoint()
    first = {
        (row["topic"], row["partition"]): row["offset"]
        for row in rejected.groupBy("topic", "partition").agg(f.min("offset").alias("offset")).collect()
    }
    if not first:
        on_progress("apply: nothing is rejected")
        return batches.total
    ends = topics.settled_ends(names)
    applied = target.next_offsets()
    _refuse_made_anew(applied, ends, names)
    _refuse_made_anew({place: offset + 1 for place, offset in first.items()}, ends, names)
    _refuse_trimmed(first, topics.starts(names))
    # Where the target knows how far it is, what comes behind is its next run's.
    log = topics.read(first, {place: applied.get(place, ends[place]) for place in first})
    _refuse_others(rejected, log)
    batches.again(log, rejected.select(*PLACE))
    return batches.total


def _refuse_made_anew(applied: Mapping[Place, int], ends: Mapping[Place, int], names: Sequence[str]) -> None:
    """Refuse a topic that ends too soon, or has fewer partitions than it had; not one that the run leaves out."""
    for place, offset in applied.items():
        if place[0] in names and offset > (end := ends.get(place, 0)):
            raise UsageError(
                f"{place[0]}/{place[1]} ends at {end}, and all below {offset} is applied: the topic was made"
                " anew; give the job another name"
            )


def _refuse_others(rejected: DataFrame, log: DataFrame) -> None:
    """Refuse where another record stands at a place now: a topic that was made anew may have outgrown the old."""
    now = log.select(*PLACE, f.col("timestamp").alias("now"))
    others = rejected.join(now, list(PLACE), "left").where("now IS NULL OR now <> timestamp")
    for row in others.orderBy(*PLACE).limit(1).collect():
        raise UsageError(
            f"{row['topic']}/{row['partition']}/{row['offset']} is not the record that was rejected: the topic was made"
            " anew; give the job another name, and see to its rejects by hand"
        )


def _refuse_trimmed(first: Mapping[Place, int], starts: Mapping[Place, int]) -> None:
    gone = sorted(place for place, offset in first.items() if starts[place] > offset)
    if gone:
        topic, partition = place = gone[0]
        raise UsageError(
            f"{topic}/{partition} begins at {starts[place]} now, and {first[place]} was rejected: what changed its"
            " row since can't be read; delete that row from the rejects, and mend the target by hand or by a bootstrap"
        )
