"""Values of the configuration from files that variables name, such as mounted secrets."""

from pathlib import Path

import pytest

from tarry.config import load
from tarry.errors import ConfigError

PASSWORD = "TARRY_KAFKA__OPTIONS__SASL_PASSWORD"  # noqa: S105 - the name of a variable


def test_a_password_comes_from_the_file_that_a_variable_names_without_the_newline(tmp_path: Path) -> None:
    path = tmp_path / "password"
    path.write_text(" with spaces \n", encoding="utf-8")
    config = load(None, {f"{PASSWORD}_FILE": str(path)})
    assert config.kafka.properties()["sasl.password"] == " with spaces "
    assert "with spaces" not in repr(config)


def test_a_file_that_is_missing_or_no_text_is_named_with_its_variable(tmp_path: Path) -> None:
    path = tmp_path / "password"
    with pytest.raises(ConfigError, match=f"{PASSWORD}_FILE: {path}: No such file"):
        load(None, {f"{PASSWORD}_FILE": str(path)})
    path.write_bytes(b"\xff\xfe")
    with pytest.raises(ConfigError, match=f"{PASSWORD}_FILE: {path}: not text"):
        load(None, {f"{PASSWORD}_FILE": str(path)})


def test_a_field_is_not_set_twice(tmp_path: Path) -> None:
    path = tmp_path / "password"
    path.write_text("one", encoding="utf-8")
    with pytest.raises(ConfigError, match="sets the same field"):
        load(None, {PASSWORD: "another", f"{PASSWORD}_FILE": str(path)})


def test_a_property_that_names_a_file_itself_is_given_its_path() -> None:
    config = load(None, {"TARRY_KAFKA__OPTIONS__SASL_OAUTHBEARER_ASSERTION_PRIVATE_KEY_FILE": "/run/key.pem"})
    assert config.kafka.properties()["sasl.oauthbearer.assertion.private.key.file"] == "/run/key.pem"


def test_a_file_for_a_field_that_does_not_exist_is_refused_like_any_misspelt_variable(tmp_path: Path) -> None:
    path = tmp_path / "value"
    path.write_text("1", encoding="utf-8")
    with pytest.raises(ConfigError):
        load(None, {"TARRY_SERVICE__PROCESES_FILE": str(path)})
