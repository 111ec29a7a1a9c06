"""A wrong argument of a job is one line on stderr, before anything is read."""

import csv
from pathlib import Path

import pytest

from tarry.jars import find_java
from tarry.pipelines.session import CONNECTORS
from tarry.progress_output import tell
from tests.support.spark_job import SparkJob
from tests.support.stage import Stage

pytestmark = [pytest.mark.broker, pytest.mark.stage(intake=True)]


@pytest.fixture(scope="module", autouse=True)
def connectors() -> None:
    """The jars are there: a job tells of it when it has to fetch them."""
    CONNECTORS.get(find_java(), tell)


def told(directory: Path, servers: str, *arguments: str) -> list[str]:
    """Run a job that fails; return its stderr."""
    with SparkJob(directory, *arguments, "--bootstrap-servers", servers) as job:
        assert job.ended() in {1, 2}, job.errors
        assert job.output == ""
        return job.errors.splitlines()


def test_a_topic_that_is_not_there_is_found_before_spark_starts(bootstrap: str, tmp_path: Path) -> None:
    schedule = ["schedule", "--table", "t.csv", "--job", "j", "--row-key", "id", "--target", "'x'", "--due", "due"]
    jobs = (["forecast"], ["audit", "--out", "o"], ["archive", "--lake", "l"], schedule)
    for job in jobs:
        lines = told(tmp_path / job[0], bootstrap, *job, "--intake", "nowhere")
        assert lines == ["tarry: there is no topic nowhere, or it may not be read"], job
    lines = told(tmp_path / "apply", bootstrap, "apply", "--topic", "nowhere", "--to", "lake", "--lake", "l")
    assert lines == ["tarry: there is no topic nowhere, or it may not be read"]


@pytest.mark.exhaustive
def test_a_broker_that_does_not_answer_is_one_line(tmp_path: Path) -> None:
    (line,) = told(tmp_path, "127.0.0.1:1", "forecast", "--intake", "nowhere")
    assert line.startswith("tarry: could not ask for topics")


# `cancel` stands for `shift` too.
@pytest.mark.some_of("job")
@pytest.mark.parametrize("job", ["forecast", "cancel"])
def test_a_malformed_predicate_is_refused_before_anything_is_read(stage: Stage, tmp_path: Path, job: str) -> None:
    config = tmp_path / "tarry.toml"
    config.write_text(f'[[intake]]\ntopic = "{stage.intake}"\n', encoding="utf-8")
    servers = stage.cluster.bootstrap_servers
    lines = told(tmp_path / job, servers, job, "--config", str(config), "--where", "nosuch = 1")
    assert [line[:35] for line in lines] == ["tarry: --where: [UNRESOLVED_COLUMN."], lines


@pytest.mark.exhaustive
def test_an_error_of_spark_is_one_line_with_the_path_of_its_log(stage: Stage, tmp_path: Path) -> None:
    with (tmp_path / "t.csv").open("w", encoding="utf-8", newline="") as file:
        csv.writer(file).writerows([["id", "due"], ["1", "2030-01-31T12:00:00Z"]])
    table = ("--table", str(tmp_path / "t.csv"), "--job", "j", "--row-key", "id", "--target", "'x'", "--due", "due")
    # A directory that can't be made, which Spark finds out when it writes the rows that can't be sent.
    (tmp_path / "file").write_text("", encoding="utf-8")
    where = ("--intake", stage.intake, "--state", str(tmp_path / "state"), "--rejects", str(tmp_path / "file" / "r"))
    *progress, log, line = told(tmp_path / "schedule", stage.cluster.bootstrap_servers, "schedule", *table, *where)
    assert all(each.startswith("tarry: ") for each in (*progress, line))
    at = Path(log.removeprefix("tarry: Spark's log: "))
    assert "incubator modules" in at.read_text(encoding="utf-8")
    at.unlink()
