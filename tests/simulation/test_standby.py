"""Partitions that a classic group revokes and gives back stand by; those that another process owned are taken over."""

import uuid
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from functools import partial

import pytest

from tarry.core.progress.checkpoint import Geometry
from tarry.headers import DELAY_MS, ID, TARGET
from tarry.kafka.offsets import Offsets
from tarry.kafka.settings import Cluster
from tarry.testing.fake import Fate, Step
from tarry.testing.simulation import SHAPES, Process, Shape, World
from tarry.testing.simulation.disturbances import SESSION_MS
from tarry.testing.simulation.scenarios import serving
from tarry.testing.simulation.world import LARGE_LEVELS, NO_LEVELS, SMALL_LEVELS
from tests.support.worlds import serve, verify_kept

CLASSIC = {name: shape for name, shape in SHAPES.items() if shape.protocol == "classic"}


@pytest.fixture(params=[pytest.param(7, id="some"), pytest.param(20, id="many", marks=pytest.mark.exhaustive)])
def seeds(request: pytest.FixtureRequest, seed: int) -> range:
    """The seeds of worlds of which some, by chance, show what a test looks for."""
    return range(seed, seed + request.param)


LEAST_JUDGED = 0.15
"""In sixty seeds the lowest part was 0.31."""


def told(world: World, name: str, since: int) -> list[tuple[str, list[int]]]:
    """Return which partitions a process has resumed or taken over since an event, by its log."""
    return [
        (event, [int(place.rpartition("/")[2]) for place in fields.get("partitions", [])] or [fields["partition"]])
        for handle, event, fields in world.events[since:]
        if handle.startswith(f"{name}-") and event in {"resumed", "taken_over"}
    ]


def busy(seed: int, shape: Shape) -> World:
    """Whether all partitions are served, and messages wait in all of them."""
    world = serve(seed, shape)
    world.send(60)
    world.run(1_500)
    return world


@pytest.mark.parametrize("shape", CLASSIC.values(), ids=CLASSIC.keys())
@pytest.mark.parametrize("geometry", [NO_LEVELS, SMALL_LEVELS, LARGE_LEVELS], ids=["none", "small", "large"])
@pytest.mark.parametrize("fixed_delay_ms", [None, 1_500])
def test_a_partition_that_is_given_back_continues_where_it_was(
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
    verify_kept(world, "came and went", least_judged=LEAST_JUDGED)


class AtRelease:
    """Does something once with the first process, as soon as it has released its partitions."""

    def __init__(self, world: World, deed: Callable[[Process], None]) -> None:
        self._world = world
        self._since = len(world.events)
        self._deed = deed
        self._begun = False
        self.over: int | None = None
        """The number of events when it had been done."""

    def __call__(self, process: Process, _step: Step) -> Fate | None:
        if not self._begun and process.name == "p0" and self._has_released():
            self._begun = True
            self._deed(process)
            self.over = len(self._world.events)
        return None

    def _has_released(self) -> bool:
        return ("p0-1", "revoked") in {(handle, event) for handle, event, _ in self._world.events[self._since :]}


def test_a_partition_that_another_process_owned_meanwhile_is_taken_over_again(seeds: range) -> None:
    for one in seeds:
        world = busy(one, Shape(processes=1, partitions=3))

        def freeze(process: Process, world: World = world) -> None:
            world.send(30, longest_ms=1_000)
            world.pause_here(process, 6 * SESSION_MS, frozen=True)

        world.disturb = frozen = AtRelease(world, freeze)
        newcomers = [world.newcomer("p1"), world.newcomer("p2")]
        world.run(8 * SESSION_MS)
        assert frozen.over is not None, "it never released"
        for newcomer in newcomers:
            newcomer.stop()
        assert world.run_until(partial(serving, world), 60_000)
        [(event, _), *_] = told(world, "p0", frozen.over)
        assert event == "taken_over"
        verify_kept(world, "frozen when it had released", least_judged=LEAST_JUDGED)


def put(world: World, target: str, value: bytes, delay_ms: int = 0) -> None:
    id_ = str(uuid.UUID(int=world.random.getrandbits(128), version=4)).encode()
    headers = [(ID, id_), (TARGET, target.encode()), (DELAY_MS, b"%d" % delay_ms)]
    world.broker.append("in", b"key", value, headers, 0)


def a_twin_serves(world: World, process: Process, meanwhile: Callable[[], None]) -> None:
    """Freeze the process; another one of its name serves `meanwhile`, releases its partitions and is forgotten."""
    world.broker.freeze(process.handle)
    process.paused = True
    twin = world.newcomer("twin", instance="p0")
    world.run(3_000)
    world.processes[1].stop()
    meanwhile()
    twin.stop()
    world.run(40_000)
    world.broker.thaw(process.handle)
    process.paused = False


def values(world: World, topic: str) -> list[bytes | None]:
    return [record.value for record in world.broker.records(topic, 0)]


def test_a_partition_that_a_process_of_our_name_owned_meanwhile_is_taken_over_again(seed: int) -> None:
    """That process leaves the same bytes: only the registration of our transactional ids shows that it was there."""
    world = World(seed, Shape(static=True, processes=1, partitions=1, poison=0.0))
    world.start()
    assert world.run_until(lambda: serving(world), 30_000)
    for name, most in (("five", "5000"), ("two", "2000")):
        world.broker.make_topic(name, 1, max_message_bytes=most)
        put(world, name, b"first")
    put(world, "orders", b"holds the watermark", 3_600_000)
    world.run(3_000)
    assert {fields.get("target") for _, event, fields in world.events if event == "target_apart"} == {"five", "two"}
    world.take_away(
        "five", markers_wait=False
    )  # otherwise the process would switch to another id, and the twin would have other names
    put(world, "five", b"once")
    world.run(1_500)

    def meanwhile() -> None:
        world.run(20_000)
        world.bring_back("five")
        world.run(15_000)
        assert values(world, "five") == [b"first", b"once"], "by the twin"

    world.disturb = replaced = AtRelease(world, lambda process: a_twin_serves(world, process, meanwhile))
    world.newcomer("p1")
    # Until a target that is set apart is asked about again, which makes the parking producer be built again.
    world.run(90_000)
    assert replaced.over is not None
    assert ("p0-1", "begin_anew") in {(handle, event) for handle, event, _ in world.events[replaced.over :]}
    assert values(world, "five") == [b"first", b"once"]


def test_what_a_process_of_our_name_committed_meanwhile_is_not_committed_over(seed: int) -> None:
    """That process fires more, and releases the partition under our own name: only the offset shows it."""
    world = World(seed, Shape(static=True, processes=1, partitions=1, poison=0.0))
    world.start()
    assert world.run_until(lambda: serving(world), 30_000)
    world.send(20, longest_ms=500)
    world.run(2_000)
    lows: list[int] = []

    def meanwhile() -> None:
        world.send(20, longest_ms=500)
        world.run(20_000)

    def replace_it(process: Process) -> None:
        a_twin_serves(world, process, meanwhile)
        lows.append(low())

    replaced = AtRelease(world, replace_it)

    def watch(process: Process, step: Step) -> Fate | None:
        if lows and (step.call, step.phase) == ("commit", "after"):
            lows.append(low())
        return replaced(process, step)

    cluster = Cluster("fake", {}, world.broker.clients("onlooker"))
    with closing(Offsets(cluster.clients.admin(cluster.admin()), world.group, cluster)) as offsets:

        def low() -> int:
            return offsets.committed([("in", 0)])["in", 0][0]

        world.disturb = watch
        world.newcomer("p1")
        world.run(90_000)
    assert len(lows) > 1, "it has not committed since"
    assert lows == sorted(lows)


def test_the_open_transaction_of_a_dead_owner_is_not_waited_for(seed: int) -> None:
    world = busy(seed, Shape(processes=1, partitions=2, poison=0.0))

    def miss_a_generation(process: Process) -> None:
        world.pause_here(process, 12_000, frozen=True)

    missed = AtRelease(world, miss_a_generation)
    crashed = False

    def disturb(process: Process, step: Step) -> Fate | None:
        nonlocal crashed
        missed(process, step)
        commits = (process.name, step.call, step.phase) == ("p1", "commit_transaction", "before")
        if world.processes[0].paused and commits and len(process.states) == 2 and not crashed:
            crashed = True
            world.crash_here(process, back_after_ms=None)
        return None

    world.disturb = disturb
    world.newcomer("p1")
    world.run(2 * SESSION_MS)
    world.send(40)
    world.run(4 * SESSION_MS)
    assert crashed, "in a transaction of all partitions"
    assert missed.over is not None
    assert "taken_over" in {event for event, _ in told(world, "p0", missed.over)}
    refused = [fields for handle, event, fields in world.events if (handle, event) == ("p0-1", "take_over_refused")]
    assert not [fields for fields in refused if "Timed out" in fields["reason"]]
    verify_kept(world, "crashed in its transaction", least_judged=LEAST_JUDGED)


class InAPass:
    """Lets another process join while the first one is in the middle of a pass over a bucket."""

    def __init__(self, world: World) -> None:
        self._world = world
        self.since: int | None = None
        """The number of events when the other process joined."""
        self.scanned: set[int] = set()
        """The partitions that the first process gave up in the middle of a pass."""

    def __call__(self, process: Process, _step: Step) -> Fate | None:
        if process.name != "p0" or self.is_over:
            return None
        self.scanned = {place[1] for place, state in process.states.items() if not state.overflow.can_be_left}
        if self.scanned and self.since is None:
            self.since = len(self._world.events)
            self._world.newcomer("p1")
            self._world.pause_here(process, 1_500, frozen=False)
        return None

    @property
    def is_over(self) -> bool:
        """Whether the first process has given up its partitions."""
        events = self._world.events[self.since :] if self.since is not None else []
        return ("p0-1", "revoked") in {(handle, event) for handle, event, _ in events}


def test_a_partition_given_up_in_the_middle_of_a_pass_is_taken_over_again(seeds: range) -> None:
    """The messages that the pass has kept would be read once more, so the pass cannot be continued."""
    shape = Shape(processes=1, partitions=3, geometry=LARGE_LEVELS, memory_budget_bytes=50_000, fetch_most=5)
    given_back: set[int] = set()
    given_up = 0
    for one in seeds:
        world = serve(one, shape)
        world.send(300, longest_ms=8_000)
        world.disturb = passes = InAPass(world)
        if not world.run_until(lambda: passes.is_over, 30_000):  # noqa: B023 - called at once
            continue  # in a world of some hundred no bucket is larger than the memory for it
        given_up += 1
        assert world.run_until(partial(serving, world), 60_000)
        for event, partitions in told(world, "p0", passes.since or 0):
            assert event == "taken_over" or passes.scanned.isdisjoint(partitions)
            given_back |= passes.scanned.intersection(partitions)
        verify_kept(world, "in a pass", least_judged=LEAST_JUDGED)
    assert given_up > len(seeds) / 2
    assert given_back
