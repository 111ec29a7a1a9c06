"""The overflow wheel in the simulation, where chance would seldom go."""

import pytest

from tarry.testing.simulation import Shape, World
from tarry.testing.simulation.world import SMALL_LEVELS
from tests.support.worlds import serve, verify_kept

BUDGET_BYTES = 40_000

LEAST_JUDGED = 0.1
"""Of six seeds the least was 0.46."""

LEAST_JUDGED_OVERDUE = 0.03
"""Most fell due in the outage; 0.15 waits in buckets from before it on."""


def most_held(world: World) -> int:
    """The most that any process holds now, in bytes."""
    return max(sum(state.held_bytes for state in process.states.values()) for process in world.processes)


@pytest.mark.parametrize("crashes", [False, True])
def test_buckets_larger_than_memory_are_delivered_in_order_and_in_bounded_memory(seed: int, crashes: bool) -> None:
    world = serve(seed, Shape(geometry=SMALL_LEVELS, memory_budget_bytes=BUDGET_BYTES, partitions=1, processes=1))
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
    verify_kept(world, "oversized buckets", least_judged=LEAST_JUDGED)


def test_more_than_memory_due_in_one_millisecond(seed: int) -> None:
    world = serve(seed, Shape(geometry=SMALL_LEVELS, memory_budget_bytes=BUDGET_BYTES, partitions=1, processes=1))
    due_ms = world.clock.now_ms() + 5_000
    for _ in range(300):
        world.send_due(due_ms)
    world.run(4_000)
    world.crash(world.processes[0])
    verify_kept(world, "all in one millisecond", least_judged=LEAST_JUDGED)


@pytest.mark.parametrize("crashes", [False, True])
def test_a_cancel_takes_what_was_sent_twice_also_in_buckets_that_are_read_in_passes(seed: int, crashes: bool) -> None:
    """More than memory in one millisecond, in front of a cancel, behind it, and between two of them."""
    world = serve(seed, Shape(geometry=SMALL_LEVELS, memory_budget_bytes=BUDGET_BYTES, partitions=1, processes=1))
    due_ms = world.clock.now_ms() + 5_000
    for _ in range(10):
        for _ in range(30):
            world.send_due(due_ms)
        for message in world.random.sample(world.sent, 10):
            world.send_again(message)
            world.cancel(message)
        world.run(100)
    for _ in range(40):
        world.run(150)
        if crashes and world.random.random() < 0.1:
            world.crash(world.processes[0])
    assert any(cancel.in_time for cancel in world.cancels)
    verify_kept(world, "sent twice, and cancelled", least_judged=LEAST_JUDGED)


def test_an_outage_longer_than_the_whole_ring_is_caught_up_with_in_order(seed: int) -> None:
    world = serve(seed, Shape(geometry=SMALL_LEVELS, memory_budget_bytes=BUDGET_BYTES))
    world.send(100, longest_ms=9_000)
    world.run(500)  # most of it is accepted
    for process in world.processes:
        world.crash(process, back_after_ms=None)
    world.touch(61_000)
    for _ in range(60):
        world.run(1_000)
        world.send(5)
    for process in world.processes:
        world.restart(process, 0)
    world.touch(20_000)
    verify_kept(world, "away for a minute, and the ring takes ten seconds", least_judged=LEAST_JUDGED_OVERDUE)


def test_what_a_killed_broker_brings_back_of_emptied_buckets_is_not_delivered_again(seed: int) -> None:
    world = serve(seed, Shape(geometry=SMALL_LEVELS))
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
    verify_kept(world, "deleted records are back", least_judged=LEAST_JUDGED)
