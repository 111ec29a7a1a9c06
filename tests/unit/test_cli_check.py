"""`tarry check` as far as it gets without a broker: the configuration."""

from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner, Result

from tarry.cli.check import check


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
