"""Options of the whole suite: how long a soak lasts, and the seed that repeats a run.

Every random choice of a test comes from `seed`, which the header of the run prints. A failed run is
repeated by giving that number back: `pytest --seed 12345 ...`.
"""

import random
import re
from typing import Any, Final

import pytest

_UNIT_S: Final = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0}
_DURATION: Final = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m|h)")


def duration_s(text: str) -> float:
    """Parse a duration such as `90s`, `1.5m` or `2h`; return seconds.

    Raises:
        ValueError: it is not a number with one of the units ms, s, m, h, or it is not above zero.
    """
    match = _DURATION.fullmatch(text.strip())
    if match is None:
        msg = f"{text!r} is not a duration such as 90s, 30m or 2h"
        raise ValueError(msg)
    seconds = float(match[1]) * _UNIT_S[match[2]]
    if seconds <= 0:
        msg = f"a duration is above zero, not {text!r}"
        raise ValueError(msg)
    return seconds


def _duration_option(text: str) -> float:
    try:
        return duration_s(text)
    except ValueError as error:
        raise pytest.UsageError(f"--soak-for: {error}") from error


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("tarry")
    group.addoption(
        "--soak-for",
        metavar="DURATION",
        default="60s",
        help="how long each soak test sends messages, such as 60s or 30m (default: 60s)",
    )
    group.addoption(
        "--kafka-version",
        metavar="VERSION",
        default=None,
        help="all brokers of the run are embedded ones of this version of Kafka, such as 3.9.2",
    )
    group.addoption(
        "--secured",
        action="store_true",
        help="services of the end-to-end tests come to their brokers by SASL_SSL, with the rights that "
        "docs/security.md lists and no others",
    )
    group.addoption(
        "--seed",
        metavar="N",
        type=int,
        default=None,
        help="seed of every random choice (default: a random one, printed in the header)",
    )


def pytest_configure(config: pytest.Config) -> None:
    _duration_option(config.getoption("--soak-for"))
    if config.getoption("--seed") is None:
        # All pytest-xdist workers use the seed of the controller.
        theirs = getattr(config, "workerinput", {}).get("seed")
        config.option.seed = random.SystemRandom().randrange(1_000_000_000) if theirs is None else theirs


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    node.workerinput["seed"] = node.config.getoption("--seed")


def pytest_report_header(config: pytest.Config) -> str:
    return f"tarry: --seed {config.getoption('--seed')} --soak-for {config.getoption('--soak-for')}"


@pytest.fixture(scope="session")
def seed(request: pytest.FixtureRequest) -> int:
    """The seed of this run."""
    return int(request.config.getoption("--seed"))


@pytest.fixture(scope="session")
def soak_for_s(request: pytest.FixtureRequest) -> float:
    """How long a soak test sends messages, in seconds."""
    return _duration_option(request.config.getoption("--soak-for"))
