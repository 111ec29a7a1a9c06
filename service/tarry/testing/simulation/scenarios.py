"""Whole runs: some with a disturbance at a given step of a process, and one at random. A seed determines each run."""

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Final

from tarry.core.wheel.overflow import USUAL, Upkeep
from tarry.testing.fake import Fate, Step
from tarry.testing.judge import Report
from tarry.testing.simulation.disturbances import SESSION_MS, At, Chance, Recorder
from tarry.testing.simulation.process import Process
from tarry.testing.simulation.world import LARGE_LEVELS, NO_LEVELS, SMALL_LEVELS, Shape, World

SHAPES: Final = {
    "classic-static": Shape(static=True),
    "classic-dynamic": Shape(),
    "consumer-static": Shape(protocol="consumer", static=True),
    "consumer-dynamic": Shape(protocol="consumer"),
}
SERVING_WITHIN_MS: Final = 30_000
ALL_KINDS: Final = frozenset(
    {
        "crash",
        "nap",
        "freeze",
        "lose",
        "stop",
        "twin",
        "ghost",
        "jump",
        "away",
        "coordinator",
        "expire",
        "undelete",
        "hide",
        "narrow",
        "throttle",
        "leader",
        "foreign",
        "anew",
        "behind",
    }
)
CLOCKS: Final = frozenset({"jump", "behind"})
"""The kinds that change a clock."""
SHARE_WITH_UPKEEP: Final = 1 / 3
"""The share of worlds with levels in which the levels' logs are looked after often."""
LATE_SHARE: Final = 0.1
"""How often a message that is due late is sent with others in such a world."""
LATE_MS: Final = (7_500, 15_000)
"""How late: much later than the others. So a few messages wait at the beginning of a log, and are filed again."""
FAR_IN_MS: Final = 70_000
"""The length of a long run, in which copies of checkpoints are written and journals are trimmed."""


@dataclass(frozen=True, slots=True)
class RunOutcome:
    """The outcome of a run.

    Attributes:
        seed: the seed, which repeats the run.
        shape: the shape of its world.
        disturbances: the disturbances, as text.
        report: the faults.
        trace: the events of the processes, in order. Equal runs have equal traces.
    """

    seed: int
    shape: Shape
    disturbances: Sequence[str]
    report: Report
    trace: Sequence[str]

    def __str__(self) -> str:
        return "\n".join(
            [f"seed {self.seed}, {self.shape}", *(f"  {one}" for one in self.disturbances), f"{self.report}"]
        )


Deed = Callable[[World, Process], Fate | None]
"""A disturbance of a process at a step."""


def crash(world: World, process: Process) -> None:
    """Kill the process, and start it again soon."""
    world.crash_here(process)


def crash_for_good(world: World, process: Process) -> None:
    """Kill the process, and do not start it again before the end of the run."""
    world.crash_here(process, back_after_ms=None)


def freeze(world: World, process: Process) -> None:
    """Stop the process until its session and its transactions have timed out, then continue it: it is a zombie."""
    world.pause_here(process, 6 * SESSION_MS, frozen=True)


def nap(world: World, process: Process) -> None:
    """Pause the process for a second, while its heartbeats continue."""
    world.pause_here(process, 1_000, frozen=False)


def lose(world: World, _process: Process) -> Fate:
    """Lose the cluster's answer."""
    return world.lose_answer()


Play = Callable[[World], None]
"""What happens in a run until it settles; without disturbances, a function of the world's seed."""


def play(world: World) -> None:
    """Start, send, serve, send again. It has a take-over, transactions, copies and a release."""
    world.start()
    world.run_until(lambda: serving(world), SERVING_WITHIN_MS)
    world.send(25, longest_ms=1_500)
    world.run(700)
    world.send(15, longest_ms=1_500)
    world.run(2_000)
    world.processes[0].stop()


def steps_of(seed: int, shape: Shape, name: str = "p0") -> list[Step]:
    """Return the steps of a process in the run that `at_a_step` disturbs."""
    recorder = Recorder(name)
    play(World(seed, shape, recorder))
    return recorder.steps


def at_a_step(
    seed: int,
    shape: Shape,
    index: int,
    deed: Deed,
    then: tuple[int, Deed] | None = None,
    *,
    played: Play = play,
    name: str = "p0",
) -> RunOutcome:
    """Run a scenario with a disturbance of one process at one of its steps.

    Args:
        seed: the seed of the run.
        shape: the shape of the world.
        index: the index of the step of the process, in the list of `steps_of`.
        deed: the disturbance.
        then: a second disturbance, and its step. Steps are counted from 0 for the first process that has a step after
            the first disturbance.
        played: the scenario.
        name: the process.
    """
    world = World(seed, shape)
    first = At(name, index, lambda process: deed(world, process))
    seconds: list[At] = []

    def disturb(process: Process, step: Step) -> Fate | None:
        if first.met is None:
            return first(process, step)
        if then is None:
            return None
        if not seconds:
            seconds.append(At(process.name, then[0], lambda one: then[1](world, one)))
        return seconds[0](process, step)

    world.disturb = disturb
    played(world)
    met = [f"{deed.__name__} at step {index}: {first.met}"]
    if then is not None and seconds:
        met.append(f"{then[1].__name__} at step {then[0]} after it: {seconds[0].met}")
    return RunOutcome(seed, shape, met, world.settle(), world.trace())


def by_chance(
    seed: int,
    *,
    kinds: frozenset[str] = ALL_KINDS,
    names: float = 0.0,
    schedules: float = 0.0,
    expiring: float = 0.0,
    pauses: bool = False,
) -> RunOutcome:
    """Run a random scenario. The seed determines the world, the load, and up to eight disturbances.

    Args:
        seed: the seed.
        kinds: the kinds of disturbances.
        names: the share of messages with a name, if the intake has no fixed delay.
        schedules: the share of messages that are schedules, if the intake has no fixed delay.
        expiring: the share of messages that expire, in the same case; half as many have a window.
        pauses: whether targets are paused and resumed at random, beside the disturbances.
    """
    choose = random.Random(seed)
    shape = _shape_by_chance(choose, seed)
    if shape.fixed_delay_ms is None:
        shape = replace(shape, names=names, schedules=schedules, expiring=expiring, windows=expiring / 2)
    if pauses and not shape.journal_fetch_ms:
        # As with targets that are away, below: no order is promised if clocks step, and take-overs must not be long.
        shape, kinds = replace(shape, pauses=True), kinds - CLOCKS
    late = random.Random(f"late {seed}")  # of its own, so that recorded seeds keep their worlds
    is_long, is_fixed = shape.journal_fetch_ms > 0, shape.fixed_delay_ms is not None
    world = World(seed, shape)
    if not kinds.isdisjoint(CLOCKS) and "away" in kinds:
        # With both kinds, no order can be promised: a parked message was due by another clock.
        kinds -= choose.choice((CLOCKS, {"away", "hide"}))
    if is_long:
        # A parked message holds the low watermark back, so each take-over reads a long journal from there. Twins would
        # take the partition from each other before one of them has read it.
        kinds -= {"jump", "away", "twin"}
        world.take_away("bills")
    chance = Chance(world, choose.randint(1, 8), kinds)
    world.disturb = chance
    world.start()
    ends_ms = world.clock.monotonic_ms() + choose.choice((8_000, 8_000, 8_000, FAR_IN_MS))
    while world.clock.monotonic_ms() < ends_ms:
        if choose.random() < 0.05:
            world.send(choose.randint(1, 6))
            if shape.upkeep is not USUAL and not is_fixed and late.random() < LATE_SHARE:
                world.send_due(world.clock.now_ms() + late.randint(*LATE_MS))
        if is_fixed and choose.random() < 0.004:
            world.leader_behind_ms = choose.choice((0, 30, 900, 3_000))
        if shape.pauses and choose.random() < 0.01:
            chance.decide()
        world.round()
        chance.round()
    return RunOutcome(seed, shape, [*chance.done, *chance.decided], world.settle(), world.trace())


def serving(world: World) -> bool:
    """Return whether a running process serves every partition."""
    served = {place for process in world.processes for place, state in process.states.items() if not state.is_gated}
    return len(served) == world.shape.partitions


def _shape_by_chance(choose: random.Random, seed: int) -> Shape:
    """Draw a shape. Newer properties use the seed instead of a draw, so that recorded seeds keep their worlds."""
    marker_lag_ms = choose.choice(((0, 0), (0, 30), (0, 900)))
    shape = replace(
        choose.choice(list(SHAPES.values())),
        partitions=choose.randint(1, 3),
        processes=choose.randint(1, 3),
        marker_lag_ms=marker_lag_ms,
        latency_ms=choose.choice(((0, 0), (0, 3))),
        memory_budget_bytes=choose.choice((1 << 30, 1 << 30, 60_000)),
        cancels=choose.choice((0.0, 0.2)),
        large=choose.choice((0.0, 0.0, 0.5)),
        geometry=choose.choice((NO_LEVELS, SMALL_LEVELS if marker_lag_ms[1] < 500 else LARGE_LEVELS)),
        # With ten messages in each transaction of nearly a second, the backlog could never be worked off in time.
        most=choose.choice((10, 50, 1_000) if marker_lag_ms[1] < 500 else (50, 1_000)),
    )
    if seed % 4 == 0:
        # A take-over in the middle of a run takes longer than the maximum poll interval. All processes share one
        # thread, so each fetch delays all of them: three fetches must take less time than the interval.
        shape = replace(shape, journal_fetch_ms=1_400, max_poll_ms=6_000)
    if seed % 3 == 0:
        shape = replace(shape, cancels=0.3, again=0.3)
    if seed % 7 == 0:
        shape = replace(shape, tick_ms=10)
    if seed % 11 == 0:
        shape = replace(shape, aborts=0.05)
    if seed % 5 == 0:
        # These delays use no level, one, two or three levels. With a fixed delay, messages cannot be cancelled.
        delay_ms = choose.choice((300, 1_500, 3_000, 6_000))
        # Each message may be filed three times: with ten messages per transaction, the backlog would only grow.
        shape = replace(shape, fixed_delay_ms=delay_ms, cancels=0.0, again=0.0, most=max(50, shape.most))
    if seed % 3 != 1:
        # Most targets that are away are so for less than 30 s.
        shape = replace(shape, park_after_ms=300)
    if seed % 13 == 0 and marker_lag_ms[1] < 500 and shape.fixed_delay_ms is None and not shape.journal_fetch_ms:
        # So few that some messages for higher levels are passed over, and read again.
        shape = replace(shape, geometry=SMALL_LEVELS, most_to_file=1 + seed % 5)
    others = random.Random(f"upkeep {seed}")
    if shape.geometry.levels and others.random() < SHARE_WITH_UPKEEP:
        # So often that messages are filed again, and whole indexes written, within a run.
        upkeep = Upkeep(others.choice((8, 20)), others.choice((1, 4, 20)), others.choice((5, 20)))
        shape = replace(shape, upkeep=upkeep)
    return replace(shape, is_fine=True)
