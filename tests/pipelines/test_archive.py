"""`archive`: each result and dead letter once in a Delta table, through kill -9 and over several runs."""

import json
import uuid
from collections import Counter
from pathlib import Path

import pytest
from confluent_kafka import Producer
from pyspark.sql import SparkSession

from tarry.errors import UsageError
from tarry.pipelines.archive import archive
from tarry.pipelines.topics import TopicTables
from tests.support.ignoring import ignore
from tests.support.spark_job import SparkJob
from tests.support.stage import Stage

pytestmark = [pytest.mark.broker, pytest.mark.stage(partitions=2, intake=True)]

NOON_MS = 1_767_268_800_000  # 2026-01-01T12:00:00Z


def result(number: int, outcome: str = "fired") -> bytes:
    at_ms = NOON_MS + number * 60_000
    fields = {"v": 1, "outcome": outcome, "id": str(uuid.UUID(int=number)), "source": f"in/0/{number}"}
    return json.dumps(fields | {"due_ms": at_ms - 5, "at_ms": at_ms, "target": "orders"}).encode()


def put_results(stage: Stage, values: list[bytes]) -> None:
    producer = Producer(stage.cluster.client())
    for number, value in enumerate(values):
        producer.produce(f"{stage.intake}.results", value, partition=number % 2)
    assert producer.flush(20) == 0
    producer.close()


def test_each_result_is_archived_once_over_several_runs_and_by_the_hour(
    stage: Stage, spark: SparkSession, topics: TopicTables, tmp_path: Path
) -> None:
    lake = str(tmp_path / "lake")
    told: list[str] = []

    def run() -> int:
        done = archive(topics, [stage.intake], lake, every_ms=None, may_be_trimmed=False, on_progress=told.append)
        assert done["dead"].rows == 0
        return done["results"].rows

    put_results(stage, [result(number) for number in range(120)])
    assert run() == 120
    assert run() == 0
    put_results(stage, [result(number) for number in range(120, 130)] + [b"no result", b""])
    assert run() == 12
    rows = spark.read.format("delta").load(f"{lake}/results")
    assert Counter(row.due_ms for row in rows.where("unreadable is null").collect()) == Counter(
        NOON_MS + number * 60_000 - 5 for number in range(130)
    )
    assert {row.hour: row["count"] for row in rows.where("outcome = 'fired'").groupBy("hour").count().collect()} == {
        "2026-01-01T12": 60,
        "2026-01-01T13": 60,
        "2026-01-01T14": 10,
    }
    assert sorted(row.unreadable for row in rows.where("unreadable is not null").collect()) == [b"", b"no result"]
    assert {row.intake for row in rows.select("intake").collect()} == {stage.intake}
    assert [line.split(":")[0] for line in told] == ["results", "results"]


def test_a_result_of_no_time_is_kept_as_it_is_and_ends_no_run(
    stage: Stage, spark: SparkSession, topics: TopicTables, tmp_path: Path
) -> None:
    lake = str(tmp_path / "lake")
    of_no_time = [b'{"outcome":"fired","at_ms":%d}' % at_ms for at_ms in (2**63 - 1, 10**17, 10**15, -(10**14))]
    put_results(stage, [result(0), *of_no_time, b'{"outcome":"fired"}'])
    archive(topics, [stage.intake], lake, every_ms=None, may_be_trimmed=False, on_progress=ignore)
    rows = spark.read.format("delta").load(f"{lake}/results").collect()
    assert {bytes(row.unreadable) for row in rows if row.unreadable is not None} == {
        *of_no_time,
        b'{"outcome":"fired"}',
    }
    assert [row.outcome for row in rows if row.unreadable is None] == ["fired"]
    # They stand where they were written.
    assert all(row.hour == row.written.strftime("%Y-%m-%dT%H") for row in rows if row.unreadable is not None)


def test_dead_letters_keep_all_that_they_had(
    stage: Stage, spark: SparkSession, topics: TopicTables, tmp_path: Path
) -> None:
    headers: list[tuple[str, bytes | None]] = [
        ("a", b"\xff"),
        ("a", None),
        ("tarry-error", b"the sender's own"),
        ("tarry-error", b"no-target"),
        ("tarry-error-detail", "fällt aus".encode()),
    ]
    stage.put(f"{stage.intake}.dead", (0, b"\x00\xff", None, headers), (1, None, b"", headers[2:]))
    lake = str(tmp_path)
    archive(topics, [stage.intake], lake, every_ms=None, may_be_trimmed=False, on_progress=ignore)
    first, second = spark.read.format("delta").load(f"{lake}/dead").orderBy("partition").collect()
    assert (first.key, first.value, first.error, first.detail) == (b"\x00\xff", None, "no-target", "fällt aus")
    assert [(one.key, one.value) for one in first.headers] == headers
    assert (second.key, second.value, second.error) == (None, b"", "no-target")


def test_a_table_without_its_checkpoint_is_refused(stage: Stage, topics: TopicTables, tmp_path: Path) -> None:
    put_results(stage, [result(1)])

    def run() -> None:
        archive(topics, [stage.intake], str(tmp_path), every_ms=None, may_be_trimmed=False, on_progress=ignore)

    run()
    (tmp_path / "_checkpoints").rename(tmp_path / "elsewhere")
    with pytest.raises(UsageError, match=r"checkpoint .* is missing: its rows would be archived twice"):
        run()


def test_an_intake_that_is_not_there_is_one_line(topics: TopicTables, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"there is no topic nowhere\.results"):
        archive(topics, ["nowhere"], str(tmp_path), every_ms=None, may_be_trimmed=False, on_progress=ignore)


@pytest.mark.exhaustive
def test_killed_between_its_two_commits_it_archives_each_result_once(
    stage: Stage, spark: SparkSession, tmp_path: Path
) -> None:
    lake = tmp_path / "lake"
    command = [
        "archive",
        "--intake",
        stage.intake,
        "--lake",
        str(lake),
        "--bootstrap-servers",
        stage.cluster.bootstrap_servers,
    ]
    log = lake / "results" / "_delta_log"

    def rows() -> int:
        return spark.read.format("delta").load(str(lake / "results")).count() if log.exists() else 0

    put_results(stage, [result(number) for number in range(10_000)])
    with SparkJob(tmp_path / "1", *command, "--every", "1s") as job:
        # Delta's commit is there, and most likely the stream's is not yet.
        job.kill_when((log / "00000000000000000000.json").exists, "the first batch is in the table")
    put_results(stage, [result(number) for number in range(10_000, 20_000)])
    with SparkJob(tmp_path / "2", *command, "--every", "1s") as job:
        job.wait_until(lambda: rows() == 20_000, "what came meanwhile is archived")
        put_results(stage, [result(number) for number in range(20_000, 30_000)])
        job.wait_until(lambda: rows() == 30_000, "what comes is archived")
        assert job.terminate() == 143
    found = spark.read.format("delta").load(str(lake / "results"))
    assert found.select("id").distinct().count() == found.count() == 30_000
    with SparkJob(tmp_path / "3", *command) as job:
        summary = json.loads(job.finished())
    assert summary["dead"] == {"batches": 0, "rows": 0}
    assert set(summary["results"]) == {"batches", "rows"}
