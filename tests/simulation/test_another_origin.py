"""Topics that are recreated or lose records: the service must not use checkpoints of the former topics for them."""

from collections.abc import Iterable, Sequence
from dataclasses import replace

import pytest

from tarry.kafka import takeover
from tarry.kafka.offsets import Offsets
from tarry.kafka.refusals import SURE_AFTER_MS
from tarry.kafka.topics import JOURNAL, PARKED
from tarry.kafka.types import Place
from tarry.service.worker.maintenance import COPY_EVERY_MS
from tarry.testing.simulation import RunOutcome, Shape, World
from tarry.testing.simulation.scenarios import serving
from tarry.testing.simulation.world import INTAKE, SMALL_LEVELS

SHAPE = Shape(geometry=SMALL_LEVELS, processes=1)
LEVELS = tuple(f".wheel-{level}" for level in range(1, SMALL_LEVELS.levels + 1))
WAITS_MS = 4_000
"""Due so late that it is filed first."""


def served(seed: int, shape: Shape = SHAPE, messages: int = 60) -> World:
    """Return a world whose intake was served; the service has ended, and messages wait in buckets."""
    world = World(seed, shape)
    world.start()
    assert world.run_until(lambda: serving(world), 30_000)
    world.send(messages, longest_ms=300)
    world.run(1_500)
    for number in range(20):
        world.send_due(world.clock.now_ms() + WAITS_MS - 50 * number)
    world.run(300)
    for process in world.processes:
        process.stop()
    return world


def refusal(world: World) -> str:
    """Return why the service cannot start."""
    line = world.until_refused()
    assert line is not None, "it serves"
    return line


def verify_all_arrives(world: World, what: str) -> None:
    report = world.settle()
    assert report.is_clean, RunOutcome(world.seed, world.shape, (what,), report, world.trace())


def said(world: World, event: str) -> bool:
    return any(one == event for _, one, _ in world.events)


@pytest.mark.parametrize("passed", [False, True], ids=["below-the-old-end", "beyond-the-old-end"])
@pytest.mark.some_of("shape")
@pytest.mark.parametrize("shape", [SHAPE, replace(SHAPE, protocol="consumer")], ids=["classic", "consumer"])
def test_a_recreated_intake_is_refused_and_then_adopted_without_loss(seed: int, shape: Shape, passed: bool) -> None:
    world = served(seed, shape)
    world.make_anew("")
    world.send(200 if passed else 10, longest_ms=300)
    line = refusal(world)
    assert f"is of topic {INTAKE} with id " in line
    assert "`tarry serve --adopt`" in line
    world.adopt()
    verify_all_arrives(world, "the intake recreated")


def test_messages_in_buckets_survive_the_recreation_of_their_intake(seed: int) -> None:
    world = served(seed)
    # Except due messages that wait for an answer about their target, because they are only in the intake.
    waiting = {message.id for message in world.unseen() if message.due_ms > world.clock.now_ms()}
    world.make_anew("")
    refusal(world)
    world.adopt()
    verify_all_arrives(world, "the intake recreated")
    assert waiting <= world.survivors
    assert len(waiting) > 5


@pytest.mark.parametrize("suffixes", [(".journal",), LEVELS[:1], LEVELS[1:2], LEVELS, (".journal", *LEVELS)])
def test_recreated_topics_beside_an_intake_are_named_and_its_messages_are_delivered_again(
    seed: int, suffixes: Sequence[str]
) -> None:
    world = served(seed)
    world.make_anew(*suffixes)
    world.send(20, longest_ms=300)
    line = refusal(world)
    if ".journal" not in suffixes:  # otherwise there is no copy, and the group's offset belongs to another journal
        assert all(f"{INTAKE}{suffix} with id" in line for suffix in suffixes)
    assert "`tarry serve --adopt`" in line
    world.adopt()
    verify_all_arrives(world, f"{suffixes} recreated")


def parked(seed: int) -> World:
    """Return a world whose service has ended, with messages in the parked log."""
    world = World(seed, replace(SHAPE, park_after_ms=300))
    world.start()
    assert world.run_until(lambda: serving(world), 30_000)
    world.take_away("bills")
    world.send(60, longest_ms=300)
    world.run(4_000)
    for process in world.processes:
        process.stop()
    assert any(world.broker.records(INTAKE + PARKED, partition) for partition in range(SHAPE.partitions))
    return world


def test_parked_messages_survive_the_recreation_of_the_journal_that_told_of_them(seed: int) -> None:
    world = parked(seed)
    world.make_anew(JOURNAL)
    refusal(world)
    world.adopt()
    world.bring_back("bills")
    verify_all_arrives(world, "the journal recreated")


def test_a_recreated_parked_log_is_not_taken_for_an_empty_one(seed: int) -> None:
    world = parked(seed)
    world.make_anew(PARKED)
    line = refusal(world)
    assert line.startswith(f"{INTAKE}{PARKED}/")
    assert "records are lost" in line


def test_an_intake_whose_topics_are_all_new_begins_like_any_new_one(seed: int) -> None:
    world = served(seed)
    world.make_anew("", ".journal", *LEVELS)
    world.send(30, longest_ms=300)
    verify_all_arrives(world, "all recreated")


def test_an_intake_that_lost_its_end_is_refused_until_it_is_adopted(seed: int) -> None:
    world = served(seed)
    for partition in range(SHAPE.partitions):
        world.lose_end(partition, world.broker.end(INTAKE, partition) // 2)
    line = refusal(world)
    assert line.startswith(f"{INTAKE}/")
    assert "records are lost, as by an unclean election" in line
    world.adopt()
    world.send(20, longest_ms=300)
    verify_all_arrives(world, "an unclean election")


def let_ends_lag(world: World, topic: str, for_ms: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the ends of a topic lag, as its new leaders report them at first."""
    ask, lag_until_ms = Offsets.ends, world.clock.monotonic_ms() + for_ms

    def ends(offsets: Offsets, places: Iterable[Place], *, committed: bool) -> dict[Place, int]:
        is_behind = world.clock.monotonic_ms() < lag_until_ms
        found = ask(offsets, places, committed=committed)
        return {at: 0 if is_behind and at[0] == topic else end for at, end in found.items()}

    monkeypatch.setattr(Offsets, "ends", ends)


def test_to_adopt_believes_an_end_only_when_it_lasts(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    world = served(seed)
    let_ends_lag(world, INTAKE, SURE_AFTER_MS // 2, monkeypatch)
    assert world.adopt() == []
    let_ends_lag(world, INTAKE, 10 * SURE_AFTER_MS, monkeypatch)
    adopted = world.adopt()
    assert len(adopted) == SHAPE.partitions
    assert all("records are lost, as by an unclean election" in line for line in adopted), adopted


@pytest.mark.parametrize("suffix", ["", ".journal"])
def test_a_take_over_believes_an_end_only_when_it_lasts(
    seed: int, suffix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = World(seed, SHAPE)
    world.start()
    world.run(2 * COPY_EVERY_MS)
    world.send(60, longest_ms=300)
    world.run(COPY_EVERY_MS)
    [process] = world.processes
    process.stop()
    let_ends_lag(world, INTAKE + suffix, SURE_AFTER_MS // 2, monkeypatch)
    process.start()
    world.run(SURE_AFTER_MS)
    assert said(world, "take_over_refused")
    assert not said(world, "partition_quarantined")
    assert serving(world)
    let_ends_lag(world, INTAKE + suffix, 10 * SURE_AFTER_MS, monkeypatch)
    process.stop()
    process.start()
    assert world.run_until(lambda: said(world, "partition_quarantined"), 3 * SURE_AFTER_MS)


def test_an_end_that_lags_is_not_believed_for_what_was_seen_before_the_partition_was_somebody_elses(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(takeover, "shortfall", lambda place, *_: f"{place} ends too soon")
    world = World(seed, SHAPE)
    world.start()
    [process] = world.processes
    world.run_until(lambda: said(world, "take_over_refused"), 10_000)
    world.broker.freeze(process.handle)
    world.clock.advance(2 * SURE_AFTER_MS)
    world.broker.thaw(process.handle)
    world.run(SURE_AFTER_MS // 2)
    assert said(world, "lost")
    assert not said(world, "partition_quarantined")
    world.run(SURE_AFTER_MS)
    assert said(world, "partition_quarantined")


@pytest.mark.parametrize("messages", [10, 200], ids=["below-where-it-stood", "beyond-where-it-stood"])
def test_an_intake_recreated_under_a_running_service_is_noticed_before_anything_is_trimmed(
    seed: int, messages: int
) -> None:
    world = World(seed, SHAPE)
    world.start()
    assert world.run_until(lambda: serving(world), 30_000)
    world.send(60, longest_ms=300)
    world.run(3_000)
    world.make_anew("")
    world.send(messages, longest_ms=300)
    [process] = world.processes
    assert world.run_until(lambda: len(process.quarantined) == SHAPE.partitions, 2 * COPY_EVERY_MS), "it goes on"
    assert [len(world.broker.records(INTAKE, partition)) > 0 for partition in range(SHAPE.partitions)] == [True, True]
    process.stop()
    assert f"is of topic {INTAKE} with id " in refusal(world)
    world.adopt()
    report = world.settle()
    # Until the service notices it, records below the old read position are not delivered.
    assert report.faults.keys() <= {"stuck"}, RunOutcome(seed, SHAPE, (), report, world.trace())


def test_an_intake_recreated_within_seconds_of_its_birth_is_refused_too(seed: int) -> None:
    world = World(seed, Shape(processes=1))  # without levels: closing a bucket writes a copy too
    world.start()
    assert world.run_until(lambda: serving(world), 30_000)
    world.send(40, longest_ms=100)
    world.run(1_500)
    world.crash(world.processes[0], back_after_ms=None)  # so it has released nothing, and copied nothing by time
    world.make_anew("")
    world.send(200, longest_ms=300)
    assert f"is of topic {INTAKE} with id " in refusal(world)
    world.adopt()
    verify_all_arrives(world, "recreated at once")
