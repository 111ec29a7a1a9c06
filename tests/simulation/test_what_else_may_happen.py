"""Courses of events that random worlds would seldom take."""

from dataclasses import replace
from typing import Literal

import pytest

from tarry.kafka.record_headers import LOST_NAME
from tarry.service.worker.ownership import LOST_MS
from tarry.service.worker.static_member import TWIN_AFTER_MS
from tarry.testing.fake import Step
from tarry.testing.fake.log import Record
from tarry.testing.simulation import SHAPES, Process, Shape, World, at_a_step, crash, freeze, steps_of
from tarry.testing.simulation.disturbances import SESSION_MS
from tarry.testing.simulation.scenarios import SERVING_WITHIN_MS, Deed, serving
from tarry.testing.simulation.sent import Sent
from tarry.testing.simulation.world import SMALL_LEVELS
from tests.support.courses import release_before_markers
from tests.support.worlds import serve, verify_all_kept, verify_kept

LAG_MS = (0, 900)

LEAST_JUDGED = 0.08
"""In six seeds the lowest part was 0.37."""

LEAST_JUDGED_LAGGING = 0.01
"""An owner waits for markers until nearly all is due: of six seeds the least was 0.06."""


def start_and_send(seed: int, shape: Shape, messages: int = 60) -> World:
    world = serve(seed, shape)
    world.send(messages)
    world.run(1_500)
    return world


def crash_without_offsets(world: World, process: Process) -> None:
    """End the process, and delete the group's offsets, so that only the copies in the journal are left."""
    world.broker.expire_offsets(world.group)
    world.crash_here(process)


@pytest.mark.some_of("shape")
@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES.keys())
def test_with_the_groups_offsets_gone_at_any_commit_the_copies_in_the_journal_serve(seed: int, shape: Shape) -> None:
    steps = steps_of(seed, shape)
    commits = [at for at, step in enumerate(steps) if step.call in {"commit", "commit_transaction"}]
    outcomes = [at_a_step(seed, shape, index, crash_without_offsets) for index in commits]
    verify_all_kept(outcomes, least_judged=LEAST_JUDGED)


@pytest.mark.some_of("shape", 2)
@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES.keys())
@pytest.mark.parametrize("deed", [crash, freeze], ids=lambda deed: deed.__name__)
def test_markers_that_lag_behind_their_commit_hide_nothing_from_a_recovery(seed: int, shape: Shape, deed: Deed) -> None:
    shape = replace(shape, marker_lag_ms=LAG_MS)
    steps = steps_of(seed, shape)
    commits = [at for at, step in enumerate(steps) if (step.call, step.phase) == ("commit_transaction", "after")]
    outcomes = [at_a_step(seed, shape, index, deed) for index in commits]
    verify_all_kept(outcomes, least_judged=LEAST_JUDGED_LAGGING)


def test_a_release_that_is_committed_before_the_markers_of_a_filing_hides_nothing_from_the_next_owner(
    seed: int,
) -> None:
    verify_kept(release_before_markers(seed), "ended just after it had filed", least_judged=LEAST_JUDGED)


@pytest.mark.parametrize("by_ms", [-3_600_000, -5_000, -900, 900, 5_000])
def test_a_clock_that_jumps_makes_nothing_early(seed: int, by_ms: int) -> None:
    world = start_and_send(seed, Shape())
    world.clock.jump(by_ms)
    world.touch()
    world.run(1_000)
    world.send(20)
    if by_ms < -100_000:  # correct the clock again, otherwise all messages would wait for an hour
        world.clock.jump(-by_ms)
        world.touch()
    verify_kept(world, f"jump {by_ms} ms", least_judged=LEAST_JUDGED)


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
    verify_kept(world, "offsets expired, all crashed", least_judged=LEAST_JUDGED)


def test_a_whole_cluster_that_stops_and_starts_costs_time_alone(seed: int) -> None:
    world = start_and_send(seed, Shape())
    world.broker.stop()
    # Scheduled, because a process that waits for the cluster blocks the test until the cluster is back.
    world.clock.call_at(world.clock.monotonic_ms() + 30_000, world.broker.start)
    world.touch(30_000)
    world.run(31_000)
    verify_kept(world, "stopped for half a minute", least_judged=LEAST_JUDGED)


def test_a_target_away_for_two_minutes_delays_its_own_messages_alone(seed: int) -> None:
    world = start_and_send(seed, Shape())
    world.take_away("bills")
    world.send(60, longest_ms=30_000)
    world.run(120_000)
    waiting = world.unseen()
    assert waiting, "nothing waited for the target"
    assert {message.target for message in waiting} == {"bills"}
    world.bring_back("bills")
    verify_kept(world, "bills away for two minutes", least_judged=LEAST_JUDGED)


def with_long_journals(seed: int, shape: Shape) -> World:
    """Return a world whose journals take longer to read than the group waits; one target's messages are parked."""
    world = serve(seed, replace(shape, journal_fetch_ms=1_000, max_poll_ms=6_000))
    # Parked messages hold the low watermark, so a take-over reads the journal from there.
    world.take_away("bills")
    for _ in range(400):
        world.send(1, longest_ms=50)
        world.run(60)
    return world


DAY_MS = 86_400_000


@pytest.mark.parametrize("for_ms", [0, 20_000], ids=["for-a-turn", "for-a-while"])
def test_a_clock_that_is_a_day_ahead_closes_no_bucket_and_makes_nothing_early(seed: int, for_ms: int) -> None:
    world = start_and_send(seed, Shape(geometry=SMALL_LEVELS))
    [process, _] = world.processes
    process.clock.ahead_ms = DAY_MS
    if for_ms:
        world.run(for_ms)
    else:
        process.turn()
    process.clock.ahead_ms = 0
    world.touch()
    latest_ms = world.clock.now_ms() + SMALL_LEVELS.width_of(3) * 2
    for state in process.states.values():
        assert max(state.overflow.levels.closed_ms) <= latest_ms
    events = [event for name, event, _ in world.events if name == process.handle]
    assert "clock_stepped" in events
    assert ("clock_ahead" in events) == bool(for_ms)
    world.send(20)
    verify_kept(world, f"a day ahead for {for_ms} ms", least_judged=LEAST_JUDGED)


def test_a_clock_that_was_behind_and_is_set_is_followed_once_the_brokers_confirm_it(seed: int) -> None:
    world = World(seed, Shape(geometry=SMALL_LEVELS, processes=1))
    [process] = world.processes
    process.clock.ahead_ms = -60_000
    world.start()
    assert world.run_until(lambda: serving(world), SERVING_WITHIN_MS)
    world.send(20)
    world.run(1_000)
    process.clock.ahead_ms = 0
    world.touch()
    assert world.run_until(lambda: "clock_followed" in [event for _, event, _ in world.events], 5_000)
    verify_kept(world, "a minute behind, and set", least_judged=LEAST_JUDGED)


@pytest.mark.parametrize("for_ms", [9_000, 25_000])
def test_a_broker_that_does_not_know_a_target_kills_no_message_for_it(seed: int, for_ms: int) -> None:
    world = start_and_send(seed, Shape(poison=0.0))
    for process in world.processes:
        world.crash(process)  # so that the targets are asked for again
    world.hide("bills", for_ms)
    world.send(40)
    world.run(for_ms)
    verify_kept(world, f"a broker without bills for {for_ms} ms", least_judged=LEAST_JUDGED)


@pytest.mark.some_of("shape")
@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES.keys())
def test_a_take_over_that_is_longer_than_the_groups_patience_comes_to_its_end(seed: int, shape: Shape) -> None:
    world = with_long_journals(seed, shape)
    for process in world.processes:
        world.crash(process)
    assert world.run_until(lambda: serving(world), 120_000), world.trace()[-20:]
    took_ms = max(fields["took_ms"] for _, event, fields in world.events if event == "taken_over")
    assert took_ms > world.shape.max_poll_ms
    world.bring_back("bills")
    verify_kept(world, "a journal that takes longer to be read than the group waits", least_judged=LEAST_JUDGED)


def test_a_journal_that_grows_behind_one_parked_message_is_summed_up(seed: int) -> None:
    # What is parked stays in memory, so the watermark stays. With the parked log, it would move on after half a minute.
    world = serve(seed, Shape(geometry=SMALL_LEVELS, park_after_ms=3_600_000))
    world.take_away("bills")
    for _ in range(80):
        world.send(4, longest_ms=900)
        world.run(2_000)
    states = {place: state for process in world.processes for place, state in process.states.items()}
    for (topic, partition), state in states.items():
        done = world.broker.end("in.journal", partition)
        assert done > 800, "each transaction left a record"
        assert done - state.reads_from < 500, f"{topic}/{partition}: what a minute brought, and no more"
        assert world.broker.records("in.journal", partition)[0].offset >= done - 500, "and the rest is trimmed"
        assert state.position - state.low > 50, "what is parked keeps the watermark"
    for process in world.processes:
        world.crash(process)
    world.run(15_000)
    world.bring_back("bills")
    verify_kept(world, "one target away for minutes, and all crashed", least_judged=LEAST_JUDGED)


@pytest.mark.some_of("protocol")
@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_a_partition_that_is_revoked_in_the_middle_of_its_take_over_is_given_up(
    seed: int, protocol: Literal["classic", "consumer"]
) -> None:
    world = with_long_journals(seed, Shape(protocol=protocol, processes=1))
    [first] = world.processes
    world.crash(first)
    assert world.run_until(lambda: first.life == 2 and "assigned" in since(world, first), 30_000)
    world.run(5_000)
    assert "taken_over" not in since(world, first)
    second = world.newcomer("second")
    assert world.run_until(lambda: serving(world), 120_000), world.trace()[-20:]
    assert len(first.states) == len(second.states) == 1
    # The first process released the partitions that named it: it is not fenced, and continues those that it keeps.
    assert "fencing" not in since(world, second)
    assert "begin_anew" not in since(world, first)
    world.bring_back("bills")
    verify_kept(world, "another process joined in the middle of a take-over", least_judged=LEAST_JUDGED)


def test_served_partitions_continue_while_more_are_taken_over(seed: int) -> None:
    world = with_long_journals(seed, Shape(protocol="consumer"))
    first, second = world.processes
    world.crash(second, back_after_ms=None)
    assert world.run_until(lambda: "assigned" in since(world, first, of=second), 30_000)
    world.send(20, longest_ms=500)
    [served] = first.states

    def unseen(*, is_served: bool) -> list[Sent]:
        return [one for one in world.unseen() if (one.place == served) is is_served and one.target == "orders"]

    # A turn that reads a part of a journal takes a second here, and a message takes several turns.
    assert world.run_until(lambda: not unseen(is_served=True), 15_000)
    assert list(first.states) == [served]
    assert unseen(is_served=False)
    world.bring_back("bills")
    verify_kept(world, "one more taken over", least_judged=LEAST_JUDGED)


def since(world: World, process: Process, *, of: Process | None = None) -> list[str]:
    """Return the events of a process since its last start, or since another process ended."""
    begins = 0
    if of is not None:
        begins = max(at for at, (name, _, _) in enumerate(world.events) if name == of.handle)
    return [event for name, event, _ in world.events[begins:] if name == process.handle]


def test_two_processes_of_one_instance_fight_and_harm_nothing(seed: int) -> None:
    world = start_and_send(seed, Shape(static=True, processes=1))
    world.newcomer("twin", instance="p0")
    world.run(10_000)
    world.processes[1].stop()
    verify_kept(world, "a twin for ten seconds", least_judged=LEAST_JUDGED)


@pytest.mark.parametrize("answered", [False, True], ids=["unanswered", "answered"])
def test_a_member_that_is_shut_out_by_its_own_late_request_comes_back(seed: int, answered: bool) -> None:
    world = start_and_send(seed, Shape(static=True, processes=1))
    world.broker.join_once_more(world.group, "p0", answered=answered)
    world.touch()
    world.send(20)
    world.run(15_000)
    assert "shut_out_by_itself" in [event for _, event, _ in world.events]
    assert world.processes[0].errors == []
    verify_kept(world, "joined once more, late", least_judged=LEAST_JUDGED)


def test_a_member_that_is_shut_out_while_it_takes_over_does_not_go_on_with_that(seed: int) -> None:
    # Requests may take longer than the pause between two take-overs.
    shape = Shape(static=True, processes=1, latency_ms=(0, 330))

    def shut_out(world: World, _process: Process) -> None:
        world.broker.join_once_more(world.group, "p0", answered=True)

    commits = [at for at, step in enumerate(steps_of(seed, shape)) if step.call == "commit"]
    outcomes = [at_a_step(seed, shape, index, shut_out) for index in commits]
    assert all(any(" shut_out " in line for line in outcome.trace) for outcome in outcomes)
    # With such slow requests all messages are read after they are due: no order is promised, but all else is.
    verify_all_kept(outcomes, least_judged=0.0)


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
    # Longer than the wait for a twin: a session that began again with the cluster proves nothing.
    away_ms = TWIN_AFTER_MS + 10_000
    world.clock.call_at(world.clock.monotonic_ms() + away_ms, world.broker.start)
    world.touch(away_ms)
    world.send(20)
    world.run(away_ms + 20_000)
    assert "shut_out_by_itself" in [event for _, event, _ in world.events]
    assert world.processes[0].errors == []
    verify_kept(world, "joined once more, late, and then the cluster went away", least_judged=LEAST_JUDGED)


@pytest.mark.parametrize("static", [False, True])
def test_a_group_that_its_coordinator_has_lost_is_joined_again(seed: int, static: bool) -> None:
    world = start_and_send(seed, Shape(protocol="consumer", static=static))
    world.broker.lose_group(world.group)
    world.touch()
    world.send(20)
    world.run(5_000)
    assert [event for _, event, _ in world.events].count("group_gone") == 2
    assert all(process.errors == [] for process in world.processes)
    verify_kept(world, "the group lost", least_judged=LEAST_JUDGED)


def test_members_whose_client_library_does_nothing_after_a_loss_join_again(seed: int) -> None:
    world = start_and_send(seed, Shape(protocol="consumer"))
    world.broker.wedge_members(world.group)
    world.touch(LOST_MS)
    world.send(20)
    world.run(LOST_MS + 5_000)
    assert [event for _, event, _ in world.events].count("joining_anew") == 2
    verify_kept(world, "wedged", least_judged=LEAST_JUDGED)


def test_a_member_that_was_shut_out_because_its_client_forgot_its_id_comes_back_at_once(seed: int) -> None:
    world = start_and_send(seed, Shape(static=True, processes=2))
    world.broker.forget_member_ids(world.group)
    world.touch()
    world.send(20)
    world.run(5_000)
    assert [event for _, event, _ in world.events].count("shut_out_by_itself") == 2
    assert all(process.errors == [] for process in world.processes)
    verify_kept(world, "member ids forgotten", least_judged=LEAST_JUDGED)


UNREADABLE: list[tuple[str | bytes, bytes | None]] = [("a", b"1"), (b"caf\xe9", b"2"), (b"\xff", None)]


def test_records_whose_headers_the_client_library_cannot_read_are_dead_letters_with_what_can_be_had(seed: int) -> None:
    world = start_and_send(seed, Shape(geometry=SMALL_LEVELS))
    count = 0
    for topic in ("in", "in.wheel-1"):
        for partition in range(2):
            world.broker.append(topic, b"foreign", topic.encode(), UNREADABLE, partition)
            count += 1
    world.touch()

    def letters() -> list[Record]:
        dead = [one for number in range(2) for one in world.broker.records("in.dead", number)]
        return [one for one in dead if one.key == b"foreign"]

    # What the service has not filed is met in the gap before the next messages that it files.
    for _ in range(100):
        world.send(6, longest_ms=3_000)
        if world.run_until(lambda: len(letters()) >= count, 500):
            break
    world.run(5_000)
    assert len(letters()) == count
    for letter in letters():
        headers = letter.headers or []
        assert headers[:3] == [("a", b"1"), ("caf\\xe9", b"2"), (LOST_NAME, None)]
        assert dict(headers)["tarry-error"] == b"unreadable-headers"
    assert all(process.errors == [] for process in world.processes)
    verify_kept(world, "foreign records", least_judged=LEAST_JUDGED)


@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES.keys())
def test_a_process_that_wakes_before_a_take_over_of_partitions_with_another_owner_does_not_fence_it(
    seed: int, shape: Shape
) -> None:
    world = World(seed, replace(shape, processes=1))
    since: int | None = None

    def disturb(process: Process, step: Step) -> None:
        nonlocal since
        begins = (process.name, step.call, step.phase) == ("p0", "describe_topics", "after")
        if since is None and begins and ("p0-1", "assigned") in {(handle, event) for handle, event, _ in world.events}:
            since = -1
            world.newcomer("p1")
            world.pause_here(process, 6 * SESSION_MS, frozen=True)
            assert world.processes[1].states, "the other one serves"
            since = len(world.events)

    world.disturb = disturb
    world.start()
    assert world.run_until(lambda: (since or 0) > 0, SERVING_WITHIN_MS)
    world.send(60)
    world.run(2 * SESSION_MS)
    assert not [fields for handle, event, fields in world.events[since:] if (handle, event) == ("p1-1", "begin_anew")]
    assert not [fields for handle, event, fields in world.events[since:] if (handle, event) == ("p0-1", "fencing")]
    verify_kept(world, "froze as it began to take over", least_judged=LEAST_JUDGED)
