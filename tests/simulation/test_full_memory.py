"""Memory that names or due times fill, and not messages: the service goes on, because waiting would free nothing."""

from dataclasses import replace
from random import Random

from tarry.core.murmur2 import partition_of
from tarry.headers import DELIVER_AT, NAME, PARTITION, TARGET
from tarry.kafka.topics import DEAD
from tarry.testing.simulation import Shape, World
from tarry.testing.simulation.world import INTAKE, SMALL_LEVELS
from tests.support.worlds import serve

BUDGET = 20_000
"""Bytes."""
NAMES = 660
"""Each takes 44 bytes or more: half of them are within the budget, all of them are not."""
FAR_MS = 20_000
SHAPE = Shape(
    partitions=2,
    targets=(("orders", 1),),
    geometry=SMALL_LEVELS,
    poison=0.0,
    memory_budget_bytes=BUDGET,
    most=1_000,
    fetch_most=1_000,
)


def append(world: World, number: int, due_ms: int, name: bytes | None = None) -> None:
    headers = [(TARGET, b"orders"), (DELIVER_AT, b"%d" % due_ms), *([] if name is None else [(NAME, name)])]
    key = b"k%d" % (number % 6)
    world.broker.append(INTAKE, key, b"v", headers, partition_of(key, 2), world.clock.now_ms())


def delivered(world: World) -> int:
    return len(world.broker.records("orders", 0))


def test_a_process_that_takes_over_more_names_than_its_memory_holds_delivers_all(seed: int) -> None:
    world = serve(seed, SHAPE)
    begin_ms = world.clock.now_ms()
    for number in range(NAMES):
        append(world, number, begin_ms + FAR_MS + number, b"n%d" % number)
        if number % 20 == 0:
            world.run(10)
    world.run(3_000)
    first, second = world.processes
    world.crash(second, back_after_ms=None)
    assert world.run_until(lambda: len(first.states) == 2, 60_000)
    most = 0

    def is_done() -> bool:
        nonlocal most
        most = max(most, sum(state.names.size_bytes for state in first.states.values()))
        return delivered(world) == NAMES + 1

    append(world, 0, world.clock.now_ms() + 100)
    assert world.run_until(is_done, 120_000), f"{delivered(world)} of {NAMES + 1} were delivered"
    assert most > BUDGET, "the names alone did not fill the memory"


def test_due_times_that_a_letter_keeps_in_memory_stop_nothing(seed: int) -> None:
    """With a fixed delay, memory has all due times above the low watermark, which such a letter holds back."""
    shape = replace(SHAPE, partitions=1, processes=1, fixed_delay_ms=6_000)
    world = serve(seed, shape)
    [process] = world.processes
    world.narrow(DEAD, 2_000)
    world.broker.append(INTAKE, b"k", Random(seed).randbytes(50_000), [(PARTITION, b"x")], 0)
    world.run(5_000)
    world.widen()
    many = BUDGET // 16 + 100
    for _ in range(many):
        world.broker.append(INTAKE, b"k", b"v", [], 0)
        world.run(20)
    [state] = process.states.values()
    assert state.letters.left == 1
    assert state.memory_bytes - state.held_bytes > BUDGET, "the due times alone did not fill the memory"
    assert world.run_until(lambda: delivered(world) == many, 60_000), f"{delivered(world)} of {many} were delivered"
