"""Intakes with a fixed delay over the overflow wheel: each target's partition has the order of the log, always."""

from collections.abc import Callable
from dataclasses import replace

import pytest

from tarry.testing.simulation import SHAPES, Report, Seen, Sent, Shape, World, at_a_step, steps_of
from tarry.testing.simulation.oracle import check_log_order
from tarry.testing.simulation.scenarios import SERVING_WITHIN_MS, Deed, crash, freeze, lose, serving
from tarry.testing.simulation.world import SMALL_LEVELS
from tests.support.courses import OVERSIZED_BYTES, ahead_at_the_edge
from tests.support.worlds import serve, verify_all_kept, verify_kept

DELAYS_MS = {"hot": 300, "one-level": 650, "two-levels": 1_500, "three-levels": 6_000}
"""By SMALL_LEVELS. Which levels a delay goes through depends on where in a bucket it falls, except the longest."""

DEEDS: tuple[Deed, ...] = (crash, freeze, lose)

LEAST_JUDGED = 0.5
"""Two judges count here, of a key's order and of the log's; in 200 worlds of three seeds the least was 0.97."""


@pytest.fixture(params=list(DELAYS_MS))
def shape(request: pytest.FixtureRequest) -> Shape:
    return Shape(geometry=SMALL_LEVELS, fixed_delay_ms=DELAYS_MS[request.param])


def send_for_a_while(world: World, meanwhile: Callable[[], None] = lambda: None) -> None:
    for _ in range(40):
        world.send(4)
        meanwhile()
        world.run(150)


def filed(world: World) -> set[int]:
    """Return the levels to which messages were filed."""
    geometry = world.shape.geometry
    partitions = range(world.shape.partitions)
    return {
        level
        for level in range(1, geometry.levels + 1)
        if any(world.broker.end(f"in.wheel-{level}", partition) for partition in partitions)
    }


@pytest.mark.parametrize(("name", "levels"), [("hot", 0), ("one-level", 1), ("two-levels", 2), ("three-levels", 3)])
def test_the_delays_of_these_tests_go_through_the_expected_levels(seed: int, name: str, levels: int) -> None:
    world = serve(seed, Shape(geometry=SMALL_LEVELS, fixed_delay_ms=DELAYS_MS[name]))
    send_for_a_while(world)
    assert filed(world) >= set(range(1, levels + 1))
    assert max(filed(world), default=0) <= (levels + 1 if levels else 0)
    verify_kept(world, "nothing", least_judged=LEAST_JUDGED)


@pytest.mark.some_of("shape")
def test_the_order_is_the_logs_through_crashes(seed: int, shape: Shape) -> None:
    world = serve(seed, shape)

    def crash_sometimes() -> None:
        if world.random.random() < 0.15:
            running = [process for process in world.processes if process.worker is not None]
            if running:
                world.crash(world.random.choice(running))

    send_for_a_while(world, crash_sometimes)
    verify_kept(world, "crashes", least_judged=LEAST_JUDGED)


@pytest.mark.some_of("shape")
def test_the_order_is_the_logs_where_its_time_steps_back(seed: int, shape: Shape) -> None:
    """Each new leader stamps by another clock, and a crash must not change the due times."""
    world = serve(seed, shape)

    def move_the_leader() -> None:
        world.leader_behind_ms = world.random.choice((0, 0, 40, 900, 3_000))
        if world.random.random() < 0.1:
            world.crash(world.processes[0], back_after_ms=100)

    send_for_a_while(world, move_the_leader)
    verify_kept(world, "leaders that move, and crashes", least_judged=LEAST_JUDGED)


@pytest.mark.some_of("shape")
def test_timestamps_an_hour_ahead_delay_no_message_and_the_logs_order_is_kept(seed: int, shape: Shape) -> None:
    """A leader's clock is wrong for a moment or longer, and a new owner reads such timestamps once more."""
    world = serve(seed, shape)

    def be_wrong() -> None:
        world.leader_behind_ms = world.random.choice((0, 0, 0, -3_600_000))
        if world.random.random() < 0.1:
            world.crash(world.processes[0], back_after_ms=100)

    send_for_a_while(world, be_wrong)
    world.leader_behind_ms = 0
    send_for_a_while(world)
    verify_kept(world, "a leader whose clock is ahead, and crashes", least_judged=LEAST_JUDGED)


@pytest.mark.no_cover
def test_nothing_is_filed_with_a_due_time_that_a_new_owner_would_not_compute_again() -> None:
    for seed in range(16, 27):  # without the rule three of them are out of order
        verify_kept(ahead_at_the_edge(seed), "a leader whose clock is ahead, and crashes", least_judged=LEAST_JUDGED)


@pytest.mark.some_of("shape")
def test_the_order_is_the_logs_where_the_services_clock_steps(seed: int, shape: Shape) -> None:
    world = serve(seed, shape)

    def step_the_clock() -> None:
        if world.random.random() < 0.15:
            world.clock.jump(world.random.choice((-2_000, -300, 300, 2_000)))
            world.touch(6_000)

    send_for_a_while(world, step_the_clock)
    verify_kept(world, "a clock that steps", least_judged=LEAST_JUDGED)


@pytest.mark.some_of("shape")
@pytest.mark.parametrize("is_behind_at_first", [True, False], ids=["from-the-start", "set-back"])
def test_nothing_is_early_when_a_clock_that_was_behind_is_set_right(
    seed: int, shape: Shape, *, is_behind_at_first: bool
) -> None:
    """All timestamps look far ahead to such a process, and its due times stay when its clock is right again."""
    world = World(seed, shape)
    late_ms = 60_000

    def set_clocks(ahead_ms: int) -> None:
        for process in world.processes:
            process.clock.ahead_ms = ahead_ms
        world.touch(2 * late_ms)

    if is_behind_at_first:
        set_clocks(-late_ms)
    world.start()
    assert world.run_until(lambda: serving(world), SERVING_WITHIN_MS)
    send_for_a_while(world)
    set_clocks(-late_ms)
    send_for_a_while(world)
    set_clocks(0)
    send_for_a_while(world)
    verify_kept(world, "clocks that were behind", least_judged=LEAST_JUDGED)


@pytest.mark.some_of("shape")
def test_the_order_is_the_logs_where_the_target_was_away(seed: int, shape: Shape) -> None:
    """The target is away for longer than all buckets of a level last, so what a take-over finds closed is one range."""
    world = serve(seed, replace(shape, memory_budget_bytes=OVERSIZED_BYTES))
    send_for_a_while(world)
    world.take_away("orders")
    send_for_a_while(world)
    world.crash(world.processes[0])
    send_for_a_while(world)
    world.bring_back("orders")
    world.touch(20_000)
    send_for_a_while(world)
    verify_kept(world, "a target that was away", least_judged=LEAST_JUDGED)


@pytest.mark.some_of("shape")
def test_the_order_is_the_logs_where_buckets_are_larger_than_memory(seed: int, shape: Shape) -> None:
    world = serve(seed, replace(shape, memory_budget_bytes=OVERSIZED_BYTES, partitions=1, processes=1))
    for _ in range(10):
        world.send(60)
        world.run(100)
    world.crash(world.processes[0])
    verify_kept(world, "oversized buckets", least_judged=LEAST_JUDGED)


@pytest.mark.some_of("shape")
def test_the_order_is_the_logs_after_an_outage_longer_than_a_level(seed: int, shape: Shape) -> None:
    world = serve(seed, replace(shape, memory_budget_bytes=OVERSIZED_BYTES))
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
    verify_kept(world, "away for a minute", least_judged=LEAST_JUDGED)


@pytest.mark.some_of("shape")
def test_the_order_is_the_logs_where_the_groups_offsets_are_lost(seed: int, shape: Shape) -> None:
    """A copy of the checkpoint has the due time of the record below its watermark."""
    world = serve(seed, shape)

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
    verify_kept(world, "offsets that were lost", least_judged=LEAST_JUDGED)


@pytest.mark.some_of("shape")
@pytest.mark.parametrize("deed", DEEDS)
def test_the_order_is_the_logs_whatever_step_is_disturbed(seed: int, shape: Shape, deed: Deed) -> None:
    """Disturbs a few steps of the run, because all of them take too long for a suite."""
    disturbed = replace(SHAPES["consumer-static"], geometry=SMALL_LEVELS, fixed_delay_ms=shape.fixed_delay_ms)
    many = len(steps_of(seed, disturbed))
    indices = range(seed % 13, many, max(1, many // 3))
    outcomes = [at_a_step(seed, disturbed, index, deed) for index in indices]
    verify_all_kept(outcomes, least_judged=LEAST_JUDGED)


def test_a_message_out_of_the_logs_order_is_found() -> None:
    intake, place, counts = ("in", 1), ("orders", 1), {"orders": 2}
    sent = [Sent(b"%d" % at, intake, at, b"k", "orders", 10, b"v") for at in range(3)]
    seen = [Seen(b"%d" % at, place, 10 - at, 10, 10, 10, b"v") for at in range(3)]
    report = Report()
    check_log_order(report, sent, seen[:1], counts)
    assert (report.is_clean, report.judged) == (True, 1)
    check_log_order(report, sent, seen, counts)
    assert len(report.faults["out of the log's order"]) == 2


def test_the_logs_order_counts_whatever_the_due_times_are() -> None:
    intake, place = ("in", 1), ("orders", 1)
    sent = [Sent(b"%d" % at, intake, at, b"k", "orders", 20 - 10 * at, b"v") for at in range(2)]
    seen = [Seen(b"%d" % at, place, at, 20, 20, 20, b"v") for at in range(2)]
    kept, broken = Report(), Report()
    check_log_order(kept, sent, seen, {"orders": 2})
    assert (kept.is_clean, kept.judged) == (True, 2)
    check_log_order(broken, sent, [replace(seen[0], offset=1), replace(seen[1], offset=0)], {"orders": 2})
    assert list(broken.faults) == ["out of the log's order"]


def test_a_message_without_a_key_at_a_wrong_partition_is_found() -> None:
    sent = Sent(b"0", ("in", 1), 0, None, "orders", 10, b"v")
    report = Report()
    check_log_order(report, [sent], [Seen(b"0", ("orders", 0), 0, 10, 10, 10, b"v")], {"orders": 2})
    assert "misdirected" in report.faults
