"""The three tables that an audit compares, read from records: what was accepted, what results say, what arrived.

They are narrow: of a value there is a hash only, so that nothing large is shuffled.
"""

from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as f

from tarry.core.intake_policy import IntakePolicy
from tarry.headers import DUE_MS, ID, SOURCE
from tarry.pipelines.archive import ENDS, results
from tarry.pipelines.columns import epoch_ms, text_header
from tarry.pipelines.requests import requests

ACCEPTED: Final = (
    "intake string, partition int, offset long, timestamp_ms long, key binary, value_hash long, id string, "
    "due_ms long, target string, is_fixed boolean, was_lost boolean"
)
"""A message that an intake holds. Null in `id`, `due_ms`, `target`: its headers do not say for sure.

`is_fixed`: its intake has a fixed delay. `was_lost`: an earlier run has reported it as lost.
"""

SETTLED: Final = (
    "intake string, partition int, offset long, outcome string, id string, due_ms long, at_ms long, target string, "
    "reason string"
)
"""A result that ends a message, under the place of the message in its intake."""

ARRIVED: Final = (
    "target string, target_partition int, target_offset long, arrived_ms long, key binary, value_hash long, "
    "id string, told_due_ms long, intake string, partition int, offset long"
)
"""A record at a target, with the place in an intake that it names: null where it was not delivered by the service."""

SOURCE_PLACE: Final = ("intake", "partition", "offset")
"""What the three are joined by: the place of a message in its intake."""


def columns_of(schema: str) -> list[str]:
    """The names of a schema's columns."""
    return [field.split()[0] for field in schema.split(", ")]


def accepted(records: DataFrame, policy: IntakePolicy) -> DataFrame:
    """The messages of one intake; cancels are none.

    Args:
        records: of the intake, a table of records.
        policy: what the intake accepts.
    """
    return (
        requests(records, policy)
        .where(~f.col("is_cancel"))
        .select(
            f.col("topic").alias("intake"),
            "partition",
            "offset",
            "timestamp_ms",
            "key",
            _hash("value"),
            "id",
            "due_ms",
            "target",
            f.lit(policy.fixed_delay_ms is not None).alias("is_fixed"),
            f.lit(False).alias("was_lost"),
        )
    )


def settled(records: DataFrame) -> DataFrame:
    """What results say, one row each; those that end nothing, such as `cancel-filed`, are left out.

    Args:
        records: of the topics of results, a table of records.
    """
    return (
        results(records)
        .where(f.col("outcome").isin(*ENDS))
        .select(*_place(f.col("source")), "outcome", "id", "due_ms", "at_ms", "target", "reason")
        .where(f.col("intake").isNotNull())
    )


def arrived(records: DataFrame) -> DataFrame:
    """What targets hold, one row a record.

    Args:
        records: of the targets, a table of records.
    """
    return records.select(
        f.col("topic").alias("target"),
        f.col("partition").alias("target_partition"),
        f.col("offset").alias("target_offset"),
        epoch_ms().alias("arrived_ms"),
        "key",
        _hash("value"),
        text_header(ID).alias("id"),
        text_header(DUE_MS).try_cast("long").alias("told_due_ms"),
        *_place(text_header(SOURCE)),
    )


def _hash(name: str) -> Column:
    """Of null it is another one than of nothing."""
    return f.xxhash64(f.col(name)).alias("value_hash")


def _place(text: Column) -> list[Column]:
    """`topic/partition/offset` as three columns, all null where it is no such text."""
    parts = f.split(text, "/")
    partition, offset = (f.get(parts, f.lit(at)).try_cast(kind) for at, kind in ((1, "int"), (2, "long")))
    is_place = (f.size(parts) == 3) & partition.isNotNull() & offset.isNotNull()
    return [
        f.when(is_place, column).alias(name)
        for name, column in (("intake", f.get(parts, f.lit(0))), ("partition", partition), ("offset", offset))
    ]
