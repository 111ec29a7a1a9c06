"""Taking partitions over on a real broker: who is fenced, what serves as the checkpoint, and what is refused."""

import time
from dataclasses import replace

import pytest
from confluent_kafka import ConsumerGroupTopicPartitions, TopicPartition

from tarry.core.message import FiledMessage
from tarry.core.progress.checkpoint import Checkpoint, Geometry, decode_checkpoint
from tarry.core.progress.journal import encode_copy
from tarry.core.progress.origin import UNKNOWN, Origin
from tarry.core.wheel.filed import filed_headers
from tarry.errors import FatalError, RetriableError, UsageError
from tarry.kafka.partition_logs import journal_of
from tarry.kafka.settings import TRANSACTION_TIMEOUT_MS
from tarry.kafka.types import Place
from tests.support.brokers import wait_until
from tests.support.stage import GEOMETRY, Process, Stage

JOURNAL = ".journal"
EARLIER, LATER = "1|1|4e20,a,0||||0||x", "9|0|from|a|later|version|0||x"
"""Checkpoints of other versions."""

OTHER = Geometry(5_000, 4, 1)
"""Another shape of the overflow wheel than the configured one, which has no levels."""

SOON_S = TRANSACTION_TIMEOUT_MS / 1000 / 2
"""A time limit shorter than the time-out of a dead owner's transaction."""


@pytest.fixture
def place(stage: Stage) -> Place:
    return stage.places[0]


def metadata_of(stage: Stage, place: Place) -> tuple[int, str]:
    return stage.offsets.committed([place])[place]


def overwrite(stage: Stage, place: Place, offset: int, metadata: str | None) -> None:
    """Commit an offset as a tool does for a group without members."""
    wanted = [TopicPartition(*place, offset, metadata) if metadata else TopicPartition(*place, offset)]
    request = [ConsumerGroupTopicPartitions(stage.group, wanted)]
    stage.admin.alter_consumer_group_offsets(request)[stage.group].result(20)


def forget_the_groups_offsets(stage: Stage) -> None:
    stage.admin.delete_consumer_groups([stage.group])[stage.group].result(20)
    assert stage.watermarks() == {}


def serve_and_fire(stage: Stage, *fired: bytes, kept: tuple[bytes, ...] = ()) -> Process:
    """A process that has delivered some messages, and holds others that are due in an hour, which came first."""
    process = stage.process("first")
    stage.send(*kept, delay_ms=3_600_000)
    stage.send(*fired)
    process.serve(process.take_over())
    assert process.fire() == len(fired)
    return process


# -- the plain course --------------------------------------------------------------------------------------------------


def test_the_first_owner_begins_where_the_partition_was_born(stage: Stage, place: Place) -> None:
    stage.make_intake()
    stage.send(b"a", b"b")
    process = stage.process("first")
    found = process.take_over()[place]
    assert (found.low, len(found.done), found.replay_end) == (0, 0, 2)
    low, text = metadata_of(stage, place)
    assert low == 0
    assert decode_checkpoint(text) == replace(found.checkpoint, origin=decode_checkpoint(text).origin)
    assert decode_checkpoint(text).writer == process.connections.writer
    assert not decode_checkpoint(text).released
    assert process.events.of("checkpoint_from_copy") == []
    assert process.events.of("fencing") == []


def test_the_next_owner_knows_what_is_done_above_the_watermark(stage: Stage, place: Place) -> None:
    stage.make_intake()
    first = serve_and_fire(stage, b"a", b"b", kept=(b"later",))
    first.die()
    second = stage.process("second")
    found = second.take_over()[place]
    assert (found.low, found.done.end, len(found.done)) == (0, 3, 2)
    assert [offset for offset in range(5) if offset in found.done] == [1, 2]
    second.serve({place: found})
    assert second.fire(later_ms=3_700_000) == 1
    assert stage.committed(stage.target).read_to_the_end()[-1].value() == b"later"
    assert [record.value() for record in stage.committed(stage.target).read_to_the_end()] == [b"a", b"b", b"later"]


def test_an_owner_that_has_released_is_not_fenced_and_goes_on_elsewhere(stage: Stage, place: Place) -> None:
    stage.make_intake()
    first = serve_and_fire(stage, b"a")
    first.commit_checkpoints(released=True)
    first.die()
    second = stage.process("second")
    assert second.take_over()[place].low == 1
    assert second.events.of("fencing") == []
    first.transactor.begin()
    first.transactor.produce(stage.target, 0, None, b"elsewhere", None, lambda _error, _record: None)
    first.transactor.commit()
    assert [record.value() for record in stage.committed(stage.target).read_to_the_end()] == [b"a", b"elsewhere"]


def test_a_process_that_is_no_member_is_refused_before_it_can_fence(stage: Stage) -> None:
    stage.make_intake()
    process = serve_and_fire(stage, b"a")
    outsider = stage.newcomer("outsider")
    with pytest.raises(RetriableError, match="could not commit"):
        outsider.try_to_take_over()
    assert not outsider.transactor.started
    assert outsider.events.of("fencing") == []
    stage.send(b"b")
    process.serve(process.take_over())
    assert process.fire() == 1
    process.die()
    outsider.join()


# -- a dead owner ------------------------------------------------------------------------------------------------------


def test_a_dead_owner_is_fenced_and_what_it_had_open_is_never_seen(stage: Stage, place: Place) -> None:
    stage.make_intake()
    first = serve_and_fire(stage, b"a")
    stage.send(b"b")
    first.open_a_firing_transaction(b"never committed")
    first.die()
    began = time.monotonic()
    second = stage.process("second")
    found = second.take_over()[place]
    assert time.monotonic() - began < SOON_S
    assert second.events.of("fencing") == [{"transactional_ids": sorted(first.connections.writer)}]
    assert (found.low, found.replay_end) == (1, 2)
    second.serve({place: found})
    assert second.fire() == 1
    assert [record.value() for record in stage.committed(stage.target).read_to_the_end()] == [b"a", b"b"]


def test_a_zombie_that_goes_on_after_it_was_fenced_commits_nothing(stage: Stage, place: Place) -> None:
    stage.make_intake()
    first = serve_and_fire(stage, b"a")
    stage.send(b"b")
    first.open_a_firing_transaction(b"from a zombie")
    first.die()
    second = stage.process("second")
    found = second.take_over()[place]
    with pytest.raises(FatalError):
        first.transactor.commit()
    low, text = metadata_of(stage, place)
    assert (low, decode_checkpoint(text).writer) == (found.low, second.connections.writer)
    second.serve({place: found})
    assert second.fire() == 1
    assert [record.value() for record in stage.committed(stage.target).read_to_the_end()] == [b"a", b"b"]


def test_an_open_transaction_makes_offsets_unstable_and_the_last_ones_still_readable(
    stage: Stage, place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tarry.kafka.offsets.REQUEST_TIMEOUT_S", 1.0)
    stage.make_intake()
    process = serve_and_fire(stage, b"a")
    before = stage.watermarks()[place]
    assert before[0] == 1
    process.open_a_firing_transaction(b"open")
    assert metadata_of(stage, place) == before
    with pytest.raises(RetriableError):
        process.membership.committed([place])
    process.transactor.commit()
    assert process.membership.committed([place])[place][0] == 2
    assert stage.watermarks()[place][0] == 2


def test_a_journal_that_ends_in_aborted_records_is_read_to_its_end(stage: Stage, place: Place) -> None:
    stage.make_intake()
    first = serve_and_fire(stage, b"a", b"b", kept=(b"later",))
    for _ in range(3):
        first.open_a_firing_transaction(b"aborted")
        first.transactor.abort()
    first.die()
    second = stage.process("second")
    found = second.take_over()[place]
    assert [offset for offset in range(5) if offset in found.done] == [1, 2]
    assert stage.committed(stage.intake + JOURNAL).read_to_the_end()[-1].offset() != stage.end(stage.intake + JOURNAL)


def test_an_intake_that_ends_in_aborted_records_lets_the_gate_open(stage: Stage, place: Place) -> None:
    stage.make_intake()
    stage.send(b"a")
    with stage.transaction(stage.intake, [b"x", b"y"]) as stranger:
        stranger.abort()
    running = stage.worker()
    running.until_serving()
    arrived = stage.committed(stage.target)
    running.until(lambda: len(arrived.poll()) == 1, "the message is delivered")
    running.close()
    assert metadata_of(stage, place)[0] == stage.end(stage.intake)


# -- where the checkpoint comes from -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "metadata",
    [None, "2|0|4e20,a", "a consumer's own metadata", EARLIER, LATER],
    ids=["absent", "cut-off", "foreign", "earlier", "later"],
)
def test_where_the_metadata_is_no_checkpoint_the_journals_copy_serves(
    stage: Stage, place: Place, metadata: str | None
) -> None:
    stage.make_intake()
    first = serve_and_fire(stage, b"a", b"b", kept=(b"later",))
    first.die()
    overwrite(stage, place, 3, metadata)
    second = stage.process("second")
    found = second.take_over()[place]
    assert second.events.of("checkpoint_unreadable")
    assert found.low == 0
    assert [offset for offset in range(5) if offset in found.done] == [1, 2]


def test_where_the_groups_offsets_are_lost_the_journals_last_copy_serves(stage: Stage, place: Place) -> None:
    stage.make_intake()
    first = serve_and_fire(stage, b"a")
    first.commit_checkpoints(released=False)
    stage.send(b"b")
    first.serve(first.take_over())
    assert first.fire() == 1
    first.commit_checkpoints(released=True)
    first.die()
    forget_the_groups_offsets(stage)
    second = stage.process("second")
    found = second.take_over()[place]
    assert second.events.of("checkpoint_from_copy") == [{"topic": stage.intake, "partition": 0, "low": 2}]
    assert (found.low, found.checkpoint.writer) == (2, second.connections.writer)
    second.serve({place: found})
    assert second.fire() == 0


def test_messages_done_after_the_last_copy_are_not_delivered_again(stage: Stage, place: Place) -> None:
    stage.make_intake()
    first = serve_and_fire(stage, b"a", b"b", kept=(b"later",))
    first.die()
    forget_the_groups_offsets(stage)
    second = stage.process("second")
    second.serve(second.take_over())
    assert second.fire() == 0
    assert second.fire(later_ms=3_700_000) == 1
    values = [record.value() for record in stage.committed(stage.target).read_to_the_end()]
    assert values == [b"a", b"b", b"later"]
    assert metadata_of(stage, place)[0] == 3


def test_a_dead_owner_is_fenced_also_where_only_the_copy_names_it(stage: Stage, place: Place) -> None:
    stage.make_intake()
    first = serve_and_fire(stage, b"a")
    first.commit_checkpoints(released=False)
    stage.send(b"b")
    # It dies before it has sent offsets: nothing keeps the group's offsets from being overwritten.
    before = stage.end(stage.intake + JOURNAL)
    first.transactor.begin()
    for topic in (stage.target, stage.intake + JOURNAL):
        first.transactor.produce(topic, 0, None, b"D\x01", None, lambda _error, _record: None)
    wait_until(lambda: stage.end(stage.intake + JOURNAL) > before, "the record is in the journal")
    first.die()
    overwrite(stage, place, 1, None)
    began = time.monotonic()
    second = stage.process("second")
    found = second.take_over()[place]
    assert second.events.of("fencing") == [{"transactional_ids": sorted(first.connections.writer)}]
    assert time.monotonic() - began < SOON_S
    assert found.low == 1


# -- other logs --------------------------------------------------------------------------------------------------------


def test_a_recreated_intake_is_refused_even_if_it_has_grown_beyond_the_old_one(stage: Stage, place: Place) -> None:
    stage.make_intake()
    first = serve_and_fire(stage, b"a", b"b")
    first.take_over()
    first.commit_checkpoints(released=True)
    first.die()
    stage.admin.delete_topics([stage.intake])[stage.intake].result(20)
    wait_until(lambda: stage.count(stage.intake) == 0, "the intake is gone")
    stage.make_intake()
    stage.send(b"c", b"d", b"e")
    second = stage.process("second")
    text = refusal_of(second)
    assert f"the checkpoint of {stage.intake}/0 is of topic {stage.intake} with id " in text
    assert "it was deleted and recreated" in text
    stage.adopt()
    second.serve(second.take_over())
    assert second.fire() == 3


def test_a_mirrored_group_offset_does_not_count_as_a_checkpoint_of_this_cluster(stage: Stage, place: Place) -> None:
    stage.make_intake(born=False)
    stage.send(b"a", b"b")
    mirrored = Checkpoint(("x",), True, GEOMETRY, origin=Origin("another-cluster", "an-intake", "a-journal"))
    overwrite(stage, place, 2, mirrored.encode())
    process = stage.process("only")
    text = refusal_of(process)
    assert f"the checkpoint of {stage.intake}/0 is of cluster another-cluster, and this is cluster " in text
    stage.adopt()
    process.serve(process.take_over())
    assert process.fire() == 2


def test_a_mirror_that_overwrites_the_groups_offset_later_does_no_harm(stage: Stage, place: Place) -> None:
    stage.make_intake()
    first = serve_and_fire(stage, b"a")
    first.commit_checkpoints(released=True)
    first.die()
    mirrored = Checkpoint(("x",), True, GEOMETRY, origin=Origin("another-cluster", "an-intake", "a-journal"))
    overwrite(stage, place, 9, mirrored.encode())
    second = stage.process("second")
    assert second.take_over()[place].low == 1
    assert "another-cluster" in second.events.of("checkpoint_unreadable")[0]["reason"]


def test_a_checkpoint_of_a_version_without_ids_is_accepted_and_gets_ids(stage: Stage, place: Place) -> None:
    stage.make_intake()
    first = serve_and_fire(stage, b"a")
    first.commit_checkpoints(released=True)
    first.die()
    low, text = metadata_of(stage, place)
    before = "|".join(text.split("|")[:10])
    assert decode_checkpoint(text).origin.cluster
    assert decode_checkpoint(before) == replace(decode_checkpoint(text), origin=UNKNOWN)
    overwrite(stage, place, low, before)
    found = stage.process("second").take_over()[place]
    assert (found.low, found.is_uncopied) == (1, True)
    assert found.checkpoint.origin == decode_checkpoint(text).origin


# -- refusals ----------------------------------------------------------------------------------------------------------


def refusal_of(process: Process) -> str:
    with pytest.raises(UsageError) as refusal:
        process.take_over()
    assert "\n" not in str(refusal.value)
    return str(refusal.value)


def test_records_without_offset_and_without_copy_are_refused_until_they_are_adopted(stage: Stage, place: Place) -> None:
    stage.make_intake(born=False)
    stage.send(b"old")
    process = stage.process("first")
    assert f"{stage.intake}/0 holds records" in refusal_of(process)
    assert "tarry serve --adopt" in refusal_of(process)
    stage.bear()
    assert "tarry serve --adopt" in refusal_of(process)
    stage.adopt()
    process.serve(process.take_over())
    assert process.fire() == 1


def test_an_offset_that_another_program_committed_for_the_group_is_adopted_as_well(stage: Stage, place: Place) -> None:
    stage.make_intake(born=False)
    stage.send(b"old", b"older")
    overwrite(stage, place, 1, "a consumer that read it before")
    process = stage.process("first")
    assert "tarry serve --adopt" in refusal_of(process)
    stage.adopt()
    process.serve(process.take_over())
    assert process.fire() == 2


def test_a_journal_trimmed_past_the_pointer_is_refused(stage: Stage, place: Place) -> None:
    stage.make_intake()
    first = serve_and_fire(stage, b"a", kept=(b"later",))
    first.die()
    trim = stage.offsets.trim({(stage.intake + JOURNAL, 0): stage.end(stage.intake + JOURNAL)})
    wait_until(lambda: trim.done, "the journal is trimmed")
    text = refusal_of(stage.process("second"))
    assert f"a recovery must read {stage.intake}{JOURNAL}/0 from offset 0, but it holds only offsets" in text
    assert "tarry cannot know which messages were delivered" in text


@pytest.mark.parametrize("text", [EARLIER, LATER], ids=["earlier", "later"])
def test_a_copy_of_another_version_is_refused_in_one_line(stage: Stage, text: str) -> None:
    stage.make_intake()
    stage.put(stage.intake + JOURNAL, (0, None, encode_copy(0, text), None))
    assert "this version of tarry can read" in refusal_of(stage.process("first"))


def test_a_record_in_the_journal_that_is_none_of_ours_is_refused_with_its_place(stage: Stage) -> None:
    stage.make_intake()
    stage.put(stage.intake + JOURNAL, (0, None, b"hello", None))
    assert f"{stage.intake}{JOURNAL}/0 at offset 1: not a journal record" in refusal_of(stage.process("first"))


def file_one(stage: Stage) -> None:
    """Make the topic of a level, and put a filed message there."""
    message = FiledMessage(20_000, 0, b"k", b"v", None, True, stage.target, -1, b"0190b5c0-7e57-4c00-8000-0123456789ab")
    headers: list[tuple[str, bytes | None]] = filed_headers(message)  # type: ignore[assignment]
    stage.put(stage.make_topic(f"{stage.intake}.wheel-1"), (0, b"k", b"v", headers))


def test_another_geometry_is_refused_while_buckets_are_not_empty(stage: Stage, place: Place) -> None:
    stage.make_intake()
    file_one(stage)
    end = stage.offsets.ends([journal_of(place)], committed=False)[journal_of(place)]
    # The pointers say that it is later than the copies in the journal.
    other = Checkpoint((), True, OTHER, closed_ms=(10_000,), wheel_pointer=end, pointer=end)
    overwrite(stage, place, 0, other.encode())
    assert "an overflow wheel of another shape" in refusal_of(stage.process("first"))


@pytest.mark.parametrize("is_filed_before", [False, True])
def test_another_geometry_is_taken_on_where_no_bucket_is_in_use(
    stage: Stage, place: Place, is_filed_before: bool
) -> None:
    stage.make_intake()
    if is_filed_before:  # it is done, and not deleted yet
        file_one(stage)
    low = 1 if is_filed_before else 0
    other = Checkpoint((), True, OTHER, closed_ms=(10_000,), done_ms=(10_000,), low=(low,))
    overwrite(stage, place, 0, other.encode())
    found = stage.process("first").take_over()[place]
    assert found.checkpoint == replace(found.checkpoint, geometry=GEOMETRY)


def test_an_intake_that_no_longer_holds_what_comes_next_is_refused(stage: Stage, place: Place) -> None:
    stage.make_intake()
    stage.send(b"a", b"b", b"c")
    trim = stage.offsets.trim({place: 2})
    wait_until(lambda: trim.done, "the intake is trimmed")
    running = stage.worker()
    running.until(lambda: running.events.of("partition_quarantined"), "it is noticed")
    assert "no longer holds the records that come next" in running.events.of("partition_quarantined")[0]["reason"]
    running.close()
    assert "holds offsets from 2 on, and 0 is the first that is not done" in stage.adopt()[0]
    again = stage.process("again")
    again.serve(again.take_over())
    assert again.fire() == 1
