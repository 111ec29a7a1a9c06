"""Spark's reading of the packed header against the service's."""

from collections.abc import Sequence

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import Row, SparkSession

from tarry.core.message import FiledMessage, HeldCancel, HeldMessage
from tarry.core.progress.source import Source
from tarry.core.request.dialects import ETF1
from tarry.core.request.naming import hash_of
from tarry.core.request.request import Request
from tarry.core.request.translated import TranslatedMessage
from tarry.core.wheel.filed import FILED, filed_headers, read_filed
from tarry.pipelines.backlog.filed import filed
from tarry.pipelines.topics import RECORD

ID = b"0190b5c0-7e57-4c00-8000-0123456789ab"
NOON_MS = 1_767_268_800_123
Headers = Sequence[tuple[str, bytes | None]]


def named(message: HeldMessage) -> HeldMessage:
    message.name = hash_of(b"k", b"a name")
    return message


MESSAGES: list[HeldMessage] = [
    named(HeldMessage(NOON_MS, 3, b"k", b"v", [("x", b"1")], True, "orders", 2, ID)),
    named(FiledMessage(NOON_MS, 4, b"", b"", None, False, "a.b-c_d", -1, ID)),
    HeldMessage(NOON_MS, 0, b"k", b"v", [("tarry-target", b"orders"), ("x", None)], True, "orders", -1, ID),
    HeldMessage(0, 2**40 + 5, None, None, None, False, "a.b-c_d", 0, ID),
    FiledMessage(253_402_300_799_999, 2**63 - 1, b"\xff", b"", [("x", b"\xff")] * 3, True, "t" * 249, 2**31 - 1, ID),
    FiledMessage(255, 256, b"", b"\x00", [(FILED, b"a user's own")], True, "orders", 128, ID),
    HeldCancel(NOON_MS, 7, None, None, [("tarry-cancel", b"1.in.0.5.x")], False, "", -1, ID),
    TranslatedMessage(
        ETF1,
        Request(NOON_MS, "orders", 3, ID, carries=True, dialect=ETF1),
        9,
        b"schedule-1",
        b"v",
        [("scheduler-epoch", b"1767268800"), ("scheduler-target-topic", b"orders")],
        NOON_MS - 5,
        "in",
    ),
]


def read(spark: SparkSession, records: Sequence[tuple[bytes | None, bytes | None, Headers | None]]) -> list[Row]:
    rows = [("in.a.wheel-3", 2, at, None, *record) for at, record in enumerate(records)]
    return filed(spark.createDataFrame(rows, RECORD)).collect()


def test_a_filed_record_is_read_as_the_service_reads_it(spark: SparkSession) -> None:
    records = [(one.original_key, one.value, filed_headers(one)) for one in MESSAGES]
    for number, (row, (key, value, headers)) in enumerate(zip(read(spark, records), records, strict=True)):  # type: ignore[arg-type]
        one = read_filed(Source(3, 5), 0, key, value, headers)  # type: ignore[arg-type]
        assert (row.intake, row.level, row.partition) == ("in.a", 3, 2)
        assert (row.key, row.value) == (one.original_key, one.value)
        assert [(header.key, header.value) for header in row.headers] == one.original_headers
        assert (row.is_cancel, row.id, row.due_ms) == (isinstance(one, HeldCancel), one.id.decode(), one.due_ms)
        assert row.offset == one.sequence
        assert row.name == one.name == (hash_of(b"k", b"a name") if number < 2 else None)
        assert row.target == (one.target or None)
        assert row.target_partition == (None if one.target_partition < 0 else one.target_partition)


def test_records_that_the_service_has_not_filed_are_left_out(spark: SparkSession) -> None:
    others: list[Headers | None] = [None, [], [("x", b"y")], [(FILED, None)], [(FILED, b"\x01" * 57)]]
    assert read(spark, [(b"k", b"v", headers) for headers in others]) == []


def test_a_version_that_is_not_known_here_fails_the_job(spark: SparkSession) -> None:
    packed = filed_headers(MESSAGES[0])[-1][1]
    assert isinstance(packed, bytes)
    with pytest.raises(PySparkException, match="a record of a bucket has the unknown version 3"):
        read(spark, [(b"k", b"v", [(FILED, b"\x03" + packed[1:])])])
