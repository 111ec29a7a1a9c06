"""Offsets of a transaction that is over, which a group's coordinator keeps as pending: they stop no take-over.

It does so if it has missed the end of the transaction, or if a request comes late (docs/adr/0037).
"""

from itertools import pairwise
from typing import Any

import pytest

from tarry.core.progress.checkpoint import Geometry, decode_checkpoint
from tarry.errors import RetriableError
from tarry.kafka.membership import Membership
from tarry.kafka.settings import Cluster
from tarry.kafka.transaction import Transactor, end_pending_offsets
from tarry.service.supervisor.supervisor import TimeLimits
from tarry.service.worker.context import Context
from tarry.service.worker.maintenance import COPY_EVERY_MS
from tarry.service.worker.takeovers import RELEASED_EVERY_MS, TakeOvers
from tarry.testing import ManualClock
from tarry.testing.fake import Fate, Step
from tarry.testing.simulation import SHAPES, Process, Shape, World
from tarry.testing.simulation.world import NO_LEVELS, SMALL_LEVELS
from tests.support.worlds import freeze_in_a_firing, never_sum_up, serve, verify_kept

WITHIN_MS = 60_000
"""A take-over learns within ten seconds that offsets stay pending; it may begin after a session, and begin again."""

LEAST_JUDGED = 0.1
"""In six seeds the lowest part was 0.30: what is due before a take-over ends is not judged."""


def events_of(world: World, since: int = 0) -> list[str]:
    return [event for _, event, _ in world.events[since:]]


def verify_served(world: World, what: str, since: int) -> None:
    """Wait until offsets that stay pending have been ended, and check the promises."""
    world.touch(WITHIN_MS)
    world.send(20)
    assert world.run_until(lambda: "pending_offsets_ended" in events_of(world, since), WITHIN_MS)
    assert world.run_until(lambda: not world.unseen(), WITHIN_MS)
    assert "partition_quarantined" not in events_of(world, since)
    verify_kept(world, what, least_judged=LEAST_JUDGED)


def crash_with_missed_ends(world: World) -> int:
    """Let all processes crash after the coordinator has missed the ends of transactions for a second (`crash_all`)."""
    world.send(60)
    world.run(1_500)
    world.broker.miss_ends(world.group)
    world.send(20, longest_ms=500)
    world.run(1_000)
    return crash_all(world)


def crash_all(world: World) -> int:
    """Let all processes crash, and the coordinator miss no further end; return the number of events before."""
    since = len(world.events)
    for process in world.processes:
        world.crash(process)
    world.broker.miss_ends(world.group, missed=False)
    return since


def send_and_run(world: World, ms: int) -> None:
    for _ in range(ms // 20_000):
        world.send(20, longest_ms=10_000)
        world.run(20_000)


@pytest.mark.some_of("shape")
@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES.keys())
def test_the_missed_ends_of_dead_owners_transactions(seed: int, shape: Shape) -> None:
    world = serve(seed, shape)
    since = crash_with_missed_ends(world)
    verify_served(world, "missed ends", since)


@pytest.mark.some_of("geometry")
@pytest.mark.parametrize("geometry", [NO_LEVELS, SMALL_LEVELS], ids=["no levels", "levels"])
def test_ends_that_were_missed_for_so_long_that_the_journal_was_trimmed(seed: int, geometry: Geometry) -> None:
    """The last offset that the coordinator knows is then older than the journal: the last copy in there is not."""
    world = serve(seed, Shape(static=True, geometry=geometry))
    for missed in (False, True):
        world.broker.miss_ends(world.group, missed=missed)
        send_and_run(world, COPY_EVERY_MS + 40_000)
    since = crash_all(world)
    verify_served(world, "a trimmed journal", since)
    assert "checkpoint_from_copy" in events_of(world, since)


def test_a_partition_whose_last_copy_is_later_need_not_be_adopted(seed: int) -> None:
    """To adopt it would deliver its messages again."""
    world = serve(seed, Shape(static=True, partitions=1))
    send_and_run(world, COPY_EVERY_MS + 40_000)
    world.broker.miss_ends(world.group)
    send_and_run(world, COPY_EVERY_MS + 40_000)
    for process in world.processes:
        world.crash(process, back_after_ms=None)
    assert lows_of(world)[1] < first_of(world, "in.journal"), "the journal is trimmed beyond the committed checkpoint"
    assert world.adopt() == []


def test_an_owner_whose_transactional_id_was_replaced_since(seed: int) -> None:
    world = serve(seed, Shape(processes=1, partitions=1))
    world.send(30)
    world.run(1_000)
    world.broker.miss_ends(world.group)
    world.send(20, longest_ms=40)
    world.run(300)
    [process] = world.processes
    assert process.worker is not None
    firing = process.worker._connections.firing
    firing.is_stuck = True
    firing.close()
    assert world.run_until(lambda: "names_changed" in events_of(world), 5_000)
    since = crash_all(world)
    verify_served(world, "another name", since)


def test_offsets_that_come_late_of_an_owner_that_has_released(seed: int) -> None:
    world = serve(seed, Shape())
    world.send(30)
    world.run(1_500)
    first = world.processes[0]
    assert first.worker is not None
    firing = first.worker._connections.firing.transactional_id
    since = len(world.events)
    first.stop()
    world.broker.repeat_offsets(world.group, firing)
    verify_served(world, "late offsets", since)


def test_a_partition_that_stands_by_with_a_missed_release_is_taken_over(seed: int) -> None:
    world = serve(seed, Shape(processes=1, partitions=1))
    world.send(20)
    world.run(1_500)
    since = len(world.events)
    world.broker.miss_ends(world.group)
    world.newcomer("p1")
    assert world.run_until(lambda: "revoked" in events_of(world, since), 20_000)
    world.broker.miss_ends(world.group, missed=False)
    verify_served(world, "a missed release", since)


def test_one_refusal_of_the_transaction_that_ends_them_delays_it_only(seed: int) -> None:
    world = serve(seed, Shape(static=True, processes=1, partitions=1))
    since = crash_with_missed_ends(world)
    refused: list[Step] = []

    def refuse_once(_process: Process, step: Step) -> Fate | None:
        if refused or (step.call, step.phase) != ("send_offsets", "before"):
            return None
        refused.append(step)  # nothing is served yet, so no other transaction sends offsets
        return Fate.WANT_ABORT

    world.disturb = refuse_once
    verify_served(world, "a refusal", since)
    assert refused


def test_two_processes_that_end_those_of_the_same_id_lose_no_producer_of_their_own(seed: int) -> None:
    world = serve(seed, Shape(processes=1, partitions=1))
    broker, offsets = world.broker, {("in.journal", 0): (0, "")}
    metadata = world.processes[0].worker._connections.membership.metadata()  # type: ignore[union-attr]

    def overtake(step: Step) -> None:
        if (step.call, step.phase) == ("send_offsets", "before"):
            Transactor(Cluster("fake", {}, broker.clients("second")), "dead-fire").renew()

    first = Cluster("fake", {}, broker.clients("first", overtake))
    with pytest.raises(RetriableError, match="fenced"):
        end_pending_offsets(first, ["dead-fire"], offsets, metadata)


def test_a_partition_that_is_revoked_before_it_is_resumed_goes_on_standing_by(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = serve(seed, Shape(processes=1, partitions=1))
    world.send(20)
    world.run(1_500)
    since = len(world.events)
    with monkeypatch.context() as patch:
        world.newcomer("p1")
        assert world.run_until(lambda: "revoked" in events_of(world, since), 20_000)
        patch.setattr(Membership, "committed", _unanswered)
        assert world.run_until(lambda: "take_over_refused" in events_of(world, since), 20_000)
        world.newcomer("p2")
        assert world.run_until(lambda: events_of(world, since).count("revoked") >= 2, 20_000)
    world.run(5_000)
    assert "resumed" in events_of(world, since)
    verify_kept(world, "revoked twice", least_judged=LEAST_JUDGED)


def _unanswered(*_: object) -> None:
    raise RetriableError("no answer", "_TRANSPORT")


def test_the_writer_of_a_later_copy_is_fenced_before_the_take_over_goes_on_from_it(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A coordinator that knows only an older checkpoint names an owner before the last one, who may wake up again."""
    world = serve(seed, Shape(partitions=1, processes=1))
    world.send(20, longest_ms=500)
    world.run(2_000)
    load_in_part = world.broker.load_in_part(world.group)
    world.processes[0].stop()
    last = world.newcomer("p1")
    assert world.run_until(lambda: bool(last.states), WITHIN_MS)
    send_and_run(world, 2 * COPY_EVERY_MS + 40_000)
    since = len(world.events)
    woken = freeze_in_a_firing(world, last, load_in_part, monkeypatch)
    world.send(10, longest_ms=100)
    world.touch(WITHIN_MS)
    world.run(WITHIN_MS)
    assert woken == [True], "the next owner serves when the last one wakes"
    assert "checkpoint_from_copy" in events_of(world, since)
    assert events_of(world, since).count("fencing") >= 2
    verify_kept(world, "an older checkpoint, and a zombie", least_judged=LEAST_JUDGED)


def test_the_writer_of_a_copy_is_fenced_also_if_nothing_came_to_the_intake_since_an_older_checkpoint(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is delivered from the levels moves neither the low watermark of the intake nor its pointer."""
    world = serve(seed, Shape(partitions=1, processes=1, poison=0, geometry=SMALL_LEVELS))
    never_sum_up(world.processes[0])
    now_ms = world.clock.now_ms()
    for number in range(40):
        world.send_due(now_ms + 3 * COPY_EVERY_MS + 3_000 * number)
    world.run(COPY_EVERY_MS + 10_000)
    low_before = lows_of(world)[0]
    load_in_part = world.broker.load_in_part(world.group)
    world.processes[0].stop()
    last = world.newcomer("p1")
    assert world.run_until(lambda: bool(last.states), WITHIN_MS)
    never_sum_up(last)
    world.run(2 * COPY_EVERY_MS + 30_000)
    assert low_before == lows_of(world)[0]
    since = len(world.events)
    woken = freeze_in_a_firing(world, last, load_in_part, monkeypatch)
    world.touch(WITHIN_MS)
    world.run(WITHIN_MS)
    assert woken == [True], "the next owner serves when the last one wakes"
    verify_kept(world, "an idle intake, and a zombie", least_judged=LEAST_JUDGED)
    assert "checkpoint_from_copy" in events_of(world, since)


def test_an_older_checkpoint_that_the_journal_still_holds_gives_way_to_a_later_copy(seed: int) -> None:
    """The intake may be trimmed beyond it, and the journal not: a burst that was read at once fires for a while."""
    shape = Shape(static=True, processes=1, partitions=1, poison=0, latency_ms=(0, 0), fetch_most=1_000)
    world = serve(seed, shape)
    [process] = world.processes
    assert process.worker is not None
    maintenance = process.worker._parts.maintenance
    maintenance._keep_ms, maintenance._sum_up_after = {"in": 0}, 10_000
    committed, copies = maintenance._commit_checkpoints, list[int]()

    def note(states: Any, summed_up: Any) -> Any:
        copies.append(world.clock.monotonic_ms())
        return committed(states, summed_up)

    maintenance._commit_checkpoints = note
    world.send(30, longest_ms=300)
    assert world.run_until(lambda: len(copies) == 1, 2 * COPY_EVERY_MS)
    world.run(COPY_EVERY_MS - 1_500)
    now_ms = world.clock.now_ms()
    for number in range(60):
        world.send_due(now_ms + 100 + 50 * number)
    assert world.run_until(lambda: world.clock.monotonic_ms() >= copies[0] + COPY_EVERY_MS - 400, 5_000)
    world.broker.miss_ends(world.group)
    assert world.run_until(lambda: len(copies) == 2, 5_000)
    assert world.run_until(lambda: first_of(world, "in") > lows_of(world)[0], 5_000), "the intake is trimmed beyond it"
    assert lows_of(world)[1] >= first_of(world, "in.journal"), "the journal is not"
    since = crash_all(world)
    verify_served(world, "a trimmed intake", since)
    assert "checkpoint_from_copy" in events_of(world, since)


def first_of(world: World, topic: str) -> int:
    return world.broker.records(topic)[0].offset


def lows_of(world: World) -> tuple[int, int]:
    """Return the committed low watermark of the first partition, and where a recovery begins to read its journal."""
    committed = world.broker.committed(world.group, ("in", 0))
    assert committed is not None
    return committed[0], decode_checkpoint(committed[1]).reads_from


def test_a_partition_that_stood_by_and_whose_log_was_away_is_taken_over(seed: int) -> None:
    """The log may have lost its end meanwhile, by an unclean election."""
    world = serve(seed, Shape(processes=1, partitions=1))
    world.send(20)
    world.run(1_500)
    since = len(world.events)
    world.newcomer("p1")
    assert world.run_until(lambda: "revoked" in events_of(world, since), 20_000)
    world.broker.take_away("in", 0)
    assert world.run_until(lambda: "partition_waits" in events_of(world, since), 20_000)
    world.broker.bring_back("in", 0)
    world.touch(WITHIN_MS)
    assert world.run_until(lambda: "partition_back" in events_of(world, since), WITHIN_MS)
    assert "resumed" not in events_of(world, since)
    verify_kept(world, "away while it stood by", least_judged=LEAST_JUDGED)


def test_the_loop_is_never_silent_for_long_while_offsets_of_a_partition_that_stood_by_stay_pending(seed: int) -> None:
    world = serve(seed, Shape(processes=1, partitions=1))
    world.send(20)
    world.run(1_500)
    worker = world.processes[0].worker
    assert worker is not None
    send, beats = worker._health._send, [world.clock.monotonic_ms()]

    def note(health: Any) -> None:
        beats.append(world.clock.monotonic_ms())
        send(health)

    worker._health._send = note
    since = len(world.events)
    world.broker.miss_ends(world.group)
    world.newcomer("p1")
    assert world.run_until(lambda: "revoked" in events_of(world, since), 20_000)
    world.broker.miss_ends(world.group, missed=False)
    world.touch(WITHIN_MS)
    assert world.run_until(lambda: "taken_over" in events_of(world, since), WITHIN_MS)
    assert max(after - before for before, after in pairwise(beats)) < 0.75 * TimeLimits().silence_ms


def test_a_process_that_has_released_is_fenced_once_in_ten_minutes() -> None:
    clock = ManualClock()
    nothing: Any = None
    take_overs = TakeOvers(nothing, nothing, Context(clock, lambda *_, **__: None))
    assert take_overs._not_lately({"a"}) == {"a"}
    clock.advance(RELEASED_EVERY_MS - 1)
    assert take_overs._not_lately({"a", "b"}) == {"b"}
    clock.advance(1)
    assert take_overs._not_lately({"a", "b"}) == {"a"}
