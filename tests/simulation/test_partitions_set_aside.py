"""A fault of one partition stops only this partition: a log without a leader, or one that an operator must repair."""

from dataclasses import replace

import pytest

from tarry.kafka.own_logs import SURE_AFTER_MS
from tarry.kafka.topics import wheel_topic
from tarry.kafka.types import Place
from tarry.service.metrics.families import QUARANTINED
from tarry.service.worker.aside import TRY_EVERY_MS
from tarry.testing.fake import Fate, Step
from tarry.testing.simulation import SHAPES, Process, RunOutcome, Shape, World
from tarry.testing.simulation.scenarios import serving
from tarry.testing.simulation.world import INTAKE, SMALL_LEVELS, nothing
from tests.support.worlds import verify_kept

AWAY_MS = 40_000

LEAST_JUDGED = 0.1
"""In thirty worlds the least was 0.43."""

LEAST_JUDGED_LATE = 0.02
"""Most is overdue before it can be read; of 25 seeds the least was 0.08."""

LOGS = ["in.results", "in.journal", "in.dead", "in.parked", "in.wheel-1", "in.wheel-3"]


def keep_sending(world: World, for_ms: int) -> None:
    for _ in range(for_ms // 500):
        world.send(3, longest_ms=1_500)
        world.run(500)


def unseen_of(world: World, place: Place) -> int:
    """Return the messages of a partition that are due and have not arrived."""
    now_ms = world.clock.now_ms()
    return sum(message.place == place and message.due_ms < now_ms - 5_000 for message in world.unseen())


def events(world: World, name: str) -> list[tuple[str, int]]:
    return [(fields["topic"], fields["partition"]) for _, event, fields in world.events if event == name]


@pytest.mark.some_of("shape")
@pytest.mark.some_of("processes")
@pytest.mark.parametrize("processes", [1, 2])
@pytest.mark.parametrize("topic", LOGS)
@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES.keys())
def test_one_log_without_a_leader_stops_its_own_partition_alone(
    seed: int, shape: Shape, topic: str, processes: int
) -> None:
    world = World(seed, replace(shape, geometry=SMALL_LEVELS, processes=processes, partitions=3, poison=0.2))
    world.start()
    assert world.run_until(lambda: serving(world), 30_000)
    keep_sending(world, 3_000)
    log, place = next((log, place) for log, place in world.own_logs() if log[0] == topic and place[1] == 1)
    world.lose_leader(log, place, AWAY_MS)
    keep_sending(world, AWAY_MS - 1_000)
    assert events(world, "partition_waits") == [place]
    assert [unseen_of(world, other) for other in (("in", 0), ("in", 2))] == [0, 0]
    keep_sending(world, 10_000)
    assert events(world, "partition_back") == [place]
    verify_kept(world, f"{log} away", least_judged=LEAST_JUDGED)


def test_a_parked_log_without_a_leader_keeps_the_parked_messages_of_its_own_partition_alone(seed: int) -> None:
    world = World(seed, Shape(geometry=SMALL_LEVELS, partitions=3, processes=1, poison=0.0, park_after_ms=300))
    world.start()
    assert world.run_until(lambda: serving(world), 30_000)
    world.take_away("bills")
    keep_sending(world, 10_000)
    assert all(world.broker.records("in.parked", partition) for partition in range(3))
    world.lose_leader(("in.parked", 1), ("in", 1), 15_000)
    world.run(3_000)
    world.bring_back("bills")
    world.run(11_000)
    assert events(world, "partition_waits") == [("in", 1)]
    assert [unseen_of(world, other) for other in (("in", 0), ("in", 2))] == [0, 0]
    assert unseen_of(world, ("in", 1)) > 0
    keep_sending(world, 8_000)
    assert events(world, "partition_back") == [("in", 1)]
    verify_kept(world, "a parked log away", least_judged=LEAST_JUDGED)


def test_a_process_that_starts_while_a_log_has_no_leader_serves_all_other_partitions(seed: int) -> None:
    world = World(seed, Shape(partitions=3, processes=1))
    world.lose_leader(("in.journal", 2), ("in", 2), AWAY_MS)
    world.start()
    keep_sending(world, 20_000)
    assert [unseen_of(world, ("in", partition)) for partition in (0, 1)] == [0, 0]
    verify_kept(world, "journal away from the start", least_judged=LEAST_JUDGED)


@pytest.mark.some_of("shape")
@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES.keys())
def test_a_record_that_is_not_ours_in_a_journal_stops_its_own_partition_alone_until_it_is_gone(
    seed: int, shape: Shape
) -> None:
    world = World(seed, replace(shape, partitions=3))
    world.start()
    assert world.run_until(lambda: serving(world), 30_000)
    keep_sending(world, 2_000)
    world.put_foreign(("in", 1), 20_000)
    for process in world.processes:
        world.crash(process)
    keep_sending(world, 19_000)
    assert set(events(world, "partition_quarantined")) == {("in", 1)}
    healths = [process.health for process in world.processes if process.health is not None]
    assert all(health.ready for health in healths), healths
    [said] = [line for health in healths for line in health.why.splitlines()]
    assert said.startswith("in/1 is quarantined: ")
    gauges = [key for process in world.processes for key in process.tally.snapshot().gauges]
    assert [key for key in gauges if key[0] == QUARANTINED.name] == [(QUARANTINED.name, "in", "1")]
    assert all(process.errors == [] for process in world.processes)
    assert [unseen_of(world, ("in", partition)) for partition in (0, 2)] == [0, 0]
    assert unseen_of(world, ("in", 1)) > 0
    world.run(TRY_EVERY_MS + 5_000)
    assert ("in", 1) in events(world, "partition_back")
    verify_kept(world, "a foreign record", least_judged=LEAST_JUDGED)


def test_a_broker_that_does_not_know_a_topic_of_ours_for_a_moment_condemns_nothing(seed: int) -> None:
    world = World(seed, Shape(partitions=3, processes=1))
    world.start()
    assert world.run_until(lambda: serving(world), 30_000)
    keep_sending(world, 1_000)
    world.hide("in.journal", SURE_AFTER_MS - 500)
    keep_sending(world, 20_000)
    assert set(events(world, "partition_waits")) == {("in", 0), ("in", 1), ("in", 2)}
    assert events(world, "partition_quarantined") == []
    verify_kept(world, "a broker that knows no journal", least_judged=LEAST_JUDGED)


def test_a_topic_of_ours_that_stays_unknown_has_its_partitions_quarantined(seed: int) -> None:
    world = World(seed, Shape(partitions=2, processes=1))
    world.start()
    assert world.run_until(lambda: serving(world), 30_000)
    world.hide("in.journal", 3 * SURE_AFTER_MS)
    keep_sending(world, 10_000)
    assert set(events(world, "partition_quarantined")) == {("in", 0), ("in", 1)}
    keep_sending(world, TRY_EVERY_MS)
    assert set(events(world, "partition_back")) == {("in", 0), ("in", 1)}


@pytest.mark.parametrize("is_serving", [True, False], ids=["serving", "starting"])
def test_a_topic_of_ours_without_describe_right_quarantines_its_partitions_and_restarts_nothing(
    seed: int, is_serving: bool
) -> None:
    world = World(seed, Shape(partitions=2, processes=1))
    if not is_serving:
        world.broker.deny("in.results")
    world.start()
    if is_serving:
        assert world.run_until(lambda: serving(world), 30_000)
        world.broker.deny("in.results")
    world.held.update({("in", 0), ("in", 1)})
    keep_sending(world, 10_000)
    assert set(events(world, "partition_quarantined")) == {("in", 0), ("in", 1)}
    why = "rights are missing: DESCRIBE on topic in.results (docs/security.md lists all that is needed)"
    assert set(world.processes[0].quarantined.values()) == {why}
    assert not any(event == "begin_anew" for _, event, _ in world.events)
    world.broker.deny("in.results", denied=False)
    world.run(TRY_EVERY_MS + 5_000)
    assert set(events(world, "partition_back")) == {("in", 0), ("in", 1)}
    world.held.clear()
    world.touch()
    keep_sending(world, 2_000)
    verify_kept(world, "a right that was taken away", least_judged=LEAST_JUDGED if is_serving else LEAST_JUDGED_LATE)


@pytest.mark.parametrize("topic", ["in.journal", "in"])
def test_a_topic_of_ours_that_may_not_be_read_any_more_has_its_partitions_quarantined_when_they_are_taken_over(
    seed: int, topic: str
) -> None:
    world = World(seed, Shape(partitions=2, processes=1))
    world.broker.deny_offsets(topic)
    world.start()
    world.run(5_000)
    assert set(events(world, "partition_quarantined")) == {("in", 0), ("in", 1)}
    [process] = world.processes
    assert all("authorization" in why and "docs/security.md" in why for why in process.quarantined.values())
    assert not any(event == "begin_anew" for _, event, _ in world.events)
    world.broker.deny_offsets(topic, denied=False)
    world.run(TRY_EVERY_MS + 5_000)
    assert set(events(world, "partition_back")) == {("in", 0), ("in", 1)}
    keep_sending(world, 2_000)
    verify_kept(world, "a right that was taken away", least_judged=LEAST_JUDGED)


@pytest.mark.some_of("shape")
@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES.keys())
def test_partitions_that_an_intake_got_under_a_running_service_stop_no_other(seed: int, shape: Shape) -> None:
    world = World(seed, replace(shape, partitions=2))
    world.start()
    assert world.run_until(lambda: serving(world), 30_000)
    keep_sending(world, 1_000)
    world.broker.grow("in", 3)
    keep_sending(world, 20_000)
    assert set(events(world, "partition_quarantined")) == {("in", 2)}
    assert all(process.errors == [] for process in world.processes)
    assert [unseen_of(world, ("in", partition)) for partition in (0, 1)] == [0, 0]
    verify_kept(world, "an intake that grew", least_judged=LEAST_JUDGED)


@pytest.mark.parametrize("is_aborted", [False, True], ids=["committed", "aborted at first"])
@pytest.mark.parametrize("partitions", [1, 2], ids=["one", "both"])
def test_a_log_of_a_level_that_loses_its_end_under_its_owner_is_refused_until_it_is_adopted(
    seed: int, partitions: int, is_aborted: bool
) -> None:
    """What is written to the log fills it up again, and the journal has told of the lost end: both must not count."""
    shape = Shape(processes=2, partitions=2, poison=0.0, geometry=SMALL_LEVELS, most=1_000, fetch_most=1_000)
    world = World(seed, shape)
    top = SMALL_LEVELS.levels
    topic = wheel_topic(INTAKE, top)
    lost = {(INTAKE, partition) for partition in range(partitions)}
    world.start()
    for _ in range(40):
        world.send_due(world.clock.now_ms() + 60_000)
    assert world.run_until(lambda: all(len(world.broker.records(topic, at)) > 9 for at in (0, 1)), 10_000)
    assert world.run_until(lambda: not any(world.broker.undecided(topic, at) for at in (0, 1)), 2_000)
    for _, partition in lost:
        world.lose_end_of_level(top, partition, 5)
    world.touch(6 * TRY_EVERY_MS)
    if is_aborted:  # batches to other levels are refused, so the records are sent again, one in a batch
        world.narrow(".wheel-1", 300)
        world.narrow(".wheel-2", 300)
    for after_ms in (60_000, 1_000, 1_500, 2_000, 3_000) * 20:
        world.send_due(world.clock.now_ms() + after_ms)
    assert world.run_until(lambda: set(events(world, "partition_quarantined")) == lost, 10_000)
    assert ("filing_aborted" in [event for _, event, _ in world.events]) is is_aborted
    world.widen()
    world.run(2 * TRY_EVERY_MS)
    for process in world.processes:
        world.crash(process, back_after_ms=None)
        world.restart(process, 0)
    world.run(TRY_EVERY_MS)
    assert not events(world, "partition_back"), "nothing says any more that its end was lost"
    reasons = {fields["reason"] for _, event, fields in world.events if event == "partition_quarantined"}
    assert all(f"{topic}/" in reason and "went on at" in reason for reason in reasons), reasons
    assert len(reasons) == partitions
    assert {place for process in world.processes for place in process.states} == {(INTAKE, 0), (INTAKE, 1)} - lost
    for process in world.processes:  # static members stay in the group until their sessions are over
        process.stop()
    world.run(TRY_EVERY_MS)
    assert len(world.adopt()) == partitions
    for process in world.processes:
        world.restart(process, 0)
    assert world.run_until(lambda: serving(world), 30_000)
    report = world.settle()
    assert report.is_clean, RunOutcome(seed, shape, (), report, world.trace())


@pytest.mark.parametrize("deed", ["stop", "rebalance", "serve on"])
def test_a_lost_end_is_told_by_the_release_too_if_the_filing_that_met_it_is_aborted(seed: int, deed: str) -> None:
    world = World(seed, Shape(processes=1, partitions=1, poison=0.0, geometry=SMALL_LEVELS))
    top = SMALL_LEVELS.levels
    topic = wheel_topic(INTAKE, top)
    world.start()
    [process] = world.processes
    for _ in range(20):
        world.send_due(world.clock.now_ms() + 60_000)
    assert world.run_until(lambda: len(world.broker.records(topic)) > 9, 10_000)
    assert world.run_until(lambda: not world.broker.undecided(topic), 2_000)
    world.lose_end_of_level(top, 0, 5)

    def abort(_: Process, step: Step) -> Fate | None:
        is_filing = step.transaction.endswith("-file") and (step.call, step.phase) == ("send_offsets", "before")
        return Fate.WANT_ABORT if is_filing else None

    world.disturb = abort
    for _ in range(20):
        world.send_due(world.clock.now_ms() + 60_000)
    assert world.run_until(lambda: "filing_aborted" in [event for _, event, _ in world.events], 10_000)
    if deed == "stop":
        process.stop()
        world.restart(process, 0)
    elif deed == "rebalance":  # no filing commits any more: neither process may go on with what the first one knows
        world.newcomer("following")
    else:
        world.disturb = nothing
    assert world.run_until(lambda: bool(events(world, "partition_quarantined")), 10_000)
    world.disturb = nothing
    world.run(2 * TRY_EVERY_MS)
    assert not events(world, "partition_back")
