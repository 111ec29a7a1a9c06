"""`tarry spark schedule` as a process that is killed with kill -9 and by Ctrl-C: each row is delivered once."""

import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tarry.clock import SystemClock
from tarry.core.murmur2 import partition_of
from tarry.testing import LiveService
from tests.support.spark_job import SparkJob
from tests.support.tables import write_csv
from tests.support.topics import read_topic

pytestmark = pytest.mark.broker

CLOCK = SystemClock()


def command(service: LiveService, target: str, directory: Path, *more: str) -> list[str]:
    return [
        *("schedule", "--bootstrap-servers", service.bootstrap_servers, "--intake", service.intake),
        *("--table", str(directory / "t.csv"), "--job", "job", "--row-key", "id"),
        *("--target", f"'{target}'", "--key", "key", "--value", "id", "--due", "due"),
        *("--state", str(directory / "state"), *more),
    ]


def summary_of(directory: Path, arguments: list[str]) -> dict[str, Any]:
    with SparkJob(directory, *arguments) as job:
        summary: dict[str, Any] = json.loads(job.finished(300))
    return summary


def check_delivered_once(service: LiveService, target: str, rows: int, keys: int) -> None:
    records = service.read(target, rows, within_s=120)
    records = read_topic(service.bootstrap_servers, target)
    assert Counter(int(record.value() or b"") for record in records) == Counter(range(rows))
    last: dict[bytes, tuple[int, int]] = {}
    for record in sorted(records, key=lambda one: (one.partition(), one.offset())):
        headers: dict[str, Any] = dict(record.headers() or [])
        key = record.key() or b""
        assert record.partition() == partition_of(key, 3)
        order = (int(headers["tarry-due-ms"]), int(record.value() or b""))
        assert last.get(key, (0, 0)) <= order, "out of order"
        last[key] = order
    assert len(last) == keys


def interrupt(directory: Path, arguments: list[str], rows: int) -> None:
    """Run the job, and stop it as Ctrl-C does: it tells what is left."""
    with SparkJob(directory, *arguments, "--rate", str(rows / 50)) as running:
        running.wait_until(lambda: "rows sent" in running.errors, "rows are sent")
        assert running.interrupt() == 130
        summary = json.loads(running.output)
        assert summary["known"] + summary["sent"] + summary["left"] == rows
        assert summary["left"] > 0
        assert "Traceback" not in running.errors


def killed_and_run_again(bootstrap: str, directory: Path, name: str, rows: int, kills: int, *, goes_on: bool) -> None:
    """Kill a job, and run it again; some rows are due at equal times, and the order of those is that of their ids.

    Args:
        bootstrap: the broker.
        directory: for the files of the jobs.
        name: of the service.
        rows: their number.
        kills: how often the job is killed.
        goes_on: whether it is also stopped as by Ctrl-C, and run once more when all is sent.
    """
    keys = 97
    with LiveService(bootstrap, directory, name, max_delay="1h") as service:
        target = service.make_topic("out", 3)
        due_ms = CLOCK.now_ms() + 15_000 * (kills + 1)
        write_csv(directory / "t.csv", [(number, f"k{number % keys}", due_ms + number % 5) for number in range(rows)])
        arguments = command(service, target, directory, "--order-by", "cast(id as int)")
        for kill in range(kills):
            with SparkJob(directory / f"killed-{kill}", *arguments, "--rate", str(rows / 50)) as doomed:
                doomed.kill_when(lambda: "rows sent" in doomed.errors, "rows are sent")
        if goes_on:
            interrupt(directory / "interrupted", arguments, rows)
        summary = summary_of(directory / "made-good", arguments)
        assert summary["known"] + summary["sent"] == rows
        assert 0 < summary["sent"] < rows
        check_delivered_once(service, target, rows, keys)
        if goes_on:
            again = summary_of(directory / "again", arguments)
            assert (again["sent"], again["known"], again["rejected"]) == (0, rows, {})
            check_delivered_once(service, target, rows, keys)


def test_a_killed_job_is_made_good_and_every_row_delivered_once(
    bootstrap: str, unique_name: Callable[[str], str], tmp_path: Path
) -> None:
    killed_and_run_again(bootstrap, tmp_path, unique_name("schedule"), 3_000, 1, goes_on=False)


@pytest.mark.exhaustive
def test_a_hundred_thousand_rows_are_delivered_once_through_five_kills(
    bootstrap: str, unique_name: Callable[[str], str], tmp_path: Path
) -> None:
    killed_and_run_again(bootstrap, tmp_path, unique_name("schedule"), 100_000, 5, goes_on=True)
