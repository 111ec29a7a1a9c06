"""Runs by chance, each from a seed of its own that a failure names."""

import pytest

from tarry.testing.simulation import Outcome, by_chance


def run(first: int, runs: int) -> list[Outcome]:
    outcomes = []
    for seed in range(first, first + runs):
        outcome = by_chance(seed)
        assert outcome.report.is_clean, f"python -m tarry.testing.simulation --runs 1 --seed {seed}\n{outcome}"
        outcomes.append(outcome)
    return outcomes


def test_a_hundred_worlds_keep_all_promises(seed: int) -> None:
    outcomes = run(seed, 100)
    assert sum(outcome.report.judged for outcome in outcomes) > 1_000
    assert {kind for outcome in outcomes for kind in map(_kind, outcome.disturbances)} > {"crash", "nap", "freeze"}


@pytest.mark.soak
def test_thousands_of_worlds_keep_all_promises(seed: int, soak_for_s: float) -> None:
    run(seed, round(soak_for_s * 5))


def _kind(disturbance: str) -> str:
    return disturbance.split(": ")[1].split(maxsplit=1)[0]


def test_a_run_is_a_function_of_its_seed(seed: int) -> None:
    first, second = by_chance(seed), by_chance(seed)
    assert (first.disturbances, str(first.report), first.trace) == (
        second.disturbances,
        str(second.report),
        second.trace,
    )
