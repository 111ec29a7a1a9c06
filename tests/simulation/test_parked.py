"""Parked messages leave: by delivery, however much comes in meanwhile, or by a purge, whatever else is left over."""

from dataclasses import replace
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException

from tarry.core.progress.checkpoint import Geometry
from tarry.kafka import takeover
from tarry.kafka.partition_logs import spans_of
from tarry.kafka.topics import DEAD, JOURNAL, PARKED
from tarry.kafka.transaction import Transactor
from tarry.testing.simulation import Shape, World
from tarry.testing.simulation.world import INTAKE, NO_LEVELS, SMALL_LEVELS
from tests.support.worlds import only, serve, verify_kept

SHAPE = Shape(partitions=1, processes=1, poison=0.0, most=1_000, fetch_most=1_000, geometry=NO_LEVELS)
SMALL_BUDGET = 400_000
"""Bytes. The share of parked messages is an eighth: what comes in within a few seconds."""

LEAST_JUDGED = 0.1
"""In eight seeds the lowest part was 0.37."""


def inflow(world: World, for_ms: int) -> None:
    """Send messages that are due at once, 200 a second."""
    ends_ms = world.clock.monotonic_ms() + for_ms
    while world.clock.monotonic_ms() < ends_ms:
        world.send(20, longest_ms=0)
        world.run(100)


@pytest.mark.parametrize("others", [(), ("bills",)], ids=["alone", "another stays away"])
def test_a_target_that_is_back_catches_up_while_messages_for_it_go_on_to_come_in(
    seed: int, others: tuple[str, ...]
) -> None:
    targets = ("orders", *others)
    shape = replace(SHAPE, memory_budget_bytes=SMALL_BUDGET, targets=tuple((topic, 1) for topic in targets))
    world = serve(seed, shape)
    for topic in targets:
        world.take_away(topic)
    inflow(world, 10_000)
    log = only(world).parked.log
    assert log.unread("orders") > 300, "the log has more than its share of memory holds"
    world.bring_back("orders")
    inflow(world, 10_000)
    assert log.unread("orders") == 0, "it does not catch up"
    for topic in others:
        assert log.unread(topic) > 300, "the other is still away"
        world.bring_back(topic)
    verify_kept(world, "a target that is back", least_judged=LEAST_JUDGED)


@pytest.mark.parametrize("is_summed_up", [False, True])
@pytest.mark.some_of("by")
@pytest.mark.parametrize("by", [1, 2, 20])
def test_a_leader_that_names_too_low_an_end_of_the_parked_log_loses_no_message(
    seed: int, by: int, is_summed_up: bool
) -> None:
    world = serve(seed, replace(SHAPE, park_after_ms=600))
    world.take_away("orders")
    for _ in range(40):
        world.send(2, longest_ms=0)
        world.run(100)
    world.run(2_000)
    assert only(world).parked.log.unread("orders") > 20
    if is_summed_up:
        pointer = only(world).reads_from
        assert world.run_until(lambda: only(world).reads_from > pointer, 90_000)
    world.crash(world.processes[0])
    named = world.broker.name_too_low_an_end(INTAKE + PARKED, 0, by)
    world.run(15_000)
    world.bring_back("orders")
    world.run(20_000)
    assert named, "no take-over was told too low an end"
    verify_kept(world, "an end of the parked log that is too low", least_judged=LEAST_JUDGED)


def test_a_filing_whose_last_records_the_client_library_refuses_is_tried_again(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those that need the offsets of what was filed: all else is delivered then."""
    world = serve(seed, replace(SHAPE, park_after_ms=300))
    produce, refused = Transactor.produce, list[str]()

    def refuse_once(transactor: Transactor, topic: str, partition: int, key: Any, value: Any, *rest: Any) -> None:
        if topic == INTAKE + JOURNAL and value[:1] == b"P" and not refused:
            refused.append(topic)
            raise KafkaException(KafkaError(KafkaError._UNKNOWN_TOPIC))
        produce(transactor, topic, partition, key, value, *rest)

    monkeypatch.setattr(Transactor, "produce", refuse_once)
    world.take_away("orders")
    world.send(20, longest_ms=100)
    assert world.run_until(lambda: only(world).parked.log.unread("orders") > 0, 10_000)
    assert refused
    assert "filing_aborted" in [event for _, event, _ in world.events]
    world.bring_back("orders")
    verify_kept(world, "a record of the journal that is refused once", least_judged=LEAST_JUDGED)


@pytest.mark.parametrize("geometry", [NO_LEVELS, SMALL_LEVELS], ids=["no levels", "levels"])
def test_a_take_over_that_sleeps_deletes_nothing_of_what_another_owner_parks_meanwhile(
    seed: int, geometry: Geometry, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has read the journal before it sleeps, and learns the end of the parked log afterwards."""
    world = serve(seed, replace(SHAPE, geometry=geometry, park_after_ms=300))
    [process] = world.processes
    world.send(30, longest_ms=1_500)
    world.run(2_000)
    world.take_away("orders")
    parked = list[int]()

    def sleep_before(*arguments: Any) -> Any:
        if not parked:
            parked.append(0)
            following = world.newcomer("following")
            world.pause_here(process, 20_000, frozen=True)
            parked[0] = sum(state.parked.log.unread("orders") for state in following.states.values())
        return spans_of(*arguments)

    monkeypatch.setattr(takeover, "spans_of", sleep_before)
    world.crash(process)
    world.send(20, longest_ms=0)
    assert world.run_until(lambda: bool(parked), 15_000), "no take-over has slept"
    world.run(5_000)
    assert parked[0] > 5, "the following owner has parked nothing"
    world.bring_back("orders")
    verify_kept(world, "a take-over that sleeps", least_judged=LEAST_JUDGED)


def test_a_letter_that_is_left_in_its_log_stops_no_purge_of_other_messages(seed: int) -> None:
    world = serve(seed, SHAPE)
    world.send(30, longest_ms=1_500)
    world.run(2_000)
    world.narrow(DEAD, 2_000)
    world.send_large(50_000, target=None, codec=False)
    assert world.run_until(lambda: only(world).letters.left == 1, 10_000), "not even its stub fits"
    world.take_away("orders")
    world.send(20, longest_ms=0)
    assert world.run_until(lambda: "orders" in only(world).parked.by_target(), 10_000)
    world.run(2_000)
    world.purge("orders")
    assert world.run_until(lambda: world.purges[0].is_answered, 30_000)
    assert only(world).letters.left == 1
    world.bring_back("orders")
    world.widen()
    world.processes[0].stop()
    world.restart(world.processes[0], 100)
    verify_kept(world, "a letter that is left in its log, and a purge", least_judged=LEAST_JUDGED)


def test_a_purge_whose_own_letter_is_left_is_answered_when_that_is_written(seed: int) -> None:
    world = serve(seed, replace(SHAPE, most=4, targets=(("orders", 1), ("bills", 1))))
    world.send(30, longest_ms=1_500)
    world.run(2_000)
    for topic in ("orders", "bills"):
        world.take_away(topic)
    world.send_large(50_000, target="orders", arrives=True, codec=False)
    world.send(20, longest_ms=0)
    assert world.run_until(lambda: {"orders", "bills"} <= set(only(world).parked.targets), 10_000)
    world.run(2_000)
    world.narrow(DEAD, 2_000)
    world.purge("orders")
    assert world.run_until(lambda: only(world).letters.left == 1, 30_000)
    world.purge("bills")
    of_orders, of_bills = world.purges
    assert world.run_until(lambda: of_bills.is_answered, 30_000)
    world.run(30_000)
    assert not of_orders.is_answered, "one of its letters is not written"
    parked = only(world).parked
    assert (len(parked), parked.log.unread("orders")) == (1, 0), "the purge alone waits"
    world.widen()
    world.processes[0].stop()
    world.restart(world.processes[0], 100)
    assert world.run_until(lambda: of_orders.is_answered, 60_000)
    verify_kept(world, "a purged message that no log of dead letters takes", least_judged=LEAST_JUDGED)
