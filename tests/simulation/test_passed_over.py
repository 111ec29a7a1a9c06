"""Messages that are due far in the future are passed over while too many wait to be filed, and are read again later."""

import pytest

from tarry.core.progress.checkpoint import Geometry
from tarry.service.worker.reading import MOST_READS
from tarry.testing.simulation import Shape, World
from tarry.testing.simulation.sent import Sent
from tarry.testing.simulation.world import SMALL_LEVELS
from tests.support.courses import far_before_near
from tests.support.worlds import only, serve, verify_kept

SHAPE = Shape(geometry=SMALL_LEVELS, most_to_file=5, partitions=1, processes=1, poison=0.0)
FAR_MS = (8_000, 20_000)
BURST = 400

LEAST_JUDGED = 0.1
"""In twelve seeds the lowest part was 0.24."""


def send_far(world: World, many: int) -> None:
    for _ in range(many):
        world.send_due(world.clock.now_ms() + world.random.randint(*FAR_MS))


def is_delivered(world: World, message: Sent) -> bool:
    """Whether a message is at its target."""
    return any(
        record.value == message.value
        for topic, partitions in world.shape.targets
        for partition in range(partitions)
        for record in world.broker.records(topic, partition)
    )


def test_a_message_that_is_due_soon_does_not_wait_for_a_burst_before_it(seed: int) -> None:
    world = serve(seed, SHAPE)
    send_far(world, BURST)
    world.send_due(world.clock.now_ms() + 100)
    soon = world.sent[-1]
    most_passed = 0

    def has_arrived() -> bool:
        nonlocal most_passed
        most_passed = max(most_passed, len(only(world).passed_over))
        return is_delivered(world, soon)

    assert world.run_until(has_arrived, 3_000)
    assert most_passed > BURST / 2, "the burst was filed first"
    assert world.run_until(lambda: not only(world).passed_over.span, 6_000), "what was passed over is not read again"
    verify_kept(world, "a burst", least_judged=LEAST_JUDGED)


def test_a_message_comes_down_its_levels_while_a_long_burst_is_read(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tarry.service.worker.reading.READ_MOST", 1)
    world = serve(seed, SHAPE)
    world.send_due(world.clock.now_ms() + 3_500)
    near = world.sent[-1]
    send_far(world, BURST)
    assert world.run_until(lambda: bool(only(world).passed_over.span), 2_000)
    assert only(world).overflow.in_buckets[3] > 0
    worker = world.processes[0].worker
    assert worker is not None
    hurried = []

    def has_arrived() -> bool:
        send_far(world, MOST_READS + 1)
        hurried.append(worker._parts.reading.is_hurried)
        return is_delivered(world, near)

    assert world.run_until(has_arrived, 4_000)
    assert sum(hurried) > 0.9 * len(hurried), "all of the burst was read"


def test_bursts_crashes_and_naps_break_no_order_and_lose_nothing(seed: int) -> None:
    verify_kept(far_before_near(seed), "bursts", least_judged=LEAST_JUDGED)


def test_what_is_passed_over_is_found_by_the_next_owner(seed: int) -> None:
    world = serve(seed, SHAPE)
    for _ in range(4):
        send_far(world, BURST // 4)
        assert world.run_until(lambda: len(only(world).passed_over) > 10, 3_000)
        world.crash(world.processes[0])
        assert world.run_until(lambda: bool(world.processes[0].states), 30_000)
    verify_kept(world, "crashes while messages are passed over", least_judged=LEAST_JUDGED)


@pytest.mark.parametrize("fixed_delay_ms", [None, 1_500])
def test_with_little_memory_a_bucket_to_be_closed_does_not_stop_filing(seed: int, fixed_delay_ms: int | None) -> None:
    """Closing waits for memory, and memory for filing: filing must not wait for closing."""
    shape = Shape(
        geometry=SMALL_LEVELS,
        most_to_file=1,
        memory_budget_bytes=20_000,
        fixed_delay_ms=fixed_delay_ms,
        partitions=2,
        processes=1,
        poison=0.0,
    )
    world = serve(seed, shape)
    for _ in range(60):
        world.send(8)
        world.run(50)
    verify_kept(world, "little memory", least_judged=LEAST_JUDGED)


def test_a_steady_inflow_that_is_neither_hot_nor_far_does_not_stop_the_draining_of_buckets(seed: int) -> None:
    shape = Shape(
        geometry=Geometry(1_000, 4, 2), most_to_file=20, partitions=1, processes=1, poison=0.0, fetch_most=200
    )
    world = serve(seed, shape)
    for number in range(40):
        world.send_due(world.clock.now_ms() + 6_000 + number * 100)
    before = list(world.sent)
    world.run(1_500)
    for _ in range(200):  # ten seconds, until all of these are due
        for _ in range(30):
            world.send_due(world.clock.now_ms() + world.random.randint(3_000, 3_900))
        world.run(50)
        overdue = [message for message in before if world.clock.now_ms() > message.due_ms + 1_000]
        assert all(is_delivered(world, message) for message in overdue)
    assert len(overdue) == len(before)
