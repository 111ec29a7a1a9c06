"""The jobs on a broker with SASL_SSL, as users who may do what docs/security.md grants them and nothing else."""

import csv
import json
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final

import pytest
from confluent_kafka import Producer
from confluent_kafka.cimpl import NewTopic

from tarry.clock import SystemClock
from tests.support.brokers import starting_brokers, wait_until
from tests.support.grants import MAKER, SERVICE, documented
from tests.support.processes import Serve, ServeConfig
from tests.support.secured import NAMES as ONE_LEVEL
from tests.support.secured import SecuredBroker, config_of
from tests.support.spark_job import SparkJob
from tests.support.topics import read_topic

ROWS: Final = 100
NAMES: Final = {**ONE_LEVEL, "<level>": ["1", "2"]}
LATER_MS: Final = 300_000


@pytest.fixture
def secured(tmp_path: Path) -> Iterator[SecuredBroker]:
    with starting_brokers() as start:
        broker = SecuredBroker(start, tmp_path)
        broker.admin.create_topics([NewTopic("bills", 1, 1)])["bills"].result(30)
        yield broker


def user(secured: SecuredBroker, name: str, *sections: str) -> ServeConfig:
    """The configuration of one more user, who has the rights of some sections of the guide."""
    user = secured.user(name, [grant for section in sections for grant in documented(section, NAMES)])
    return config_of(secured, user, intake_settings={"max_delay": "10m", "targets": ["bills"]}, overflow={})


def start(stack: ExitStack, directory: Path, config: ServeConfig, name: str, *arguments: str) -> SparkJob:
    home = directory / name
    home.mkdir()
    (home / "tarry.toml").write_text(config.toml(), encoding="utf-8")
    return stack.enter_context(SparkJob(home, name, *arguments))


@pytest.mark.exhaustive
def test_jobs_do_their_work_with_the_documented_rights(secured: SecuredBroker, tmp_path: Path) -> None:
    plain = secured.broker.bootstrap_servers
    due_ms = SystemClock().now_ms()
    rows = [[number, due_ms + number + (number >= ROWS) * LATER_MS] for number in range(2 * ROWS)]
    with (tmp_path / "table.csv").open("w", encoding="utf-8", newline="") as file:
        csv.writer(file).writerows([["id", "due"], *rows])
    writer = user(secured, "writer", "What Spark jobs that write may do")
    looker = user(secured, "looker", "What Spark jobs that only read may do")
    serve = Serve(user(secured, "service", SERVICE, MAKER), tmp_path)
    with ExitStack() as until_the_end:
        until_the_end.callback(serve.close)
        serve.start().wait_serving()

        def summary(name: str, *arguments: str) -> dict[str, Any]:
            job = start(until_the_end, tmp_path, writer, name, *arguments)
            said: dict[str, Any] = json.loads(job.finished())
            return said

        table = ("--table", str(tmp_path / "table.csv"), "--job", "secured", "--row-key", "id", "--due", "due")
        scheduled = summary("schedule", *table, "--target", "'bills'")
        assert (scheduled["rows"], scheduled["sent"]) == (2 * ROWS, 2 * ROWS)
        wait_until(lambda: len(read_topic(plain, "bills")) == ROWS, "all that is due is delivered")
        is_first = f"due_ms < {due_ms + LATER_MS + ROWS + ROWS // 2}"
        plan = ("--plan", str(tmp_path / "plan"), "--run")
        shifted = summary("shift", "--where", is_first, "--by", "-1h", *plan)
        assert (shifted["planned"], shifted["sent"], shifted["unanswered"]) == (ROWS // 2, ROWS // 2, 0)
        wait_until(lambda: len(read_topic(plain, "bills")) == ROWS * 3 // 2, "what was shifted is delivered")
        cancelled = summary("cancel", "--where", "target = 'bills'", "--plan", str(tmp_path / "rest"), "--run")
        assert (cancelled["planned"], cancelled["sent"], cancelled["unanswered"]) == (ROWS // 2, ROWS // 2, 0)
        judging = ("--grace", "0s", "--json", "--fail-on", "lost,duplicate,early")
        looking = {
            "audit": ("--out", str(tmp_path / "out"), *judging),
            "archive": ("--lake", str(tmp_path / "lake")),
            "forecast": ("--json",),
        }
        jobs = {name: start(until_the_end, tmp_path, looker, name, *more) for name, more in looking.items()}
        # What is cancelled lies in its bucket until its time has come.
        assert json.loads(jobs["audit"].finished())["fates"] == {"delivered": ROWS * 3 // 2, "waiting": ROWS}
        assert jobs["forecast"].finished() == ""
        jobs["archive"].finished()
        assert (tmp_path / "lake" / "results" / "_delta_log").exists()


@pytest.mark.exhaustive
def test_apply_reads_its_log_and_needs_nothing_more(secured: SecuredBroker, tmp_path: Path) -> None:
    secured.admin.create_topics([NewTopic("changes", 1, 1)])["changes"].result(30)
    change = {"database": "shop", "table": "stock", "type": "insert", "data": {"id": 7, "count": 3}}
    producer = Producer({"bootstrap.servers": secured.broker.bootstrap_servers})
    producer.produce("changes", json.dumps(change).encode())
    assert producer.flush(30) == 0
    reader = secured.user("applying", documented("What `apply` may do", {"<log>": ["changes"]}))
    with ExitStack() as until_the_end:
        to = ("--to", "lake", "--lake", str(tmp_path / "lake"), "--key", "stock=id")
        words = ("--topic", "changes", "--job", "secured", *to, "--checkpoint", str(tmp_path / "checkpoint"))
        start(until_the_end, tmp_path, config_of(secured, reader), "apply", *words).finished()
    assert list((tmp_path / "lake").rglob("_delta_log"))
