"""The core compiled by mypyc keeps the promises, too: a smoke test, of which `make test-compiled` is the whole.

It compiles without optimisation, which is all the same to what is tested and takes a fraction of the time.
"""

import os
import subprocess
from pathlib import Path

import pytest

from hatch_build import compiled_modules
from tests.support.compiled import ROOT, interpreted, make_environment, missing_compiler, refuse_interpreted
from tests.support.lacking import lacks

WORLDS = (
    "tests/simulation/test_chance.py::test_worlds_that_were_broken_once_are_mended",
    "tests/simulation/test_chance.py::test_a_run_is_a_function_of_its_seed",
)
NEAREST = (
    "tests/unit/core/test_core_lifecycle.py",
    "tests/unit/core/test_core_matching.py",
    "tests/unit/core/test_core_partition.py",
    "tests/unit/timer/test_task_list.py",
    "tests/unit/timer/test_wheel.py",
)


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The Python of an environment whose tarry has its core compiled."""
    if (reason := missing_compiler()) is not None:
        lacks(reason)
    return make_environment(tmp_path_factory.mktemp("compiled") / "venv", opt_level=0)


def test_worlds_and_the_nearest_tests_run_on_the_compiled_core(python: Path, seed: int) -> None:
    # These tests' own settings are not for the tests in there.
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    options = ("-q", "-p", "no:cacheprovider", "-o", "pythonpath=.", "--compiled", "--seed", str(seed))
    ran = subprocess.run(
        [python, "-m", "pytest", *options, *WORLDS, *NEAREST],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr


def test_a_run_that_is_to_be_compiled_refuses_the_pure_core() -> None:
    assert interpreted() == compiled_modules()
    with pytest.raises(pytest.UsageError, match=r"--compiled: \d+ modules are not compiled, tarry\.core\.batch"):
        refuse_interpreted()
