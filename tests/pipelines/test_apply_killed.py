"""`tarry spark apply` as a process that is killed with kill -9: nothing is lost, nothing is done twice."""

import random
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from itertools import count
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tarry.pipelines.topics import Topics
from tests.pipelines.test_apply import LakeSide, PostgresSide
from tests.support.changelog import KEYS, ChangeLog, as_text, put, replay
from tests.support.spark_job import SparkJob
from tests.support.stage import Stage

pytestmark = pytest.mark.broker

START_WITHIN_S = 240.0


@pytest.fixture
def stage(bootstrap: str, unique_name: Callable[[str], str]) -> Iterator[Stage]:
    with ExitStack() as until_the_end:
        yield Stage(bootstrap, unique_name("apply"), 1, until_the_end)


@pytest.fixture(params=["postgres", "lake"])
def side(
    request: pytest.FixtureRequest, spark: SparkSession, topics: Topics, tmp_path: Path
) -> LakeSide | PostgresSide:
    if request.param == "lake":
        return LakeSide(spark, topics, tmp_path)
    return PostgresSide(request.getfixturevalue("shared_postgres"), topics, tmp_path)


class Command:
    """`tarry spark apply` as users start it."""

    def __init__(self, bootstrap: str, topic: str, side: LakeSide | PostgresSide, rows_a_batch: int) -> None:
        if isinstance(side, LakeSide):
            to = ["lake", "--lake", str(side.lake)]
            to += [word for table, key in KEYS.items() for word in ("--key", f"{table}={','.join(key)}")]
        else:
            to = ["postgres", "--conninfo", side.server.conninfo, "--schema", side.schema]
        self._words = ["apply", "--bootstrap-servers", bootstrap, "--topic", topic, "--job", "test's", "--to", *to]
        self._words += ["--checkpoint", str(side.checkpoint), "--batch", str(rows_a_batch)]
        self._directory = side.checkpoint.parent / "runs"
        self._runs = count()

    def run_and_kill(self, after_s: float) -> int:
        """Start it, kill it so long after its first batch, and return how many it told of."""
        with self._start() as job:
            job.wait_until(lambda: batches(job) > 0, "a batch is done", START_WITHIN_S)
            until_s = time.monotonic() + after_s
            job.kill_when(lambda: time.monotonic() > until_s, "its time has come")
            return batches(job)

    def finish(self) -> int:
        with self._start() as job:
            job.finished(600)
            return batches(job)

    def _start(self) -> SparkJob:
        return SparkJob(self._directory / str(next(self._runs)), *self._words)


def batches(job: SparkJob) -> int:
    return job.errors.count("apply: batch")


def test_a_killed_run_is_made_good_by_the_next(stage: Stage, side: LakeSide | PostgresSide, bootstrap: str) -> None:
    topic = stage.make_topic(stage.target, 2)
    records = list(ChangeLog(3, 2, has_ids=True).records(4000))
    put(stage, topic, records)
    assert Command(bootstrap, topic, side, 300).run_and_kill(0.0) < 14
    side.run(topic, rows_a_batch=2000)
    assert side.rows() == as_text(replay(records))
    assert side.rejects() == []


@pytest.mark.soak
def test_a_hundred_thousand_changes_and_five_kills_equal_a_replay(
    stage: Stage, side: LakeSide | PostgresSide, bootstrap: str, seed: int
) -> None:
    chance = random.Random(seed)
    topic = stage.make_topic(stage.target, 3)
    records = list(ChangeLog(seed, 3, rows=20_000, has_ids=True).records(100_000))
    put(stage, topic, records)
    command = Command(bootstrap, topic, side, 10_000)
    began = time.monotonic()
    killed_in = [command.run_and_kill(chance.uniform(0, 4)) for _ in range(5)]
    finished_in = command.finish()
    print(f"batches before each kill {killed_in}, after the last {finished_in}; {time.monotonic() - began:.0f} s")  # noqa: T201 (figures)
    assert finished_in > 0
    rows = side.rows()
    print({table: len(found) for table, found in rows.items()})  # noqa: T201 (figures)
    assert rows == as_text(replay(records))
    assert side.rejects() == []
