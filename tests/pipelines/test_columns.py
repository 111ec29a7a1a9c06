"""The expressions that jobs share, against what Python has for the same."""

import uuid
from random import Random

from pyspark.sql import SparkSession
from pyspark.sql import functions as f

from tarry.core.murmur2 import murmur2
from tarry.headers import NAMESPACE, derived_id
from tarry.pipelines import columns
from tarry.pipelines.murmur2 import positive_murmur2
from tarry.pipelines.topics import RECORD

NAMES = ["", "a", "tarry.delayed/0/17", "clé", "🕰", "x" * 1_000, *[str(number) for number in range(500)]]


def test_uuid5_is_pythons(spark: SparkSession) -> None:
    found = spark.createDataFrame([(name,) for name in NAMES], "name string").select(
        "name", columns.uuid5(NAMESPACE, f.col("name")).alias("id")
    )
    assert {row.name: row.id for row in found.collect()} == {name: str(uuid.uuid5(NAMESPACE, name)) for name in NAMES}


def test_uuid5_of_nothing_is_nothing(spark: SparkSession) -> None:
    (row,) = spark.range(1).select(columns.uuid5(NAMESPACE, f.lit(None).cast("string")).alias("id")).collect()
    assert row.id is None


def test_the_derived_id_is_the_services(spark: SparkSession) -> None:
    rows = [("in.a-1", partition, offset) for partition in (0, 7) for offset in (0, 2**40)]
    found = spark.createDataFrame(rows, "topic string, partition int, offset long").select(
        "topic", "partition", "offset", columns.derived_id().alias("id")
    )
    assert {row.id for row in found.collect()} == {derived_id(*row).decode() for row in rows}


def test_a_key_is_hashed_as_javas_clients_do(spark: SparkSession) -> None:
    random = Random(17)
    keys = [None, b"", b"a", b"\xff" * 3, b"\x00" * 4, *[random.randbytes(random.randrange(40)) for _ in range(500)]]
    found = spark.createDataFrame([(key,) for key in keys], "key binary").select(
        "key", positive_murmur2(f.col("key")).alias("hash")
    )
    for row in found.collect():
        assert row.hash == (None if row.key is None else murmur2(bytes(row.key)) & 0x7FFFFFFF), row.key


FIRST_OF_A_NAME: list[tuple[list[tuple[str, bytes | None]] | None, bytes | None, str | None]] = [
    (None, None, None),
    ([], None, None),
    ([("b", b"2"), ("a", b"1"), ("a", b"3")], b"1", "1"),
    ([("a", None)], None, None),
    ([("a", b"\xff\xfe")], b"\xff\xfe", None),
    ([("A", b"1")], None, None),
    ([("a", b"")], b"", ""),
]
"""Headers, and the value of the header `a` as bytes and as text."""


def test_the_first_header_of_a_name_counts(spark: SparkSession) -> None:
    rows = [("t", 0, at, None, None, None, headers) for at, (headers, *_) in enumerate(FIRST_OF_A_NAME)]
    found = spark.createDataFrame(rows, RECORD).select(
        "offset", columns.header("a").alias("value"), columns.text_header("a").alias("text")
    )
    assert {row.offset: (row.value, row.text) for row in found.collect()} == {
        at: (value, text) for at, (_, value, text) in enumerate(FIRST_OF_A_NAME)
    }
