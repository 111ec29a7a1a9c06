"""The pipeline as a whole: a table is scheduled, scheduled again, delivered by a service, and audited."""

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from pyspark.sql import SparkSession

from tarry.clock import SystemClock
from tarry.pipelines.faults import FAULTS
from tarry.testing.serve import Serve, ServeConfig
from tests.support.brokers import wait_until
from tests.support.spark_job import SparkJob

pytestmark = pytest.mark.broker

PARTITIONS = 4
KEYS = 10_007
SETTINGS = ("--conf", "spark.driver.memory=4g")
"""For a million rows, those of the command, and not those of short tests."""


def run(directory: Path, name: str, arguments: list[str]) -> dict[str, Any]:
    """Run a job to its end, and say how long that took."""
    began = time.monotonic()
    with SparkJob(directory / name, *arguments, settings=SETTINGS) as job:
        summary: dict[str, Any] = json.loads(job.finished(1_800))
    print(f"{name}: {time.monotonic() - began:.0f} s, {summary}")  # noqa: T201 (figures)
    return summary


@pytest.mark.exhaustive
def test_a_million_rows_that_are_scheduled_twice_are_delivered_once(
    bootstrap: str, unique_name: Callable[[str], str], spark: SparkSession, tmp_path: Path
) -> None:
    rows, name = 1_000_000, unique_name("whole")
    intake, target = f"{name}.delayed", f"{name}.out"
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic(target, PARTITIONS, 1)])[target].result(30)
    # All are sent twice over before the first is due; then some 5,000 are due in each second.
    first_ms = SystemClock().now_ms() + 420_000
    spark.range(rows).selectExpr(
        "id", f"concat('k', id % {KEYS}) AS key", f"{first_ms} + id % 200000 AS due", "concat('row ', id) AS text"
    ).write.parquet(str(tmp_path / "rows.parquet"))
    config = ServeConfig(bootstrap, intake, PARTITIONS, f"{name}.group", intake_settings={"max_delay": "1h"})
    schedule = [
        *("schedule", "--bootstrap-servers", bootstrap, "--intake", intake, "--job", "whole"),
        *("--table", str(tmp_path / "rows.parquet"), "--row-key", "id", "--key", "key", "--target", f"'{target}'"),
        *("--due", "due", "--order-by", "id", "--state", str(tmp_path / "state")),
    ]
    audit = [
        *("audit", "--bootstrap-servers", bootstrap, "--intake", intake, "--out", str(tmp_path / "audit")),
        *("--grace", "5s", "--json", "--fail-on", ",".join(FAULTS)),
    ]
    serve = Serve(config, tmp_path, "serve")
    try:
        serve.start().wait_serving()
        first = run(tmp_path, "first", schedule)
        assert (first["rows"], first["sent"], first["known"], first["rejected"]) == (rows, rows, 0, {})
        second = run(tmp_path, "second", schedule)
        assert (second["rows"], second["sent"], second["known"]) == (rows, 0, rows)
        last_ms = first_ms + 200_000
        wait_until(lambda: SystemClock().now_ms() > last_ms + 6_000, "the last is due", within_s=1_200)
        judged = run(tmp_path, "audit", audit)
        third = run(tmp_path, "third", schedule)
        assert (third["sent"], third["known"]) == (0, rows)
    finally:
        serve.close()
    assert judged["fates"] == {"delivered": rows}
    assert judged["faults"] == dict.fromkeys(FAULTS, 0)
    assert judged["order"]["judged"] > rows * 0.9
