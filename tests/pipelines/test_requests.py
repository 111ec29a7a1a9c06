"""The pipeline's reading of the header convention beside the service's: where both say something, it is the same."""

import uuid
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

import pytest
from pyspark.sql import Row, SparkSession

from tarry.core.request.intake_policy import IntakePolicy
from tarry.core.request.reader import RequestReader
from tarry.core.request.request import CancelRequest, NameCancelRequest, PurgeRequest, Rejection, Request
from tarry.pipelines.requests import requests
from tarry.pipelines.topics import RECORD

Headers = Sequence[tuple[str, bytes | None]]

STAMP_MS = 1_767_268_800_123
UUID = "0190B5C0-7E57-4c00-8000-0123456789ab"
TO: tuple[str, bytes] = ("tarry-target", b"orders")
SOON: tuple[str, bytes] = ("tarry-delay-ms", b"1500")

PLAIN: list[Headers] = [
    [TO, SOON],
    [SOON, TO, ("x", None), ("x", b"\xff")],
    [TO, ("tarry-delay-ms", b"0")],
    [TO, ("tarry-delay-ms", b"007")],
    [TO, ("tarry-deliver-at", b"1767268900000")],
    [TO, ("tarry-deliver-at", b"2026-01-02T00:00:00Z")],
    [TO, ("tarry-deliver-at", b"2026-01-02t00:00:00.5z")],
    [TO, ("tarry-deliver-at", b"2026-01-02T00:00:00.000001+01:30")],
    [TO, ("tarry-deliver-at", b"2026-01-02T00:00:00.123456-11:00")],
    [TO, ("tarry-deliver-at", b"1999-01-02T00:00:00Z")],
    [TO, ("tarry-deliver-at", b"1970-01-01T00:00:00.000001Z")],
    [TO, SOON, ("tarry-id", UUID.encode())],
    [TO, SOON, ("tarry-id", uuid.UUID(UUID).bytes)],
    [TO, SOON, ("ce_id", UUID.encode())],
    [TO, SOON, ("ce_id", b"order-17")],
    [TO, SOON, ("tarry-due-ms", b"5"), ("tarry-source", b"x")],
    [TO, SOON, ("tarry-partition", b"7")],
    [("tarry-cancel", f"1.in.0.1767268900000.{UUID}".encode())],
    [("tarry-cancel", f"1.in.0.1767268900000.{UUID}".encode()), TO, ("tarry-delay-ms", b"x")],
]
"""The records that Spark's expressions can read for certain."""

IN_A_DIALECT: list[Headers] = [
    [("scheduler-epoch", b"1767268900"), ("scheduler-target-topic", b"orders"), ("scheduler-target-key", b"k")],
    [("scheduler-epoch", b"1767268900"), ("scheduler-target-topic", b"orders"), ("tarry-partition", b"7")],
    [("scheduler-epoch", b"1767268900"), ("scheduler-target-topic", b"orders"), ("tarry-id", UUID.encode())],
]
"""The records that they can read for certain, except the due time."""

WITH_A_WINDOW: list[Headers] = [
    [TO, SOON, ("tarry-window-ms", b"60000")],
    [TO, ("tarry-deliver-at", b"1767268900000"), ("tarry-window-ms", b"1")],
]
"""The service adds a jitter, which Spark's expressions cannot compute: they are sure of all but the due time."""

HOSTILE: list[Headers] = [
    *WITH_A_WINDOW,
    [TO, SOON, ("tarry-window-ms", b"0")],
    [TO, SOON, ("tarry-expires-at", b"1767268800124")],
    [TO, SOON, ("tarry-expires-at", b"2030-01-01T00:00:00Z")],
    [TO, SOON, ("tarry-expires-at", b"soon")],
    [],
    [TO],
    [SOON],
    [TO, SOON, ("tarry-deliver-at", b"1767268900000")],
    [TO, SOON, SOON],
    [TO, TO, SOON],
    *[
        [TO, ("tarry-delay-ms", value)]
        for value in (None, b"", b"-1", b"+1", b"1.5", b" 5", b"9" * 18, b"9" * 40, b"\xff")
    ],
    *[[TO, ("tarry-delay-ms", "٣".encode())], [TO, ("tarry-delay-ms", b"5\n")]],
    *[
        [TO, ("tarry-deliver-at", value)]
        for value in (
            None,
            b"",
            b"1767268900",
            b"9" * 18,
            b"9" * 40,
            b"2026-01-02",
            b"2026-01-02T00:00:00",
            b"2026-13-02T00:00:00Z",
            b"2026-02-30T00:00:00Z",
            b"2026-01-02T24:00:00Z",
            b"2026-06-30T23:59:60Z",
            b"2026-01-02T00:00:00+25:00",
            b"2026-01-02T00:00:00.1234567Z",
            b"2026-01-02T00:00:00Z\n",
            b"2026-01-02 00:00:00Z",
            b"2030-01-02T00:00:00Z",
        )
    ],
    *[[TO, SOON, ("tarry-partition", value)] for value in (None, b"", b"-1", b"x", b"7\n", b"9" * 17, b"2147483648")],
    [TO, SOON, ("tarry-id", b"no uuid")],
    [TO, SOON, ("tarry-id", None)],
    [TO, SOON, ("tarry-id", (UUID + "\n").encode())],
    [("tarry-target", b"\xff"), SOON],
    [("tarry-target", None), SOON],
    [("tarry-cancel", b"")],
    [("tarry-cancel", None)],
    [("tarry-cancel", f"1.in.0.1767268900000.{UUID}\n".encode())],
    [("tarry-cancel", f"1.in.7.1767268900000.{UUID}".encode())],
    [("tarry-cancel", f"2.in.0.1767268900000.{UUID}".encode())],
]

POLICIES = {
    "headers": IntakePolicy("in"),
    "a tick of 100 ms": IntakePolicy("in", tick_ms=100),
    "fixed": IntakePolicy("in", fixed_delay_ms=30_000, fixed_target="orders"),
    "a dialect": IntakePolicy("in", dialect="etf1"),
    "names by key": IntakePolicy("in", dialect="etf1", same_key="replace"),
}

ACCEPTED = {"headers": 19, "a tick of 100 ms": 19, "fixed": 20, "a dialect": 5, "names by key": 5}
"""How much the service accepts of what is plain, so that there is something to be sure of."""


def found(spark: SparkSession, policy: IntakePolicy, headers: Sequence[Headers]) -> list[Row]:
    stamp = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=STAMP_MS)
    rows = [("in", 0, offset, stamp, b"k", b"v", list(one) or None) for offset, one in enumerate(headers)]
    return requests(spark.createDataFrame(rows, RECORD), policy).orderBy("offset").collect()


def told(policy: IntakePolicy, offset: int, headers: Headers) -> Request | CancelRequest | PurgeRequest | Rejection:
    request = RequestReader(policy).read(0, offset, STAMP_MS, headers, STAMP_MS)
    assert not isinstance(request, NameCancelRequest)
    return request


def test_clear_headers_are_read_as_the_service_reads_them(spark: SparkSession) -> None:
    policy = POLICIES["headers"]
    for row, headers in zip(found(spark, policy, PLAIN), PLAIN, strict=True):
        request = told(policy, row.offset, headers)
        assert not isinstance(request, Rejection), headers
        target, at = (request.target, request.partition) if isinstance(request, Request) else (None, None)
        expected = (request.id.decode(), request.due_ms, target, at)
        assert (row.id, row.due_ms, row.target, row.target_partition) == expected, headers
        assert row.is_cancel == isinstance(request, CancelRequest)


def test_a_purge_is_no_request_for_a_delivery_unless_it_is_a_cancel(spark: SparkSession) -> None:
    purge: Headers = [("tarry-purge", b"orders")]
    cancel: Headers = [("tarry-cancel", b"1.in.0.1767225600000.8e8c5b0c-0f5d-4b3e-9a55-0c6b1a3f4d21"), *purge]
    rows = found(spark, POLICIES["headers"], [purge, cancel, PLAIN[0]])
    assert [(row.offset, row.is_cancel) for row in rows] == [(1, True), (2, False)]


CANCELS_BY_KEY: dict[str, list[tuple[bytes | None, Headers]]] = {
    "etf1": [(None, []), (None, [("scheduler-epoch", b"1767225660")]), (b"v", [])],
    "karafka": [
        (None, []),
        (None, [("schedule_target_epoch", b"1767225660")]),
        (None, [("schedule_source_type", b"cancel")]),
        (b"v", [("schedule_source_type", b"tombstone")]),
        (None, [("schedule_source_type", b"schedule")]),
        (None, [("schedule_source_type", b"\xff")]),
        (None, [("schedule_source_type", None)]),
    ],
    "timebridge": [(None, []), (None, [("X-Timebridge-When", b"2026-01-01T00:01:00Z")]), (b"v", [])],
    "rabbitmq": [(None, []), (None, [("x-delay", b"60000")]), (b"v", [])],
}


@pytest.mark.parametrize("dialect", CANCELS_BY_KEY)
def test_a_cancel_by_key_is_no_request_for_a_delivery(spark: SparkSession, dialect: str) -> None:
    stamp = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=STAMP_MS)
    asked = CANCELS_BY_KEY[dialect]
    rows = [("in", 0, at, stamp, b"k", value, headers or None) for at, (value, headers) in enumerate(asked)]
    for same_key in (None, "replace"):
        policy = IntakePolicy("in", dialect=dialect, same_key=same_key)
        read = [
            RequestReader(policy).read(0, at, STAMP_MS, headers, STAMP_MS, key=b"k", value=value)
            for at, (value, headers) in enumerate(asked)
        ]
        known = {row.offset for row in requests(spark.createDataFrame(rows, RECORD), policy).collect()}
        assert known == {at for at, one in enumerate(read) if not isinstance(one, NameCancelRequest)}
        assert (len(known) < len(read)) == (same_key is not None)


def test_a_due_time_with_a_jitter_is_not_known_unless_the_delay_is_fixed(spark: SparkSession) -> None:
    rows = found(spark, POLICIES["headers"], WITH_A_WINDOW)
    assert [(row.due_ms, row.target, row.id is None) for row in rows] == [(None, "orders", False)] * 2
    fixed = found(spark, POLICIES["fixed"], WITH_A_WINDOW)
    assert [row.due_ms for row in fixed] == [STAMP_MS + 30_000] * 2


def test_id_and_due_time_of_an_occurrence_are_not_known(spark: SparkSession) -> None:
    named = [TO, ("tarry-name", b"n"), ("tarry-id", UUID.encode())]
    every: Headers = [*named, ("tarry-every", b"15m")]
    schedules: list[Headers] = [
        every,
        [*every, ("tarry-deliver-at", b"1767268900000")],
        [*every, ("tarry-next", b"17 1767268900000 5")],
        [*named, ("tarry-cron", b"0 9 * * *"), ("tarry-zone", b"UTC")],
    ]
    rows = found(spark, POLICIES["headers"], schedules)
    assert [(row.id, row.due_ms, row.target, row.target_partition) for row in rows] == [(None, None, "orders", -1)] * 4


@pytest.mark.parametrize("name", POLICIES)
def test_of_whatever_it_is_sure_the_service_says_the_same(spark: SparkSession, name: str) -> None:
    """And of what is plain, and accepted, it is sure."""
    policy, plain = POLICIES[name], len(PLAIN) + len(IN_A_DIALECT)
    headers = [*PLAIN, *IN_A_DIALECT, *HOSTILE]
    accepted = 0
    for row, one in zip(found(spark, policy, headers), headers, strict=True):
        request = told(policy, row.offset, one)
        if isinstance(request, Rejection):
            known = {None, request.due_ms}
            assert row.due_ms in known or row.is_cancel, one
            continue
        assert row.is_cancel == isinstance(request, CancelRequest), one
        says: dict[str, object] = {"id": request.id.decode(), "due_ms": request.due_ms}
        if isinstance(request, Request):
            says |= {"target": request.target, "target_partition": request.partition}
        sure = {field for field in says if row[field] is not None}
        assert {field: row[field] for field in sure} == {field: says[field] for field in sure}, one
        if row.offset < plain:
            accepted += 1
            is_read_by_the_service_alone = policy.dialect is not None and isinstance(request, Request)
            assert says.keys() - sure == ({"due_ms"} if is_read_by_the_service_alone else set()), one
    assert accepted == ACCEPTED[name]
