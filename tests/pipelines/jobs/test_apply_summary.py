"""The summary of `tarry spark apply`: one JSON line on stdout about the whole run."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.support.changelog import POSTGRES, Logged, put, record
from tests.support.postgres import Postgres as Server
from tests.support.spark_job import SparkJob
from tests.support.stage import Stage

pytestmark = pytest.mark.broker


@pytest.mark.exhaustive
def test_a_run_and_one_of_what_was_rejected_end_with_a_summary(
    stage: Stage, shared_postgres: Server, tmp_path: Path
) -> None:
    schema = tmp_path.name
    shared_postgres.rows(f'CREATE SCHEMA "{schema}"')
    shared_postgres.rows(POSTGRES.format(f'"{schema}"'))
    topic = stage.make_topic(stage.target)
    tables = ["orders", "orders", "late"]
    put(
        stage,
        topic,
        [Logged(0, record("insert", table, {"id": number, "more": 1})) for number, table in enumerate(tables)],
    )
    to = ["--to", "postgres", "--conninfo", shared_postgres.conninfo, "--schema", schema]
    to += ["--checkpoint", str(tmp_path / "checkpoint"), "--bootstrap-servers", stage.cluster.bootstrap_servers]
    command = ["apply", "--topic", topic, "--job", "mine", "--on-unknown-column", "ignore", *to]

    def summary(run: str, *arguments: str) -> dict[str, Any]:
        with SparkJob(tmp_path / run, *command, *arguments) as job:
            [line] = job.finished(600).splitlines()
        found: dict[str, Any] = json.loads(line)
        return found

    assert summary("first") == {
        "job": "mine",
        "batches": 1,
        "records": 3,
        "rows": {"upserted": 2},
        "rejected": {"unknown-table": 1},
        "unknown": {"shop.orders.more": 2},
    }
    shared_postgres.rows(f'CREATE TABLE "{schema}".late (id bigint PRIMARY KEY)')
    again = summary("again", "--rejected")
    assert (again["job"], again["rows"], again["rejected"]) == ("mine", {"upserted": 1}, {})
