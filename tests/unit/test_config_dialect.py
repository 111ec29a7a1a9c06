"""An intake's dialect in the configuration."""

from pathlib import Path
from typing import get_args

import pytest

from tarry.config import Config, Intake, load
from tarry.config.tree import SAYS_WHERE_TO
from tarry.core.request.dialects import DIALECTS
from tarry.errors import ConfigError
from tarry.headers import TARGET
from tarry.service.app import policy_of


def _load(tmp_path: Path, *lines: str) -> Config:
    path = tmp_path / "tarry.toml"
    path.write_text("\n".join(["[[intake]]", 'topic = "schedules"', *lines]))
    return load(path, {})


def _refusal(tmp_path: Path, *lines: str) -> str:
    with pytest.raises(ConfigError) as refusal:
        _load(tmp_path, *lines)
    line = str(refusal.value)
    assert "\n" not in line
    return line


def test_the_field_takes_the_dialects_that_there_are() -> None:
    literal, _none = get_args(Intake.model_fields["dialect"].annotation)
    assert set(get_args(literal)) == set(DIALECTS)
    assert {name: one.target for name, one in DIALECTS.items() if one.target != TARGET} == SAYS_WHERE_TO


@pytest.mark.parametrize("dialect", DIALECTS)
def test_a_dialect_reaches_the_policy(tmp_path: Path, dialect: str) -> None:
    config = _load(tmp_path, f'dialect = "{dialect}"', 'targets = ["videos"]')
    intake = config.intakes[0]
    assert (intake.dialect, intake.is_fixed) == (dialect, False)
    policy = policy_of(config, intake)
    assert (policy.dialect, policy.targets, policy.fixed_delay_ms) == (dialect, ("videos",), None)


def test_without_one_our_own_headers_count(tmp_path: Path) -> None:
    config = _load(tmp_path)
    assert policy_of(config, config.intakes[0]).dialect is None


def test_the_key_is_a_name_only_where_the_intake_says_so(tmp_path: Path) -> None:
    config = _load(tmp_path, 'dialect = "etf1"')
    assert policy_of(config, config.intakes[0]).same_key is None
    config = _load(tmp_path, 'dialect = "etf1"', 'same_key = "replace"')
    assert policy_of(config, config.intakes[0]).same_key == "replace"


def test_a_dialect_without_a_header_for_the_target_may_come_with_a_target(tmp_path: Path) -> None:
    config = _load(tmp_path, 'dialect = "rabbitmq"', 'target = "videos"', 'max_delay = "1d"')
    policy = policy_of(config, config.intakes[0])
    assert (policy.fixed_target, policy.max_delay_ms) == ("videos", 86_400_000)


@pytest.mark.parametrize(
    ("lines", "says"),
    [
        (['dialect = "rocketmq"'], "intake[0].dialect: should be 'etf1', 'karafka', 'timebridge' or 'rabbitmq'"),
        (['dialect = "ETF1"'], "intake[0].dialect: should be 'etf1'"),
        (['dialect = ""'], "intake[0].dialect: should be 'etf1'"),
        (
            ['dialect = "etf1"', 'delay = "5s"', 'target = "videos"'],
            "intake[0].dialect: may not be set together with delay",
        ),
        (['dialect = "rabbitmq"', 'delay = "5s"'], "intake[0].dialect: may not be set together with delay"),
        (
            ['dialect = "etf1"', 'target = "videos"'],
            "intake[0].target: may not be set together with dialect etf1: its header scheduler-target-topic ",
        ),
        (
            ['dialect = "rabbitmq"', 'target = "videos"', 'targets = ["videos"]'],
            "intake[0].targets: may not be set together with target",
        ),
        (['same_key = "replace"'], "intake[0].same_key: needs a dialect"),
        (['same_key = "keep"', 'dialect = "etf1"'], "intake[0].same_key: should be 'replace'"),
        (
            ['same_key = "replace"', 'dialect = "etf1"', "names_limit = 0"],
            "intake[0].same_key: needs a names_limit above 0",
        ),
        (['dialect = "rabbitmq"', 'target = "schedules"'], "intake[0].target: leads back to schedules"),
        (['dialect = "rabbitmq"', 'target = "schedules.dead"'], "intake[0].target: is an internal topic"),
    ],
)
def test_nonsense_is_one_line(tmp_path: Path, lines: list[str], says: str) -> None:
    assert _refusal(tmp_path, *lines).startswith(says)
