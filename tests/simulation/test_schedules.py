"""Schedules in the simulation: each occurrence once, and then the next, under every disturbance."""

import random
from collections import Counter

import pytest

from tarry.headers import EVERY, ID, NAME, TARGET
from tarry.testing.fake import Fate, Step
from tarry.testing.simulation import Shape, World, at_a_step, by_chance, crash, freeze, lose, steps_of
from tarry.testing.simulation.disturbances import QUIET
from tarry.testing.simulation.process import Process
from tarry.testing.simulation.repeating import SentRepeating
from tarry.testing.simulation.scenarios import Deed
from tarry.testing.simulation.world import SMALL_LEVELS
from tests.support.courses import repeated_again_and_again
from tests.support.worlds import serve, verify_all_kept, verify_kept

LEAST_JUDGED = 0.02
"""The judge of schedules has an exact list for each; only the others are judged by an order."""

STEPS = 6
COURSES = 4
HOUR_MS = 3_600_000


@pytest.mark.no_cover
@pytest.mark.some_of("deed")
@pytest.mark.parametrize("deed", [crash, freeze, lose], ids=lambda deed: deed.__name__)
def test_a_process_disturbed_at_any_step_breaks_no_promise_to_a_schedule(seed: int, deed: Deed) -> None:
    shape = Shape(geometry=SMALL_LEVELS, schedules=0.4)
    indices = random.Random(seed).sample(range(len(steps_of(seed, shape))), STEPS)
    verify_all_kept([at_a_step(seed, shape, index, deed) for index in sorted(indices)], least_judged=LEAST_JUDGED)


@pytest.mark.no_cover
def test_random_worlds_keep_the_promises_to_schedules(seed: int, worlds: int) -> None:
    outcomes = [by_chance(seed + number, schedules=0.3, names=0.2) for number in range(worlds)]
    verify_all_kept(outcomes, least_judged=LEAST_JUDGED)


@pytest.mark.no_cover
def test_schedules_replaced_and_cancelled_through_crashes_and_targets_that_are_away(seed: int) -> None:
    occurrences, outcomes = 0, set[str]()
    for number in range(COURSES):
        world = repeated_again_and_again(seed + number)
        report = world.settle()
        assert report.is_clean, f"seed {seed + number}: {report}"
        occurrences += len(world.repeating.occurred)
        outcomes |= {one.outcome for one in world.repeating.results}
    # In a course the targets may be away most of the time: of 40 courses one had 26, and four together at least 174.
    assert occurrences > 30 * COURSES
    assert {"replaced", "cancelled", "skipped", "dead"} <= outcomes


class EveryStepInTurn:
    """Crashes the process that meets a step at which fewest crashes happened so far: in a take-over, and 20 s later."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.crashes: Counter[tuple[str, str]] = Counter()
        self._next_ms = 0

    def __call__(self, process: Process, step: Step) -> Fate | None:
        now_ms = self.world.clock.monotonic_ms()
        if step.call in QUIET:
            return None
        at = (step.call, step.phase)
        self.crashes[at] += 0
        is_overdue = now_ms > self._next_ms + 20_000
        if now_ms >= self._next_ms and (is_overdue or self.crashes[at] == min(self.crashes.values())):
            self.crashes[at] += 1
            self._next_ms = now_ms + (20_000 if self.crashes.total() % 2 else 0)
            self.world.crash_here(process, back_after_ms=50)
        return None


@pytest.mark.exhaustive
@pytest.mark.no_cover
def test_a_schedule_of_every_second_for_an_hour_through_crashes_at_every_step(seed: int) -> None:
    world = serve(seed, Shape(static=True, partitions=1, processes=2, geometry=SMALL_LEVELS))
    crashes = EveryStepInTurn(world)
    world.disturb = crashes
    id_, stamp_ms = b"00000000-0000-4000-8000-000000000001", world.clock.now_ms()
    schedule = SentRepeating(("", 0), -1, b"key-1", b"tick", stamp_ms, id_, 1_000, target="orders", value=b"a second")
    world.append_schedule(schedule, [(ID, id_), (NAME, b"tick"), (EVERY, b"1s"), (TARGET, b"orders")])
    while world.clock.now_ms() < stamp_ms + HOUR_MS:
        world.run(20_000)
        world.send(1)
    verify_kept(world, "an hour", least_judged=LEAST_JUDGED)
    # The judge knows each due time: those that are missing were passed because the one before was late.
    assert len(world.repeating.occurred) >= 3_000
    assert crashes.crashes.total() > 150
    assert min(crashes.crashes.values()) > 0, crashes.crashes
