"""Intakes with a fixed delay over the overflow wheel: each target's partition has the order of the log, always."""

from collections.abc import Callable
from dataclasses import replace

import pytest

from tarry.testing.simulation import SHAPES, Outcome, Report, Seen, Sent, Shape, World, at_a_step, steps_of
from tarry.testing.simulation.oracle import judge_log_order
from tarry.testing.simulation.scenarios import SERVING_WITHIN_MS, Deed, crash, freeze, lose, serving
from tarry.testing.simulation.world import SMALL_LEVELS

DELAYS_MS = {"hot": 300, "one-level": 1_500, "two-levels": 3_000, "three-levels": 6_000}
"""By SMALL_LEVELS, whose levels reach two, four and eight seconds ahead."""

DEEDS: tuple[Deed, ...] = (crash, freeze, lose)

BUDGET_BYTES = 40_000


@pytest.fixture(params=list(DELAYS_MS))
def shape(request: pytest.FixtureRequest) -> Shape:
    return Shape(geometry=SMALL_LEVELS, fixed_delay_ms=DELAYS_MS[request.param])


def start(seed: int, shape: Shape) -> World:
    world = World(seed, shape)
    world.start()
    assert world.run_until(lambda: serving(world), SERVING_WITHIN_MS)
    return world


def send_for_a_while(world: World, meanwhile: Callable[[], None] = lambda: None) -> None:
    for _ in range(40):
        world.send(4)
        meanwhile()
        world.run(150)


def verify_clean(world: World, what: str) -> None:
    report = world.settle()
    assert report.is_clean, Outcome(world.seed, world.shape, (what,), report, world.trace())
    assert report.judged > len(world.sent) // 2


def filed(world: World) -> set[int]:
    """The levels at which anything was filed."""
    geometry = world.shape.geometry
    slots = range(world.shape.partitions * (2 * geometry.size + 2))
    return {
        level
        for level in range(1, geometry.levels + 1)
        if any(world.broker.end(f"in.wheel-{level}", slot) for slot in slots)
    }


@pytest.mark.parametrize(("name", "levels"), [("hot", 0), ("one-level", 1), ("two-levels", 2), ("three-levels", 3)])
def test_the_delays_of_these_tests_go_through_so_many_levels(seed: int, name: str, levels: int) -> None:
    world = start(seed, Shape(geometry=SMALL_LEVELS, fixed_delay_ms=DELAYS_MS[name]))
    send_for_a_while(world)
    assert filed(world) >= set(range(1, levels + 1))
    assert levels == 0 or max(filed(world)) == levels
    verify_clean(world, "nothing")


def test_the_order_is_the_logs_through_crashes(seed: int, shape: Shape) -> None:
    world = start(seed, shape)

    def crash_sometimes() -> None:
        if world.random.random() < 0.15:
            running = [process for process in world.processes if process.worker is not None]
            if running:
                world.crash(world.random.choice(running))

    send_for_a_while(world, crash_sometimes)
    verify_clean(world, "crashes")


def test_the_order_is_the_logs_where_its_time_steps_back(seed: int, shape: Shape) -> None:
    """Each time its leader moves, log-append time is by another clock; and a crash must not forget what it was."""
    world = start(seed, shape)

    def move_the_leader() -> None:
        world.leader_behind_ms = world.random.choice((0, 0, 40, 900, 3_000))
        if world.random.random() < 0.1:
            world.crash(world.processes[0], back_after_ms=100)

    send_for_a_while(world, move_the_leader)
    verify_clean(world, "leaders that move, and crashes")


def test_the_order_is_the_logs_where_the_services_clock_steps(seed: int, shape: Shape) -> None:
    world = start(seed, shape)

    def step_the_clock() -> None:
        if world.random.random() < 0.15:
            world.clock.jump(world.random.choice((-2_000, -300, 300, 2_000)))
            world.touch(6_000)

    send_for_a_while(world, step_the_clock)
    verify_clean(world, "a clock that steps")


def test_the_order_is_the_logs_where_the_target_was_away(seed: int, shape: Shape) -> None:
    """For longer than a slot's turn round the ring: its two turns are one stretch then."""
    world = start(seed, replace(shape, memory_budget_bytes=BUDGET_BYTES))
    send_for_a_while(world)
    world.take_away("orders")
    send_for_a_while(world)
    world.crash(world.processes[0])
    send_for_a_while(world)
    world.bring_back("orders")
    world.touch(20_000)
    send_for_a_while(world)
    verify_clean(world, "a target that was away")


def test_the_order_is_the_logs_where_buckets_are_larger_than_memory(seed: int, shape: Shape) -> None:
    world = start(seed, replace(shape, memory_budget_bytes=BUDGET_BYTES, partitions=1, processes=1))
    for _ in range(10):
        world.send(60)
        world.run(100)
    world.crash(world.processes[0])
    verify_clean(world, "oversized buckets")


def test_the_order_is_the_logs_after_an_outage_longer_than_the_ring(seed: int, shape: Shape) -> None:
    world = start(seed, replace(shape, memory_budget_bytes=BUDGET_BYTES))
    send_for_a_while(world)
    for process in world.processes:
        world.crash(process, back_after_ms=None)
    world.touch(61_000)
    for at in range(30):
        world.leader_behind_ms = 3_000 * (at % 3)
        world.send(5)
        world.run(2_000)
    for process in world.processes:
        world.restart(process, 0)
    world.touch(20_000)
    verify_clean(world, "away for a minute")


def test_the_order_is_the_logs_where_the_groups_offsets_are_lost(seed: int, shape: Shape) -> None:
    """A copy of the checkpoint says up to when the records below it were due."""
    world = start(seed, shape)

    def forget() -> None:
        world.leader_behind_ms = world.random.choice((0, 900, 3_000))

    send_for_a_while(world, forget)
    for process in world.processes:
        process.stop()
    world.broker.expire_offsets(world.group)
    world.leader_behind_ms = 5_000
    world.send(20)
    for process in world.processes:
        world.restart(process, 0)
    world.touch(20_000)
    send_for_a_while(world)
    verify_clean(world, "offsets that were lost")


@pytest.mark.parametrize("deed", DEEDS)
def test_the_order_is_the_logs_whatever_step_is_disturbed(seed: int, shape: Shape, deed: Deed) -> None:
    """At a few steps of the run: all of them take too long for a suite."""
    disturbed = replace(SHAPES["consumer-static"], geometry=SMALL_LEVELS, fixed_delay_ms=shape.fixed_delay_ms)
    many = len(steps_of(seed, disturbed))
    for index in range(seed % 13, many, max(1, many // 3)):
        outcome = at_a_step(seed, disturbed, index, deed)
        assert outcome.report.is_clean, outcome


def test_what_stands_out_of_the_logs_order_is_found() -> None:
    intake, place, counts = ("in", 1), ("orders", 1), {"orders": 2}
    sent = [Sent(b"%d" % at, intake, at, b"k", "orders", 10, b"v") for at in range(3)]
    seen = [Seen(b"%d" % at, place, 10 - at, 10, 10, 10, b"v") for at in range(3)]
    report = Report()
    judge_log_order(report, sent, seen[:1], counts)
    assert (report.is_clean, report.judged) == (True, 1)
    judge_log_order(report, sent, seen, counts)
    assert len(report.faults["out of the log's order"]) == 2


def test_what_has_no_key_and_is_elsewhere_is_found() -> None:
    sent = Sent(b"0", ("in", 1), 0, None, "orders", 10, b"v")
    report = Report()
    judge_log_order(report, [sent], [Seen(b"0", ("orders", 0), 0, 10, 10, 10, b"v")], {"orders": 2})
    assert "misdirected" in report.faults
