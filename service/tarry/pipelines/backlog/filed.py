"""Read records of the overflow wheel with Spark expressions. `tarry.core.wheel.filed` defines their format."""

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as f

from tarry.core.progress.name_index import HASH_BYTES
from tarry.core.wheel.filed import FILED
from tarry.kafka.backlog import PARKED_SHOWN

_VERSION, _NAMED_VERSION = 1, 2
_CANCEL, _TRANSLATED = 2, 4
# Start (from 1, as in SQL) and length of each field of the packed header.
_DUE, _OFFSET, _PARTITION, _FLAGS, _ID, _TEXT = (2, 8), (10, 8), (18, 4), (22, 1), (23, 36), 59


def target() -> Column:
    """The target of a record that the service filed; null if it did not."""
    # In a dialect, more follows after a space.
    return f.split_part(_text(_packed()), f.lit(" "), f.lit(1))


def due_ms() -> Column:
    """The due time of a record of a level's log; null if the service did not file it."""
    return _number(_DUE, _packed())


def _packed() -> Column:
    last = f.try_element_at(f.col("headers"), f.lit(-1))
    return f.when((last["key"] == FILED) & (f.length(last["value"]) >= _TEXT - 1), last["value"])


def _version(packed: Column) -> Column:
    return f.conv(f.hex(f.substring(packed, 1, 1)), 16, 10).cast("int")


def _text(packed: Column) -> Column:
    """The text behind the fields; of a message with a name, the hash of its name is before it."""
    begin = f.when(_version(packed) == _NAMED_VERSION, _TEXT + HASH_BYTES).otherwise(_TEXT)
    return f.substr(packed, begin).cast("string")


def filed(records: DataFrame) -> DataFrame:
    """Filed messages, one row for each record. Records that the service did not file are left out.

    Columns: intake, level (-1: the parked log), `partition` and `offset` in the intake, key, value, headers as in the
    intake, is_cancel, id, due_ms, target (null for cancels), target_partition (null if the key decides), name (a hash;
    null if there is none).

    A record with an unknown version fails the job when Spark reads it.

    Args:
        records: a table of records of topics `*.wheel-n` or `*.parked` (`tarry.pipelines.topics`).
    """
    version = _version(f.col("packed"))
    unknown = f.raise_error(f.concat(f.lit("a record of a bucket has the unknown version "), version.cast("string")))
    flags = _number(_FLAGS).cast("int")
    text = _text(f.col("packed"))
    is_translated = flags.bitwiseAND(_TRANSLATED) != 0
    target_partition = _number(_PARTITION)
    name = f.when(version == _NAMED_VERSION, f.substring("packed", _TEXT, HASH_BYTES))
    return (
        records.withColumn("packed", _packed())
        .where("packed is not null")
        .withColumn(
            "is_cancel",
            f.when(~version.isin(_VERSION, _NAMED_VERSION), unknown).otherwise(flags.bitwiseAND(_CANCEL) != 0),
        )
        .select(
            f.regexp_extract("topic", r"^(.*)\.(?:wheel-[0-9]+|parked)\z", 1).alias("intake"),
            f.when(f.endswith("topic", f.lit(".parked")), PARKED_SHOWN)
            .otherwise(f.regexp_extract("topic", r"^(.*)\.wheel-([0-9]+)\z", 2).try_cast("int"))
            .alias("level"),
            "partition",
            _number(_OFFSET).alias("offset"),
            "key",
            "value",
            f.slice("headers", f.lit(1), f.size("headers") - 1).alias("headers"),
            "is_cancel",
            f.substring("packed", *_ID).cast("string").alias("id"),
            _number(_DUE).alias("due_ms"),
            f.when(
                ~f.col("is_cancel"), f.when(is_translated, f.split_part(text, f.lit(" "), f.lit(1))).otherwise(text)
            ).alias("target"),
            # Two's complement of four bytes: -1 is the only negative value, so a set highest bit means -1.
            f.when(target_partition < 2**31, target_partition).cast("int").alias("target_partition"),
            name.alias("name"),
        )
    )


def _number(field: tuple[int, int], packed: Column | None = None) -> Column:
    """A big-endian field of the packed header. Fields of eight bytes are signed."""
    return f.conv(f.hex(f.substring(f.col("packed") if packed is None else packed, *field)), 16, -10).cast("long")
