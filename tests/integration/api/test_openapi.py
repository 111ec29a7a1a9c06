"""The description of the API is true: schemathesis asks a running server by it."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.api import Api

CHECKS = "not_a_server_error,status_code_conformance,content_type_conformance,response_schema_conformance"


def run(api: Api, directory: Path, examples: int, seed: int) -> None:
    # Streams of events have no end, and a batch is not JSON.
    command = [
        *(sys.executable, "-m", "schemathesis.cli", "run", f"{api.url}/v1/openapi.json"),
        *("--url", api.url, "--checks", CHECKS, "--max-examples", str(examples), "--seed", str(seed)),
        *("--exclude-path", "/v1/events", "--exclude-path", "/v1/messages:batch"),
        *(
            "--phases",
            "examples,coverage,fuzzing",
            "--request-timeout",
            "40",
            "--no-color",
            "--suppress-health-check",
            "all",
        ),
    ]
    found = subprocess.run(command, capture_output=True, text=True, check=False, cwd=directory, timeout=900)
    said = found.stdout + found.stderr
    assert found.returncode == 0, said[said.find("FAILURES") :][:6_000]
    assert "Tested: 27" in said, said[-2_000:]


def test_a_running_server_answers_as_its_description_says(
    api: Api, tmp_path: Path, pytestconfig: pytest.Config
) -> None:
    run(api, tmp_path, 5, pytestconfig.getoption("--seed") or 1)


@pytest.mark.exhaustive
def test_a_running_server_answers_so_to_many_requests(api: Api, tmp_path: Path, pytestconfig: pytest.Config) -> None:
    run(api, tmp_path, 60, pytestconfig.getoption("--seed") or 1)
