"""A bug for each promise, planted by a patch into a copy of the service: the simulation must find it.

Without this, a service that keeps its promises could not be distinguished from a simulation that detects nothing. A bug
counts as found if a world shows a fault of the promise that the bug breaks, and is clean without the bug. The ordinary
suite runs the recorded worlds. If they do not find their bugs any more, because the events in them have changed, run
`python -m tests.simulation.record_planted`.
"""

from contextlib import closing
from pathlib import Path

import pytest

from tests.support.planting import BUGS, PLANTED, WORLDS_EACH, Bug, copy, plant, recorded, visit

RUNS = 5_000
"""The limit of the open search; it ends with the first find."""

each_bug = pytest.mark.parametrize(("name", "bug"), BUGS.items(), ids=BUGS.keys())


def test_every_patch_is_tried() -> None:
    assert {path.stem for path in PLANTED.glob("*.patch")} == BUGS.keys()


def test_worlds_are_recorded_for_every_bug() -> None:
    assert recorded().keys() == BUGS.keys()


@pytest.mark.no_cover
@pytest.mark.parametrize("name", sorted(BUGS))
def test_a_planted_bug_is_found_in_its_worlds(name: str, tmp_path: Path) -> None:
    bug = BUGS[name]
    seeds = recorded()[name]
    assert 1 <= len(set(seeds)) <= WORLDS_EACH
    plant(name, tmp_path)
    blind = {one.seed: one.faults for one in visit(tmp_path, seeds, bug.kinds, bug.course) if not one.finds(bug)}
    assert blind == {}, f"{name} shows as {bug.breaks}; python -m tests.simulation.record_planted {name}"


@pytest.mark.no_cover
def test_these_worlds_are_clean_without_the_bugs(tmp_path: Path) -> None:
    copy(tmp_path)
    alike: dict[tuple[tuple[str, ...], str], set[int]] = {}
    for name, seeds in recorded().items():
        alike.setdefault((BUGS[name].kinds, BUGS[name].course), set()).update(seeds)
    for (kinds, course), of_them in alike.items():
        for one in visit(tmp_path, sorted(of_them), kinds, course):
            assert one.faults == {}, f"seed {one.seed} with {course or kinds or 'all kinds'}"


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
