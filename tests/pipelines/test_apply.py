"""`apply`: PostgreSQL and Delta tables equal a replay of the change log in plain Python."""

import os
import shutil
import uuid
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, nullcontext
from pathlib import Path
from typing import Any

import psycopg
import pytest
from pyspark.sql import SparkSession

from tarry.errors import UsageError
from tarry.pipelines.apply import Lake, Postgres, apply
from tarry.pipelines.apply.merge import catalog
from tarry.pipelines.topics import Topics
from tests.support.changelog import (
    DATABASE,
    DELTA,
    KEYS,
    POSTGRES,
    ChangeLog,
    Logged,
    as_text,
    columns,
    put,
    record,
    replay,
)
from tests.support.postgres import Postgres as Server
from tests.support.stage import Stage

pytestmark = pytest.mark.broker

Rows = dict[str, set[tuple[str | None, ...]]]


class Side(ABC):
    """A target, as a test sees it."""

    def __init__(self, topics: Topics, checkpoint: Path) -> None:
        self.told: list[str] = []
        self.checkpoint = checkpoint
        self._topics = topics

    def run(self, *topic: str, rows_a_batch: int = 100_000, tables: tuple[str, ...] = ("*",)) -> None:
        with self._target() as target:
            apply(
                self._topics,
                topic,
                target,
                str(self.checkpoint),
                tables=tables,
                rows_a_batch=rows_a_batch,
                on_progress=self.told.append,
            )

    def lose_checkpoint(self) -> None:
        shutil.rmtree(self.checkpoint)

    @abstractmethod
    def rows(self) -> Rows: ...

    @abstractmethod
    def rejects(self) -> list[tuple[int, str, bytes | None]]: ...

    @abstractmethod
    def _target(self) -> AbstractContextManager[Postgres | Lake]: ...


class PostgresSide(Side):
    """A schema of its own in a real PostgreSQL."""

    def __init__(self, server: Server, topics: Topics, directory: Path) -> None:
        super().__init__(topics, directory / "postgres")
        self.server = server
        self.schema = f"apply {uuid.uuid4().hex[:8]}"
        server.rows(f'CREATE SCHEMA "{self.schema}"')
        server.rows(POSTGRES.format(f'"{self.schema}"'))

    def _target(self) -> Postgres:
        return Postgres(self.server.conninfo, "test's", schema=self.schema)

    def rows(self) -> Rows:
        found = {}
        for table in KEYS:
            text = columns(table).replace("cast(changed as", "cast(changed at time zone 'UTC' as")
            rows = self.server.rows(f'SELECT {text} FROM "{self.schema}".{table}')  # noqa: S608
            found[table] = set(rows)
            assert len(found[table]) == len(rows)
        return found

    def rejects(self) -> list[tuple[int, str, bytes | None]]:
        return self.server.rows(
            f'SELECT "offset", reason, value FROM "{self.schema}".tarry_apply_rejects ORDER BY partition, "offset"'  # noqa: S608
        )


class LakeSide(Side):
    """Delta tables in a directory of their own."""

    def __init__(self, spark: SparkSession, topics: Topics, directory: Path) -> None:
        super().__init__(topics, directory / "delta")
        self._spark = spark
        self.lake = directory / "lake"
        for table, schema in DELTA.items():
            spark.createDataFrame([], schema).write.format("delta").save(f"{self.lake}/{DATABASE}/{table}")

    def _target(self) -> AbstractContextManager[Lake]:
        return nullcontext(Lake(self._spark, str(self.lake), "test's", KEYS))

    def rows(self) -> Rows:
        found = {}
        for table in KEYS:
            text = columns(table).replace("varchar(50)", "string")
            data = self._spark.read.format("delta").load(f"{self.lake}/{DATABASE}/{table}")
            rows = [tuple(row) for row in self._spark.sql(f"SELECT {text} FROM {{data}}", data=data).collect()]  # noqa: S608
            found[table] = set(rows)
            assert len(found[table]) == len(rows)
        return found

    def rejects(self) -> list[tuple[int, str, bytes | None]]:
        data = self._spark.read.format("delta").load(f"{self.lake}/tarry_apply/rejects")
        rows = data.orderBy("partition", "offset").select("offset", "reason", "value").collect()
        return [(row[0], row[1], None if row[2] is None else bytes(row[2])) for row in rows]


@pytest.fixture
def stage(bootstrap: str, unique_name: Callable[[str], str]) -> Iterator[Stage]:
    with ExitStack() as until_the_end:
        yield Stage(bootstrap, unique_name("apply"), 1, until_the_end)


@pytest.fixture(params=["postgres", "lake"])
def side(request: pytest.FixtureRequest, spark: SparkSession, topics: Topics, tmp_path: Path) -> Side:
    if request.param == "lake":
        return LakeSide(spark, topics, tmp_path)
    return PostgresSide(request.getfixturevalue("shared_postgres"), topics, tmp_path)


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


def change(kind: str, table: str, data: dict[str, Any], old: dict[str, Any] | None = None, **more: Any) -> Logged:
    return Logged(0, record(kind, table, data, old, **more))


def test_what_cannot_be_applied_is_kept_and_the_rest_is_applied(stage: Stage, side: Side) -> None:
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
    side.run(topic)
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
    assert "; 1 bootstrap marks; 1 DDL; 1 tombstones; 1 values of unknown columns" in line
    assert f"rejected: 5 {value}" in line
    assert definition == "apply: not applied: 'table-alter' 'shop.orders': 'ALTER TABLE orders ADD later int'"
    # Done again, without a memory of its own, it comes to the same.
    side.lose_checkpoint()
    side.run(topic)
    assert side.rejects() == wanted


def test_what_a_constraint_of_the_target_refuses_is_kept_and_order_among_rows_is_no_reason(
    stage: Stage, spark: SparkSession, topics: Topics, tmp_path: Path, shared_postgres: Server
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
    assert "1 doubles" in side.told[-1]
    side.lose_checkpoint()
    side.run(topic, rows_a_batch=2)
    assert side.rows()["orders"] == {("1", "second", None, None, None)}


def test_only_the_tables_that_are_wanted_are_changed(stage: Stage, side: Side) -> None:
    topic = stage.make_topic(stage.target)
    log = list(ChangeLog(7).records(50))
    put(stage, topic, [*log, change("insert", "elsewhere", {"id": 1})])
    side.run(topic, tables=("shop.l*", "other.*"))
    assert side.rows() == {"orders": set(), "lines": as_text(replay(log))["lines"]}
    assert side.rejects() == []


def test_a_second_run_of_a_job_is_refused(
    topics: Topics, shared_postgres: Server, tmp_path: Path, stage: Stage
) -> None:
    side = PostgresSide(shared_postgres, topics, tmp_path)
    with (
        Postgres(shared_postgres.conninfo, "test's", schema=side.schema),
        pytest.raises(UsageError, match="another run of the job test's is at work"),
    ):
        side.run("any")


def test_a_topic_that_was_made_anew_is_refused(
    topics: Topics, shared_postgres: Server, tmp_path: Path, stage: Stage
) -> None:
    side = PostgresSide(shared_postgres, topics, tmp_path)
    topic = stage.make_topic(stage.target)
    Postgres(shared_postgres.conninfo, "test's", schema=side.schema).__exit__()
    offsets = f'"{side.schema}".tarry_apply_offsets'
    shared_postgres.rows(f"INSERT INTO {offsets} VALUES (%s, %s, 0, 5)", "test's", topic)  # noqa: S608
    with pytest.raises(UsageError, match=r"/0 ends at 0, and all below 5 is applied: the topic was made anew"):
        side.run(topic)


def test_a_delta_table_with_lengths_and_defaults_refuses_what_is_too_long_and_fills_what_a_new_row_lacks(
    stage: Stage, spark: SparkSession, topics: Topics, tmp_path: Path
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
    apply(topics, [topic], target, f"{tmp_path}/checkpoint", on_progress=told.append)
    rows = spark.read.format("delta").load(at).orderBy("id").collect()
    assert [tuple(row) for row in rows] == [(1, "one", 1, None), (3, "three", 7, None)]
    rejected = spark.read.format("delta").load(f"{tmp_path}/lake/tarry_apply/rejects").orderBy("offset").collect()
    assert [(row.offset, row.reason, row.detail) for row in rejected] == [
        (1, "bad-value", "text"),
        (3, "bad-value", "kind"),
    ]


def test_a_delta_table_without_a_key_is_refused_in_one_line(
    stage: Stage, spark: SparkSession, topics: Topics, tmp_path: Path
) -> None:
    side = LakeSide(spark, topics, tmp_path)
    topic = stage.make_topic(stage.target)
    put(stage, topic, [change("insert", "orders", {"id": 1})])
    target = Lake(spark, str(side.lake), "test's", {"lines": ["line"]})
    with pytest.raises(UsageError, match=r"^the key of shop\.orders is not known: --key shop\.orders=COLUMN"):
        apply(topics, [topic], target, str(side.checkpoint), on_progress=side.told.append)


def test_a_lake_may_be_named_from_the_directory_of_the_run(spark: SparkSession, tmp_path: Path) -> None:
    lake = os.path.relpath(tmp_path / "lake")  # Spark's Java runs where this process began
    spark.createDataFrame([], "id long").write.format("delta").save(f"{lake}/shop/notes")
    target = Lake(spark, lake, "test's", {"notes": ["id"]})
    assert [table.columns for table in target.find(spark, [("shop", "notes")])] == [["id"]]
    assert target.known(spark.createDataFrame([("a",)], "id string")).collect() == []
    assert (tmp_path / "lake" / "tarry_apply" / "ids").is_dir()
