"""Records at targets that are the delivery of no message that is judged, and what each of them is.

Every record of `arrived` that `judge` has not counted with a message is here once, so that the two together are all.
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
    """What was read of the partitions of intakes.

    Args:
        since: the first offset that any run of a series has read.
        reached: where this run went on.
        firsts: the first that the log still holds.
        ends: the offset behind the last.
        last: where the partition ended when the targets had been read: nothing behind it can have been delivered.
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
    """Messages as `strays` asks for them, one row each.

    Columns: place, `target`, `is_target_open`: whether they wait, and may yet turn out to have another target; and
    `is_wanted`: whether they are looked at.

    Args:
        messages: judged; of those that are not looked at, as they were accepted.
        is_wanted: whether they are looked at.
    """
    is_open = f.lit(False)
    if is_wanted:
        may_change = f.col("target").isNull() | (f.coalesce("is_target_fixed", f.lit(False)) & ~f.col("has_result"))
        is_open = (f.col("fate") == "waiting") & may_change
    return messages.select(
        *SOURCE_PLACE, "target", is_open.alias("is_target_open"), f.lit(is_wanted).alias("is_wanted")
    )


def strays(arrived: DataFrame, messages: DataFrame, ranges: DataFrame, others: Collection[str] = ()) -> DataFrame:
    """Arrivals beside the messages: the columns of `arrived`, `kind` and `detail`.

    - `unexpected`: it names no place, or one where no message was accepted, or a dead one without a target;
    - `duplicate`: of a message that an earlier run has settled;
    - `carried`: of a message that the next run judges;
    - `elsewhere`: it names a message that was for another target: somebody has copied it, headers and all;
    - `unjudged`: of a message that no run has read: it was deleted before, or is not of the time that is looked at;
    - `other-intake`: of an intake that is not looked at; `foreign`: not the service's.

    Args:
        arrived: as in `tarry.pipelines.audit.tables`.
        messages: all that were read, and those of earlier runs that were not settled: as `known_of` has them.
        ranges: what was read of the intakes: `RANGE`.
        others: intakes that there are beside.
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
    # Apart: a join would bring all of them to one place.
    is_foreign = _if(f.col("named").isNull(), "foreign")
    unplaced = arrived.where(f.col("intake").isNull()).withColumn(
        "it", f.coalesce(is_foreign, _what("unexpected", "its tarry-source is no place in an intake"))
    )
    columns = [*arrived.columns, "it.kind", "it.detail"]
    return placed.where(f.col("it.kind").isNotNull()).select(*columns).unionByName(unplaced.select(*columns))


def vouched_for(found: DataFrame, fired: DataFrame, *, since_ms: int, targets: Collection[str]) -> DataFrame:
    """Strays, of which those that no run could judge by the intake are judged by the results.

    Delivery and result are written together. So one that no result tells of was not delivered by the service, and of
    two with one source the second is a duplicate; the first one that a result tells of remains `unjudged`.

    Args:
        found: as `strays` gives it.
        fired: results that say so: their place and `target`.
        since_ms: since when the results are complete.
        targets: those whose records are no older than the results that were read.
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
    """Strays as `strays` has them, of which those of settled messages are compared with what the intakes hold.

    A copy at another target than the message names is `elsewhere`, one of what is no message is `unexpected`. One
    column more, `is_damaged`: whether it is another message than the one that was sent.

    Args:
        found: as `strays` gives it.
        settled: messages that earlier runs have settled, as far as the intakes hold them.
        ranges: what was read of the intakes: `RANGE`.
    """
    sent = settled.select(
        *SOURCE_PLACE,
        # A fixed one may have been another when the message was read.
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
    """Results that say `fired` of messages that an earlier run has settled, one row each.

    Args:
        settled: as in `tarry.pipelines.audit.tables`.
        messages: as in `strays`.
        ranges: likewise.
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
