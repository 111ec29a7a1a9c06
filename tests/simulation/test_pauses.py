"""Targets that are paused and resumed in the simulation: nothing is delivered between, under every disturbance."""

import random

import pytest

from tarry.testing.simulation import RunOutcome, Shape, World, at_a_step, by_chance, crash, freeze, lose, steps_of
from tarry.testing.simulation.scenarios import Deed
from tarry.testing.simulation.world import SMALL_LEVELS
from tests.support.courses import paused_again_and_again, paused_for_a_day
from tests.support.worlds import judged_of, serve, verify_all_kept, verify_kept

LEAST_JUDGED = 0.05
"""What is parked when it is due counts as all else; but much is sent while its owner is down."""

STEPS = 6
COURSES = 3
CONFIRMED_WITHIN_MS = 10_000


@pytest.mark.no_cover
@pytest.mark.some_of("deed")
@pytest.mark.parametrize("deed", [crash, freeze, lose], ids=lambda deed: deed.__name__)
def test_a_process_disturbed_at_any_step_serves_with_the_log_of_pauses(seed: int, deed: Deed) -> None:
    shape = Shape(geometry=SMALL_LEVELS, pauses=True)
    indices = random.Random(seed).sample(range(len(steps_of(seed, shape))), STEPS)
    verify_all_kept([at_a_step(seed, shape, index, deed) for index in sorted(indices)], least_judged=LEAST_JUDGED)


@pytest.mark.no_cover
def test_random_worlds_deliver_nothing_to_paused_targets(seed: int, worlds: int) -> None:
    verify_all_kept([by_chance(seed + number, pauses=True) for number in range(worlds)], least_judged=LEAST_JUDGED)


@pytest.mark.no_cover
def test_random_worlds_with_names_deliver_nothing_to_paused_targets(seed: int, worlds: int) -> None:
    outcomes = [by_chance(seed + number, pauses=True, names=0.5) for number in range(worlds)]
    verify_all_kept(outcomes, least_judged=0.0)


@pytest.mark.no_cover
def test_a_target_is_paused_and_resumed_again_and_again(seed: int) -> None:
    reports, confirmed = [], 0
    for number in range(COURSES):
        world = paused_again_and_again(seed + number, while_open=number % 2 == 0)
        confirmed += sum(one.confirmed is not None for one in world.pausing.pauses)
        reports.append(world.settle())
        assert reports[-1].is_clean, f"seed {seed + number}: {reports[-1]}"
    assert confirmed > 5 * COURSES
    assert judged_of(reports) >= LEAST_JUDGED, f"seed {seed}"


def test_paused_for_a_day_without_any_process_and_resumed(seed: int) -> None:
    world = paused_for_a_day(seed)
    [paused] = world.pausing.pauses
    assert paused.confirmed is not None
    waiting = [message for message in world.unseen() if message.target == "bills"]
    assert len(waiting) > 10
    ends = {log: world.broker.end(*log) for log in paused.logs}
    assert ends == paused.confirmed, "nothing was written to the target in a day"
    world.resume("bills")
    verify_kept(world, "paused for a day", least_judged=LEAST_JUDGED)
    assert not world.unseen()


def test_an_owner_that_sleeps_confirms_nothing_and_its_successor_does(seed: int) -> None:
    world = serve(seed, Shape(pauses=True, partitions=1))
    [owner] = [process for process in world.processes if process.states]
    others = [process for process in world.processes if process is not owner]
    world.send(20, longest_ms=3_000)
    owner.paused = True
    paused = world.pause("bills")
    world.run(1_000)
    assert world.pausing.pending == [paused], "its owner has not read it"
    owner.paused = False
    world.pause_here(owner, 30_000, frozen=True)
    assert paused.confirmed is not None
    assert any(process.states for process in others)
    world.run(5_000)
    verify_kept(world, "an owner slept", least_judged=0.0)


@pytest.mark.parametrize("is_resumed", [True, False], ids=["resumed", "its time is over"])
def test_what_waited_arrives_in_order_when_the_pause_ends(seed: int, is_resumed: bool) -> None:
    world = serve(seed, Shape(geometry=SMALL_LEVELS, pauses=True, park_after_ms=300))
    now_ms = world.clock.now_ms()
    paused = world.pause("bills", None if is_resumed else now_ms + 6_000)
    assert world.run_until(lambda: paused.confirmed is not None, CONFIRMED_WITHIN_MS)
    world.send(60, longest_ms=3_000)
    world.run(max(0, now_ms + 5_000 - world.clock.now_ms()))
    assert _delivered_to(world, "bills") == 0
    assert _delivered_to(world, "orders") > 0
    if is_resumed:
        world.resume("bills")
    assert world.run_until(lambda: not world.unseen(), 30_000)
    verify_kept(world, "a pause ended", least_judged=0.3)


def _delivered_to(world: World, topic: str) -> int:
    return sum(len(world.broker.records(topic, number)) for number in range(dict(world.shape.targets)[topic]))


def test_a_world_without_pauses_has_no_log_of_them(seed: int) -> None:
    outcome: RunOutcome = by_chance(seed)
    assert not outcome.shape.pauses
    assert not any("pausing" in line for line in outcome.trace)
