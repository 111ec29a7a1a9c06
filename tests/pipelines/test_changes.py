"""How records are read as changes, and that what is left of a batch comes to the same as all its changes in turn."""

import json
import random
from typing import Any

from pyspark.sql import SparkSession

from tarry.pipelines.apply.changes import (
    PLACE,
    Table,
    first_of,
    newest,
    read_changes,
    steps,
    validate_changes,
    without_doubles,
)
from tarry.pipelines.topics import RECORD

COLUMNS = ["id", "a", "b", "c"]
LOGS = 150

Rows = dict[str, dict[str, str | None]]


def random_log(chance: random.Random, table: str) -> list[dict[str, Any]]:
    """Changes of four rows that often have a part of their columns only, and often another key than before."""
    log = []
    for number in range(12):
        names = COLUMNS[1:] if chance.random() < 0.4 else chance.sample(COLUMNS[1:], chance.randrange(4))
        data = {"id": chance.randrange(4)} | {name: chance.choice([None, number]) for name in names}
        kind = chance.choice(["insert", "update", "update", "delete"])
        old = {"id": chance.randrange(4)} if chance.random() < 0.3 else {}
        log.append({"database": "shop", "table": table, "type": kind, "data": data, "old": old})
    return log


def do(rows: Rows, is_delete: bool, key: str, data: dict[str, str | None]) -> None:
    if is_delete:
        rows.pop(key, None)
    else:
        rows.setdefault(key, dict.fromkeys(COLUMNS)).update(data)


def test_the_newest_steps_of_a_batch_give_the_same_rows_as_all_its_steps_in_turn(spark: SparkSession) -> None:
    chance = random.Random(1)
    logs = {f"t{number}": random_log(chance, f"t{number}") for number in range(LOGS)}
    changes = [one for log in logs.values() for one in log]
    records = spark.createDataFrame(
        [("log", 0, offset, None, None, json.dumps(one).encode(), None) for offset, one in enumerate(changes)], RECORD
    )
    tables = [Table("shop", name, True, ["id"], COLUMNS) for name in logs]
    left = newest(steps(validate_changes(read_changes(records), tables, spark))).collect()
    found: dict[str, Rows] = {name: {} for name in logs}
    for row in sorted(left, key=lambda row: row["round"]):
        data = {name: row["data"][name] for name in row["present"]}
        do(found[row["table"]], row["is_delete"], row["row_key"][0], data)
    wanted: dict[str, Rows] = {name: {} for name in logs}
    for one in changes:
        rows, key, former = wanted[one["table"]], str(one["data"]["id"]), one["old"].get("id")
        if one["type"] == "update" and former is not None and str(former) != key:
            rows.pop(str(former), None)
        data = {name: None if value is None else str(value) for name, value in one["data"].items()}
        do(rows, one["type"] == "delete", key, data)
    assert found == wanted
    assert len({(row["table"], *row["row_key"], row["round"]) for row in left}) == len(left)
    assert len(left) < len(changes) * 0.7


def test_numbers_stay_as_they_are_written(spark: SparkSession) -> None:
    value = (
        b'{"database":"d","table":"t","type":"insert","data":{"a":12345678901234567890.123456789012345678,"b":1e400}}'
    )
    row = read_changes(spark.createDataFrame([("log", 0, 0, None, None, value, None)], RECORD)).collect()[0]
    assert row["kind"] == "upsert"
    assert row["data"]["a"] == "12345678901234567890.123456789012345678"


def test_an_id_belongs_to_the_place_where_it_was_seen_first(spark: SparkSession) -> None:
    schema = "id string, topic string, partition int, offset long"
    here = [("a", "log", 0, 5), ("a", "log", 0, 7), ("b", "log", 1, 1), ("c", "log", 0, 9), (None, "log", 0, 8)]
    changes = spark.createDataFrame(here, schema)
    known = spark.createDataFrame([("b", "log", 0, 2), ("c", "log", 0, 9)], schema)
    first = first_of(changes, known)
    assert {tuple(row) for row in first.collect()} == {
        ("a", "log", 0, 5, False),
        ("b", "log", 0, 2, True),
        ("c", "log", 0, 9, True),
    }
    kept = without_doubles(changes, first).select("id", *PLACE).collect()
    assert {tuple(row) for row in kept} == {("a", "log", 0, 5), ("c", "log", 0, 9), (None, "log", 0, 8)}
