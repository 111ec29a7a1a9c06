"""The overflow wheel in the simulation, where chance would seldom go."""

import pytest

from tarry.testing.simulation import Outcome, Shape, World
from tarry.testing.simulation.scenarios import SERVING_WITHIN_MS, serving
from tarry.testing.simulation.world import SMALL_LEVELS

BUDGET_BYTES = 40_000


def start(seed: int, shape: Shape) -> World:
    world = World(seed, shape)
    world.start()
    assert world.run_until(lambda: serving(world), SERVING_WITHIN_MS)
    return world


def verify_clean(world: World, what: str) -> None:
    report = world.settle()
    assert report.is_clean, Outcome(world.seed, world.shape, (what,), report, world.trace())


def most_held(world: World) -> int:
    """The most that any process holds now, in bytes."""
    return max(sum(state.held_bytes for state in process.states.values()) for process in world.processes)


@pytest.mark.parametrize("crashes", [False, True])
def test_buckets_larger_than_memory_are_delivered_in_order_and_in_bounded_memory(seed: int, crashes: bool) -> None:
    world = start(seed, Shape(geometry=SMALL_LEVELS, memory_budget_bytes=BUDGET_BYTES, partitions=1, processes=1))
    world.run_until(lambda: False, 100)
    for _ in range(10):
        world.send(60, longest_ms=6_000)
        world.run(100)
    most = 0
    for _ in range(70):
        world.run(100)
        most = max(most, most_held(world))
        if crashes and world.random.random() < 0.05:
            world.crash(world.processes[0])
    # A transaction's worth more may have been read before reading pauses.
    assert most < 2 * BUDGET_BYTES
    verify_clean(world, "oversized buckets")


def test_more_than_memory_due_in_one_millisecond(seed: int) -> None:
    world = start(seed, Shape(geometry=SMALL_LEVELS, memory_budget_bytes=BUDGET_BYTES, partitions=1, processes=1))
    due_ms = world.clock.now_ms() + 5_000
    for _ in range(300):
        world.send_due(due_ms)
    world.run(4_000)
    world.crash(world.processes[0])
    verify_clean(world, "all in one millisecond")


def test_an_outage_longer_than_the_whole_ring_is_caught_up_with_in_order(seed: int) -> None:
    world = start(seed, Shape(geometry=SMALL_LEVELS, memory_budget_bytes=BUDGET_BYTES))
    world.send(100)
    for process in world.processes:
        world.crash(process, back_after_ms=None)
    world.touch(61_000)
    for _ in range(60):
        world.run(1_000)
        world.send(5)
    for process in world.processes:
        world.restart(process, 0)
    world.touch(20_000)
    verify_clean(world, "away for a minute, and the ring takes ten seconds")


def test_what_a_killed_broker_brings_back_of_emptied_buckets_is_not_delivered_again(seed: int) -> None:
    world = start(seed, Shape(geometry=SMALL_LEVELS))
    for _ in range(20):
        world.send(10)
        world.run(500)
    assert world.run_until(lambda: not world.unseen(), 30_000)
    world.run(2_000)
    world.broker.undelete()
    for process in world.processes:
        world.crash(process)
    for _ in range(10):
        world.send(10)
        world.run(500)
    verify_clean(world, "deleted records are back")
