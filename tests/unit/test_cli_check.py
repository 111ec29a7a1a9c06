"""`tarry check` as far as it gets without a broker: the configuration."""

import re
from contextlib import nullcontext
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner, Result

from tarry.cli.check import check
from tarry.config import Config
from tarry.errors import ConfigError
from tarry.service.app import refuse_long_checkpoints


def _check(*arguments: str) -> Result:
    app = typer.Typer()
    app.command("check")(check)
    return CliRunner().invoke(app, list(arguments))


def test_a_bad_field_is_one_failing_line_that_names_it_and_exit_2(tmp_path: Path) -> None:
    path = tmp_path / "tarry.toml"
    path.write_text("[wheel]\nsize = 1\n", encoding="utf-8")
    result = _check("--config", str(path))
    assert result.exit_code == 2
    assert result.output.startswith("FAIL  configuration: wheel.size: ")
    assert result.output.count("\n") == 1


def test_names_that_leave_no_room_in_a_checkpoint_are_one_failing_line_that_says_by_how_much(tmp_path: Path) -> None:
    path = tmp_path / "tarry.toml"
    group, instance = "g" * 80, "i" * 128
    path.write_text(f'[service]\ngroup = "{group}"\ninstance = "{instance}"\n', encoding="utf-8")
    result = _check("--config", str(path))
    assert result.exit_code == 2
    shorter = re.fullmatch(
        r"FAIL  configuration: checkpoints of tarry.delayed may reach [\d,]+ characters, but Kafka accepts only 4,095: "
        r"make service.group or service.instance shorter, by (\d+) characters together\n",
        result.output,
    )
    assert shorter is not None, result.output
    for more, fits in ((0, True), (1, False)):
        service = {"group": group, "instance": instance[int(shorter[1]) - more :]}
        with nullcontext() if fits else pytest.raises(ConfigError, match="by 1 character"):
            refuse_long_checkpoints(Config.model_validate({"service": service}))


def test_levels_that_leave_no_room_in_a_checkpoint_are_one_failing_line(tmp_path: Path) -> None:
    path = tmp_path / "tarry.toml"
    path.write_text('[overflow]\nwidth = "1s"\nsize = 2\n[[intake]]\ntopic = "in"\n', encoding="utf-8")
    result = _check("--config", str(path))
    assert result.exit_code == 2
    assert result.output.endswith("make overflow.size or overflow.width larger, for fewer levels than 21\n")


def test_a_property_that_the_client_library_does_not_know_is_a_fault_of_the_configuration(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("TARRY_KAFKA__OPTIONS__NO_SUCH", "1")
    result = _check()
    assert result.exit_code == 2
    assert result.output == 'FAIL  configuration: kafka.options: No such configuration property: "no.such"\n'


def test_a_file_that_is_not_there_is_exit_2(tmp_path: Path) -> None:
    result = _check("--config", str(tmp_path / "none.toml"))
    assert result.exit_code == 2
    assert "no such file" in result.output
