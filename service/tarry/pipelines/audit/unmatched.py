"""Classify the records at targets that are not deliveries of judged messages.

Every record of `arrived` that `compare` has not counted with a message appears here once. The two together are all
records.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Final

from pyspark.sql import Column, DataFrame, SparkSession, Window
from pyspark.sql import functions as f

from tarry.headers import Outcome
from tarry.kafka.types import Place
from tarry.pipelines.audit.tables import SOURCE_PLACE
from tarry.pipelines.faults import CARRIED

RANGE: Final = "intake string, partition int, since long, reached long, first long, end long, last long"

NO_MESSAGE: Final = "the intake holds no such message"


@dataclass(frozen=True, slots=True)
class Read:
    """The ranges that were read of the intakes' partitions.

    Args:
        since: the first offset that any run of the series has read.
        reached: the offset at which this run started.
        firsts: the first offset that the log still holds.
        ends: the end offset of this run, exclusive.
        last: the end of the partition after the targets were read; no message at or above it can have been delivered.
    """

    since: Mapping[Place, int]
    reached: Mapping[Place, int]
    firsts: Mapping[Place, int]
    ends: Mapping[Place, int]
    last: Mapping[Place, int]

    def table(self, spark: SparkSession) -> DataFrame:
        """One row a partition."""
        rows = [
            (*place, self.since[place], reached, self.firsts[place], self.ends[place], self.last[place])
            for place, reached in self.reached.items()
            if place in self.ends
        ]
        return spark.createDataFrame(rows, RANGE)


def known_of(messages: DataFrame, *, is_wanted: bool = True) -> DataFrame:
    """Messages in the form that `unmatched` needs, one row each.

    Columns: place; `target`; `is_target_open`, whether the message waits and may still get another target; and
    `is_wanted`, whether the run audits the message.

    Args:
        messages: judged messages; if `is_wanted` is false, accepted messages.
        is_wanted: whether the run audits these messages.
    """
    is_open = f.lit(False)
    if is_wanted:
        may_change = f.col("target").isNull() | (f.coalesce("is_target_fixed", f.lit(False)) & ~f.col("has_result"))
        is_open = (f.col("fate") == "waiting") & may_change
    return messages.select(
        *SOURCE_PLACE, "target", is_open.alias("is_target_open"), f.lit(is_wanted).alias("is_wanted")
    )


def unmatched(arrived: DataFrame, messages: DataFrame, ranges: DataFrame, others: Collection[str] = ()) -> DataFrame:
    """The records at targets that belong to no judged message: the columns of `arrived`, `kind` and `detail`.

    - `unexpected`: it names no valid place, or a place without an accepted message, or a dead message without a target;
    - `duplicate`: of a message that an earlier run has settled;
    - `carried`: of a message that the next run judges;
    - `elsewhere`: it names a message for another target: another client copied it with its headers;
    - `unjudged`: of a message that no run has read: it was deleted before, or is outside the audited time span;
    - `other-intake`: of an intake that is not audited; `foreign`: not written by the service.

    Args:
        arrived: as in `tarry.pipelines.audit.tables`.
        messages: all messages that were read, and unsettled messages of earlier runs, as `known_of` returns them.
        ranges: the ranges that were read of the intakes: `RANGE`.
        others: all other intakes of the cluster.
    """
    known = messages.select(
        *SOURCE_PLACE, f.col("target").alias("meant"), "is_target_open", "is_wanted", f.lit(True).alias("is_known")
    )
    offset, meant, is_known = f.col("offset"), f.col("meant"), f.col("is_known")
    what = (
        _if(is_known & ~f.col("is_wanted"), "unjudged"),
        _if(is_known & f.col("is_target_open") & ~meant.eqNullSafe(f.col("target")), CARRIED),
        _if(is_known & meant.isNull(), "unexpected", "that message has no target"),
        _if(is_known & (meant != f.col("target")), "elsewhere"),
        _if(is_known, None),
        _if(f.col("end").isNull() & f.col("intake").isin(*others), "other-intake"),
        _if(f.col("end").isNull(), "unexpected", "there is no such partition of an intake"),
        _if(offset >= f.col("last"), "unexpected", "the intake ended before that offset"),
        _if(offset >= f.col("end"), CARRIED),
        _if(offset >= f.greatest("reached", "first"), "unexpected", NO_MESSAGE),
        _if(offset >= f.col("reached"), "unjudged"),
        _if(offset >= f.col("since"), "duplicate", "an earlier run had settled it"),
        _what("unjudged"),
    )
    placed = (
        arrived.where(f.col("intake").isNotNull())
        .join(f.broadcast(ranges), ["intake", "partition"], "left")
        .join(known, list(SOURCE_PLACE), "left")
        .withColumn("it", f.coalesce(*what))
    )
    # Separately: a join by null would bring all of them to one Spark partition.
    is_foreign = _if(f.col("named").isNull(), "foreign")
    unplaced = arrived.where(f.col("intake").isNull()).withColumn(
        "it", f.coalesce(is_foreign, _what("unexpected", "its tarry-source is no place in an intake"))
    )
    columns = [*arrived.columns, "it.kind", "it.detail"]
    return placed.where(f.col("it.kind").isNotNull()).select(*columns).unionByName(unplaced.select(*columns))


def vouched_for(found: DataFrame, fired: DataFrame, *, since_ms: int, targets: Collection[str]) -> DataFrame:
    """Judge by the results those records that no run could judge by the intake (`unjudged`).

    The service writes delivery and result together. So a record without a result was not delivered by the service, and
    of two records with the same source the second is a duplicate. The first record with a result stays `unjudged`.

    Args:
        found: the result of `unmatched`.
        fired: the results `fired`, with their place and `target`.
        since_ms: the time from which the results are complete.
        targets: targets whose records are no older than the results that were read.
    """
    told = fired.groupBy(*SOURCE_PLACE).agg(f.max("target").alias("told"))
    is_unjudged = f.col("kind") == "unjudged"
    same = Window.partitionBy(*SOURCE_PLACE, "target").orderBy("arrived_ms", "target_partition", "target_offset")
    is_sure = f.col("target").isin(*targets) & (f.col("arrived_ms") > since_ms)
    it = f.coalesce(
        _if(is_sure & f.col("told").isNull(), "unexpected", "no result tells of it"),
        _if(is_sure & (f.col("told") != f.col("target")), "elsewhere"),
        _if(f.col("nth") > 1, "duplicate", "the intake no longer holds it"),
        _what("unjudged"),
    )
    judged = (
        found.where(is_unjudged)
        .join(told, list(SOURCE_PLACE), "left")
        .withColumn("nth", f.row_number().over(same))
        .withColumn("it", it)
        .select(*found.columns[:-2], "it.kind", "it.detail")
    )
    return found.where(~is_unjudged).unionByName(judged)


def told_apart(found: DataFrame, settled: DataFrame, ranges: DataFrame) -> DataFrame:
    """Compare records of messages that earlier runs have settled with the messages in the intakes.

    A copy at a target other than the message's is `elsewhere`; a record of a place without a message is `unexpected`.
    The additional column `is_damaged` tells whether the record differs from the message that was sent.

    Args:
        found: the result of `unmatched`.
        settled: messages that earlier runs have settled, as far as the intakes still hold them.
        ranges: the ranges that were read of the intakes: `RANGE`.
    """
    sent = settled.select(
        *SOURCE_PLACE,
        # A fixed target may have been another one when the service read the message.
        f.when(~f.col("is_target_fixed"), f.col("target")).alias("meant"),
        "is_fixed",
        *[f.col(name).alias(f"own_{name}") for name in ("key", "value_hash", "id", "due_ms")],
    )
    is_again = f.col("kind") == "duplicate"
    is_held, differs = f.col("is_fixed").isNotNull(), f.lit(False)
    for other in (
        ~f.col("own_key").eqNullSafe(f.col("key")),
        f.col("own_value_hash") != f.col("value_hash"),
        f.col("id").isNull() | (f.col("own_id") != f.col("id")),
        ~f.col("is_fixed") & (f.col("told_due_ms").isNull() | (f.col("own_due_ms") != f.col("told_due_ms"))),
    ):
        differs |= f.coalesce(other, f.lit(False))
    it = f.coalesce(
        _if(f.col("meant") != f.col("target"), "elsewhere"),
        _if(~is_held & (f.col("offset") >= f.col("first")), "unexpected", NO_MESSAGE),
        _what("duplicate", "an earlier run had settled it"),
    )
    compared = (
        found.where(is_again)
        .join(f.broadcast(ranges.select("intake", "partition", "first")), ["intake", "partition"], "left")
        .join(sent, list(SOURCE_PLACE), "left")
        .withColumn("it", it)
        .withColumn("is_damaged", is_held & (f.col("it.kind") == "duplicate") & differs)
        .select(*found.columns[:-2], "it.kind", "it.detail", "is_damaged")
    )
    return found.where(~is_again).withColumn("is_damaged", f.lit(False)).unionByName(compared)


def settled_again(settled: DataFrame, messages: DataFrame, ranges: DataFrame) -> DataFrame:
    """New results `fired` of messages that an earlier run has settled, one row each.

    Args:
        settled: as in `tarry.pipelines.audit.tables`.
        messages: as in `unmatched`.
        ranges: as in `unmatched`.
    """
    is_before = (f.col("offset") >= f.col("since")) & (f.col("offset") < f.col("reached"))
    return (
        settled.where(f.col("outcome") == str(Outcome.FIRED))
        .join(f.broadcast(ranges), ["intake", "partition"])
        .where(is_before)
        .join(messages.select(*SOURCE_PLACE), list(SOURCE_PLACE), "left_anti")
        .select(*settled.columns)
    )


def _if(holds: Column, kind: str | None, detail: str | None = None) -> Column:
    return f.when(holds, _what(kind, detail))


def _what(kind: str | None, detail: str | None = None) -> Column:
    return f.struct(f.lit(kind).cast("string").alias("kind"), f.lit(detail).cast("string").alias("detail"))
