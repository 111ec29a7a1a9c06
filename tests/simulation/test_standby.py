"""What a classic group takes and gives back stands by; what somebody else had meanwhile is taken over anew."""

from dataclasses import replace
from functools import partial

import pytest

from tarry.core.checkpoint import Geometry
from tarry.testing.fake import Fate, Step
from tarry.testing.simulation import SHAPES, Outcome, Process, Shape, World
from tarry.testing.simulation.disturbances import SESSION_MS
from tarry.testing.simulation.scenarios import serving
from tarry.testing.simulation.world import LARGE_LEVELS, NO_LEVELS, SMALL_LEVELS

CLASSIC = {name: shape for name, shape in SHAPES.items() if shape.protocol == "classic"}
SEEDS = 20


def told(world: World, name: str, since: int) -> list[tuple[str, list[int]]]:
    """What a process has said of partitions that it goes on with, or takes over, since an event."""
    return [
        (event, [int(place.rpartition("/")[2]) for place in fields.get("partitions", [])] or [fields["partition"]])
        for handle, event, fields in world.events[since:]
        if handle.startswith(f"{name}-") and event in {"resumed", "taken_over"}
    ]


def busy(seed: int, shape: Shape) -> World:
    """All partitions are served, and messages wait in all of them."""
    world = World(seed, shape)
    world.start()
    assert world.run_until(lambda: serving(world), 30_000)
    world.send(60)
    world.run(1_500)
    return world


@pytest.mark.parametrize("shape", CLASSIC.values(), ids=CLASSIC.keys())
@pytest.mark.parametrize("geometry", [NO_LEVELS, SMALL_LEVELS, LARGE_LEVELS], ids=["none", "small", "large"])
@pytest.mark.parametrize("fixed_delay_ms", [None, 1_500])
def test_what_is_given_back_goes_on_where_it_stood(
    seed: int, shape: Shape, geometry: Geometry, fixed_delay_ms: int | None
) -> None:
    shape = replace(shape, processes=1, partitions=3, geometry=geometry, fixed_delay_ms=fixed_delay_ms)
    world = busy(seed, shape)
    since = len(world.events)
    second = world.newcomer("p1")
    world.send(30)
    assert world.run_until(lambda: serving(world) and bool(second.states), 30_000)
    [(event, kept)] = told(world, "p0", since)
    assert event == "resumed"
    assert {partition for _, partition in world.processes[0].states} == set(kept)
    world.send(30)
    world.run(1_000)
    since = len(world.events)
    second.stop()
    assert world.run_until(lambda: serving(world), 30_000)
    events = told(world, "p0", since)
    assert ("resumed", kept) in events, "it had these all the time"
    assert sorted(place for event, [place, *_] in events if event == "taken_over") == sorted({0, 1, 2} - set(kept))
    report = world.settle()
    assert report.is_clean, Outcome(seed, shape, ["came and went"], report, world.trace())
    assert report.judged > 0


class FreezeBehindRelease:
    """Stops the first process as soon as it has released what it had, until others have had that for long."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._since = len(world.events)
        self.woke: int | None = None
        """How many events there were then; None before it is stopped."""

    def __call__(self, process: Process, _step: Step) -> Fate | None:
        if self.woke is None and process.name == "p0" and self._has_released():
            self.woke = 0
            self._world.send(30, longest_ms=1_000)
            self._world.pause_here(process, 6 * SESSION_MS, frozen=True)
            self.woke = len(self._world.events)
        return None

    def _has_released(self) -> bool:
        return ("p0-1", "revoked") in {(handle, event) for handle, event, _ in self._world.events[self._since :]}


def test_what_somebody_else_had_meanwhile_is_taken_over_anew(seed: int) -> None:
    for one in range(seed, seed + SEEDS):
        world = busy(one, Shape(processes=1, partitions=3))
        world.disturb = freeze = FreezeBehindRelease(world)
        newcomers = [world.newcomer("p1"), world.newcomer("p2")]
        world.run(8 * SESSION_MS)
        assert freeze.woke is not None, "it never released"
        for newcomer in newcomers:
            newcomer.stop()
        assert world.run_until(partial(serving, world), 60_000)
        [(event, _), *_] = told(world, "p0", freeze.woke)
        assert event == "taken_over"
        report = world.settle()
        assert report.is_clean, Outcome(one, world.shape, ["frozen when it had released"], report, world.trace())
        assert report.judged > 0
