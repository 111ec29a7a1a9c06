"""A process disturbed at each step of filing, closing, draining, filing again, parking, and trimming.

The suite lets it crash after the first step of every kind, and disturbs it in other ways after some of them. It also
disturbs at some random steps; `make test-all` at every step.
"""

import random
from collections.abc import Callable
from itertools import repeat

import pytest

from tarry.testing.simulation import SHAPES, Shape, World, at_a_step, crash, crash_for_good, freeze, lose, nap
from tarry.testing.simulation.scenarios import Deed
from tests.support.through_all_logs import FLOORS, Passage, deep, owner_of, through_all_logs
from tests.support.worlds import verify_all_kept

SOME = 6
"""After how many steps of different kinds a process is disturbed in other ways than by a crash."""

BY_CHANCE = 3

LEAST_JUDGED = 0.1
"""The floor over all runs of a test; for one deed and seed after the other, the lowest part was 0.57."""

Pick = Callable[[int, Shape, int | None], tuple[str, list[int]]]


@pytest.fixture(params=[pytest.param(False, id="some"), pytest.param(True, id="all", marks=pytest.mark.exhaustive)])
def pick(request: pytest.FixtureRequest) -> Pick:
    """Return the process to disturb, and the indices of the steps: of `most` kinds, or of all of them."""

    def choose(seed: int, shape: Shape, most: int | None) -> tuple[str, list[int]]:
        name, world = owner_of(seed, shape), World(seed, shape)
        world.disturb = passage = Passage(world, name)
        through_all_logs(world)
        few = {deed: passage.counts[deed] for deed, least in FLOORS.items() if passage.counts[deed] < least}
        assert not few, f"a run in which the owner does not do all of this shows nothing: {few}"
        steps = range(len(passage.steps))
        if request.param:
            return name, list(steps)
        # A process changes nothing between two steps. So what happens before a step mostly has the same effect as what
        # happens after the previous one.
        firsts = sorted({index for kind, index in passage.firsts.items() if kind.phase == "after"})
        draw = random.Random(seed)
        some = firsts if most is None else draw.sample(firsts, most)
        return name, sorted({*some, *draw.sample(steps, BY_CHANCE)})

    return choose


@pytest.fixture
def shape(seed: int) -> Shape:
    """A shape, chosen by the seed: each step of one run takes minutes, so `make test-all` does not try all shapes."""
    return deep(random.Random(seed).choice(list(SHAPES.values())))


def verify_each(seed: int, shape: Shape, name: str, indices: list[int], deed: Deed, *, twice: bool = False) -> None:
    choose = random.Random(seed)
    thens = ((choose.randrange(40), deed) for _ in indices) if twice else repeat(None)
    outcomes = [
        at_a_step(seed, shape, index, deed, then, played=through_all_logs, name=name)
        for index, then in zip(indices, thens, strict=False)
    ]
    verify_all_kept(outcomes, least_judged=LEAST_JUDGED)


@pytest.mark.no_cover
def test_a_process_that_crashes_at_any_step_in_any_log_breaks_no_promise(seed: int, shape: Shape, pick: Pick) -> None:
    verify_each(seed, shape, *pick(seed, shape, None), crash)


@pytest.mark.no_cover
@pytest.mark.some_of("deed")
@pytest.mark.parametrize("deed", [crash_for_good, freeze, nap, lose], ids=lambda deed: deed.__name__)
def test_a_process_disturbed_at_any_step_in_any_log_breaks_no_promise(
    seed: int, shape: Shape, deed: Deed, pick: Pick
) -> None:
    verify_each(seed, shape, *pick(seed, shape, SOME), deed)


@pytest.mark.no_cover
def test_a_second_crash_while_the_first_is_recovered_breaks_no_promise(seed: int, shape: Shape, pick: Pick) -> None:
    verify_each(seed, shape, *pick(seed, shape, SOME), crash, twice=True)
