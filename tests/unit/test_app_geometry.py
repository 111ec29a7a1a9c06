"""How many levels of the overflow wheel an intake has, by its configuration."""

import pytest

from tarry.config import Config
from tarry.core.progress.checkpoint import Geometry
from tarry.service.app import geometry_of, policy_of


def configured(overflow: dict[str, object] | None = None, **intake: str) -> Config:
    return Config.model_validate({"overflow": overflow or {}, "intake": [{"topic": "in", **intake}]})


def geometry(overflow: dict[str, object] | None = None, **intake: str) -> Geometry:
    config = configured(overflow, **intake)
    return geometry_of(config, config.intakes[0])


@pytest.mark.parametrize(
    ("max_delay", "levels"),
    [
        *(("1s", 0), ("60s", 0), ("61s", 1)),
        # Twice the size, 32 buckets: of 20 s, of 320 s, and of 5,120 s.
        *(("640s", 1), ("640s1ms", 2), ("10240s", 2), ("10240s1ms", 3), ("163840s", 3), ("163840s1ms", 4)),
        *(("30d", 4), ("31d", 4), ("3650d", 4)),
    ],
)
def test_there_are_as_many_levels_as_the_longest_delay_takes_and_four_at_most(max_delay: str, levels: int) -> None:
    assert geometry(max_delay=max_delay) == Geometry(20_000, 16, levels)


def test_a_fixed_delay_counts_as_the_longest_one() -> None:
    assert geometry(delay="60s", target="out").levels == 0
    assert geometry(delay="5m", target="out").levels == 1


def test_an_intake_that_memory_can_hold_needs_no_levels() -> None:
    assert geometry({"from": "1h"}, max_delay="1h").levels == 0


def test_wider_and_more_buckets_need_fewer_levels() -> None:
    assert geometry({"from": "60s", "width": "60s", "size": 32}, max_delay="30d") == Geometry(60_000, 32, 3)


def test_each_intake_has_levels_of_its_own() -> None:
    config = Config.model_validate({"intake": [{"topic": "a", "max_delay": "1s"}, {"topic": "b", "max_delay": "1h"}]})
    assert [geometry_of(config, intake).levels for intake in config.intakes] == [0, 2]


def test_an_intake_holds_whatever_its_longest_delay_allows() -> None:
    config = configured(max_delay="30d")
    assert policy_of(config, config.intakes[0]).horizon_ms is None
