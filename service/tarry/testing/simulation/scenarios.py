"""Whole runs: one that meets a given step of a process, and one by chance. Each is a function of its seed alone."""

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Final

from tarry.testing.fake import Fate, Step
from tarry.testing.simulation.disturbances import SESSION_MS, At, Chance, Recorder
from tarry.testing.simulation.oracle import Report
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
"""Those that change a clock."""
FAR_IN_MS: Final = 70_000
"""By then copies of checkpoints have been written, and journals trimmed."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a run ended.

    Attributes:
        seed: which repeats it.
        shape: of its world.
        disturbances: what was done, in words.
        report: what was wrong.
        trace: what the processes had to say, in order: equal runs have equal ones.
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
"""What is done at a step."""


def crash(world: World, process: Process) -> None:
    """End the process; it is back soon."""
    world.crash_here(process)


def crash_for_good(world: World, process: Process) -> None:
    """End the process, and do not start it again before all settles."""
    world.crash_here(process, back_after_ms=None)


def freeze(world: World, process: Process) -> None:
    """SIGSTOP until its session and its transactions are over, and SIGCONT: a zombie wakes."""
    world.pause_here(process, 6 * SESSION_MS, frozen=True)


def nap(world: World, process: Process) -> None:
    """Be slow for a second, heartbeats going on."""
    world.pause_here(process, 1_000, frozen=False)


def lose(world: World, _process: Process) -> Fate:
    """The cluster's answer never arrives."""
    return world.lose_answer()


def steps_of(seed: int, shape: Shape, name: str = "p0") -> list[Step]:
    """The steps of a process in the run that `at_a_step` disturbs."""
    recorder = Recorder(name)
    _play(World(seed, shape, recorder))
    return recorder.steps


def at_a_step(seed: int, shape: Shape, index: int, deed: Deed, then: tuple[int, Deed] | None = None) -> Outcome:
    """A run in which one process is disturbed at one of its steps.

    Args:
        seed: of the run.
        shape: of the world.
        index: of the step of the first process, as `steps_of` has them.
        deed: what is done there.
        then: at which step after that, of whichever process, what is done too.
    """
    world = World(seed, shape)
    first = At("p0", index, lambda process: deed(world, process))
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
    _play(world)
    met = [f"{deed.__name__} at step {index}: {first.met}"]
    if then is not None and seconds:
        met.append(f"{then[1].__name__} at step {then[0]} after it: {seconds[0].met}")
    return Outcome(seed, shape, met, world.settle(), world.trace())


def by_chance(seed: int, *, kinds: frozenset[str] = ALL_KINDS) -> Outcome:
    """A run in which everything is chosen by its seed: the world, the load, and up to eight disturbances."""
    choose = random.Random(seed)
    shape = _shape_by_chance(choose, seed)
    is_long, is_fixed = shape.journal_fetch_ms > 0, shape.fixed_delay_ms is not None
    world = World(seed, shape)
    if not kinds.isdisjoint(CLOCKS) and "away" in kinds:
        # With both there is no one order that could be promised: what is parked was due by another clock.
        kinds -= choose.choice((CLOCKS, {"away", "hide"}))
    if is_long:
        # What is parked keeps the low watermark, and so the journal is read from there. Twins take it from each other
        # before it is read.
        kinds -= {"jump", "away", "twin"}
        world.take_away("bills")
    chance = Chance(world, choose.randint(1, 8), kinds)
    world.disturb = chance
    world.start()
    ends_ms = world.clock.monotonic_ms() + choose.choice((8_000, 8_000, 8_000, FAR_IN_MS))
    while world.clock.monotonic_ms() < ends_ms:
        if choose.random() < 0.05:
            world.send(choose.randint(1, 6))
        if is_fixed and choose.random() < 0.004:
            world.leader_behind_ms = choose.choice((0, 30, 900, 3_000))
        world.round()
        chance.round()
    return Outcome(seed, shape, chance.done, world.settle(), world.trace())


def serving(world: World) -> bool:
    """Whether every partition is served by a process that runs."""
    served = {place for process in world.processes for place, state in process.states.items() if not state.replaying}
    return len(served) == world.shape.partitions


def _shape_by_chance(choose: random.Random, seed: int) -> Shape:
    """What has no draw of its own goes by the seed, so that worlds which were recorded stay as they are."""
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
        # Ten messages in nearly a second, or a bucket, would be a backlog that has no end in time, by nobody's fault.
        most=choose.choice((10, 50, 1_000) if marker_lag_ms[1] < 500 else (50, 1_000)),
    )
    if seed % 4 == 0:
        # A take-over in the middle of a run is longer than the group waits for a member that does not poll.
        # Each fetch holds up all processes, which share one thread: three of them must take less than that.
        shape = replace(shape, journal_fetch_ms=1_400, max_poll_ms=6_000)
    if seed % 3 == 0:
        shape = replace(shape, cancels=0.3, again=0.3)
    if seed % 7 == 0:
        shape = replace(shape, tick_ms=10)
    if seed % 11 == 0:
        shape = replace(shape, aborts=0.05)
    if seed % 5 == 0:
        # Through none of the levels, one, two or three; and there nothing can be cancelled.
        delay_ms = choose.choice((300, 1_500, 3_000, 6_000))
        # Each message may be filed three times: with ten at a time there would be a backlog that has no end.
        shape = replace(shape, fixed_delay_ms=delay_ms, cancels=0.0, again=0.0, most=max(50, shape.most))
    return shape


def _play(world: World) -> None:
    """Start, send, serve, and send again: take-over, transactions, copies and a release."""
    world.start()
    world.run_until(lambda: serving(world), SERVING_WITHIN_MS)
    world.send(25, longest_ms=1_500)
    world.run(700)
    world.send(15, longest_ms=1_500)
    world.run(2_000)
    world.processes[0].stop()
