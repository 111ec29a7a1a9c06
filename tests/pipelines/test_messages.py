"""From rows to messages: ids, every reason to refuse one, spreads, and hostile files."""

import json
import uuid
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, Row, SparkSession

from tarry.errors import UsageError
from tarry.headers import NAMESPACE
from tarry.pipelines.schedule.job import sharded, slices
from tarry.pipelines.schedule.messages import (
    Expressions,
    IntakeLimits,
    TargetVerdict,
    ask,
    namespace_of,
    records,
    validate_rows,
    verdict_rows,
)
from tarry.pipelines.schedule.tables import UNREADABLE, TableSource, read_table

BASE_MS = 1_767_268_800_000  # 2026-01-01T12:00:00Z
DAY_MS = 86_400_000
JOB = namespace_of("job")
ASKED = Expressions("k", "t", key="k", due="at")
LIMITS = IntakeLimits(BASE_MS, 30 * DAY_MS, 5_000)
VERDICTS = [
    TargetVerdict("orders", max_bytes=100_000),
    TargetVerdict("compacted", max_bytes=100_000, compacted=True),
    TargetVerdict("small", max_bytes=2_000),
    TargetVerdict("gone", "unknown-target", "there is no such topic"),
    TargetVerdict("in.dead", "internal-target"),
    TargetVerdict("elsewhere", "target-not-allowed"),
]
ROW = f"k string, t string, at long, v string, {UNREADABLE} string"


def judged(
    spark: SparkSession,
    rows: list[tuple[Any, ...]],
    asked: Expressions = ASKED,
    limits: IntakeLimits = LIMITS,
    known: tuple[str, ...] = (),
) -> list[Row]:
    frame = spark.createDataFrame([(*row, None, None)[:5] for row in rows], ROW)
    return validate_rows(
        ask(frame, asked, JOB, BASE_MS),
        spark.createDataFrame([(one,) for one in known], "id string"),
        verdict_rows(spark, VERDICTS),
        limits,
    ).collect()


def test_ids_are_uuid5_of_job_and_row_key(spark: SparkSession) -> None:
    rows = judged(spark, [(key, "orders", BASE_MS) for key in ("1", "x", "clé", "")])
    namespace = uuid.uuid5(NAMESPACE, "job/job")
    assert {row.row_key: row.id for row in rows} == {
        key: str(uuid.uuid5(namespace, key)) for key in ("1", "x", "clé", "")
    }
    assert all(row.code is None for row in rows)


def test_every_reason_to_refuse_a_row_has_its_code(spark: SparkSession) -> None:
    cases: list[tuple[tuple[Any, ...], str | None]] = [
        (("good", "orders", BASE_MS + 1), None),
        (("past", "orders", BASE_MS - DAY_MS), None),
        ((None, "orders", BASE_MS), "no-row-key"),
        ((None, "orders", BASE_MS), "no-row-key"),
        ((None, None, BASE_MS), "no-row-key"),
        (("twice", "orders", BASE_MS), "repeated-row-key"),
        (("twice", "orders", BASE_MS + 1), "repeated-row-key"),
        (("no time", "orders", None), "no-delay"),
        (("seconds", "orders", BASE_MS // 1_000), "looks-like-seconds"),
        (("negative", "orders", -1), "bad-time"),
        (("huge", "orders", 2**62), "bad-time"),
        (("too far", "orders", BASE_MS + 30 * DAY_MS + 1), "beyond-max-delay"),
        (("as far as may be", "orders", BASE_MS + 30 * DAY_MS), None),
        (("no target", None, BASE_MS), "no-target"),
        (("empty target", "", BASE_MS), "bad-target"),
        (("bad target", "a b", BASE_MS), "bad-target"),
        (("dots", "..", BASE_MS), "bad-target"),
        (("line feed", "orders\n", BASE_MS), "bad-target"),
        (("internal", "in.dead", BASE_MS), "internal-target"),
        (("not allowed", "elsewhere", BASE_MS), "target-not-allowed"),
        (("unknown", "gone", BASE_MS), "unknown-target"),
        (("never asked about", "new", BASE_MS), "unknown-target"),
        (("large", "orders", BASE_MS, "x" * 5_000), "too-large"),
        (("large there", "small", BASE_MS, "x" * 2_000), "too-large"),
        (("not large", "orders", BASE_MS, "x" * 2_000), None),
        (("unreadable", "orders", BASE_MS, None, "{no line"), "unreadable-row"),
    ]
    rows = judged(spark, [row for row, _ in cases])
    assert sorted((str(row.row_key), row.code or "") for row in rows) == sorted(
        (str(row[0]), code or "") for row, code in cases
    )
    by_key = {row.row_key: row for row in rows}
    assert by_key["unreadable"].row == "{no line"
    assert json.loads(by_key["seconds"].row) == {"k": "seconds", "t": "orders", "at": BASE_MS // 1_000, "v": None}
    assert by_key["seconds"].detail == f"as milliseconds this is before 2001-09-09: {BASE_MS // 1_000}"
    assert by_key["good"].row is None
    assert all(row.detail for row in rows if row.code not in {None, "internal-target", "target-not-allowed"})


def test_a_compacted_target_takes_no_row_without_a_key(spark: SparkSession) -> None:
    asked = Expressions("k", "t", key="v", due="at")
    rows = judged(
        spark, [("1", "compacted", BASE_MS, None), ("2", "compacted", BASE_MS, ""), ("3", "orders", BASE_MS)], asked
    )
    assert {row.row_key: row.code for row in rows} == {"1": "null-key", "2": None, "3": None}


def test_a_row_that_was_sent_counts_as_known_even_if_it_would_be_rejected_now(spark: SparkSession) -> None:
    sent = tuple(str(uuid.uuid5(JOB, key)) for key in ("late", "gone", "twice", "good"))
    limits = IntakeLimits(BASE_MS, DAY_MS, 5_000, refuse_past=True)
    rows = judged(
        spark,
        [
            *[("late", "orders", BASE_MS - 1), ("gone", "gone", BASE_MS), ("good", "orders", BASE_MS)],
            *[("twice", "orders", BASE_MS), ("twice", "orders", BASE_MS)],
            *[("new and late", "orders", BASE_MS - 1), ("new", "orders", BASE_MS)],
        ],
        limits=limits,
        known=sent,
    )
    assert sorted((row.row_key, row.is_known, row.code) for row in rows) == [
        ("gone", True, None),
        ("good", True, None),
        ("late", True, None),
        ("new", False, None),
        ("new and late", False, "past-due"),
        ("twice", False, "repeated-row-key"),
        ("twice", False, "repeated-row-key"),
    ]


def test_keys_values_and_headers_are_bytes_of_whatever_type(spark: SparkSession) -> None:
    frame = spark.sql(
        "select 17L as k, 'orders' as t, cast(1767268800000 as long) as at, X'00FF' as raw, named_struct('a', 1) as s,"
        f" cast(null as string) as nothing, cast(null as string) as {UNREADABLE}"
    )

    def record(**asked: Any) -> Row:
        made = ask(frame, Expressions("k", "t", due="at", **asked), JOB, BASE_MS)
        (row,) = records(made, "in").collect()
        return row

    row = record(headers=[("a", "raw"), ("a", "k + 1"), ("b", "nothing"), ("c", "s")])
    assert (row.topic, row.key) == ("in", None)
    assert json.loads(row.value) == {
        "k": 17,
        "t": "orders",
        "at": BASE_MS,
        "raw": "AP8=",
        "s": {"a": 1},
        "nothing": None,
    }
    assert [tuple(one) for one in row.headers] == [
        ("a", b"\x00\xff"),
        ("a", b"18"),
        ("b", None),
        ("c", b'{"a":1}'),
        ("tarry-target", b"orders"),
        ("tarry-id", str(uuid.uuid5(JOB, "17")).encode()),
        ("tarry-deliver-at", str(BASE_MS).encode()),
    ]
    assert (record(key="raw", value="nothing").key, record(key="raw", value="nothing").value) == (b"\x00\xff", None)
    assert (record(key="k", value="s").key, record(key="''", value="raw").key) == (b"17", b"")
    assert (record(value="s").value, record(value="raw").value) == (b'{"a":1}', b"\x00\xff")


def test_times_keep_their_microseconds_wherever_they_become_text(spark: SparkSession) -> None:
    at = "timestamp '2026-01-01 12:00:00.123456Z'"
    frame = spark.sql(
        f"select {at} as at, timestamp_ntz '2026-01-01 12:00:00.123456' as here, array({at}) as many, {at} as k,"
        f" cast(null as string) as {UNREADABLE}"
    )
    asked = Expressions("struct(k)", "'orders'", due="at", headers=[("at", "at"), ("s", "struct(at, here)")])
    made = ask(frame, asked, JOB, BASE_MS)
    (row,) = made.collect()
    time, here = "2026-01-01T12:00:00.123456Z", "2026-01-01T12:00:00.123456"
    assert json.loads(row.value) == {"at": time, "here": here, "many": [time], "k": time}
    assert json.loads(row.row) == json.loads(row.value)
    assert json.loads(row.row_key) == {"k": time}
    assert [bytes(header.value) for header in row.headers] == [
        b"2026-01-01 12:00:00.123456",
        f'{{"at":"{time}","here":"{here}"}}'.encode(),
    ]


def test_a_row_with_a_name_needs_a_key_and_asks_for_its_condition(spark: SparkSession) -> None:
    rows = [
        ("named", "key", "reminder"),
        ("unnamed", "key", None),
        ("no key", None, "reminder"),
        ("empty", "key", ""),
        ("long", "key", "n" * 256),
    ]
    frame = spark.createDataFrame(
        [(*row, None) for row in rows], f"k string, key string, n string, {UNREADABLE} string"
    )
    asked = Expressions("k", "'orders'", key="key", delay="1000", name="n", only_if="absent")
    made = ask(frame, asked, JOB, BASE_MS).persist()
    codes = {row.row_key: row.code for row in made.collect()}
    assert codes == {"named": None, "unnamed": None, "no key": "null-key", "empty": "bad-name", "long": "bad-name"}
    headers = [dict(row.headers) for row in records(made.where("code is null"), "in", "absent").collect()]
    assert [(one.get("tarry-name"), one.get("tarry-if")) for one in headers] == [(b"reminder", b"absent"), (None, None)]
    (row,) = records(made.where("row_key = 'named'"), "in").collect()
    assert "tarry-if" not in dict(row.headers)
    with pytest.raises(UsageError, match="--if needs --name"):
        Expressions("k", "'orders'", delay="1000", only_if="absent")


def test_a_row_may_expire_and_not_before_its_message_is_due(spark: SparkSession) -> None:
    due_ms = BASE_MS + 1_000
    rows = [("none", None), ("at", due_ms), ("before", due_ms - 1), ("seconds", due_ms // 1_000), ("later", due_ms + 9)]
    frame = spark.createDataFrame([(*row, None) for row in rows], f"k string, e long, {UNREADABLE} string")
    asked = Expressions("k", "'orders'", delay="1000", expires_at="e")
    made = ask(frame, asked, JOB, BASE_MS).persist()
    found = {row.row_key: row.code for row in made.collect()}
    assert found == {"none": None, "at": None, "before": "expired", "seconds": "looks-like-seconds", "later": None}
    headers = [
        dict(row.headers).get("tarry-expires-at")
        for row in records(made.where("code is null").orderBy("row_key"), "in").collect()
    ]
    assert headers == [b"%d" % due_ms, b"%d" % (due_ms + 9), None]
    none = spark.createDataFrame([], "id string")
    late = replace(LIMITS, now_ms=due_ms + 1)
    judged_rows = validate_rows(made, none, verdict_rows(spark, VERDICTS), late).collect()
    assert {row.row_key: row.code for row in judged_rows if row.code} == {
        "at": "expired",
        "before": "expired",
        "seconds": "looks-like-seconds",
    }
    with pytest.raises(UsageError, match="--expires-at is of type boolean"):
        ask(frame, Expressions("k", "'orders'", delay="1000", expires_at="true"), JOB, BASE_MS)


def test_a_time_long_ago_is_no_number_that_looks_like_seconds(spark: SparkSession) -> None:
    frame = spark.createDataFrame(
        [("1", datetime(1999, 1, 1, tzinfo=UTC), None)], f"k string, at timestamp, {UNREADABLE} string"
    )
    (row,) = records(ask(frame, Expressions("k", "'orders'", due="at"), JOB, BASE_MS), "in").collect()
    assert row.headers[-1].value == b"1999-01-01T00:00:00.000Z"


def test_a_spread_puts_all_of_a_key_off_by_the_same(spark: SparkSession) -> None:
    spread_ms = 7_200_000
    rows = [(f"{number}", "orders", BASE_MS + number % 7) for number in range(2_000)]
    frame = spark.createDataFrame([(*row, None, None) for row in rows], ROW)
    asked = Expressions("k", "t", key="nullif(cast(cast(k as int) % 100 as string), '0')", due="at")

    def offsets() -> dict[str, int]:
        found = ask(frame, asked, JOB, BASE_MS, spread_ms).collect()
        return {row.row_key: row.due_ms - BASE_MS - int(row.row_key) % 7 for row in found}

    first = offsets()
    assert first == offsets()
    by_key: dict[int, set[int]] = {}
    for row_key, offset in first.items():
        by_key.setdefault(int(row_key) % 100, set()).add(offset)
    keyless = by_key.pop(0)
    assert len(keyless) == 20
    assert all(len(each) == 1 for each in by_key.values())
    all_offsets = {one for each in by_key.values() for one in each}
    assert len(all_offsets) == 99
    assert min(all_offsets) >= 0
    assert max(all_offsets) < spread_ms
    assert max(all_offsets) - min(all_offsets) > spread_ms * 0.8


def test_a_key_lies_in_one_shard_of_one_task_in_due_order(spark: SparkSession) -> None:
    rows = [(f"{number}", "orders", BASE_MS + number * 7_919 % 50, f"key {number % 37}") for number in range(3_000)]
    frame = spark.createDataFrame([(*row, None) for row in rows], ROW)
    asked = Expressions("k", "t", key="v", due="at", order_by=["-cast(k as int)"])
    made = validate_rows(
        ask(frame, asked, JOB, BASE_MS),
        spark.createDataFrame([], "id string"),
        verdict_rows(spark, VERDICTS),
        LIMITS,
    )
    parts = [
        [(row.shard, bytes(row.key), row.due_ms, -int(row.row_key)) for row in part]
        for part in sharded(made, asked.order).select("shard", "key", "due_ms", "row_key").rdd.glom().collect()
    ]
    seen: dict[bytes, tuple[int, int]] = {}
    for number, part in enumerate(parts):
        assert [(one[0], *one[2:]) for one in part] == sorted((one[0], *one[2:]) for one in part)
        for shard, key, *_ in part:
            assert seen.setdefault(key, (number, shard)) == (number, shard)
    assert len(seen) == 37
    assert sum(map(len, parts)) == 3_000


def test_slices_hold_every_shard_once() -> None:
    shards = {number * 3: number % 5 + 1 for number in range(300)}
    for most in (1, 4, 50, 1e9):
        cut = list(slices(shards, most))
        assert sum(count for *_, count in cut) == sum(shards.values())
        covered = [shard for first, last, _ in cut for shard in shards if first <= shard <= last]
        assert covered == list(shards)
        assert all(count <= most or first == last for first, last, count in cut)
    assert list(slices({}, 10)) == []


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ({"target": "orders"}, r"--target: .*orders.* \(put a topic.s name in quotes"),
        ({"row_key": "uuid()"}, "--row-key: the expression must be deterministic"),
        ({"due": "at +"}, "--due: "),
        ({"due": "v is null"}, "--due is of type boolean"),
        ({"headers": [("x", "nope")]}, "-H x: "),
    ],
)
def test_an_expression_that_does_not_fit_is_one_line(
    spark: SparkSession, asked: dict[str, Any], said: str, caplog: pytest.LogCaptureFixture
) -> None:
    given = {"row_key": "k", "target": "t", "due": "at"} | asked
    with pytest.raises(UsageError, match=said) as raised:
        ask(spark.createDataFrame([], ROW), Expressions(**given), JOB, BASE_MS)
    assert "\n" not in str(raised.value)
    assert caplog.records == []


@pytest.mark.parametrize("delay", ["5s", " 5d", "1.5d", "30S"])
def test_a_duration_without_quotes_is_refused_where_sql_reads_a_number_of_milliseconds(delay: str) -> None:
    with pytest.raises(UsageError, match=f"\\\"'{delay.strip()}'\\\""):
        Expressions("k", "t", delay=delay)
    Expressions("k", "t", delay=f"'{delay}'")


def test_request_headers_and_rows_without_a_time_are_refused_at_once() -> None:
    with pytest.raises(UsageError, match="-H tarry-id"):
        Expressions("k", "t", due="at", headers=[("tarry-id", "k")])
    with pytest.raises(UsageError, match="--due or --delay"):
        Expressions("k", "t")


# -- files -------------------------------------------------------------------------------------------------------------


@pytest.fixture
def file(tmp_path: Path) -> Callable[[str, str | bytes], str]:
    def write(name: str, text: str | bytes) -> str:
        path = tmp_path / name
        path.write_bytes(text.encode() if isinstance(text, str) else text)
        return str(path)

    return write


def asked_of(table: DataFrame, asked: Expressions) -> dict[str | None, Row]:
    spark = table.sparkSession
    spark.conf.set("spark.sql.ansi.enabled", "false")  # as the job has it
    try:
        return {row.row_key: row for row in ask(table, asked, JOB, BASE_MS).collect()}
    finally:
        spark.conf.unset("spark.sql.ansi.enabled")


def test_hostile_csv(spark: SparkSession, file: Callable[[str, str | bytes], str]) -> None:
    path = file(
        "t.csv",
        "id,at,v\n"
        "plain,2026-01-02T00:00:00Z,x\n"
        'quoted,2026-01-02T00:00:00+01:00,"a ""b"", c"\n'
        "no zone,2026-01-02T00:00:00,x\n"
        "empty,,x\n"
        ",2026-01-02T00:00:00Z,no key\n"
        "many,2026-01-02T00:00:00Z,x,y,z\n"
        "few\n"
        f"large,2026-01-02T00:00:00Z,{'x' * 300_000}\n"
        "ünï,1767312000000,☃\n"
        "huge,99999999999999999999999,x\n",
    )
    rows = asked_of(read_table(spark, TableSource(path)), Expressions("id", "'orders'", value="v", due="at"))
    codes = {key: row.code for key, row in rows.items()}
    assert codes == {
        "plain": None,
        "quoted": None,
        "no zone": "bad-time",
        "empty": "no-delay",
        None: "no-row-key",
        "many": "unreadable-row",
        "few": "unreadable-row",
        "large": None,
        "ünï": None,
        "huge": "bad-time",
    }
    assert rows["many"].row == "many,2026-01-02T00:00:00Z,x,y,z"
    assert bytes(rows["quoted"].value) == b'a "b", c'
    assert rows["quoted"].due_ms == rows["plain"].due_ms - 3_600_000
    assert bytes(rows["ünï"].value) == "☃".encode()
    assert len(rows["large"].value) == 300_000


def test_hostile_json_lines(spark: SparkSession, file: Callable[[str, str | bytes], str]) -> None:
    lines: list[str | bytes] = [
        '{"id": 1, "at": 1767312000000, "v": {"a": [1, null]}}',
        '{"id": 2, "at": null}',
        '{"id": null, "at": 1767312000000}',
        '{"id": 4, "at": 1767312000000',
        "no json",
        "[]",
        "17",
        "",
        '{"id": 5, "at": 1767312000}',
        '{"id": 6, "at": 1767312000000, "v": {"a": []}, "unknown": "x"}',
        '{"id": 7, "at": 99999999999999999999999999999999999999999999999}',
        '{"id": 8, "at": "soon"}',
        '{"id": 9, "at": 1767312000000, "v": {"a": [9007199254740993]}}',
    ]
    path = file("t.jsonl", b"\n".join(one if isinstance(one, bytes) else one.encode() for one in lines))
    table = TableSource(path, schema="id long, at long, v struct<a: array<long>>")
    rows = asked_of(read_table(spark, table), Expressions("id", "'orders'", due="at"))
    codes = {key: row.code for key, row in rows.items() if key is not None}
    assert {key: codes.get(key) for key in ("1", "2", "5", "6", "9")} == {
        "1": None,
        "2": "no-delay",
        "5": "looks-like-seconds",
        "6": None,
        "9": None,
    }
    assert all(codes[key] == "unreadable-row" for key in ("7", "8"))
    assert json.loads(rows["9"].value)["v"] == {"a": [9007199254740993]}
    unreadable = read_table(spark, table).select(UNREADABLE, "id").where(f"{UNREADABLE} is not null").collect()
    assert {"no json", "17", '{"id": 4, "at": 1767312000000'} <= {row[0] for row in unreadable}
    found = read_table(spark, TableSource(path)).columns
    assert set(found) == {"id", "at", "v", "unknown", UNREADABLE}


def test_an_ambiguous_table_format_is_refused(spark: SparkSession, file: Callable[[str, str | bytes], str]) -> None:
    assert TableSource("x.json.gz").format_or_suffix() == "json"
    assert TableSource("dir/x.parquet/").format_or_suffix() == "parquet"
    assert TableSource("jdbc:postgresql://h/d").format_or_suffix() == "jdbc"
    with pytest.raises(UsageError, match="give --format"):
        TableSource("x.txt").format_or_suffix()
    with pytest.raises(UsageError, match="needs --jdbc-table"):
        read_table(spark, TableSource("jdbc:postgresql://h/d"))
    with pytest.raises(UsageError, match="needs a JDBC URL"):
        read_table(spark, TableSource("x.csv", jdbc_table="t"))
    with pytest.raises(UsageError, match="has its own schema"):
        read_table(spark, TableSource("x.parquet", schema="a int"))
    with pytest.raises(UsageError, match="no line can be parsed"):
        read_table(spark, TableSource(file("bad.json", "no json\n")))


def test_an_expression_that_fails_for_one_row_rejects_that_row(
    spark: SparkSession, file: Callable[[str, str | bytes], str]
) -> None:
    path = file("t.csv", "id,ms,n\na,5000,1\nb,x,1\nc,5000,0\n")
    rows = asked_of(
        read_table(spark, TableSource(path)), Expressions("id", "'orders'", delay="cast(ms as long) / cast(n as long)")
    )
    assert {key: row.code or row.due_ms for key, row in rows.items()} == {
        "a": BASE_MS + 5_000,
        "b": "no-delay",
        "c": "no-delay",
    }
