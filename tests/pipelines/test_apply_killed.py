"""`tarry spark apply` as a process that is killed with kill -9: nothing is lost, nothing is done twice."""

import json
import random
import time
from itertools import count

import pytest

from tests.support.applying import LakeSide, PostgresSide
from tests.support.changelog import KEYS, ChangeLog, as_text, put, replay
from tests.support.spark_job import SparkJob
from tests.support.stage import Stage

pytestmark = pytest.mark.broker

START_WITHIN_S = 240.0


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
            summary = json.loads(job.finished(600))
            assert summary["batches"] == batches(job)
            assert summary["rows"]["upserted"] > 0
            return batches(job)

    def _start(self) -> SparkJob:
        return SparkJob(self._directory / str(next(self._runs)), *self._words)


def batches(job: SparkJob) -> int:
    return job.errors.count("apply: batch")


@pytest.mark.exhaustive
def test_a_killed_run_is_made_good_by_the_next(stage: Stage, side: LakeSide | PostgresSide, bootstrap: str) -> None:
    topic = stage.make_topic(stage.target, 2)
    records = list(ChangeLog(3, 2, has_ids=True).records(1600))
    put(stage, topic, records)
    command = Command(bootstrap, topic, side, 300)
    assert command.run_and_kill(0.0) < 6  # of 6 batches
    assert command.finish() > 0
    assert side.rows() == as_text(replay(records))
    assert side.rejects() == []


@pytest.mark.exhaustive
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
