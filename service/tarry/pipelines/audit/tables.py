"""The four tables that an audit compares, made from records.

They hold the accepted messages, their results, the stubs among the dead letters, and the records at the targets.

The tables are narrow: they contain only a hash of each value, so that Spark shuffles little data.
"""

from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as f

from tarry.core.request.dialects import DIALECTS
from tarry.core.request.intake_policy import IntakePolicy
from tarry.headers import DUE_MS, ERROR, ID, SOURCE, STUB
from tarry.kafka.topics import DEAD
from tarry.pipelines.archive import ENDS, results
from tarry.pipelines.columns import epoch_ms, has_header, header, text_header
from tarry.pipelines.requests import requests

ACCEPTED: Final = (
    "intake string, partition int, offset long, timestamp_ms long, key binary, value_hash long, id string, "
    "due_ms long, target string, asked_partition int, is_fixed boolean, is_target_fixed boolean, was_lost boolean"
)
"""A message in an intake. `id`, `due_ms`, `target` and `asked_partition` are null if its headers are not clear.

`asked_partition` is -1 if the key decides. `is_fixed`, `is_target_fixed`: its intake has a fixed delay or a fixed
target; then `due_ms` or `target` comes from the configuration at the time when an audit first read the message.
`was_lost`: an earlier run has reported it as lost.
"""

SETTLED: Final = (
    "intake string, partition int, offset long, outcome string, id string, due_ms long, at_ms long, target string, "
    "reason string, schedule string"
)
"""A final result of a message, with the place of the message in its intake. `schedule` is the id of the schedule in the
result of an occurrence; the result of the schedule itself, which may name the same place, has none."""

STUBS: Final = "intake string, partition int, offset long, code string"
"""A stub in place of a dead letter that is too large, with the place of the message in its intake."""

ARRIVED: Final = (
    "target string, target_partition int, target_offset long, arrived_ms long, key binary, value_hash long, "
    "id string, told_due_ms long, named string, intake string, partition int, offset long"
)
"""A record at a target. `named` is the text of its `tarry-source`, null if it has none. The place in an intake is null
if that text is not a valid place."""

# \z, because Java's $ also matches before a final line feed.
_PLACE: Final = r"^([a-zA-Z0-9._-]{1,249})/(0|[1-9][0-9]{0,9})/(0|[1-9][0-9]{0,18})\z"

SOURCE_PLACE: Final = ("intake", "partition", "offset")
"""The columns by which the four tables are joined: the place of a message in its intake."""


def columns_of(schema: str) -> list[str]:
    """The names of a schema's columns."""
    return [field.split()[0] for field in schema.split(", ")]


def accepted(records: DataFrame, policy: IntakePolicy) -> DataFrame:
    """The messages of one intake, without cancels.

    Args:
        records: a table of the intake's records.
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
            _delivered_key(policy),
            _hash("value"),
            "id",
            "due_ms",
            "target",
            f.col("target_partition").alias("asked_partition"),
            f.lit(policy.fixed_delay_ms is not None).alias("is_fixed"),
            f.lit(policy.fixed_target is not None).alias("is_target_fixed"),
            f.lit(False).alias("was_lost"),
        )
    )


def settled(records: DataFrame) -> DataFrame:
    """The final results, one row each. Results that end no message, such as `cancel-filed`, are left out.

    Args:
        records: a table of records of the results topics.
    """
    return (
        results(records)
        .where(f.col("outcome").isin(*ENDS))
        .select(*_place(f.col("source")), "outcome", "id", "due_ms", "at_ms", "target", "reason", "schedule")
        .where(f.col("intake").isNotNull())
    )


def stubs(records: DataFrame) -> DataFrame:
    """The stubs among dead letters, one row each.

    Args:
        records: a table of records of the dead-letter topics.
    """
    # A dead letter has the headers of its message, and these may be forged. A stub has no value, and stands in the
    # partition of its message.
    place = f.struct(*_place(text_header(SOURCE))).alias("place")
    return (
        records.where(has_header(STUB) & f.col("value").isNull())
        .select("topic", "partition", place, text_header(ERROR).alias("code"))
        .where(f.col("topic") == f.concat("place.intake", f.lit(DEAD)))
        .where(f.col("partition") == f.col("place.partition"))
        .select("place.*", "code")
    )


def arrived(records: DataFrame) -> DataFrame:
    """The records at targets, one row each.

    Args:
        records: a table of the targets' records.
    """
    sources = f.filter("headers", lambda one: one["key"] == SOURCE)
    # A record with several such headers is not the service's: it removes existing ones before it adds its own.
    source = f.when(f.size(sources) == 1, text_header(SOURCE))
    return records.select(
        f.col("topic").alias("target"),
        f.col("partition").alias("target_partition"),
        f.col("offset").alias("target_offset"),
        epoch_ms().alias("arrived_ms"),
        "key",
        _hash("value"),
        text_header(ID).alias("id"),
        text_header(DUE_MS).try_cast("long").alias("told_due_ms"),
        f.when(has_header(SOURCE), f.coalesce(text_header(SOURCE), f.hex(header(SOURCE)), f.lit(""))).alias("named"),
        *_place(source),
    )


def _hash(name: str) -> Column:
    """The hash of a column. Null and empty have different hashes."""
    return f.xxhash64(f.col(name)).alias("value_hash")


def _delivered_key(policy: IntakePolicy) -> Column:
    """The key of the delivered record; in some dialects it comes from a header."""
    name = None if policy.dialect is None else DIALECTS[policy.dialect].key
    return f.col("key") if name is None else header(name).alias("key")


def _place(text: Column) -> list[Column]:
    """`topic/partition/offset` as three columns, all null if the text does not have the service's exact format."""
    intake = f.regexp_extract(text, _PLACE, 1)
    partition, offset = (f.regexp_extract(text, _PLACE, at).try_cast(kind) for at, kind in ((2, "int"), (3, "long")))
    is_place = text.rlike(_PLACE) & partition.isNotNull() & offset.isNotNull()
    return [
        f.when(is_place, column).alias(name)
        for name, column in (("intake", intake), ("partition", partition), ("offset", offset))
    ]
