"""The overflow wheel of an intake gets another shape, because it was configured anew while nothing waited in it."""

from dataclasses import replace
from itertools import pairwise

import pytest

from tarry.core.progress.checkpoint import Geometry
from tarry.service.worker.maintenance import COPY_EVERY_MS
from tarry.testing.simulation import Shape, World
from tarry.testing.simulation.scenarios import serving
from tarry.testing.simulation.world import LARGE_LEVELS, NO_LEVELS, SMALL_LEVELS
from tests.support.worlds import serve, verify_kept

WITHIN_MS = 30_000

LEAST_JUDGED = 0.3
"""In three seeds the lowest part was 0.64."""


def start_anew(world: World, geometry: Geometry, *, killed: bool) -> None:
    """End all processes when all is delivered, and start them with another shape of the wheel."""
    assert world.run_until(lambda: not world.unseen(), 2 * WITHIN_MS)
    world.run(COPY_EVERY_MS + 20_000)
    world.touch(WITHIN_MS)
    for process in world.processes:
        if killed:
            process.crash()
        else:
            process.stop()
    world.shape = replace(world.shape, geometry=geometry)
    world._prepare()
    role = world._role()
    for process in world.processes:
        process.role = role
        process.start()
    assert world.run_until(lambda: serving(world), WITHIN_MS)


@pytest.mark.parametrize("killed", [False, True], ids=["ended", "killed"])
@pytest.mark.parametrize(
    "shapes",
    [(NO_LEVELS, SMALL_LEVELS, NO_LEVELS, LARGE_LEVELS), (SMALL_LEVELS, LARGE_LEVELS, SMALL_LEVELS)],
    ids=["levels come and go", "other levels"],
)
def test_an_intake_is_served_with_another_shape(seed: int, shapes: tuple[Geometry, ...], killed: bool) -> None:
    world = serve(seed, Shape(geometry=shapes[0], poison=0.0))
    for before, after in pairwise(shapes):
        world.send(30)
        world.run(2_000)
        start_anew(world, after, killed=killed)
        assert before != after
    world.send(30)
    verify_kept(world, "other shapes", least_judged=LEAST_JUDGED)
