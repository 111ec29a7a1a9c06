"""A bug for each promise, planted by a patch into a copy of the service: the simulation must find it.

Without this nobody could tell a service that keeps its promises from a simulation that sees nothing. A find is a fault
of the very promise that the bug breaks, in a world that is clean without the bug. The ordinary suite goes to the worlds
that are recorded; where they do not find their bugs any more, because what happens in them has changed:
`python -m tests.simulation.record_planted`.
"""

from contextlib import closing
from pathlib import Path

import pytest

from tests.support.planting import BUGS, PLANTED, WORLDS_EACH, Bug, copy, plant, recorded, visit

RUNS = 5_000
"""Of the open hunt, at most; it ends with the first find."""

HUNTED_ALONE = {"journal-to-its-stable-end"}
"""So rare that no world of theirs is recorded."""

each_bug = pytest.mark.parametrize(("name", "bug"), BUGS.items(), ids=BUGS.keys())


def test_every_patch_is_tried() -> None:
    assert {path.stem for path in PLANTED.glob("*.patch")} == BUGS.keys()


def test_worlds_are_recorded_for_every_bug() -> None:
    assert recorded().keys() == BUGS.keys() - HUNTED_ALONE


@pytest.mark.no_cover
@pytest.mark.parametrize("name", sorted(BUGS.keys() - HUNTED_ALONE))
def test_a_planted_bug_is_found_in_its_worlds(name: str, tmp_path: Path) -> None:
    bug = BUGS[name]
    seeds = recorded()[name]
    assert 1 <= len(set(seeds)) <= WORLDS_EACH
    plant(name, tmp_path)
    blind = {one.seed: one.faults for one in visit(tmp_path, seeds, bug.kinds) if not one.finds(bug)}
    assert blind == {}, f"{name} shows as {bug.breaks}; python -m tests.simulation.record_planted {name}"


@pytest.mark.no_cover
def test_these_worlds_are_clean_without_the_bugs(tmp_path: Path) -> None:
    copy(tmp_path)
    seeds_by_kinds: dict[tuple[str, ...], set[int]] = {}
    for name, seeds in recorded().items():
        seeds_by_kinds.setdefault(BUGS[name].kinds, set()).update(seeds)
    for kinds, of_kinds in seeds_by_kinds.items():
        for one in visit(tmp_path, sorted(of_kinds), kinds):
            assert one.faults == {}, f"seed {one.seed} with {kinds or 'all kinds'}"


@pytest.mark.exhaustive
@each_bug
def test_a_planted_bug_is_found_in_worlds_by_chance(name: str, bug: Bug, tmp_path: Path, seed: int) -> None:
    plant(name, tmp_path)
    first = seed - seed % bug.step
    with closing(visit(tmp_path, range(first, first + RUNS * bug.step, bug.step), bug.kinds)) as visits:
        assert any(one.finds(bug) for one in visits), f"{name} does not show as {bug.breaks} from seed {first}"


def test_worlds_are_tried_by_the_copy_alone(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError, match="ended with 1"):
        list(visit(tmp_path, [1]))
