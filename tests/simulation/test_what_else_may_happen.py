"""Courses of events that chance would seldom take."""

from dataclasses import replace

import pytest

from tarry.testing.simulation import SHAPES, Outcome, Process, Shape, World, at_a_step, crash, freeze, steps_of
from tarry.testing.simulation.scenarios import serving
from tarry.worker.ownership import LOST_MS
from tarry.worker.shut_out import TWIN_AFTER_MS

LAG_MS = (0, 900)


def verify_clean(world: World, *what: str) -> None:
    report = world.settle()
    assert report.is_clean, Outcome(world.seed, world.shape, what, report, world.trace())
    assert report.judged > 0, report


def start_and_send(seed: int, shape: Shape, messages: int = 60) -> World:
    world = World(seed, shape)
    world.start()
    assert world.run_until(lambda: serving(world), 30_000)
    world.send(messages)
    world.run(1_500)
    return world


def crash_without_offsets(world: World, process: Process) -> None:
    """End the process, and let the group forget where it was: only the copies in the journal know."""
    world.broker.expire_offsets(world.group)
    world.crash_here(process)


@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES.keys())
def test_with_the_groups_offsets_gone_at_any_commit_the_copies_in_the_journal_serve(seed: int, shape: Shape) -> None:
    steps = steps_of(seed, shape)
    for index in [at for at, step in enumerate(steps) if step.call in {"commit", "commit_transaction"}]:
        outcome = at_a_step(seed, shape, index, crash_without_offsets)
        assert outcome.report.is_clean, outcome


@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES.keys())
@pytest.mark.parametrize("deed", [crash, freeze], ids=lambda deed: deed.__name__)
def test_markers_that_lag_behind_their_commit_hide_nothing_from_a_recovery(
    seed: int, shape: Shape, deed: object
) -> None:
    shape = replace(shape, marker_lag_ms=LAG_MS)
    steps = steps_of(seed, shape)
    for index in [at for at, step in enumerate(steps) if (step.call, step.phase) == ("commit_transaction", "after")]:
        outcome = at_a_step(seed, shape, index, deed)  # type: ignore[arg-type]  # pytest's parameters have no types
        assert outcome.report.is_clean, outcome


@pytest.mark.parametrize("by_ms", [-3_600_000, -5_000, -900, 900, 5_000])
def test_a_clock_that_jumps_makes_nothing_early(seed: int, by_ms: int) -> None:
    world = start_and_send(seed, Shape())
    world.clock.jump(by_ms)
    world.touch()
    world.run(1_000)
    world.send(20)
    if by_ms < -100_000:  # set right again, or all would wait for an hour
        world.clock.jump(-by_ms)
        world.touch()
    verify_clean(world, f"jump {by_ms} ms")


def test_the_last_copy_is_enough_after_journals_were_trimmed_many_times(seed: int) -> None:
    world = World(seed, Shape(static=True))
    world.start()
    for _ in range(12):
        world.send(20, longest_ms=20_000)
        world.run(20_000)
    starts = [world.broker.records("in.journal", partition)[0].offset for partition in range(2)]
    assert min(starts) > 0, "nothing was trimmed"
    world.broker.expire_offsets(world.group)
    for process in world.processes:
        world.crash(process)
    world.run(2_000)
    verify_clean(world, "offsets expired, all crashed")


def test_a_whole_cluster_that_stops_and_starts_costs_time_alone(seed: int) -> None:
    world = start_and_send(seed, Shape())
    world.broker.stop()
    # Scheduled, because whoever waits for the cluster waits until it is back, and nobody else moves the clock.
    world.clock.call_at(world.clock.monotonic_ms() + 30_000, world.broker.start)
    world.touch(30_000)
    world.run(31_000)
    verify_clean(world, "stopped for half a minute")


def test_a_target_away_for_two_minutes_delays_its_own_messages_alone(seed: int) -> None:
    world = start_and_send(seed, Shape())
    world.take_away("bills")
    world.send(60, longest_ms=30_000)
    world.run(120_000)
    waiting = world.unseen()
    assert waiting, "nothing waited for the target"
    assert {message.target for message in waiting} == {"bills"}
    world.bring_back("bills")
    verify_clean(world, "bills away for two minutes")


def test_two_processes_of_one_instance_fight_and_harm_nothing(seed: int) -> None:
    world = start_and_send(seed, Shape(static=True, processes=1))
    world.newcomer("twin", instance="p0")
    world.run(10_000)
    world.processes[1].stop()
    verify_clean(world, "a twin for ten seconds")


@pytest.mark.parametrize("answered", [False, True], ids=["unanswered", "answered"])
def test_a_member_that_is_shut_out_by_its_own_late_request_comes_back(seed: int, answered: bool) -> None:
    world = start_and_send(seed, Shape(static=True, processes=1))
    world.broker.join_once_more(world.group, "p0", answered=answered)
    world.touch()
    world.send(20)
    world.run(15_000)
    assert "shut_out_by_itself" in [event for _, event, _ in world.events]
    assert world.processes[0].errors == []
    verify_clean(world, "joined once more, late")


def test_a_member_that_is_shut_out_while_it_takes_over_does_not_go_on_with_that(seed: int) -> None:
    # Questions may take longer than one take-over waits for the next.
    shape = Shape(static=True, processes=1, latency_ms=(0, 330))

    def shut_out(world: World, _process: Process) -> None:
        world.broker.join_once_more(world.group, "p0", answered=True)

    commits = [at for at, step in enumerate(steps_of(seed, shape)) if step.call == "commit"]
    outcomes = [at_a_step(seed, shape, index, shut_out) for index in commits]
    assert all(any(" shut_out " in line for line in outcome.trace) for outcome in outcomes)
    assert [outcome for outcome in outcomes if not outcome.report.is_clean] == []
    assert outcomes


def test_a_member_that_is_shut_out_by_itself_while_the_cluster_is_away_comes_back_after_it(seed: int) -> None:
    world = start_and_send(seed, Shape(static=True, processes=1))
    world.broker.join_once_more(world.group, "p0")
    world.touch()
    world.run(3_000)
    assert world.events[-1][1] == "shut_out"
    [process] = world.processes
    assert process.worker is not None
    assert not process.worker.look().joined, "it serves nothing, and is not ready"
    world.broker.stop()
    # Longer than a twin is waited for: a session that began anew with the cluster proves nothing.
    away_ms = TWIN_AFTER_MS + 10_000
    world.clock.call_at(world.clock.monotonic_ms() + away_ms, world.broker.start)
    world.touch(away_ms)
    world.send(20)
    world.run(away_ms + 20_000)
    assert "shut_out_by_itself" in [event for _, event, _ in world.events]
    assert world.processes[0].errors == []
    verify_clean(world, "joined once more, late, and then the cluster went away")


@pytest.mark.parametrize("static", [False, True])
def test_a_group_that_its_coordinator_has_lost_is_joined_anew(seed: int, static: bool) -> None:
    world = start_and_send(seed, Shape(protocol="consumer", static=static))
    world.broker.lose_group(world.group)
    world.touch()
    world.send(20)
    world.run(5_000)
    assert [event for _, event, _ in world.events].count("group_gone") == 2
    assert all(process.errors == [] for process in world.processes)
    verify_clean(world, "the group lost")


def test_members_whose_client_library_does_nothing_after_a_loss_join_anew(seed: int) -> None:
    world = start_and_send(seed, Shape(protocol="consumer"))
    world.broker.wedge_members(world.group)
    world.touch(LOST_MS)
    world.send(20)
    world.run(LOST_MS + 5_000)
    assert [event for _, event, _ in world.events].count("joining_anew") == 2
    verify_clean(world, "wedged")


def test_a_member_that_was_shut_out_because_its_client_forgot_its_id_comes_back_at_once(seed: int) -> None:
    world = start_and_send(seed, Shape(static=True, processes=2))
    world.broker.forget_member_ids(world.group)
    world.touch()
    world.send(20)
    world.run(5_000)
    assert [event for _, event, _ in world.events].count("shut_out_by_itself") == 2
    assert all(process.errors == [] for process in world.processes)
    verify_clean(world, "member ids forgotten")
