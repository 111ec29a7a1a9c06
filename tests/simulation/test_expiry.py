"""Messages that expire, and messages with a window, in the simulation: under every disturbance."""

import random

import pytest

from tarry.kafka.topics import RESULTS
from tarry.testing.simulation import Shape, at_a_step, by_chance, crash, freeze, lose, steps_of
from tarry.testing.simulation.scenarios import Deed
from tarry.testing.simulation.world import INTAKE, SMALL_LEVELS
from tests.support.courses import expiring_again_and_again
from tests.support.worlds import judged_of, verify_all_kept

LEAST_JUDGED = 0.05
"""Messages that expire are in no order at a target."""

LEAST_JUDGED_OF_COURSES = 0.02

STEPS = 6
COURSES = 3


@pytest.mark.no_cover
@pytest.mark.some_of("deed")
@pytest.mark.parametrize("deed", [crash, freeze, lose], ids=lambda deed: deed.__name__)
def test_a_process_disturbed_at_any_step_delivers_nothing_after_its_expiry(seed: int, deed: Deed) -> None:
    shape = Shape(geometry=SMALL_LEVELS, expiring=0.7, windows=0.3)
    indices = random.Random(seed).sample(range(len(steps_of(seed, shape))), STEPS)
    verify_all_kept([at_a_step(seed, shape, index, deed) for index in sorted(indices)], least_judged=LEAST_JUDGED)


@pytest.mark.no_cover
def test_random_worlds_expire_what_is_late_and_nothing_else(seed: int, worlds: int) -> None:
    outcomes = [by_chance(seed + number, expiring=0.5) for number in range(worlds)]
    verify_all_kept(outcomes, least_judged=LEAST_JUDGED)


@pytest.mark.no_cover
def test_what_expires_while_its_target_is_away_or_its_process_is_down(seed: int) -> None:
    reports, expired = [], 0
    for number in range(COURSES):
        world = expiring_again_and_again(seed + number)
        assert sum(message.expires_ms is not None for message in world.sent) > 40
        reports.append(world.settle())
        assert reports[-1].is_clean, f"seed {seed + number}: {reports[-1]}"
        expired += sum(b'"expired"' in (one.value or b"") for one in world.broker.records(INTAKE + RESULTS))
    assert expired > 5 * COURSES
    # In one of them, a target may be away most of the time: of ten times three courses, 0.06 was the lowest part.
    assert judged_of(reports) >= LEAST_JUDGED_OF_COURSES, f"seed {seed}"
