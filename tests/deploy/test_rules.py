"""The alerts as Prometheus itself reads them: `promtool` checks them, and tries them on series of our own."""

import shutil
import subprocess
from pathlib import Path

import pytest

MONITORING = Path(__file__).parents[2] / "deploy/monitoring"

pytestmark = pytest.mark.deploy


@pytest.fixture
def promtool() -> str:
    found = shutil.which("promtool")
    if found is None:
        pytest.skip("promtool is not on the PATH; it comes with Prometheus")
    return found


def run(*command: str) -> str:
    done = subprocess.run(command, cwd=MONITORING, capture_output=True, text=True, timeout=120, check=False)
    said = done.stdout + done.stderr
    assert done.returncode == 0, said
    return said


def test_prometheus_takes_the_rules(promtool: str) -> None:
    said = run(promtool, "check", "rules", "--lint=all", "--lint-fatal", "tarry.rules.yml")
    assert "SUCCESS" in said


def test_the_alerts_fire_when_they_should_and_at_no_other_time(promtool: str) -> None:
    said = run(promtool, "test", "rules", "tarry.rules.test.yml")
    assert "SUCCESS" in said
