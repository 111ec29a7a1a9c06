"""Starts a simulated world, and checks at the end of a test that the promises were kept and that enough was checked.

A run in which no order was judged proves nothing. So each check states the least part of the sent messages whose order
must have been judged. This floor is far below the lowest part that several seeds have shown, because each run of
`make test-all` draws new seeds: see the comment at each floor.
"""

from collections.abc import Callable, Sequence
from typing import Any

import pytest

from tarry.core.partition import PartitionState
from tarry.testing.fake import Fate, Step
from tarry.testing.simulation import Process, Report, RunOutcome, Shape, World
from tarry.testing.simulation.scenarios import SERVING_WITHIN_MS, serving


def serve(seed: int, shape: Shape) -> World:
    """Return a world whose partitions are all served."""
    world = World(seed, shape)
    world.start()
    assert world.run_until(lambda: serving(world), SERVING_WITHIN_MS)
    return world


def only(world: World) -> PartitionState:
    """Return the state of the only partition, which the first process serves."""
    [state] = world.processes[0].states.values()
    return state


def topics_that_wait_for_another(process: Process) -> set[str]:
    """Return the targets of which messages were read from the parked log, while it is read for another one."""
    if process.worker is None:
        return set()
    reading = process.worker._parts.parking._reading
    read = {wanted.topic for _, wanted in reading._under_way.values()}
    parked = [state.parked for state in process.states.values()]
    return {topic for one in parked for topic in one.targets if read and topic not in read and one._queues[topic].first}


def never_sum_up(process: Process) -> None:
    """Let a process write no summaries: it needs 10,000 records of the journal for one, and 10 in these worlds."""
    assert process.worker is not None
    process.worker._parts.maintenance._sum_up_after = 10_000


def freeze_in_a_firing(
    world: World, last: Process, load_in_part: Callable[[], None], monkeypatch: pytest.MonkeyPatch
) -> list[bool]:
    """Let a process freeze in its next firing transaction; then the group's coordinator is loaded in part.

    Another process joins. The first one wakes after 20 s, before the brokers abort its transaction.

    Returns:
        Empty until it freezes; from when it wakes on, whether the other one serves then.
    """
    assert last.worker is not None
    firing, fired, woken = last.worker._parts.firing, list[bool](), list[bool]()
    transact = firing._transact

    def note(batches: Any, now_ms: int) -> None:
        fired.append(True)
        transact(batches, now_ms)

    def freeze_once(process: Process, step: Step) -> Fate | None:
        if process is last and fired and not woken and (step.call, step.phase) == ("send_offsets", "after"):
            woken.append(False)
            load_in_part()
            following = world.newcomer("following")
            world.pause_here(process, 20_000, frozen=True)
            woken[0] = bool(following.states)
        return None

    monkeypatch.setattr(firing, "_transact", note)
    world.disturb = freeze_once
    return woken


def verify_kept(world: World, *what: str, least_judged: float) -> None:
    """Wait until all messages that are due have arrived, and check the promises.

    Args:
        world: the world, which is not disturbed any more.
        what: what was done to it, in words.
        least_judged: see the module.

    Raises:
        AssertionError: a promise is broken, or less was judged; the text names seed, shape and `what`.
    """
    report = world.settle()
    outcome = RunOutcome(world.seed, world.shape, what, report, world.trace())
    assert report.is_clean, outcome
    assert judged_of([report]) >= least_judged, outcome


def verify_all_kept(outcomes: Sequence[RunOutcome], *, least_judged: float) -> None:
    """The same for runs that differ in the disturbed step; the judged part is counted over all runs.

    Args:
        outcomes: the outcomes of the runs; at least one.
        least_judged: see the module.

    Raises:
        AssertionError: one of them broke a promise, or less was judged in total.
    """
    for outcome in outcomes:
        assert outcome.report.is_clean, outcome
    judged = judged_of([outcome.report for outcome in outcomes])
    assert judged >= least_judged, f"seed {outcomes[0].seed}: of {len(outcomes)} runs {judged:.1%} was judged"


def judged_of(reports: Sequence[Report]) -> float:
    """Return which part of the sent messages had a promised place in an order."""
    return sum(report.judged for report in reports) / sum(report.sent for report in reports)
