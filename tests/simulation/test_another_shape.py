"""The overflow wheel of an intake gets another shape, because it was configured anew while nothing waited in it."""

from collections.abc import Callable
from dataclasses import replace

import pytest

from tarry.core.progress.checkpoint import Geometry
from tarry.service.worker.maintenance import COPY_EVERY_MS
from tarry.testing.simulation import Shape, World
from tarry.testing.simulation.scenarios import serving
from tarry.testing.simulation.world import LARGE_LEVELS, NO_LEVELS, SMALL_LEVELS
from tests.support.worlds import freeze_in_a_firing, never_sum_up, serve, verify_kept

WITHIN_MS = 30_000

LEAST_JUDGED = 0.3
"""In three seeds the lowest part was 0.64."""


def start_anew(world: World, geometry: Geometry, *, killed: bool) -> Callable[[], None]:
    """End all processes when all is delivered, and start them with another shape of the wheel.

    Returns:
        A call that lets the group's coordinator know only the offsets from before the start.
    """
    assert world.run_until(lambda: not world.unseen(), 2 * WITHIN_MS)
    world.run(COPY_EVERY_MS + 20_000)
    world.touch(WITHIN_MS)
    for process in world.processes:
        if killed:
            process.crash()
        else:
            process.stop()
    load_in_part = world.broker.load_in_part(world.group)
    world.shape = replace(world.shape, geometry=geometry)
    world._prepare()
    role = world._role()
    for process in world.processes:
        process.role = role
        process.start()
    assert world.run_until(lambda: serving(world), WITHIN_MS)
    return load_in_part


@pytest.mark.some_of("killed")
@pytest.mark.parametrize("killed", [False, True], ids=["ended", "killed"])
@pytest.mark.parametrize(
    "shapes",
    [(NO_LEVELS, SMALL_LEVELS, NO_LEVELS, LARGE_LEVELS), (SMALL_LEVELS, LARGE_LEVELS, SMALL_LEVELS)],
    ids=["levels come and go", "other levels"],
)
def test_an_intake_is_served_with_another_shape(seed: int, shapes: tuple[Geometry, ...], killed: bool) -> None:
    world = serve(seed, Shape(geometry=shapes[0], poison=0.0))
    for geometry in shapes[1:]:
        world.send(30)
        world.run(2_000)
        start_anew(world, geometry, killed=killed)
    world.send(30)
    verify_kept(world, "other shapes", least_judged=LEAST_JUDGED)


@pytest.mark.some_of("many")
@pytest.mark.parametrize("many", [20, 0], ids=["progress", "idle"])
@pytest.mark.parametrize(
    ("before", "after"), [(NO_LEVELS, SMALL_LEVELS), (SMALL_LEVELS, LARGE_LEVELS)], ids=["first levels", "other levels"]
)
def test_a_coordinator_that_knows_only_the_former_shape(
    seed: int, before: Geometry, after: Geometry, many: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The present owner may be frozen, and is fenced; what it has delivered from the levels is not delivered again."""
    world = serve(seed, Shape(geometry=before, partitions=1, processes=1, poison=0.0))
    never_sum_up(world.processes[0])
    world.send(20)
    world.run(2_000)
    load_in_part = start_anew(world, after, killed=False)
    [last] = world.processes
    never_sum_up(last)
    now_ms = world.clock.now_ms()
    for number in range(many):
        world.send_due(now_ms + COPY_EVERY_MS + 2_000 * number)
    world.run(COPY_EVERY_MS + 15_000)
    woken = freeze_in_a_firing(world, last, load_in_part, monkeypatch)
    world.send_due(world.clock.now_ms() + 100)
    world.touch(2 * WITHIN_MS)
    world.run(2 * WITHIN_MS)
    assert woken == [True], "the next owner serves when the last one wakes"
    assert "checkpoint_from_copy" in [event for _, event, _ in world.events]
    verify_kept(world, "an older checkpoint of another shape", least_judged=LEAST_JUDGED)
