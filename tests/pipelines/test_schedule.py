"""`schedule` on a real broker: each row is sent once, through repeats."""

import json
from collections import Counter
from pathlib import Path
from threading import Event
from typing import Any

import psycopg
import pytest
from confluent_kafka import Producer, TopicPartition
from pyspark.sql import SparkSession

from tarry.clock import SystemClock
from tarry.core.murmur2 import partition_of
from tarry.core.request.intake_policy import IntakePolicy
from tarry.errors import RetriableError, UsageError
from tarry.pipelines.schedule.job import ScheduleParameters, schedule
from tarry.pipelines.schedule.messages import Expressions
from tarry.pipelines.schedule.state import JobState
from tarry.pipelines.schedule.tables import TableSource
from tarry.pipelines.topics import TopicTables
from tests.support.postgres import Postgres
from tests.support.stage import Stage
from tests.support.tables import write_csv
from tests.support.topics import read_topic

pytestmark = [pytest.mark.broker, pytest.mark.stage(partitions=4, intake=True)]

CLOCK = SystemClock()


class Job:
    """A job on a CSV file of `id,key,due` whose rows a test writes."""

    def __init__(self, topics: TopicTables, intake: str, target: str, directory: Path) -> None:
        self.told: list[str] = []
        self._topics, self._directory = topics, directory
        self._defaults: dict[str, Any] = {
            "job": "job",
            "table": TableSource(str(directory / "t.csv")),
            "asked": Expressions("id", f"'{target}'", key="key", value="id", due="due"),
            "policy": IntakePolicy(intake),
            "state": str(directory / "state"),
            "rejects": str(directory / "rejects"),
        }

    def write(self, rows: list[tuple[object, ...]]) -> None:
        write_csv(self._directory / "t.csv", rows)

    def run(self, stop: Event | None = None, **changed: Any) -> dict[str, Any]:
        plan = ScheduleParameters(**(self._defaults | changed))
        return schedule(self._topics, plan, clock=CLOCK, stop=stop or Event(), on_progress=self.told.append)


def in_an_hour() -> int:
    return CLOCK.now_ms() + 3_600_000


@pytest.mark.exhaustive
def test_a_second_run_sends_only_what_is_new(
    stage: Stage, spark: SparkSession, topics: TopicTables, tmp_path: Path
) -> None:
    job = Job(topics, stage.intake, stage.target, tmp_path)
    due_ms = in_an_hour()
    rows: list[tuple[object, ...]] = [(number, f"k{number % 10}", due_ms) for number in range(500)]
    job.write([*rows, ("bad", "k", "tomorrow"), (None, "k", due_ms), (None, "k", due_ms)])
    first = job.run()
    assert {name: first[name] for name in ("job", "rows", "sent", "known", "rejected")} == {
        "job": "job",
        "rows": 503,
        "sent": 500,
        "known": 0,
        "rejected": {"bad-time": 1, "no-row-key": 2},
    }
    bad = {row.reason: row for row in spark.read.parquet(str(tmp_path / "rejects")).collect()}
    assert json.loads(bad["bad-time"].row) == {"id": "bad", "key": "k", "due": "tomorrow"}
    assert (bad["bad-time"].row_key, bad["no-row-key"].row_key) == ("bad", None)
    [told] = [line for line in job.told if "bad-time" in line]
    assert told.startswith("rejected: 1 rows: bad-time, for example 'not a time between")
    assert told.endswith(": tomorrow'")

    job.write([*rows, *[(number, "k", due_ms) for number in range(500, 520)]])
    second = job.run()
    assert (second["sent"], second["known"], second["rejected"]) == (20, 500, {})
    third = job.run()
    assert (third["sent"], third["known"]) == (0, 520)
    assert first["base_ms"] == second["base_ms"] == third["base_ms"]
    sent = read_all(stage.cluster.bootstrap_servers, stage.intake)
    ids = Counter(dict(record.headers())["tarry-id"] for record in sent)
    assert len(ids) == 520
    assert set(ids.values()) == {1}


def read_all(bootstrap: str, topic: str) -> list[Any]:
    """All records of a topic, with headers of any kind."""
    return list(read_topic(bootstrap, topic))


@pytest.mark.exhaustive
def test_ids_are_known_from_buckets_and_results_too(stage: Stage, topics: TopicTables, tmp_path: Path) -> None:
    job = Job(topics, stage.intake, stage.target, tmp_path)
    job.write([(number, "k", in_an_hour()) for number in range(6)])
    job.run()
    by_value = {record.value(): record for record in read_all(stage.cluster.bootstrap_servers, stage.intake)}
    ids = {int(value): dict(record.headers())["tarry-id"] for value, record in by_value.items()}
    # What the service would have done with them, and then the intake trimmed.
    stage.make_topic(f"{stage.intake}.wheel-1", stage.partitions)
    stage.put(f"{stage.intake}.wheel-1", (1, b"k", b"0", [("tarry-id", ids[0].upper()), ("tarry-filed", b"x")]))
    stage.put(f"{stage.intake}.wheel-1", (0, b"k", b"1", [("tarry-cancel", b"h"), ("tarry-id", ids[1])]))
    for number, outcome in ((2, "fired"), (3, "cancelled"), (4, "dead"), (5, "cancel-too-late")):
        value = json.dumps({"v": 1, "outcome": outcome, "id": ids[number].decode()}).encode()
        stage.put(f"{stage.intake}.results", (1, ids[number], value, None))
    ends = {place: stage.end(*place) for place in stage.places}
    deleted = stage.admin.delete_records([TopicPartition(*place, end) for place, end in ends.items()])
    for future in deleted.values():
        future.result(30)
    again = job.run()
    assert (again["sent"], again["known"]) == (2, 4)
    sent = read_all(stage.cluster.bootstrap_servers, stage.intake)
    assert sorted(record.value() for record in sent) == [b"1", b"5"]


@pytest.mark.exhaustive
def test_a_run_waits_for_records_behind_an_open_transaction(
    stage: Stage, topics: TopicTables, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A row that was sent there would be sent again: readers do not see it before that transaction ends."""
    job = Job(topics, stage.intake, stage.target, tmp_path)
    job.write([(1, "k", in_an_hour())])
    job.run()
    (sent,) = read_all(stage.cluster.bootstrap_servers, stage.intake)
    producer = Producer({"bootstrap.servers": stage.cluster.bootstrap_servers, "transactional.id": stage.intake})
    producer.init_transactions(30)
    producer.begin_transaction()
    producer.produce(stage.intake, b"another's", partition=sent.partition())
    producer.flush(30)
    job.write([(2, "k", in_an_hour())])
    monkeypatch.setattr("tarry.pipelines.topics.SETTLED_WITHIN_S", 0.5)
    with pytest.raises(RetriableError, match="a transaction is open"):
        job.run()
    producer.commit_transaction(30)
    assert job.run()["sent"] == 1
    assert job.run()["sent"] == 0


def test_keys_land_where_the_producer_library_puts_them(
    stage: Stage, spark: SparkSession, topics: TopicTables, bootstrap: str, tmp_path: Path
) -> None:
    keys: list[str | None] = ["", "a", "ab", "abc", "abcd", "clé", "☃", "0", "x" * 1_000, *map(str, range(500)), None]
    rows = [(number, key, in_an_hour()) for number, key in enumerate(keys)]
    spark.createDataFrame(rows, "id int, key string, due long").write.parquet(str(tmp_path / "t.parquet"))
    job = Job(topics, stage.intake, stage.target, tmp_path)
    assert job.run(table=TableSource(str(tmp_path / "t.parquet")))["sent"] == len(keys)
    found = {int(record.value()): record for record in read_all(bootstrap, stage.intake)}

    other = stage.make_topic(f"{stage.intake}.other", stage.partitions)
    producer = Producer({"bootstrap.servers": bootstrap, "partitioner": "murmur2_random"})
    for number, key in enumerate(keys):
        producer.produce(other, str(number).encode(), key)
    assert producer.flush(20) == 0
    producer.close()
    expected = {int(record.value()): record for record in read_all(bootstrap, other)}
    for number, key in enumerate(keys):
        assert found[number].key() == expected[number].key(), key
        if key is not None:
            assert found[number].partition() == expected[number].partition(), key
            assert found[number].partition() == partition_of(key.encode(), stage.partitions), key


@pytest.mark.exhaustive
def test_a_delay_counts_from_the_first_run_and_other_intakes_are_refused(
    stage: Stage, spark: SparkSession, topics: TopicTables, tmp_path: Path
) -> None:
    job = Job(topics, stage.intake, stage.target, tmp_path)
    asked = Expressions("id", f"'{stage.target}'", key="key", value="id", delay="due")
    job.write([(1, "k", "1h")])
    first = job.run(asked=asked)
    job.write([(1, "k", "1h"), (2, "k", "1h")])
    second = job.run(asked=asked, base_ms=5)
    assert (first["base_ms"], second["sent"]) == (second["base_ms"], 1)
    dues = {
        dict(record.headers())["tarry-deliver-at"] for record in read_all(stage.cluster.bootstrap_servers, stage.intake)
    }
    assert dues == {str(first["base_ms"] + 3_600_000).encode()}
    with pytest.raises(UsageError, match=f"the job job sends to {stage.intake}"):
        JobState(spark, str(tmp_path / "state"), "job").base_ms("another", 5)
    with pytest.raises(UsageError, match="letters, digits"):
        JobState(spark, str(tmp_path), "a/b")
    with pytest.raises(UsageError, match="there is no topic nowhere"):
        job.run(job="new", policy=IntakePolicy("nowhere"))
    with pytest.raises(UsageError, match="fixed delay"):
        job.run(policy=IntakePolicy(stage.intake, fixed_delay_ms=5, fixed_target="x"))


def test_a_job_that_runs_already_is_refused_and_a_dead_ones_claim_is_taken_over(
    spark: SparkSession, tmp_path: Path
) -> None:
    state = JobState(spark, str(tmp_path), "job")
    claim = tmp_path / "job.running"
    with state.claimed(CLOCK):
        held = claim.read_text()
        claim.write_text(json.dumps(json.loads(held) | {"host": "elsewhere"}))
        with pytest.raises(UsageError, match="runs on elsewhere"), state.claimed(CLOCK):
            pass
        claim.write_text(json.dumps(json.loads(held) | {"began": "0"}))
        with JobState(spark, str(tmp_path), "job").claimed(CLOCK):
            pass
    assert not claim.exists()
    claim.write_text(held[:-5])  # the run ended while it wrote it
    with state.claimed(CLOCK):
        assert claim.read_text() == held
    claim.write_text(held)

    class Impatient(SystemClock):
        def monotonic_ms(self) -> int:
            self.asked = getattr(self, "asked", 0) + 20_000
            return self.asked

    with pytest.raises(UsageError, match="is running already, as process"), state.claimed(Impatient()):
        pass


@pytest.mark.exhaustive
def test_a_run_that_is_told_to_stop_ends_between_slices_and_keeps_to_its_rate(
    stage: Stage, topics: TopicTables, tmp_path: Path
) -> None:
    job = Job(topics, stage.intake, stage.target, tmp_path)
    due_ms = in_an_hour()
    job.write([(number, f"k{number}", due_ms) for number in range(300)])
    stop = Event()
    job.told = Stopping(stop)
    summary = job.run(stop, rate=20.0)
    assert 0 < summary["sent"] < 300
    assert summary["left"] == 300 - summary["sent"]
    job.told = []
    rest = job.run(rate=150.0)
    assert (rest["known"], rest["sent"]) == (summary["sent"], summary["left"])
    assert "left" not in rest


class Stopping(list[str]):
    """Progress that ends a run when the first slice is sent."""

    def __init__(self, stop: Event) -> None:
        super().__init__()
        self._stop = stop

    def append(self, line: str) -> None:
        super().append(line)
        if "rows sent" in line:
            self._stop.set()


def test_a_table_of_a_database_is_sent(
    stage: Stage, topics: TopicTables, tmp_path: Path, shared_postgres: Postgres
) -> None:
    with psycopg.connect(shared_postgres.conninfo) as connection:
        connection.execute("create table reminders (id int primary key, customer text, due timestamptz)")
        connection.execute(
            "insert into reminders select n, 'c' || n % 5, now() + interval '1 hour' from generate_series(1, 50) n"
        )
    fields = dict(one.split("=") for one in shared_postgres.conninfo.split())
    url = f"jdbc:postgresql://{fields['host']}:{fields['port']}/{fields['dbname']}"
    job = Job(topics, stage.intake, stage.target, tmp_path)
    asked = Expressions("id", f"'{stage.target}'", key="customer", due="due")
    table = TableSource(url, jdbc_table="(select * from reminders) as r", options={"user": fields["user"]})
    summary = job.run(table=table, asked=asked)
    assert (summary["rows"], summary["sent"], summary["known"]) == (50, 50, 0)

    # Whose time it is, a column without a zone does not say, and the driver's is not meant.
    there = TableSource(
        url, jdbc_table="(select id, customer, due::timestamp from reminders) as r", options=table.options
    )
    with pytest.raises(UsageError, match="--due is of type timestamp_ntz: it must be a timestamp with a zone"):
        job.run(table=there, asked=asked)
