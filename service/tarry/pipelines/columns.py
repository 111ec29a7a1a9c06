"""Columns that several jobs use: headers, ids and times, as compiled Spark expressions without Python code per row."""

import uuid

from pyspark.sql import Column
from pyspark.sql import functions as f

from tarry.headers import NAMESPACE


def header(name: str, headers: Column | None = None) -> Column:
    """The value of the first header with a name, as bytes; null if there is none.

    Args:
        name: the name of the header.
        headers: the array of headers; default: the column `headers`.
    """
    of_name = f.filter(f.col("headers") if headers is None else headers, lambda one: one["key"] == name)
    return f.get(of_name, f.lit(0))["value"]


def has_header(name: str) -> Column:
    """Whether a record has a header with this name."""
    return f.coalesce(f.exists(f.col("headers"), lambda one: one["key"] == name), f.lit(False))


def text_header(name: str, headers: Column | None = None) -> Column:
    """The value of the first header with a name, as text; null if there is none, or it is not UTF-8."""
    return f.try_validate_utf8(header(name, headers).cast("string"))


def uuid5(namespace: uuid.UUID, name: Column) -> Column:
    """`uuid.uuid5` of a text, as 36 characters; null for null."""
    digest = f.sha1(f.concat(f.lit(namespace.bytes), f.encode(name, "utf-8")))
    # RFC 9562: the version replaces four bits, the variant replaces two.
    variant = f.lower(f.hex(f.conv(f.substring(digest, 17, 1), 16, 10).cast("int").bitwiseAND(3).bitwiseOR(8)))
    text = f.concat_ws(
        "-",
        f.substring(digest, 1, 8),
        f.substring(digest, 9, 4),
        f.concat(f.lit("5"), f.substring(digest, 14, 3)),
        f.concat(variant, f.substring(digest, 18, 3)),
        f.substring(digest, 21, 12),
    )
    # `concat_ws` skips nulls: without this condition, null would become an empty text.
    return f.when(name.isNotNull(), text)


def place(topic: str = "topic", partition: str = "partition", offset: str = "offset") -> Column:
    """`topic/partition/offset` of a record, the format of `tarry-source`."""
    return f.concat_ws("/", f.col(topic), f.col(partition).cast("string"), f.col(offset).cast("string"))


def derived_id() -> Column:
    """The id that the service gives to an intake record without an id."""
    return uuid5(NAMESPACE, place())


def epoch_ms(timestamp: str = "timestamp") -> Column:
    """A timestamp as milliseconds since the epoch."""
    return f.unix_millis(f.col(timestamp))
