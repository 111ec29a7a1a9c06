"""Random worlds, each with its own seed, which a failure prints.

`make test` uses the same worlds each time, so that a new failure comes from a change; `make test-all` draws new ones.
"""

from typing import Any

import pytest

from tarry.service.worker.filing import Filer
from tarry.testing.simulation import RunOutcome, by_chance

FIRST = 1

ONCE_BROKEN = (417848588, 90191, 122230846, 501117)
"""Seeds of random worlds that have found a bug of the service or of the judge. No other test provokes it on purpose."""

FILE_AGAIN = (36, 172)
"""Seeds of random worlds in which messages are filed again."""


def run(first: int, runs: int) -> list[RunOutcome]:
    outcomes = []
    for seed in range(first, first + runs):
        outcome = by_chance(seed)
        assert outcome.report.is_clean, f"python -m tarry.testing.simulation --runs 1 --seed {seed}\n{outcome}"
        outcomes.append(outcome)
    return outcomes


@pytest.mark.no_cover
def test_fifteen_worlds_keep_all_promises() -> None:
    outcomes = run(FIRST, 15)
    assert sum(outcome.report.judged for outcome in outcomes) > 150
    assert {kind for outcome in outcomes for kind in map(_kind, outcome.disturbances)} > {"crash", "nap", "freeze"}


@pytest.mark.parametrize("broken", ONCE_BROKEN)
def test_worlds_that_were_broken_once_are_mended(broken: int) -> None:
    run(broken, 1)


def test_worlds_file_messages_again(monkeypatch: pytest.MonkeyPatch) -> None:
    again: list[int] = []
    confirm = Filer._confirm

    def note(filer: Filer, attempt: Any) -> None:
        again.extend(
            message.sequence for _, filing in attempt.batches for message, to in filing.records if message.source == to
        )
        confirm(filer, attempt)

    monkeypatch.setattr(Filer, "_confirm", note)
    for seed in FILE_AGAIN:
        again.clear()
        run(seed, 1)
        assert again, f"in world {seed} nothing is filed again: use another one"


@pytest.mark.exhaustive
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
