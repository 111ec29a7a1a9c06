"""`tarry spark` before Spark: what costs nothing where it is not used, and what is said where it is missing."""

import subprocess
import sys
from pathlib import Path

import pytest

from tarry.cli.commands import NAMES
from tarry.cli.main import main

ABSENT = """
import importlib.util, sys
found = importlib.util.find_spec
importlib.util.find_spec = lambda name, *rest: None if name == "pyspark" else found(name, *rest)
from tarry.cli.main import main
main(sys.argv[1:])
"""


def test_no_other_command_imports_pyspark() -> None:
    code = (
        "import sys; from typer.main import get_command; from tarry.cli.main import app; "
        "print(*(name for name, command in get_command(app).commands.items() if 'pyspark' not in sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == list(NAMES)


def test_where_pyspark_is_missing_one_line_says_what_to_install() -> None:
    command = [sys.executable, "-c", ABSENT, "spark", "archive", "--lake", "nowhere"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert done.stderr == "tarry: the jobs of tarry spark need PySpark: pip install 'tarry[spark]'\n"


def test_a_pace_that_is_no_duration_is_a_mistake_of_use(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["spark", "archive", "--lake", "nowhere", "--every", "10 seconds"])
    assert ended.value.code == 2
    assert "Invalid value: --every: not a duration" in capsys.readouterr().err


@pytest.mark.parametrize("option", ["--conf", "--kafka-option"])
def test_a_setting_without_a_value_is_a_mistake_of_use(option: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["spark", "archive", "--lake", "nowhere", option, "spark.driver.memory"])
    assert ended.value.code == 2
    assert capsys.readouterr().err == f"tarry: {option}: must be NAME=VALUE: spark.driver.memory\n"


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (["cancel", "--where", "true"], "--intake is needed: several intakes are configured (a, b)"),
        (["cancel", "--where", "true", "--intake", "c"], "--intake: c is not configured; configured: a, b"),
        (["shift"], "give --where SQL to make a plan, or --plan DIR --run to run one"),
        (
            ["cancel", "--run"],
            "--run needs --plan DIR: without a written plan, a killed run cannot be completed",
        ),
    ],
)
def test_a_plan_with_a_missing_part_is_refused_before_spark_starts(given: list[str], said: str, tmp_path: Path) -> None:
    config = tmp_path / "tarry.toml"
    config.write_text('[[intake]]\ntopic = "a"\n[[intake]]\ntopic = "b"\n', encoding="utf-8")
    command = [sys.executable, "-c", ABSENT, "spark", *given, "--config", str(config)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (2, f"tarry: {said}\n")
