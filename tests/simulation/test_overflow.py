"""The overflow wheel in the simulation, in situations that random worlds would seldom reach."""

import pytest

from tarry.core.progress.checkpoint import Geometry
from tarry.kafka.topics import wheel_topic
from tarry.testing.simulation import Shape, World
from tarry.testing.simulation.world import INTAKE, SMALL_LEVELS
from tests.support.courses import OVERSIZED_BYTES, cancel_in_passes, crash_in_a_wide_bucket
from tests.support.worlds import serve, verify_kept

LEAST_JUDGED = 0.1
"""In six seeds the lowest part was 0.46."""

LEAST_JUDGED_OVERDUE = 0.03
"""Most fell due in the outage; 0.15 waits in buckets from before it on."""


def most_held(world: World) -> int:
    """Return the most memory that a process holds now, in bytes."""
    return max(sum(state.held_bytes for state in process.states.values()) for process in world.processes)


@pytest.mark.parametrize("crashes", [False, True])
def test_buckets_larger_than_memory_are_delivered_in_order_and_in_bounded_memory(seed: int, crashes: bool) -> None:
    world = serve(seed, Shape(geometry=SMALL_LEVELS, memory_budget_bytes=OVERSIZED_BYTES, partitions=1, processes=1))
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
    # Before reading pauses, a process may have read as much more as one transaction holds.
    assert most < 2 * OVERSIZED_BYTES
    verify_kept(world, "oversized buckets", least_judged=LEAST_JUDGED)


def test_more_than_memory_due_in_one_millisecond(seed: int) -> None:
    world = serve(seed, Shape(geometry=SMALL_LEVELS, memory_budget_bytes=OVERSIZED_BYTES, partitions=1, processes=1))
    due_ms = world.clock.now_ms() + 5_000
    for _ in range(300):
        world.send_due(due_ms)
    world.run(4_000)
    world.crash(world.processes[0])
    verify_kept(world, "all in one millisecond", least_judged=LEAST_JUDGED)


@pytest.mark.parametrize("crashes", [False, True])
def test_a_cancel_takes_what_was_sent_twice_also_in_buckets_that_are_read_in_passes(seed: int, crashes: bool) -> None:
    world = cancel_in_passes(seed, crashes=crashes)
    assert any(cancel.in_time for cancel in world.cancels)
    verify_kept(world, "sent twice, and cancelled", least_judged=LEAST_JUDGED)


def test_what_fired_of_a_bucket_fires_no_second_time_after_a_crash_in_the_middle_of_it(seed: int) -> None:
    verify_kept(crash_in_a_wide_bucket(seed), "crashed in the middle of buckets", least_judged=LEAST_JUDGED)


def test_an_outage_longer_than_the_longest_delay_is_caught_up_with_in_order(seed: int) -> None:
    world = serve(seed, Shape(geometry=SMALL_LEVELS, memory_budget_bytes=OVERSIZED_BYTES))
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
    verify_kept(world, "away for a minute, and no delay is longer than nine seconds", least_judged=LEAST_JUDGED_OVERDUE)


def test_deleted_records_that_a_killed_broker_brings_back_are_not_delivered_again(seed: int) -> None:
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


@pytest.mark.parametrize("more", range(3))
def test_a_leader_that_names_too_low_an_end_at_a_take_over_loses_no_message(seed: int, more: int) -> None:
    """The end of a level's log is too low at first, by what the last transaction has filed there."""
    world = serve(seed + more, Shape(geometry=Geometry(400, 4, 2), processes=1, poison=0.0, fetch_most=1_000))
    for _ in range(10):
        world.send(20, longest_ms=6_000)
        world.run(100)
    [process] = world.processes
    log = wheel_topic(INTAKE, 1), 0
    before = world.broker.end(*log)
    while world.broker.end(*log) < before + 3:
        world.send(1, longest_ms=5_000)
        world.round()
    world.run(30)
    world.crash(process)
    named = world.broker.name_too_low_an_end(*log, 2)
    for _ in range(60):
        world.send(10, longest_ms=5_000)
        world.run(100)
    assert named, "no take-over was told too low an end"
    verify_kept(world, "an end that is too low", least_judged=LEAST_JUDGED)
