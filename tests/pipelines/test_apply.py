"""`apply`: PostgreSQL and Delta tables equal a replay of the change log in plain Python."""

import gc
import os
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest
from confluent_kafka import TopicPartition
from py4j.finalizer import ThreadSafeFinalizer  # type: ignore[import-untyped]
from pyspark.sql import SparkSession

from tarry.errors import UsageError
from tarry.pipelines.apply import ApplyJob, ApplyRules, Lake, OnUnknownColumn, Postgres
from tarry.pipelines.apply.merge import catalog
from tarry.pipelines.topics import TopicTables
from tests.support.applying import LakeSide, PostgresSide, Side, change
from tests.support.changelog import (
    DATABASE,
    ChangeLog,
    Logged,
    as_text,
    put,
    record,
    replay,
)
from tests.support.postgres import Postgres as Server
from tests.support.stage import Stage

pytestmark = pytest.mark.broker


@pytest.mark.some_of("partitions")
@pytest.mark.parametrize(("partitions", "has_ids"), [(1, True), (3, False)])
def test_the_tables_equal_a_replay_over_many_batches(
    stage: Stage, side: Side, partitions: int, seed: int, *, has_ids: bool
) -> None:
    topic = stage.make_topic(stage.target, partitions)
    log = ChangeLog(seed, partitions, has_ids=has_ids)
    records = list(log.records(2000))
    put(stage, topic, records)
    side.run(topic, rows_a_batch=1100)
    assert side.rows() == as_text(replay(records))
    assert side.rejects() == []
    # What comes later, and a run that finds nothing.
    later = list(log.records(500))
    put(stage, topic, later)
    side.run(topic)
    side.run(topic)
    assert side.rows() == as_text(replay(records + later))
    # All again from the start.
    side.lose_checkpoint()
    side.run(topic)
    assert side.rows() == as_text(replay(records + later))


def test_changes_that_cannot_be_applied_are_kept_and_the_rest_is_applied(stage: Stage, side: Side) -> None:
    topic = stage.make_topic(stage.target)
    good = {"id": 1, "note": "good", "amount": None, "changed": None, "paid": None}
    huge = "ä" * 100_000
    log = [
        (change("insert", "orders", good), None),
        (Logged(0, b"{"), "bad-record"),
        (Logged(0, b""), "bad-record"),
        (Logged(0, b"\xff\xfe"), "bad-record"),
        (Logged(0, b"[1]"), "bad-record"),
        (Logged(0, b"null"), "bad-record"),
        (Logged(0, b'{"database":"shop","table":"orders","type":"insert","data":{"id":1,"id":2}}'), "bad-record"),
        (Logged(0, record("insert", "orders", {}).replace(b'"data": {}', b'"data": [1]')), "bad-record"),
        (Logged(0, b'{"database":"shop","table":"orders","type":"insert"}'), "bad-record"),
        (Logged(0, b'{"database":"shop","table":"orders","type":"truncate","data":{}}'), "bad-record"),
        (change("insert", "orders; DROP TABLE orders", {"id": 1}), "unknown-table"),
        (change("insert", "../shop/orders", {"id": 1}), "unknown-table"),
        (change("insert", "no\0thing", {"id": 1}), "unknown-table"),
        (change("insert", "orders", {"note": "no key"}), "no-key"),
        (change("delete", "orders", {"id": None}), "no-key"),
        (change("insert", "orders", good | {"id": "seven"}), "value"),
        (change("insert", "orders", good | {"id": 10**30}), "value"),
        (change("update", "orders", good | {"changed": "0000-00-00 00:00:00"}, {"changed": None}), "value"),
        (change("insert", "orders", good | {"id": 2, "paid": "perhaps"}), "value"),
        (change("insert", "orders", good | {"id": 3, "amount": 1e300}), "value"),
        (change("insert", "orders", good | {"id": 4, "note": huge}), None),
        (change("insert", "orders", good | {"id": 5, "changed": "2026-03-29 02:30:00+02:00", "later": [1]}), None),
        (change("insert", "orders", good | {"id": 7}), None),
        (change("delete", "orders", good | {"id": 7, "changed": "0000-00-00 00:00:00"}), None),
        (change("insert", "orders", {"id": 6, "note": "six", "amount": 6}), None),
        (change("update", "orders", {"id": 6, "paid": True}, {"paid": None}), None),
        (change("update", "orders", {"id": 6, "note": "half"}, {"note": "six"}), None),
        (change("table-alter", "orders", {}, sql="ALTER TABLE orders ADD later int"), None),
        (change("bootstrap-start", "orders", {}), None),
        (Logged(0, None), None),
    ]
    put(stage, topic, [one for one, _ in log])
    leave_out = ApplyRules(on_unknown_column=OnUnknownColumn.IGNORE)
    total = side.run(topic, rules=leave_out)
    value = "refused" if isinstance(side, PostgresSide) else "bad-value"
    wanted = [(n, value if why == "value" else why, one.value) for n, (one, why) in enumerate(log) if why is not None]
    assert side.rejects() == wanted
    assert side.rows()["orders"] == {
        ("1", "good", None, None, None),
        ("4", huge, None, None, None),
        ("5", "good", None, "2026-03-29 00:30:00", None),
        ("6", "half", "6.00", None, "true"),
    }
    (line, definition) = side.told
    assert "30 records; " in line
    assert "; 1 bootstrap marks; 1 DDL; 1 tombstones; ignored: 1 values of 'shop.orders.later'" in line
    assert f"rejected: 5 {value}" in line
    assert definition == "apply: not applied: 'table-alter' 'shop.orders': 'ALTER TABLE orders ADD later int'"
    # Done again, without a memory of its own, it comes to the same.
    side.lose_checkpoint()
    side.run(topic, rules=leave_out)
    assert side.rejects() == wanted
    # A run ends with the sum of what it did.
    assert (total.batches, total.records, total.unknown) == (1, len(log), {"shop.orders.later": 1})
    assert sum(total.rejected.values()) == len(wanted)
    assert total.rejected[value] == 5


def test_changes_that_a_constraint_refuses_are_rejected_but_not_because_of_the_order_of_rows(
    stage: Stage, topics: TopicTables, tmp_path: Path, shared_postgres: Server
) -> None:
    side = PostgresSide(shared_postgres, topics, tmp_path)
    schema = f'"{side.schema}"'
    shared_postgres.rows(
        f"CREATE UNIQUE INDEX ON {schema}.orders (note);"
        f"ALTER TABLE {schema}.orders ADD CHECK (amount >= 0);"
        f"ALTER TABLE {schema}.lines ADD FOREIGN KEY (order_id) REFERENCES {schema}.orders"
        " DEFERRABLE INITIALLY DEFERRED"
    )
    topic = stage.make_topic(stage.target)

    def order(number: int, note: str, amount: int = 0) -> dict[str, Any]:
        return {"id": number, "note": note, "amount": amount, "changed": None, "paid": None}

    put(
        stage,
        topic,
        [
            change("insert", "orders", order(1, "a")),
            change("insert", "orders", order(2, "b")),
            change("insert", "lines", {"order_id": 1, "line": "x", "pieces": 1}),
            change("insert", "lines", {"order_id": 9, "line": "orphan", "pieces": 1}),
            change("insert", "lines", {"order_id": 1, "line": "null", "pieces": None}),
        ],
    )
    side.run(topic)
    put(
        stage,
        topic,
        [
            # The note of one row goes to another, whose number is lower.
            change("update", "orders", order(2, "c"), {"note": "b"}),
            change("update", "orders", order(1, "b"), {"note": "a"}),
            change("update", "orders", order(2, "c", 2), {"amount": 0}),
            # A good change, and a bad one after it, of one row.
            change("insert", "orders", order(3, "three", 3)),
            change("update", "orders", order(3, "three", -3), {"amount": 3}),
            # A row that is referred to ends after what refers to it.
            change("delete", "lines", {"order_id": 1, "line": "x", "pieces": 1}),
            change("delete", "orders", order(1, "b")),
        ],
    )
    side.run(topic)
    assert side.rows()["orders"] == {("2", "c", "2.00", None, None), ("3", "three", "3.00", None, None)}
    assert side.rows()["lines"] == set()
    assert [(offset, reason) for offset, reason, _ in side.rejects()] == [
        (3, "refused"),
        (4, "refused"),
        (9, "refused"),
    ]


def test_columns_that_an_index_only_carries_are_none_of_the_key(shared_postgres: Server) -> None:
    with psycopg.connect(shared_postgres.conninfo) as connection:
        connection.execute("CREATE TABLE carried (note text, b int, a int, PRIMARY KEY (a, b) INCLUDE (note))")
        shape = catalog(connection, "public", ["carried"])["carried"]
        connection.rollback()
    assert (shape.key, shape.columns) == (["a", "b"], ["note", "b", "a"])


def test_a_record_that_comes_again_undoes_nothing(stage: Stage, side: Side) -> None:
    topic = stage.make_topic(stage.target)
    row = {"id": 1, "note": "first", "amount": None, "changed": None, "paid": None}
    first = Logged(0, record("insert", "orders", row), str(uuid.UUID(int=1)))
    put(stage, topic, [first, Logged(0, record("update", "orders", row | {"note": "second"}, {"note": "first"}))])
    side.run(topic)
    put(stage, topic, [first._replace(id=str(uuid.UUID(int=1)).upper()), Logged(0, None)])
    side.run(topic)
    assert side.rows()["orders"] == {("1", "second", None, None, None)}
    assert "1 duplicates" in side.told[-1]
    side.lose_checkpoint()
    side.run(topic, rows_a_batch=2)
    assert side.rows()["orders"] == {("1", "second", None, None, None)}


def test_only_the_tables_that_are_wanted_are_changed(stage: Stage, side: Side) -> None:
    topic = stage.make_topic(stage.target)
    log = list(ChangeLog(7).records(50))
    put(stage, topic, [*log, change("insert", "elsewhere", {"id": 1})])
    side.run(topic, rules=ApplyRules(("shop.l*", "other.*")))
    assert side.rows() == {"orders": set(), "lines": as_text(replay(log))["lines"]}
    assert side.rejects() == []


def test_a_second_run_of_a_job_is_refused(
    topics: TopicTables, shared_postgres: Server, tmp_path: Path, stage: Stage
) -> None:
    side = PostgresSide(shared_postgres, topics, tmp_path)
    with (
        Postgres(shared_postgres.conninfo, "test's", schema=side.schema),
        pytest.raises(UsageError, match="another run of the job test's is active"),
    ):
        side.run("any")


def test_a_recreated_topic_is_refused(
    topics: TopicTables, shared_postgres: Server, tmp_path: Path, stage: Stage
) -> None:
    side = PostgresSide(shared_postgres, topics, tmp_path)
    topic = stage.make_topic(stage.target)
    Postgres(shared_postgres.conninfo, "test's", schema=side.schema).__exit__()
    offsets = f'"{side.schema}".tarry_apply_offsets'
    shared_postgres.rows(f"INSERT INTO {offsets} VALUES (%s, %s, 0, 5)", "test's", topic)  # noqa: S608
    side.run(stage.make_topic(f"{stage.target}.beside"))  # the job leaves that topic out
    with pytest.raises(UsageError, match=r"/0 ends at 0, but offsets below 5 are applied: the topic was recreated"):
        side.run(topic)


@pytest.mark.exhaustive
def test_a_delta_table_with_lengths_and_defaults_refuses_what_is_too_long_and_fills_what_a_new_row_lacks(
    stage: Stage, spark: SparkSession, topics: TopicTables, tmp_path: Path
) -> None:
    at = f"{tmp_path}/lake/{DATABASE}/notes"
    spark.sql(
        f"CREATE TABLE delta.`{at}` (id bigint, text varchar(5), kind int NOT NULL DEFAULT 7, made date DEFAULT NULL)"
        " USING delta TBLPROPERTIES ('delta.feature.allowColumnDefaults' = 'supported')"
    )
    topic = stage.make_topic(stage.target)
    log = [
        change("insert", "notes", {"id": 1, "text": "äöüßx", "kind": 1}),
        change("insert", "notes", {"id": 2, "text": "short ", "kind": 2}),
        change("insert", "notes", {"id": 3, "text": "three"}),
        change("insert", "notes", {"id": 4, "text": None, "kind": None}),
        change("update", "notes", {"id": 1, "text": "one"}, {"text": "äöüßx"}),
    ]
    put(stage, topic, log)
    target = Lake(spark, f"{tmp_path}/lake", "test's", {"notes": ["id"]})
    told: list[str] = []
    ApplyJob(topics, [topic], target, told.append).run(f"{tmp_path}/checkpoint")
    rows = spark.read.format("delta").load(at).orderBy("id").collect()
    assert [tuple(row) for row in rows] == [(1, "one", 1, None), (3, "three", 7, None)]
    rejected = spark.read.format("delta").load(f"{tmp_path}/lake/tarry_apply/rejects").orderBy("offset").collect()
    assert [(row.offset, row.reason, row.detail) for row in rejected] == [
        (1, "bad-value", "text"),
        (3, "bad-value", "kind"),
    ]


@pytest.mark.exhaustive
def test_a_delta_table_without_a_key_is_refused_in_one_line(
    stage: Stage, spark: SparkSession, topics: TopicTables, tmp_path: Path
) -> None:
    side = LakeSide(spark, topics, tmp_path)
    topic = stage.make_topic(stage.target)
    put(stage, topic, [change("insert", "orders", {"id": 1})])
    target = Lake(spark, str(side.lake), "test's", {"lines": ["line"]})
    with pytest.raises(UsageError, match=r"^the key of shop\.orders is not known: give --key shop\.orders=COLUMN"):
        ApplyJob(topics, [topic], target, side.told.append).run(str(side.checkpoint))


def test_a_lake_may_be_named_from_the_directory_of_the_run(spark: SparkSession, tmp_path: Path) -> None:
    lake = os.path.relpath(tmp_path / "lake")  # Spark's Java runs where this process began
    spark.createDataFrame([], "id long").write.format("delta").save(f"{lake}/shop/notes")
    target = Lake(spark, lake, "test's", {"notes": ["id"]})
    assert [table.columns for table in target.find(spark, [("shop", "notes")])] == [["id"]]
    assert target.known(spark.createDataFrame([("a",)], "id string")).collect() == []
    assert (tmp_path / "lake" / "tarry_apply" / "ids").is_dir()


def test_a_column_that_the_target_lacks_ends_the_run_is_left_out_or_is_added(stage: Stage, side: Side) -> None:
    topic = stage.make_topic(stage.target)
    row = {"id": 1, "note": "n", "amount": None, "changed": None, "paid": None}
    put(stage, topic, [change("insert", "orders", row | {"later": "kept", "more": [1]})])
    with pytest.raises(UsageError, match=r"has columns that the target lacks: 'shop\.orders\.later', 'shop\.orders\.m"):
        side.run(topic)
    assert side.rows()["orders"] == set()
    side.run(topic, rules=ApplyRules(on_unknown_column=OnUnknownColumn.ADD))
    assert side.rows()["orders"] == {("1", "n", None, None, None)}
    assert side.values("orders", "later", "more") == [("kept", "[1]")]
    # What was left out before does not come back, and what was added is a column like any other.
    put(stage, topic, [change("insert", "orders", row | {"id": 2, "later": 7})])
    total = side.run(topic)
    assert sorted(side.values("orders", "later", "more")) == [("7", None), ("kept", "[1]")]
    assert total.unknown == {}


def test_more_rejects_than_allowed_end_the_run_and_nothing_of_their_batch_is_applied(stage: Stage, side: Side) -> None:
    topic = stage.make_topic(stage.target)
    row = {"id": 1, "note": "n", "amount": None, "changed": None, "paid": None}
    bad = [change("insert", "orders", row | {"id": 2, "paid": "perhaps"}), Logged(0, b"{")]
    put(stage, topic, [change("insert", "orders", row), *bad])
    with pytest.raises(UsageError, match=r"^2 records are rejected, more than --max-rejects 1; this batch \("):
        side.run(topic, rules=ApplyRules(max_rejects=1))
    assert side.rows()["orders"] == set()
    assert side.rejects() == []
    side.run(topic, rules=ApplyRules(max_rejects=2))
    assert len(side.rows()["orders"]) == 1
    assert [offset for offset, _, _ in side.rejects()] == [1, 2]


@pytest.mark.exhaustive
def test_rejected_changes_are_applied_again_with_later_ones_and_overwrite_no_newer_row(
    stage: Stage,
    side: Side,
) -> None:
    topic = stage.make_topic(stage.target)
    row = {"id": 1, "note": "n", "amount": None, "changed": None, "paid": None}
    log = [
        # A table that is made too late: each of its changes is rejected.
        change("insert", "late", {"id": 1, "word": "one"}),
        change("insert", "late", {"id": 2, "word": "two"}),
        change("update", "late", {"id": 3, "word": "three"}, {"id": 2}),
        change("delete", "late", {"id": 1, "word": "one"}),
        # A row whose first change is rejected, and whose later one is not; and a record that nobody can read.
        change("insert", "orders", row | {"paid": "perhaps", "note": "old"}),
        Logged(0, b"{"),
    ]
    put(stage, topic, log)
    side.run(topic)
    assert len(side.rejects()) == 6
    changed = change("update", "orders", row | {"note": "new", "paid": True}, {"note": "old", "paid": "perhaps"})
    put(stage, topic, [changed])
    side.run(topic)
    side.make("late", "id bigint PRIMARY KEY, word text")
    total = side.run_rejected(topic)
    assert side.values("late", "id", "word") == [("3", "three")]
    assert side.rows()["orders"] == {("1", "new", None, None, "true")}
    # What is bad still is kept still: but in PostgreSQL what another change of the batch overwrites is not tried.
    left = [(5, b"{")] if isinstance(side, PostgresSide) else [(4, log[4].value), (5, b"{")]
    assert [(offset, value) for offset, _, value in side.rejects()] == left
    assert sum(total.rejected.values()) == len(left)
    side.run(topic)
    side.run_rejected(topic)
    assert side.values("late", "id", "word") == [("3", "three")]
    assert side.rows()["orders"] == {("1", "new", None, None, "true")}
    assert len(side.rejects()) == len(left)


def test_rejects_whose_later_changes_are_gone_from_the_log_are_refused(
    stage: Stage,
    side: Side,
) -> None:
    topic = stage.make_topic(stage.target)
    put(stage, topic, [Logged(0, b"{"), Logged(0, None), Logged(0, None)])
    side.run(topic)
    stage.admin.delete_records([TopicPartition(topic, 0, 2)])[TopicPartition(topic, 0, 2)].result(30)
    with pytest.raises(
        UsageError, match=r"/0 now begins at 2, but offset 0 was rejected: later changes of its row cannot"
    ):
        side.run_rejected(topic)
    assert len(side.rejects()) == 1


@pytest.mark.exhaustive
def test_two_databases_do_not_overwrite_each_other_in_one_table(
    stage: Stage, topics: TopicTables, tmp_path: Path, shared_postgres: Server
) -> None:
    side = PostgresSide(shared_postgres, topics, tmp_path)
    topic = stage.make_topic(stage.target)
    mine = record("insert", "lines", {"order_id": 1, "line": "mine", "pieces": 1})
    put(stage, topic, [Logged(0, mine)])
    side.run(topic)
    # Another batch of another run: what is known of the table is in the database.
    theirs = record("insert", "lines", {"order_id": 2, "line": "theirs", "pieces": 2}).replace(b'"shop"', b'"crm"')
    put(stage, topic, [Logged(0, theirs)])
    with pytest.raises(
        UsageError, match=r"^shop\.lines and crm\.lines would both go to apply .*\.lines, and overwrite"
    ):
        side.run(topic)
    assert side.rows()["lines"] == {("1", "mine", "1")}
    side.options["merge_databases"] = True
    side.run(topic)
    assert side.rows()["lines"] == {("1", "mine", "1"), ("2", "theirs", "2")}


def test_columns_that_postgresql_computes_are_left_to_it(
    stage: Stage, topics: TopicTables, tmp_path: Path, shared_postgres: Server
) -> None:
    side = PostgresSide(shared_postgres, topics, tmp_path)
    shared_postgres.rows(
        f'CREATE TABLE "{side.schema}".sums (id bigint PRIMARY KEY, twice bigint GENERATED ALWAYS AS (id * 2) STORED)'
    )
    topic = stage.make_topic(stage.target)
    put(stage, topic, [change("insert", "sums", {"id": 2, "twice": 4})])
    side.run(topic)
    assert side.values("sums", "id", "twice") == [("2", "4")]


@pytest.mark.exhaustive
def test_zero_dates_may_be_null_and_times_beyond_a_day_intervals(
    stage: Stage, topics: TopicTables, tmp_path: Path, shared_postgres: Server
) -> None:
    side = PostgresSide(shared_postgres, topics, tmp_path)
    shared_postgres.rows(
        f'CREATE TABLE "{side.schema}".times (id bigint PRIMARY KEY, day date, at timestamp, took interval, plain text)'
    )
    row = {"id": 1, "day": "0000-00-00", "at": "0000-00-00 00:00:00.000", "took": "-838:59:59", "plain": "0000-00-00"}
    good = row | {"id": 2, "day": "2026-01-02", "at": "2026-01-02 03:04:05"}
    half = row | {"id": 3, "day": "2026-00-00"}
    topic = stage.make_topic(stage.target)
    put(stage, topic, [change("insert", "times", one) for one in (row, good, half)])
    side.options["zero_dates_as_null"] = True
    side.run(topic)
    assert sorted(side.values("times", "id", "day", "at", "took", "plain")) == [
        ("1", None, None, "-838:59:59", "0000-00-00"),
        ("2", "2026-01-02", "2026-01-02 03:04:05", "-838:59:59", "0000-00-00"),
    ]
    assert [(offset, reason) for offset, reason, _ in side.rejects()] == [(2, "refused")]


@pytest.mark.exhaustive
def test_zero_dates_may_be_null_in_a_lake(
    stage: Stage, spark: SparkSession, topics: TopicTables, tmp_path: Path
) -> None:
    side = LakeSide(spark, topics, tmp_path)
    zero = {"id": 1, "note": "0000-00-00", "amount": None, "changed": "0000-00-00 00:00:00", "paid": None}
    topic = stage.make_topic(stage.target)
    put(stage, topic, [change("insert", "orders", zero)])
    side.options["zero_dates_as_null"] = True
    side.run(topic)
    assert side.rows()["orders"] == {("1", "0000-00-00", None, None, None)}
    assert side.rejects() == []


@pytest.fixture
def java_objects() -> Iterator[Callable[[], int]]:
    """Counts the Java objects that Python holds, while Python's garbage collector does not run by itself."""
    gc.collect()
    gc.disable()
    before = len(ThreadSafeFinalizer.finalizers)
    yield lambda: len(ThreadSafeFinalizer.finalizers) - before
    gc.enable()


@pytest.mark.exhaustive
def test_a_batch_releases_the_java_objects_of_the_batch_before(
    stage: Stage, topics: TopicTables, tmp_path: Path, shared_postgres: Server, java_objects: Callable[[], int]
) -> None:
    side = PostgresSide(shared_postgres, topics, tmp_path)
    held: list[int] = []

    class Told(list[str]):
        def append(self, line: str) -> None:
            super().append(line)
            held.append(java_objects())

    side.told = Told()
    topic = stage.make_topic(stage.target)
    put(stage, topic, ChangeLog(7, has_ids=True).records(30))
    side.run(topic, rows_a_batch=5)
    assert len(held) == 6
    assert held[-1] < 3 * held[0]
