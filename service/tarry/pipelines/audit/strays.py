"""Records at targets that are the delivery of no message that is judged."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from tarry.kafka.place import Place
from tarry.pipelines.audit.tables import SOURCE_PLACE

RANGE: Final = "intake string, partition int, since long, start long, end long"


@dataclass(frozen=True, slots=True)
class Read:
    """What was read of the partitions of intakes.

    Args:
        since: the first offset that any run of a series has read.
        starts: the first that this run has read.
        ends: the offset behind the last.
    """

    since: Mapping[Place, int]
    starts: Mapping[Place, int]
    ends: Mapping[Place, int]

    def table(self, spark: SparkSession) -> DataFrame:
        """One row a partition."""
        rows = [
            (*place, self.since.get(place, start), start, self.ends[place])
            for place, start in self.starts.items()
            if place in self.ends
        ]
        return spark.createDataFrame(rows, RANGE)


def strays(arrived: DataFrame, messages: DataFrame, ranges: DataFrame) -> DataFrame:
    """Arrivals beside the messages: the columns of `arrived`, and `kind`.

    - `duplicate`: of a message that an earlier run has settled;
    - `unexpected`: it names a place in an intake where there is no message, or one without a target;
    - `elsewhere`: it names a message that was for another target: somebody has copied it, headers and all;
    - `ahead`: of a message behind what was read of the intake: the next run knows it.

    What comes from before, or from another intake, is left out.

    Args:
        arrived: as in `tarry.pipelines.audit.tables`.
        messages: all that were read, and those of earlier runs that were not settled: their place and `target`.
        ranges: what was read of the intakes: `RANGE`.
    """
    known = messages.select(*SOURCE_PLACE, f.col("target").alias("meant"), f.lit(True).alias("is_known"))
    offset = f.col("offset")
    is_known = f.coalesce("is_known", f.lit(False))
    of_known = f.when(f.col("meant").isNull(), "unexpected").when(f.col("meant") != f.col("target"), "elsewhere")
    kind = (
        f.when(is_known, of_known)
        .when(offset >= f.col("end"), "ahead")
        .when(offset >= f.col("start"), "unexpected")
        .when(offset >= f.col("since"), "duplicate")
    )
    return (
        arrived.where(f.col("intake").isNotNull())
        .join(f.broadcast(ranges), ["intake", "partition"])
        .join(known, list(SOURCE_PLACE), "left")
        .withColumn("kind", kind)
        .where(f.col("kind").isNotNull())
        .select(*arrived.columns, "kind")
    )


def told_apart(found: DataFrame, settled: DataFrame) -> DataFrame:
    """Strays as `strays` has them, of which copies of settled messages for another target are `elsewhere`.

    Args:
        found: as `strays` gives it.
        settled: messages that earlier runs have settled, as far as the intakes hold them: their place and `target`.
    """
    meant = settled.select(*SOURCE_PLACE, f.col("target").alias("meant"))
    is_copy = (f.col("kind") == "duplicate") & (f.col("meant") != f.col("target"))
    return (
        found.join(meant, list(SOURCE_PLACE), "left")
        .withColumn("kind", f.when(is_copy, "elsewhere").otherwise(f.col("kind")))
        .select(*found.columns)
    )
