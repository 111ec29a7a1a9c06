"""`apply` to columns of every type: what a target holds of a log's arrays, objects, zero dates and long times."""

from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from tarry.errors import UsageError
from tarry.pipelines.apply import ApplyJob, Lake
from tarry.pipelines.topics import TopicTables
from tests.support.applying import PostgresSide, change
from tests.support.changelog import DATABASE, put
from tests.support.postgres import Postgres as Server
from tests.support.stage import Stage

pytestmark = pytest.mark.broker


@pytest.mark.parametrize("table", ["things", f"{DATABASE}.things"])
def test_a_key_that_a_table_does_not_have_is_found_before_a_log_is_read(
    table: str, spark: SparkSession, tmp_path: Path
) -> None:
    spark.sql(f"CREATE TABLE delta.`{tmp_path}/lake/{DATABASE}/things` (id bigint) USING delta")
    with pytest.raises(UsageError, match=f"--key {DATABASE}.things: the table has no column nosuch"):
        Lake(spark, f"{tmp_path}/lake", "job", {table: ["nosuch"]})
    # That of another database, which the log may not change at all, may have another key.
    spark.sql(f"CREATE TABLE delta.`{tmp_path}/lake/another/things` (number bigint) USING delta")
    Lake(spark, f"{tmp_path}/lake", "job", {table: ["id"]})
    # A table may come later.
    Lake(spark, f"{tmp_path}/lake", "job", {f"{DATABASE}.others": ["nosuch"], table: ["id"]})


@pytest.mark.exhaustive
def test_a_delta_table_with_arrays_structs_and_maps_takes_what_fits_and_rejects_what_does_not(
    stage: Stage, spark: SparkSession, topics: TopicTables, tmp_path: Path
) -> None:
    at = f"{tmp_path}/lake/{DATABASE}/things"
    spark.sql(
        f"CREATE TABLE delta.`{at}` (id bigint, tags array<string>, counts map<string,int>,"
        " place struct<name: string, at: struct<x: decimal(10,2), seen: timestamp>>, bits array<binary>) USING delta"
    )
    place = {"name": "here", "at": {"x": 1.25, "seen": "2026-01-02 03:04:05"}}
    good = {"id": 1, "tags": ["a", "b"], "counts": {"x": 1, "y": None}, "place": place, "bits": ["aGk=", None]}
    log = [
        change("insert", "things", good),
        change("insert", "things", {"id": 2, "tags": None, "counts": {}, "place": None, "bits": []}),
        change("insert", "things", good | {"id": 3, "tags": "no list"}),
        change("insert", "things", good | {"id": 4, "counts": {"x": "many"}}),
        change("insert", "things", good | {"id": 5, "place": place | {"lost": 1}}),
        change("insert", "things", good | {"id": 6, "place": {"at": {"x": 10**30}}}),
        change("insert", "things", good | {"id": 7, "bits": ["no base64!"]}),
        change("insert", "things", good | {"id": 8, "place": {"name": "half"}}),
        change("update", "things", good | {"tags": ["c"]}, {"tags": ["a", "b"]}),
    ]
    topic = stage.make_topic(stage.target)
    put(stage, topic, log)
    lake = f"{tmp_path}/lake"
    target = Lake(spark, lake, "test's", {"things": ["id"]})
    ApplyJob(topics, [topic], target, lambda _line: None).run(f"{tmp_path}/checkpoint")
    data = spark.read.format("delta").load(at)
    rows = data.selectExpr("to_json(struct(*)) AS row", "id").orderBy("id").collect()
    assert [row.row for row in rows] == [
        (
            '{"id":1,"tags":["c"],"counts":{"x":1,"y":null},'
            '"place":{"name":"here","at":{"x":1.25,"seen":"2026-01-02T03:04:05.000Z"}},"bits":["aGk=",null]}'
        ),
        '{"id":2,"counts":{},"bits":[]}',
        '{"id":8,"tags":["a","b"],"counts":{"x":1,"y":null},"place":{"name":"half"},"bits":["aGk=",null]}',
    ]
    rejected = spark.read.format("delta").load(f"{lake}/tarry_apply/rejects").orderBy("offset").collect()
    assert [(row.offset, row.reason, row.detail) for row in rejected] == [
        (2, "bad-value", "tags"),
        (3, "bad-value", "counts"),
        (4, "bad-value", "place"),
        (5, "bad-value", "place"),
        (6, "bad-value", "bits"),
    ]


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        (
            "id bigint, word variant",
            r"^shop\.things: changes cannot be written to the column word of the type variant; ",
        ),
        (
            "id bigint, by_number map<int,string>",
            r"^shop\.things: changes cannot be written to the column by_number of the type map<int,string>; ",
        ),
        ("id array<int>", r"^--key shop\.things: the column id has the type array<int>, which a key cannot have$"),
    ],
)
def test_a_delta_column_of_a_type_that_changes_cannot_be_written_to_is_refused_by_name(
    spark: SparkSession, tmp_path: Path, columns: str, message: str
) -> None:
    spark.sql(f"CREATE TABLE delta.`{tmp_path}/lake/{DATABASE}/things` ({columns}) USING delta")
    with pytest.raises(UsageError, match=message):
        Lake(spark, f"{tmp_path}/lake", "test's", {"things": ["id"]})


def test_postgresql_arrays_and_json_take_what_the_log_has(
    stage: Stage, topics: TopicTables, tmp_path: Path, shared_postgres: Server
) -> None:
    side = PostgresSide(shared_postgres, topics, tmp_path)
    table = f'"{side.schema}".things'
    shared_postgres.rows(f"CREATE TABLE {table} (id bigint PRIMARY KEY, tags text[], doc jsonb, plain text)")
    row: dict[str, Any] = {"id": 1, "tags": ["a", "b"], "doc": {"x": [1]}, "plain": ["c"]}
    topic = stage.make_topic(stage.target)
    put(stage, topic, [change("insert", "things", row), change("insert", "things", row | {"id": 2, "tags": "no list"})])
    side.run(topic)
    found = shared_postgres.rows(f"SELECT id, tags, doc, plain FROM {table}")  # noqa: S608
    assert found == [(1, ["a", "b"], {"x": [1]}, '["c"]')]
    assert [(offset, reason) for offset, reason, _ in side.rejects()] == [(1, "refused")]
