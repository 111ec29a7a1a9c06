"""Records that the service's own topics refuse, and transactions too large to be written in time: only these wait."""

import json
from collections.abc import Iterable
from dataclasses import replace

import pytest

from tarry.core.wheel.overflow import Upkeep
from tarry.headers import Outcome as Result
from tarry.kafka.topics import DEAD, JOURNAL, PARKED, RESULTS, wheel_topic
from tarry.service.metrics.families import REFUSED_LETTERS
from tarry.testing.simulation import SHAPES, Shape, World
from tarry.testing.simulation.world import INTAKE, SMALL_LEVELS
from tests.support.worlds import serve, verify_kept

MEGABYTE = 1_000_000
UNKNOWN = "no-such-topic"

LEAST_JUDGED = 0.03
"""Many are dead letters, or too late behind large ones; of three seeds the least was 0.15."""

every_shape = pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES.keys())


def restart_all(world: World) -> None:
    for process in world.processes:
        process.stop()
        world.restart(process, 100)
    world.touch()


def refused_letters(world: World) -> float:
    """Return the gauge of refused letters, summed over all processes."""
    found = [process.tally.snapshot().gauges for process in world.processes]
    return sum(value for gauges in found for key, value in gauges.items() if key[0] == REFUSED_LETTERS.name)


@pytest.mark.some_of("shape")
@pytest.mark.parametrize("target", [None, UNKNOWN], ids=["no target", "unknown target"])
@every_shape
def test_a_record_that_only_fits_compressed_is_a_whole_dead_letter_and_delays_no_other(
    seed: int, shape: Shape, target: str | None
) -> None:
    world = serve(seed, shape)
    world.send(20, longest_ms=1_500)
    world.send_large(5 * MEGABYTE, target=target)
    world.send(20, longest_ms=1_500)
    # One message in twenty is for a missing target, and waits 3 s for a second answer.
    assert world.run_until(lambda: not world.unseen(), 10_000)
    verify_kept(world, "a record that only fits compressed", least_judged=LEAST_JUDGED)


@every_shape
def test_a_message_that_only_fits_compressed_is_filed_and_is_a_whole_dead_letter_in_the_end(
    seed: int, shape: Shape
) -> None:
    world = serve(seed, replace(shape, geometry=SMALL_LEVELS))
    world.send(20)
    world.send_large(5 * MEGABYTE, target="orders", delay_ms=5_000)
    world.send(20)
    assert world.run_until(lambda: not world.unseen(), 25_000)
    verify_kept(world, "a message that only fits compressed, and waits", least_judged=LEAST_JUDGED)


LEVELS = tuple(wheel_topic(INTAKE, level) for level in range(1, SMALL_LEVELS.levels + 1))


@pytest.mark.some_of("shape")
@pytest.mark.parametrize(
    ("delay_ms", "wide"),
    [(0, (INTAKE,)), (5_000, (INTAKE,)), (5_000, (INTAKE, *LEVELS)), (5_000, (INTAKE, *LEVELS[1:]))],
    ids=["from the intake", "refused by a level, too", "from a bucket", "refused on its way down"],
)
@every_shape
def test_a_record_too_large_for_any_dead_letter_has_a_stub_and_is_not_done_until_the_limit_is_raised(
    seed: int, shape: Shape, delay_ms: int, wide: tuple[str, ...]
) -> None:
    world = serve(seed, replace(shape, geometry=SMALL_LEVELS))
    for topic in wide:
        world.broker.configure(topic, max_message_bytes=str(3 * MEGABYTE))
    for _ in range(3):
        world.send(10, longest_ms=1_500)
        world.send_large(2 * MEGABYTE, target=UNKNOWN, delay_ms=delay_ms, codec=False)
    # It takes some seconds until a target surely does not exist.
    assert world.run_until(lambda: len(world.stubs) == 3, 30_000 + 2 * delay_ms)
    world.send(10, longest_ms=1_500)
    assert world.run_until(lambda: len(world.unseen()) == 3, 10_000), "they alone wait"
    assert world.run_until(lambda: refused_letters(world) == 3, 5_000), "they are counted as long as they wait"
    restart_all(world)
    assert world.run_until(lambda: len(world.stubs) == 6, 30_000), "they are tried again, in vain"
    world.broker.configure(INTAKE + DEAD, max_message_bytes=str(3 * MEGABYTE))
    restart_all(world)
    assert world.run_until(lambda: not world.unseen() and refused_letters(world) == 0, 30_000), "none waits any more"
    verify_kept(world, "a dead letter that is too large for its topic", least_judged=LEAST_JUDGED)
    assert len(world.stubs) == 6


@pytest.mark.some_of("shape")
@every_shape
def test_a_record_that_a_level_refuses_is_a_dead_letter_long_before_it_is_due_and_the_others_are_filed(
    seed: int, shape: Shape
) -> None:
    world = serve(seed, replace(shape, geometry=SMALL_LEVELS))
    for topic in (INTAKE, INTAKE + DEAD):
        world.broker.configure(topic, max_message_bytes=str(3 * MEGABYTE))
    world.send(20, longest_ms=1_500)
    world.touch(120_000)
    for _ in range(3):
        world.send_due(world.clock.now_ms() + 60_000)
        world.send_large(2 * MEGABYTE, target="orders", delay_ms=60_000, codec=False)
    assert world.run_until(lambda: len(world.unseen()) == 3, 20_000), "what is filed alone waits"
    verify_kept(world, "a level that refuses some", least_judged=LEAST_JUDGED)


@pytest.mark.parametrize(
    ("topic", "levels", "limit"),
    [
        (RESULTS, False, 450),
        (RESULTS, True, 450),
        (JOURNAL, False, 90),
        (DEAD, False, 450),
        (DEAD, True, 450),
    ],
)
def test_a_limit_that_was_lowered_below_a_batch_is_kept_to_with_smaller_ones(
    seed: int, topic: str, levels: bool, limit: int
) -> None:
    shape = Shape(poison=0.3, most=1_000, cancels=0.2, partitions=1)
    world = serve(seed, replace(shape, geometry=SMALL_LEVELS) if levels else shape)
    world.broker.configure(INTAKE + topic, max_message_bytes=str(limit))
    world.send(150, longest_ms=1_500)
    assert world.run_until(lambda: not world.unseen(), 25_000)
    world.broker.configure(INTAKE + topic, max_message_bytes="1048588")
    verify_kept(world, f"{topic} takes small batches alone", least_judged=LEAST_JUDGED)


HERD = 30


@every_shape
def test_small_dead_letters_that_are_refused_together_are_written_apart(seed: int, shape: Shape) -> None:
    world = serve(seed, replace(shape, partitions=1))
    world.broker.configure(INTAKE + DEAD, max_message_bytes="450")
    world.send(20, longest_ms=1_500)
    for _ in range(HERD):
        world.send_large(20, target=None, codec=False)
    assert world.run_until(lambda: not world.unseen(), 25_000)
    verify_kept(world, "a topic of dead letters that takes them one by one alone", least_judged=LEAST_JUDGED)


def test_cancels_whose_results_are_refused_together_are_filed_in_parts(seed: int) -> None:
    world = serve(seed, Shape(processes=1, poison=0.0, partitions=1, most=1_000, geometry=SMALL_LEVELS))
    world.send(20, longest_ms=1_500)
    world.run(2_000)
    world.broker.configure(INTAKE + RESULTS, max_message_bytes="450")
    world.touch(300_000)
    for _ in range(HERD):
        world.send_due(world.clock.now_ms() + 60_000)
        world.cancel(world.sent[-1])
    assert world.run_until(lambda: cancels_filed(world) == HERD, 40_000), "all are filed"
    world.broker.configure(INTAKE + RESULTS, max_message_bytes="1048588")
    verify_kept(world, "results that take small batches alone, and cancels that are filed", least_judged=LEAST_JUDGED)


@pytest.mark.parametrize("suffix", [RESULTS, DEAD])
def test_a_purge_whose_records_are_refused_together_is_done_in_parts(seed: int, suffix: str) -> None:
    world = serve(seed, Shape(processes=1, poison=0.0, partitions=1, most=1_000, geometry=SMALL_LEVELS))
    world.send(20, longest_ms=1_500)
    world.run(2_000)
    world.take_away("bills", markers_wait=False)
    for _ in range(2 * HERD):
        world.send_due(world.clock.now_ms() + 300)
    assert world.run_until(lambda: not [one for one in world.unseen() if one.target != "bills"], 40_000)
    world.broker.configure(INTAKE + suffix, max_message_bytes="450")
    world.touch(300_000)
    world.purge("bills")
    assert world.run_until(lambda: not world.unseen(), 60_000), "all are dead letters"
    assert "purge_aborted" in [event for _, event, _ in world.events], "too many were tried first"
    world.broker.configure(INTAKE + suffix, max_message_bytes="1048588")
    verify_kept(world, f"{suffix} takes small batches alone, and a purge", least_judged=LEAST_JUDGED)


def test_a_purge_is_answered_when_its_large_letters_are_written_and_a_crash_before_that_repeats_it(seed: int) -> None:
    world = serve(seed, Shape(processes=1, poison=0.0, partitions=1, geometry=SMALL_LEVELS))
    [process] = world.processes
    world.send(30, longest_ms=900)
    world.run(2_000)
    world.take_away("bills", markers_wait=False)
    for _ in range(4):
        world.send_large(300_000, target="bills", arrives=True, codec=False)
        world.send_large(20, target="bills", arrives=True)
    world.run(3_000)
    world.broker.throttle(60_000)
    world.touch(120_000)
    world.purge("bills")
    world.run(4_000)
    assert not world.purges[0].is_answered, "letters of 1.2 MB are not written yet"
    world.crash(process)
    world.run(8_000)
    world.broker.throttle(None)
    assert world.run_until(lambda: world.purges[0].is_answered, 60_000)
    assert not world.unseen()
    verify_kept(world, "large letters of a purge, a quota, a crash", least_judged=LEAST_JUDGED)


def cancels_filed(world: World) -> int:
    """Return how many filed cancels the buckets hold."""
    results = [record.value or b"" for record in world.broker.records(INTAKE + RESULTS, 0)]
    return sum(json.loads(value)["outcome"] == Result.CANCEL_FILED for value in results)


LARGE = 20_000
MANY = 100
SLOW = 50_000
"""Bytes per second: in the client library's 5 s, a dozen large messages can be written, and a small burst."""
LONG = 20_000
"""Milliseconds: long enough to go through the last level."""
FAR = 200_000
"""Milliseconds: due long after all is filed at that pace, so no message moves on to the next level meanwhile."""


@pytest.mark.parametrize("kind", ["fired", "filed", "parked"])
def test_more_than_can_be_written_in_time_is_written_in_smaller_transactions(seed: int, kind: str) -> None:
    shape = Shape(processes=1, poison=0.0, most=1_000, geometry=SMALL_LEVELS)
    world = serve(seed, shape)
    world.send(30, longest_ms=1_500)
    world.run(2_000)
    if kind == "parked":
        world.take_away("orders")
    else:
        world.broker.throttle(SLOW)
    world.touch(300_000)
    for _ in range(MANY):
        world.send_large(LARGE, target="orders", arrives=True, delay_ms=FAR if kind == "filed" else 0, codec=False)
    if kind == "parked":
        world.run(8_000)
        world.broker.throttle(SLOW)
        world.bring_back("orders")
    if kind == "filed":
        assert world.run_until(lambda: large_records(world, LEVELS) >= MANY, 240_000), "all are filed"
        world.broker.throttle(None)
    else:
        assert world.run_until(lambda: not world.unseen(), 240_000), "all are delivered"
    world.broker.throttle(None)
    verify_kept(world, f"a quota, and large messages that are {kind}", least_judged=LEAST_JUDGED)


def test_what_is_parked_for_long_is_filed_in_smaller_transactions_if_more_cannot_be_written_in_time(seed: int) -> None:
    world = serve(seed, Shape(processes=1, poison=0.0, most=1_000))
    world.send(30, longest_ms=1_500)
    world.run(2_000)
    world.take_away("orders")
    for _ in range(MANY):
        world.send_large(LARGE, target="orders", arrives=True, codec=False)
    world.run(1_000)
    world.broker.throttle(SLOW)
    world.touch(300_000)
    assert world.run_until(lambda: large_records(world, [INTAKE + PARKED]) >= MANY, 240_000), "all are filed"
    world.broker.throttle(None)
    world.bring_back("orders")
    verify_kept(world, "a quota, and large messages in the parked log", least_judged=LEAST_JUDGED)


def test_what_is_filed_again_goes_in_smaller_transactions_if_more_cannot_be_written_in_time(seed: int) -> None:
    shape = Shape(processes=1, partitions=1, poison=0.0, most=1_000, geometry=SMALL_LEVELS)
    world = serve(seed, replace(shape, upkeep=Upkeep(refile_from=4 * MANY)))
    [top] = LEVELS[-1:]
    for _ in range(MANY):
        world.send_large(LARGE, target="orders", arrives=True, delay_ms=FAR, codec=False)
    assert world.run_until(lambda: large_records(world, [top]) >= MANY, 10_000)
    for _ in range(10 * MANY):
        world.send_due(world.clock.now_ms() + LONG)
    world.run(LONG // 2)
    before = large_records(world, [top])
    assert len(world.unseen()) == 11 * MANY, "nothing is filed again yet"
    world.broker.throttle(SLOW)
    world.touch(300_000)
    assert world.run_until(lambda: len(world.unseen()) == MANY, 120_000), "only the large ones are left"
    assert world.run_until(lambda: large_records(world, [top]) >= before + MANY, 60_000), "all are filed again"
    world.broker.throttle(None)
    verify_kept(world, "a quota, and large messages that are filed again", least_judged=LEAST_JUDGED)


def large_records(world: World, topics: Iterable[str]) -> int:
    """Return how many large messages some logs hold."""
    partitions = range(world.shape.partitions)
    records = [record for topic in topics for one in partitions for record in world.broker.records(topic, one)]
    return sum(len(record.value or b"") == LARGE for record in records)
