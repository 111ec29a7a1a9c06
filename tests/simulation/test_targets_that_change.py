"""Stale knowledge of a target makes no message a dead letter, and no target holds up another."""

import uuid
from typing import Any

import pytest

from tarry.headers import DELAY_MS, ERROR, ID, PARTITION, TARGET
from tarry.testing.simulation import Shape, World, freeze
from tarry.testing.simulation.scenarios import serving

LONG_ENOUGH_MS = 5_000


def world_of(seed: int, **shape: Any) -> World:
    world = World(seed, Shape(poison=0.0, **shape))
    world.start()
    assert world.run_until(lambda: serving(world), 30_000)
    return world


def put(
    world: World,
    target: str,
    *,
    delay_ms: int = 0,
    key: bytes | None = b"k",
    value: bytes = b"v",
    to: int | None = None,
) -> None:
    """Write a message to the intake's partition 0."""
    headers = [(ID, str(uuid.uuid4()).encode()), (TARGET, target.encode()), (DELAY_MS, b"%d" % delay_ms)]
    if to is not None:
        headers.append((PARTITION, b"%d" % to))
    world.broker.append("in", key, value, headers, 0)


def error_codes(world: World) -> list[bytes | None]:
    return [dict(letter.headers or [])[ERROR] for letter in world.broker.records("in.dead", 0)]


@pytest.mark.parametrize("limit", ["2000", "1048588"], ids=["narrow", "wide"])
def test_a_partition_that_was_added_gets_its_messages(seed: int, limit: str) -> None:
    world = world_of(seed)
    world.broker.make_topic("grows", 1, max_message_bytes=limit)
    put(world, "grows")
    world.run(LONG_ENOUGH_MS)
    world.broker.grow("grows", 2)
    put(world, "grows", to=1)
    world.run(LONG_ENOUGH_MS)
    assert error_codes(world) == []
    assert len(world.broker.records("grows", 1)) == 1


def test_a_limit_that_was_raised_condemns_nothing(seed: int) -> None:
    world = world_of(seed)
    world.broker.make_topic("wider", 1, max_message_bytes="70000")
    put(world, "wider")
    world.run(LONG_ENOUGH_MS)
    world.broker.configure("wider", max_message_bytes="200000")
    put(world, "wider", value=b"." * 100_000)
    put(world, "wider", value=b"." * 300_000)
    world.run(LONG_ENOUGH_MS)
    assert error_codes(world) == [b"too-large"]
    assert [len(record.value or b"") for record in world.broker.records("wider", 0)] == [1, 100_000]


def test_a_target_that_is_no_longer_compacted_takes_null_keys(seed: int) -> None:
    world = world_of(seed)
    world.broker.make_topic("compact", 1, cleanup_policy="compact")
    put(world, "compact", key=None)
    world.run(LONG_ENOUGH_MS)
    world.broker.configure("compact", cleanup_policy="delete")
    put(world, "compact", key=None)
    world.run(LONG_ENOUGH_MS)
    assert error_codes(world) == [b"null-key"]
    assert len(world.broker.records("compact", 0)) == 1


def test_a_target_that_refuses_for_an_unforeseen_reason_holds_up_no_other(seed: int) -> None:
    world = world_of(seed)
    # The target refuses every timestamp: INVALID_TIMESTAMP, which does not count as permanent.
    world.broker.make_topic("strict", 1, message_timestamp_after_max_ms="-100000")
    put(world, "strict")
    world.run(LONG_ENOUGH_MS)
    put(world, "orders", to=0)
    world.run(LONG_ENOUGH_MS)
    assert len(world.broker.records("orders", 0)) == 1
    assert error_codes(world) == []


def test_records_dropped_while_reading_pauses_are_read_again(seed: int) -> None:
    world = world_of(seed, memory_budget_bytes=20_000)
    for _ in range(100):
        put(world, "orders", delay_ms=LONG_ENOUGH_MS, to=0)
    world.run(1_000)
    assert "reading_paused" in [event for _, event, _ in world.events]
    # Its session ends while the outcome of the transaction is unknown: it drops all its partitions, and gets them back.
    freeze(world, world.processes[0])
    world.run(60_000)
    assert "lost" in [event for _, event, _ in world.events]
    assert len(world.broker.records("orders", 0)) == 100
