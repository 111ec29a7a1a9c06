"""A process disturbed at each of its steps: those of its take-over, of its transactions, and of its release.

The suite disturbs before and after the first step of every kind, and at some random steps; the soak at every step.
"""

import random
from collections.abc import Callable

import pytest

from tarry.testing.simulation import SHAPES, Shape, at_a_step, crash, crash_for_good, freeze, lose, nap, steps_of
from tarry.testing.simulation.scenarios import Deed
from tests.support.worlds import verify_all_kept

BY_CHANCE = 4

LEAST_JUDGED = 0.1
"""The floor over all runs of a test; in 28 worlds the lowest part was 0.38."""

Pick = Callable[[int, Shape], list[int]]


@pytest.fixture(params=[pytest.param(False, id="some"), pytest.param(True, id="all", marks=pytest.mark.exhaustive)])
def pick(request: pytest.FixtureRequest) -> Pick:
    """Return the indices of the steps at which to disturb."""

    def choose(seed: int, shape: Shape) -> list[int]:
        steps = steps_of(seed, shape)
        assert len(steps) > 50, "a run without steps shows nothing"
        if request.param:
            return list(range(len(steps)))
        firsts: dict[tuple[str, str], int] = {}
        for index, step in enumerate(steps):
            firsts.setdefault((step.call, step.phase), index)
        return sorted({*firsts.values(), *random.Random(seed).sample(range(len(steps)), BY_CHANCE)})

    return choose


@pytest.mark.no_cover
@pytest.mark.some_of("shape", 2)
@pytest.mark.parametrize("shape", list(SHAPES.values()), ids=SHAPES.keys())
def test_a_process_that_crashes_at_any_step_breaks_no_promise(seed: int, shape: Shape, pick: Pick) -> None:
    outcomes = [at_a_step(seed, shape, index, crash) for index in pick(seed, shape)]
    verify_all_kept(outcomes, least_judged=LEAST_JUDGED)


@pytest.mark.no_cover
@pytest.mark.some_of("shape")
@pytest.mark.parametrize("shape", list(SHAPES.values()), ids=SHAPES.keys())
@pytest.mark.some_of("deed", 2)
@pytest.mark.parametrize("deed", [crash_for_good, freeze, nap, lose], ids=lambda deed: deed.__name__)
def test_a_process_disturbed_at_any_step_breaks_no_promise(seed: int, shape: Shape, deed: Deed, pick: Pick) -> None:
    outcomes = [at_a_step(seed, shape, index, deed) for index in pick(seed, shape)]
    verify_all_kept(outcomes, least_judged=LEAST_JUDGED)


@pytest.mark.no_cover
@pytest.mark.some_of("shape")
@pytest.mark.parametrize("shape", list(SHAPES.values()), ids=SHAPES.keys())
def test_a_second_crash_while_the_first_is_recovered_breaks_no_promise(seed: int, shape: Shape, pick: Pick) -> None:
    choose = random.Random(seed)
    second = [(index, (choose.randrange(40), crash)) for index in pick(seed, shape)]
    outcomes = [at_a_step(seed, shape, index, crash, then=then) for index, then in second]
    verify_all_kept(outcomes, least_judged=LEAST_JUDGED)
