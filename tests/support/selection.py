"""Decides which tests `make test` runs, in which order, and which of them share a process.

The marker `exhaustive` is for a further case of a behaviour that another test of the suite covers. With `some_of` the
seed chooses the cases.
"""

import random
from collections.abc import Iterable, Mapping
from itertools import accumulate
from pathlib import Path
from typing import Any, Final

import pytest
from xdist.scheduler import LoadFileScheduling  # type: ignore[import-untyped]

KINDS: Final[tuple[Mapping[str, float], ...]] = (
    # Tests that mostly wait for other processes. The pipelines come first: one process runs them for minutes.
    {"pipelines": 1.0, "e2e": 1.0, "contracts": 1.0, "integration": 1.0},
    # Tests that only compute.
    {"simulation": 10.0, "model": 8.0, "unit": 0.5},
)
"""The tiers by the kind of their tests, each kind in order, and how long a file of a tier takes beside its kind."""


@pytest.hookimpl(tryfirst=True)  # before markers are looked at
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Choose by the seed, and order by tier."""
    _choose(items, config.getoption("--seed"))
    places = order({item.location[0]: _tier(item) for item in items})
    items.sort(key=lambda item: places[item.location[0]])


def order(tiers: Mapping[str, str]) -> dict[str, float]:
    """Return a place between 0 and 1 for each file, given its tier.

    Files of tests that wait and of tests that compute are mixed evenly: so the processors are busy from the beginning,
    and not too busy at the end.
    """
    places = dict.fromkeys(tiers, 1.0)
    for kind in KINDS:
        files = [file for tier in kind for file in tiers if tiers[file] == tier]
        passed = list(accumulate((kind[tiers[file]] for file in files), initial=0.0))
        places |= {file: before / passed[-1] for file, before in zip(files, passed, strict=False)}
    return places


def _choose(items: Iterable[pytest.Item], seed: int) -> None:
    """Mark the cases that `some_of` leaves out in this run as exhaustive."""
    alternatives: dict[tuple[str, str, str, int], dict[int, list[pytest.Item]]] = {}
    for item in items:
        for mark in item.iter_markers("some_of"):
            argument, count = mark.args[0], mark.args[1] if len(mark.args) > 1 else 1
            if (callspec := getattr(item, "callspec", None)) is None or item.get_closest_marker("exhaustive"):
                continue
            if argument in callspec.params:
                test = (item.location[0], item.originalname, argument, count)  # type: ignore[attr-defined]
                value = id(callspec.params[argument])  # the same object in all cases that have it
                alternatives.setdefault(test, {}).setdefault(value, []).append(item)
    for (file, name, argument, count), by_value in alternatives.items():
        values = list(by_value)  # as they were collected
        chosen = random.Random(f"{seed} {file} {name} {argument}").sample(values, min(count, len(values)))
        for value in set(values) - set(chosen):
            for item in by_value[value]:
                item.add_marker(pytest.mark.exhaustive)


class _Together(LoadFileScheduling):  # type: ignore[misc] # xdist has no types
    """Keeps tests with a shared, costly fixture in one process: a file's broker, or the Spark session of pipelines."""

    def _split_scope(self, nodeid: str) -> str:
        file = Path(nodeid.partition("::")[0])
        return str(file.parent if file.parent.name == "pipelines" else file)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> _Together | None:
    return _Together(config, log) if config.getvalue("dist") == "loadfile" else None


def _tier(item: pytest.Item) -> str:
    """Return the folder below `tests`; empty for a file that is in none."""
    return "/".join(Path(item.location[0]).parts[1:-1][:1])
