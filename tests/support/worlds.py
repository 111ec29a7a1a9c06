"""A simulated world that is served, and the end of each test in one: the promises are kept, and it could be seen.

A promise is not kept by a run that judged nothing. So each end says how much of the order is to have been judged at
least, as a part of what was sent. Such a floor is far below the least that several seeds have shown, for each run of
`make test-all` has new ones: see the comment at each.
"""

from collections.abc import Sequence

from tarry.testing.simulation import Report, RunOutcome, Shape, World
from tarry.testing.simulation.scenarios import SERVING_WITHIN_MS, serving


def serve(seed: int, shape: Shape) -> World:
    """A world of which all partitions are served."""
    world = World(seed, shape)
    world.start()
    assert world.run_until(lambda: serving(world), SERVING_WITHIN_MS)
    return world


def verify_kept(world: World, *what: str, least_judged: float) -> None:
    """Let all that is due arrive, and judge.

    Args:
        world: is disturbed no more.
        what: was done to it, in words.
        least_judged: see the module.

    Raises:
        AssertionError: a promise is broken, or less was judged; the text names seed, shape and what was done.
    """
    report = world.settle()
    outcome = RunOutcome(world.seed, world.shape, what, report, world.trace())
    assert report.is_clean, outcome
    assert judged_of([report]) >= least_judged, outcome


def verify_all_kept(outcomes: Sequence[RunOutcome], *, least_judged: float) -> None:
    """The same of runs that differ in the step that was disturbed: what is judged is counted over all of them.

    Args:
        outcomes: of the runs; at least one.
        least_judged: see the module.

    Raises:
        AssertionError: in one of them a promise is broken, or less was judged in all.
    """
    for outcome in outcomes:
        assert outcome.report.is_clean, outcome
    judged = judged_of([outcome.report for outcome in outcomes])
    assert judged >= least_judged, f"seed {outcomes[0].seed}: of {len(outcomes)} runs {judged:.1%} was judged"


def judged_of(reports: Sequence[Report]) -> float:
    """Which part of what was sent had a place in an order."""
    return sum(report.judged for report in reports) / sum(report.sent for report in reports)
