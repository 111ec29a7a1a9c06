"""The jobs on a broker with SASL_SSL, as users who may do what docs/security.md grants them and nothing else."""

import csv
import json
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final

import pytest
from confluent_kafka.cimpl import NewTopic

from tarry.clock import SystemClock
from tests.support.brokers import starting_brokers, wait_until
from tests.support.grants import MAKER, SERVICE, documented
from tests.support.processes import Serve, ServeConfig
from tests.support.secured import SecuredBroker
from tests.support.spark_job import SparkJob
from tests.support.topics import read_topic

ROWS: Final = 100
NAMES: Final = {"<intake>": ["rights"], "<level>": ["1"], "<target>": ["bills"], "<group>": ["tarry"]}


@pytest.fixture
def secured(tmp_path: Path) -> Iterator[SecuredBroker]:
    with starting_brokers() as start:
        broker = SecuredBroker(start, tmp_path)
        broker.admin.create_topics([NewTopic("bills", 1, 1)])["bills"].result(30)
        yield broker


def config_of(secured: SecuredBroker, name: str, *sections: str) -> ServeConfig:
    """The configuration of one more user, who has the rights of some sections of the guide."""
    user = secured.user(name, [grant for section in sections for grant in documented(section, NAMES)])
    return ServeConfig(
        secured.address,
        "rights",
        1,
        "tarry",
        options=user.options,
        intake_settings={"max_delay": "3s", "targets": ["bills"]},
        overflow={"from": "2s", "width": "2s"},
    )


def start(stack: ExitStack, directory: Path, config: ServeConfig, name: str, *arguments: str) -> SparkJob:
    home = directory / name
    home.mkdir()
    (home / "tarry.toml").write_text(config.toml(), encoding="utf-8")
    return stack.enter_context(SparkJob(home, name, *arguments))


def test_jobs_do_their_work_with_the_documented_rights(secured: SecuredBroker, tmp_path: Path) -> None:
    plain = secured.broker.bootstrap_servers
    due_ms = SystemClock().now_ms()
    with (tmp_path / "table.csv").open("w", encoding="utf-8", newline="") as file:
        csv.writer(file).writerows([["id", "due"], *([number, due_ms + number] for number in range(ROWS))])
    writer = config_of(secured, "writer", "What Spark jobs that write may do")
    looker = config_of(secured, "looker", "What Spark jobs that look may do")
    serve = Serve(config_of(secured, "service", SERVICE, MAKER), tmp_path)
    with ExitStack() as until_the_end:
        until_the_end.callback(serve.close)
        serve.start().wait_serving()
        table = ("--table", str(tmp_path / "table.csv"), "--job", "secured", "--row-key", "id", "--due", "due")
        job = start(until_the_end, tmp_path, writer, "schedule", *table, "--target", "'bills'")
        summary: dict[str, Any] = json.loads(job.finished())
        assert (summary["rows"], summary["sent"]) == (ROWS, ROWS)
        wait_until(lambda: len(read_topic(plain, "bills")) == ROWS, "all are delivered")
        jobs = {
            name: start(until_the_end, tmp_path, looker, name, *more)
            for name, more in {
                "audit": (
                    "--out",
                    str(tmp_path / "out"),
                    "--grace",
                    "0s",
                    "--json",
                    "--fail-on",
                    "lost,duplicate,early",
                ),
                "archive": ("--lake", str(tmp_path / "lake")),
                "forecast": ("--json",),
            }.items()
        }
        assert json.loads(jobs["audit"].finished())["fates"] == {"delivered": ROWS}
        assert jobs["forecast"].finished() == ""
        jobs["archive"].finished()
        assert (tmp_path / "lake" / "results" / "_delta_log").exists()
