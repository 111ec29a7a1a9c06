"""Named messages in the simulation: replaced, skipped and cancelled by name, under every disturbance."""

import random

import pytest

from tarry.testing.simulation import Shape, at_a_step, by_chance, crash, freeze, lose, steps_of
from tarry.testing.simulation.scenarios import Deed
from tarry.testing.simulation.world import SMALL_LEVELS
from tests.support.courses import named_again_and_again
from tests.support.worlds import judged_of, verify_all_kept

LEAST_JUDGED = 0.02
"""Most named messages are replaced; in 20 worlds the lowest part was 0.1."""

STEPS = 6
COURSES = 3


@pytest.mark.no_cover
@pytest.mark.some_of("deed")
@pytest.mark.parametrize("deed", [crash, freeze, lose], ids=lambda deed: deed.__name__)
def test_a_process_disturbed_at_any_step_breaks_no_promise_to_a_name(seed: int, deed: Deed) -> None:
    shape = Shape(geometry=SMALL_LEVELS, names=0.7)
    indices = random.Random(seed).sample(range(len(steps_of(seed, shape))), STEPS)
    verify_all_kept([at_a_step(seed, shape, index, deed) for index in sorted(indices)], least_judged=LEAST_JUDGED)


@pytest.mark.no_cover
def test_random_worlds_keep_the_promises_to_names(seed: int, worlds: int) -> None:
    outcomes = [by_chance(seed + number, names=0.5) for number in range(worlds)]
    verify_all_kept(outcomes, least_judged=LEAST_JUDGED)


@pytest.mark.no_cover
def test_few_names_for_many_records_through_crashes_and_targets_that_are_away(seed: int) -> None:
    reports = []
    for number in range(COURSES):
        world = named_again_and_again(seed + number)
        assert len(world.named) > 50
        assert any(record.condition for record in world.named)
        reports.append(world.settle())
        assert reports[-1].is_clean, f"seed {seed + number}: {reports[-1]}"
    # In one of them, all but a message may be replaced.
    assert judged_of(reports) >= LEAST_JUDGED, f"seed {seed}"
