"""The job: apply the stream of a change log so that a killed run can continue, and apply rejected records again."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as f

from tarry.errors import TarryError, UsageError
from tarry.kafka.types import Place
from tarry.pipelines import streaming
from tarry.pipelines.apply.batch import ApplyRules, Batches, ChangeTarget, Total
from tarry.pipelines.apply.changes import PLACE
from tarry.pipelines.topics import TopicTables

ROWS_A_BATCH: Final = 100_000
EVERYTHING: Final = ApplyRules()


@dataclass(frozen=True, slots=True)
class ApplyJob:
    """Applies the change logs of topics to a target.

    Args:
        topics: the topics of the cluster.
        names: the topics with a change log.
        target: the target of the changes.
        on_progress: called with one line for each batch.
        rules: which changes are applied.
    """

    topics: TopicTables
    names: Sequence[str]
    target: ChangeTarget
    on_progress: Callable[[str], None]
    rules: ApplyRules = EVERYTHING

    def run(
        self,
        checkpoint: str,
        *,
        rows_a_batch: int = ROWS_A_BATCH,
        every_ms: int | None = None,
        on_end: Callable[[Total], None] = lambda _total: None,
    ) -> None:
        """Apply the changes, once or continuously.

        Args:
            checkpoint: a directory for the position of the stream.
            rows_a_batch: maximum records in a batch.
            every_ms: the interval between batches; None: apply the current records and end.
            on_end: called with the totals of the run, also after an error.

        Raises:
            UsageError: a topic is missing or was recreated, a table has no key, the rules end the run, or the target or
                Spark failed.
        """
        _refuse_made_anew(self.target.next_offsets(), self.topics.ends(self.names), self.names)
        batches = Batches(self.target, self.rules, self.on_progress)
        source = self.topics.stream(self.names).option("maxOffsetsPerTrigger", rows_a_batch)
        stream = source.load().writeStream.foreachBatch(batches)
        writer = stream.queryName("apply").option("checkpointLocation", checkpoint)
        try:
            # Without the stream's own progress lines: the batches report themselves.
            streaming.run([streaming.trigger(writer, every_ms).start()], lambda _line: None)
        except UsageError as error:
            if isinstance(batches.error, TarryError):
                raise batches.error from error
            raise
        finally:
            on_end(batches.total)

    def run_rejected(self) -> Total:
        """Apply rejected records again, in one batch, with all later changes of the same rows.

        A rejected change alone would overwrite changes that were applied since. So the job reads the log again from the
        first rejected record, and applies all changes of the rows that rejected records change, in order.

        Returns:
            The totals of the run.

        Raises:
            UsageError: the log no longer holds a rejected record and all records after it; or a reason of `run`.
        """
        batches = Batches(self.target, self.rules, self.on_progress)
        rejected = self.target.rejects(self.topics.spark).where(f.col("topic").isin(*self.names)).localCheckpoint()
        first = {
            (row["topic"], row["partition"]): row["offset"]
            for row in rejected.groupBy("topic", "partition").agg(f.min("offset").alias("offset")).collect()
        }
        if not first:
            self.on_progress("apply: there are no rejected records")
            return batches.total
        ends = self.topics.settled_ends(self.names)
        applied = self.target.next_offsets()
        _refuse_made_anew(applied, ends, self.names)
        _refuse_made_anew({place: offset + 1 for place, offset in first.items()}, ends, self.names)
        _refuse_trimmed(first, self.topics.starts(self.names))
        # If the target knows its offsets, records after them belong to its next run.
        log = self.topics.read(first, {place: applied.get(place, ends[place]) for place in first})
        _refuse_others(rejected, log)
        batches.again(log, rejected.select(*PLACE))
        return batches.total


def _refuse_made_anew(applied: Mapping[Place, int], ends: Mapping[Place, int], names: Sequence[str]) -> None:
    """Refuse a topic of this run whose end is below its applied offset, or that has fewer partitions than before."""
    for place, offset in applied.items():
        if place[0] in names and offset > (end := ends.get(place, 0)):
            raise UsageError(
                f"{place[0]}/{place[1]} ends at {end}, but offsets below {offset} are applied: the topic was recreated;"
                " give the job another name"
            )


def _refuse_others(rejected: DataFrame, log: DataFrame) -> None:
    """Refuse if another record is now at the place of a rejected one: a recreated topic may have grown beyond it."""
    now = log.select(*PLACE, f.col("timestamp").alias("now"))
    others = rejected.join(now, list(PLACE), "left").where("now IS NULL OR now <> timestamp")
    for row in others.orderBy(*PLACE).limit(1).collect():
        raise UsageError(
            f"{row['topic']}/{row['partition']}/{row['offset']} is not the record that was rejected: the topic was"
            " recreated; give the job another name, and handle its rejects by hand"
        )


def _refuse_trimmed(first: Mapping[Place, int], starts: Mapping[Place, int]) -> None:
    gone = sorted(place for place, offset in first.items() if starts[place] > offset)
    if gone:
        topic, partition = place = gone[0]
        raise UsageError(
            f"{topic}/{partition} now begins at {starts[place]}, but offset {first[place]} was rejected: later changes"
            " of its row cannot be read; delete it from the rejects, and repair the target by hand or by a bootstrap"
        )
