"""A real Prometheus, which scrapes services of a test and evaluates our alert rules in less time."""

import json
import re
import shutil
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

import pytest

from tarry.devbroker.ports import HOST, free_port
from tarry.devbroker.process import LeashedProcess
from tarry.testing.serve import Serve
from tests.support.brokers import wait_until

RULES: Final = Path(__file__).parents[2] / "deploy/monitoring/tarry.rules.yml"

FASTER: Final = 20
"""All times of the rules, `for` and ranges, are divided by this: a service is scraped each second, not each 15."""

FEWER: Final = 1_000
"""The million of records that are not deleted is divided by this. No other threshold is changed."""

_SECONDS: Final = {"m": 60, "h": 3_600}
_SETTINGS: Final = """
global: {scrape_interval: 1s, evaluation_interval: 1s}
rule_files: [rules.yml]
scrape_configs:
  - job_name: any
    file_sd_configs: [{files: [targets/*.json], refresh_interval: 1s}]
"""


def quickened(rules: str) -> str:
    """Return rules with all times divided by `FASTER`, and the number of records by `FEWER`."""

    def seconds(match: re.Match[str]) -> str:
        return f"{match[1]}{int(match[2]) * _SECONDS[match[3]] // FASTER}s"

    rules, times = re.subn(r"(for: |\[)(\d+)([mh])\b", seconds, rules)
    rules, numbers = re.subn(r"> 1000000\b", f"> {1_000_000 // FEWER}", rules)
    assert times > numbers == 1
    return rules


class Prometheus:
    """Prometheus, as a process.

    Args:
        directory: for its settings, its data and its log.
    """

    def __init__(self, directory: Path, program: str) -> None:
        self._targets = directory / "targets"
        self._targets.mkdir()
        (directory / "prometheus.yml").write_text(_SETTINGS, encoding="utf-8")
        (directory / "rules.yml").write_text(quickened(RULES.read_text(encoding="utf-8")), encoding="utf-8")
        self._address = f"{HOST}:{free_port()}"
        self.process = LeashedProcess(
            [
                program,
                f"--config.file={directory / 'prometheus.yml'}",
                f"--storage.tsdb.path={directory / 'data'}",
                f"--web.listen-address={self._address}",
            ],
            directory / "prometheus.log",
            10.0,
        )

    def follow(self, job: str, *services: Serve) -> None:
        """Scrape services from now on, as one job, until they end."""
        ports = [service.wait_listening().events("http_listening")[-1]["port"] for service in services]
        found = [{"targets": [f"{HOST}:{port}" for port in ports], "labels": {"job": job}}]
        made = self._targets / f"{job}.new"
        made.write_text(json.dumps(found), encoding="utf-8")
        made.rename(self._targets / f"{job}.json")
        wait_until(lambda: self.value(f'count(up{{job="{job}"}} == 1)') == len(services), f"{job} is scraped", 30)

    def forget_all(self) -> None:
        """Scrape nothing any more."""
        for one in self._targets.glob("*.json"):
            one.unlink()

    def firing(self, job: str | None) -> set[str]:
        """Return the names of the alerts of a job that fire; None: of those that belong to no job."""
        alerts = self._get("alerts")["alerts"]
        return {
            one["labels"]["alertname"] for one in alerts if one["state"] == "firing" and one["labels"].get("job") == job
        }

    def value(self, expression: str) -> float | None:
        """Return the value of an expression that has one; None if it has none now."""
        found = self._get(f"query?query={quote(expression)}")["result"]
        return float(found[0]["value"][1]) if found else None

    def is_ready(self) -> bool:
        """Whether it answers."""
        try:
            self._get("alerts")
        except OSError:
            return False
        return True

    def _get(self, path: str) -> Any:
        with urllib.request.urlopen(f"http://{self._address}/api/v1/{path}", timeout=10) as answer:
            return json.load(answer)["data"]


@contextmanager
def prometheus(directory: Path) -> Iterator[Prometheus]:
    """Start Prometheus, which scrapes nothing yet; skip the test if it is not installed."""
    program = shutil.which("prometheus")
    if program is None:
        pytest.skip("prometheus is not on the PATH")
    running = Prometheus(directory, program)
    try:
        wait_until(running.is_ready, "Prometheus answers", 30)
        yield running
    finally:
        running.process.stop()
