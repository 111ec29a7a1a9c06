"""A bug for each promise, planted by a patch into a copy of the service: the simulation must find it.

Without this, a service that keeps its promises could not be distinguished from a simulation that detects nothing. A bug
counts as found if a world shows a fault of the promise that the bug breaks, and is clean without the bug. The ordinary
suite runs a recorded world of each bug, and those of twenty bugs also without it. If they do not find their bugs any
more, because the events in them have changed, run `python -m tests.simulation.record_planted`.
"""

from contextlib import closing
from pathlib import Path

import pytest

from tests.support.planting import BUGS, PLANTED, WORLDS_EACH, Bug, plant, recorded, visit
from tests.support.visiting import faults_of, world_of

RUNS = 5_000
"""The limit of the open search; it ends with the first find."""

each_bug = pytest.mark.parametrize(("name", "bug"), BUGS.items(), ids=BUGS.keys())


def test_every_patch_is_tried() -> None:
    assert {path.stem for path in PLANTED.glob("*.patch")} == BUGS.keys()


def test_worlds_are_recorded_for_every_bug() -> None:
    assert {name: len(set(seeds)) for name, seeds in recorded().items()} == dict.fromkeys(BUGS, WORLDS_EACH)


each_world = pytest.mark.parametrize("world", range(WORLDS_EACH))


@pytest.mark.no_cover
@pytest.mark.some_of("world")
@each_world
@pytest.mark.parametrize("name", sorted(BUGS))
def test_a_planted_bug_is_found_in_its_world(name: str, world: int, tmp_path: Path) -> None:
    bug = BUGS[name]
    plant(name, tmp_path)
    (found,) = visit(tmp_path, [recorded()[name][world]], bug.kinds, bug.course)
    assert found.finds(bug), f"{name} shows as {bug.breaks}; python -m tests.simulation.record_planted {name}"


# For each seed twenty bugs: a world that is not clean any more shows a fault of the service, as others do.
@pytest.mark.no_cover
@pytest.mark.some_of("world")
@pytest.mark.some_of("name", 20)
@each_world
@pytest.mark.parametrize("name", sorted(BUGS))
def test_the_world_of_a_planted_bug_is_clean_without_it(name: str, world: int) -> None:
    bug = BUGS[name]
    # The service of this process has no bug, and the start of another one would take longer than the world.
    assert faults_of(world_of(bug.kinds, bug.course), recorded()[name][world]) == {}


@pytest.mark.exhaustive
@each_bug
def test_a_planted_bug_is_found_in_worlds_by_chance(name: str, bug: Bug, tmp_path: Path, seed: int) -> None:
    plant(name, tmp_path)
    first = seed - seed % bug.step
    with closing(visit(tmp_path, range(first, first + RUNS * bug.step, bug.step), bug.kinds, bug.course)) as visits:
        assert any(one.finds(bug) for one in visits), f"{name} does not show as {bug.breaks} from seed {first}"


def test_worlds_are_tried_by_the_copy_alone(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError, match="ended with 1"):
        list(visit(tmp_path, [1]))
