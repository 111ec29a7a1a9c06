"""Looking on while the service's own worker serves, on the fake cluster."""

from collections import Counter
from typing import TYPE_CHECKING

import pytest

from tarry.cli.check.upkeep import left_behind
from tarry.core.message import FiledMessage
from tarry.core.murmur2 import partition_of
from tarry.core.progress.source import INTAKE, Source
from tarry.core.request.dialects import DIALECTS
from tarry.core.request.intake_policy import IntakePolicy
from tarry.core.request.reader import RequestReader
from tarry.core.wheel.filed import FILED, filed_headers
from tarry.core.wheel.levels import Bucket
from tarry.core.wheel.overflow import STRANGE
from tarry.errors import UsageError
from tarry.handle import Handle
from tarry.headers import derived_id
from tarry.kafka.backlog_index import DueRange, bucket_counts
from tarry.kafka.each_once import all_waiting, waiting_about
from tarry.kafka.inspector import Waiting
from tarry.kafka.topics import wheel_topic
from tests.support.inspected_intake import GEOMETRY, POLICY, InspectedIntake

if TYPE_CHECKING:
    from collections.abc import Callable


def check_buckets(scene: InspectedIntake, waiting: list[Waiting]) -> int:
    """The counts of buckets are upper bounds, and each bucket's list has what waits in it.

    Returns:
        How many buckets are counted from the index.
    """
    by_index = 0
    backlogs = scene.inspector.survey("in")
    states = scene.inspector.journals(backlogs)
    in_buckets = Counter((found.place, found.source) for found in waiting if found.source.level)
    for backlog in backlogs:
        counts = dict(bucket_counts(backlog, states[backlog.place]))
        by_index += sum(until_ms is not None for _, _, until_ms in counts)
        others = {level: count for (level, _, until_ms), count in counts.items() if until_ms is None}
        for (place, (level, number)), count in in_buckets.items():
            width_ms = GEOMETRY.width_of(level)
            start_ms = number * width_ms
            if place == backlog.place:
                assert counts.get(DueRange(level, start_ms, start_ms + width_ms), 0) + others.get(level, 0) >= count
                listed = scene.inspector.in_levels([backlog], states, Bucket(level, start_ms))
                expected = [found.id for found in waiting if (found.place, found.source) == (place, (level, number))]
                assert ids(list(listed)) == sorted(expected)
    return by_index


def ids(waiting: list[Waiting]) -> list[str]:
    return sorted(found.id for found in waiting)


def test_before_anybody_serves_all_that_the_intake_holds_waits() -> None:
    scene = InspectedIntake()
    handle = scene.send(5_000)
    [served, other] = scene.inspector.survey("in")
    assert (served.checkpoint, served.end - served.low, other.end - other.low) == (None, 1, 0)
    assert ids(scene.waiting()) == [handle.id]
    found = scene.find(handle)
    assert (found.waits_in, found.bucket, found.is_served) == ((0, 0), None, False)


@pytest.mark.parametrize("lag_ms", [(0, 0), (0, 40)])
def test_at_every_moment_what_waits_is_what_was_sent_and_not_delivered(lag_ms: tuple[int, int]) -> None:
    scene = InspectedIntake(marker_lag_ms=lag_ms)
    for number in range(48):
        scene.send(number * 700, number % 2)
    seen: set[int] = set()
    by_index = 0
    for _ in range(18):
        scene.serve(2_000)
        scene.send(100)
        delivered = scene.delivered()
        waiting = scene.waiting()
        assert ids(waiting) == sorted(one.id for one in scene.handles if one.id not in delivered)
        assert scene.at_most() >= len(waiting)
        by_index += check_buckets(scene, waiting)
        assert {(found.due_ms, found.target, found.key) for found in waiting} <= {
            (handle.due_ms, "out", b"k") for handle in scene.handles
        }
        for handle in scene.handles[::7]:
            found = scene.find(handle)
            if handle.id in delivered:
                assert found.result is not None
                assert (found.result["outcome"], found.waits_in) == ("fired", None)
            else:
                assert found.waits_in is not None
                seen.add(found.waits_in.level)
                if found.bucket is not None:
                    assert found.bucket[0].start_ms <= handle.due_ms < found.bucket[1]
    assert len(scene.delivered()) == 48 + 17
    assert seen == {0, 1, 2, 3}
    assert by_index > 20
    assert scene.read[0] >= scene.read[1] > 0


def test_a_dead_message_is_found_among_results_older_than_its_due_time() -> None:
    scene = InspectedIntake()
    due_ms = scene.clock.now_ms() + 90_000
    headers: list[tuple[str, bytes | None]] = [("tarry-target", b"a b"), ("tarry-deliver-at", b"%d" % due_ms)]
    handle = Handle("in", 0, due_ms, derived_id("in", 0, scene.broker.append("in", b"k", b"v", headers)).decode())
    before = scene.find(handle)
    assert (before.waits_in, before.will_be_dead) == ((0, 0), True)
    scene.serve(1_000)
    found = scene.find(handle)
    assert found.result is not None
    assert (found.result["outcome"], found.result["reason"]) == ("dead", "bad-target")


def test_a_handle_of_nothing_is_unknown_and_one_of_no_partition_is_refused() -> None:
    scene = InspectedIntake()
    handle = scene.send(3_000)
    scene.serve(500)
    for other in (Handle("in", 1, handle.due_ms, handle.id), Handle("in", 0, handle.due_ms + 1, handle.id)):
        found = scene.find(other)
        assert (found.waits_in, found.result, found.is_served) == (None, None, True)
    with pytest.raises(UsageError, match="in has no partition 2"):
        scene.find(Handle("in", 2, handle.due_ms, handle.id))
    with pytest.raises(UsageError, match="there is no topic nowhere"):
        scene.find(Handle("nowhere", 0, handle.due_ms, handle.id))


@pytest.mark.parametrize("delay_ms", [400, 4_000, 20_000])
def test_a_cancel_waits_until_it_meets_its_message(delay_ms: int) -> None:
    scene = InspectedIntake()
    handle = scene.send(delay_ms)
    scene.serve(100)
    assert not scene.find(handle).cancel_waits
    scene.cancel(handle)
    found = scene.find(handle)
    assert found.cancel_waits
    assert found.waits_in is not None
    scene.serve(delay_ms)
    found = scene.find(handle)
    assert found.result is not None
    assert (found.result["outcome"], found.waits_in, found.cancel_waits) == ("cancelled", None, False)
    assert not scene.delivered()


def test_a_message_sent_again_behind_a_cancel_does_not_wait_for_it() -> None:
    scene = InspectedIntake()
    handle = scene.send(20_000)
    scene.cancel(handle)
    again: list[tuple[str, bytes | None]] = [("tarry-target", b"out"), ("tarry-id", handle.id.encode())]
    scene.broker.append("in", b"k", b"v", [*again, ("tarry-deliver-at", b"%d" % handle.due_ms)], 0)
    found = scene.find(handle)
    assert (found.waits_in, found.cancel_waits) == (INTAKE, False)
    scene.cancel(handle)
    assert scene.find(handle).cancel_waits


def test_buckets_that_are_emptied_while_they_are_read_do_no_harm() -> None:
    scene = InspectedIntake()
    for _ in range(30):
        scene.send(12_000)
    scene.serve(1_000)
    backlogs = scene.inspector.survey("in")
    states = scene.inspector.journals(backlogs)
    scene.serve(14_000)
    assert list(scene.inspector.in_levels(backlogs, states)) == []
    assert scene.waiting() == []


def test_a_message_that_moves_to_a_level_that_was_empty_is_met() -> None:
    scene = InspectedIntake()
    scene.serve(1_000)
    backlogs = scene.inspector.survey("in", 0)
    states = scene.inspector.journals(backlogs)
    handle = scene.send(12_000)
    scene.serve(1_000)
    assert ids(list(scene.inspector.in_levels(backlogs, states))) == []
    assert ids(list(scene.inspector.in_levels(backlogs, states, to_now=True))) == [handle.id]


def test_a_message_that_moves_on_while_it_is_looked_for_is_found() -> None:
    scene = InspectedIntake(marker_lag_ms=(0, 40))
    for number in range(100):
        scene.send(3_000 + number * 350)
    scene.serve(500)
    scene.turns_meanwhile = 1
    seen: Counter[int] = Counter()
    for handle in scene.handles:
        # Those that are on their way into memory, or out of it, as far as looking for one takes no longer.
        while scene.clock.now_ms() < handle.due_ms - 2_000:
            scene.clock.advance(100)
            scene.inspector.survey("in")
        found = scene.find(handle)
        assert found.waits_in is not None or found.result is not None
        seen[-1 if found.waits_in is None else found.waits_in.level] += 1
    assert seen[-1] > 10
    assert seen[1] > 1


def test_what_moves_on_while_all_is_read_is_met_once() -> None:
    scene = InspectedIntake(marker_lag_ms=(0, 40))
    for number in range(200):
        scene.send(3_000 + number * 300, number % 2)
    scene.serve(500)
    scene.turns_meanwhile = 5
    logs = [(wheel_topic("in", level), partition) for level in (1, 2) for partition in (0, 1)]
    filed = looks = 0
    while len(scene.delivered()) < 150:
        begins_at = sum(scene.inspector.offsets.ends(logs, committed=False).values())
        found = ids(scene.waiting())
        assert len(found) == len(set(found))
        left = {handle.id for handle in scene.handles} - scene.delivered()
        assert left <= set(found)
        filed += sum(scene.inspector.offsets.ends(logs, committed=False).values()) - begins_at
        looks += 1
    assert (filed > 50, looks > 10) == (True, True), (filed, looks)


def test_what_moves_on_while_the_buckets_of_a_time_are_read_is_met_once() -> None:
    scene = InspectedIntake(marker_lag_ms=(0, 40))
    for number in range(200):
        scene.send(25_000 + number, number % 2)
    scene.serve(500)
    scene.turns_meanwhile = 3
    sources: set[Source] = set()
    due_ms = scene.handles[0].due_ms
    while not scene.delivered():
        backlogs, states = scene.inspector.look("in")
        near = waiting_about(scene.inspector, backlogs, states, RequestReader(POLICY), due_ms, GEOMETRY.width_ms)
        found = list(near)
        wanted = {one.id for one in scene.handles if one.due_ms // GEOMETRY.width_ms == due_ms // GEOMETRY.width_ms}
        assert ids(found) == sorted({one.id for one in found})
        assert wanted - scene.delivered() <= set(ids(found))
        sources |= {one.source for one in found}
    assert {source.level for source in sources} == {1, 2, 3}


def test_what_moves_down_and_is_trimmed_before_its_level_is_read_is_met() -> None:
    scene = InspectedIntake()
    handles = [scene.send(13_000) for _ in range(30)]
    scene.serve(1_000)
    backlogs, states = scene.inspector.look("in")
    assert {one.level for one in backlogs[0].stretches()} == {3}
    scene.once_before["fetch"] = lambda: scene.serve(10_000)
    found = all_waiting(scene.inspector, backlogs, states, RequestReader(POLICY))
    assert ids(list(found)) == sorted(handle.id for handle in handles)
    assert not scene.delivered()
    assert 2 in {one.level for one in scene.inspector.survey("in", 0)[0].stretches()}


def test_what_is_sent_while_all_is_read_did_not_wait_when_it_began() -> None:
    scene = InspectedIntake()
    handle = scene.send(20_000)
    scene.serve(100)

    def send_another() -> None:
        scene.send(20_000)
        scene.serve(100)

    scene.once_before["fetch"] = send_another
    assert ids(scene.waiting()) == [handle.id]
    assert len(scene.waiting()) == 2


def test_a_journal_that_is_trimmed_before_it_is_read_is_looked_at_anew() -> None:
    scene = InspectedIntake()
    scene.serve(50)
    soon = scene.send(900)  # in memory, so the low watermark stays there
    gone = [scene.send(50) for _ in range(20)]
    scene.serve(300)
    assert scene.delivered() == {handle.id for handle in gone}
    [early, _] = scene.inspector.survey("in")

    def serve_for_minutes() -> None:
        for _ in range(150):
            scene.send(50)
            scene.serve(1_000)

    scene.once_before["fetch"] = serve_for_minutes
    backlogs, states = scene.inspector.look("in")
    assert soon.id in scene.delivered()
    assert list(scene.inspector.in_intake(backlogs, RequestReader(POLICY), states)) == []
    # The first survey and what the journal has now do not belong together.
    assert starts_of_journal(scene) > early.journal_begin
    late = scene.inspector.journals([early])
    assert len(list(scene.inspector.in_intake([early], RequestReader(POLICY), late))) == 21


def test_a_journal_of_which_somebody_has_deleted_records_is_looked_at_twice_and_no_more() -> None:
    scene = InspectedIntake()
    handle = scene.send(400_000)
    scene.serve(1_000)
    scene.stop()
    [backlog, _] = scene.inspector.survey("in")
    scene.inspector.offsets.trim({("in.journal", 0): backlog.journal_end})
    assert starts_of_journal(scene) > backlog.journal_begin
    assert ids(scene.waiting()) == [handle.id]


def starts_of_journal(scene: InspectedIntake) -> int:
    journal = "in.journal", 0
    return scene.inspector.offsets.starts([journal])[journal]


def test_a_named_message_that_is_decided_and_moves_on_while_it_is_looked_for_is_met() -> None:
    intake = InspectedIntake()
    intake.serve(50)
    intake.send(8_000, name=b"x")
    intake.serve(100)
    backlogs = intake.inspector.survey("in")
    states = intake.inspector.journals(backlogs)
    others = [intake.send(8_000, name=name) for name in (b"y", b"z")]
    intake.serve(100)
    found = intake.inspector.in_levels(backlogs, states, to_now=True)
    assert {one.id for one in found} == {intake.handles[0].id, *(handle.id for handle in others)}


def test_copies_that_were_replaced_do_not_wait_also_above_the_low_watermark() -> None:
    intake = InspectedIntake()
    intake.serve(50)
    soon = intake.send(700)  # in memory, so the low watermark stays there
    intake.send(8_000, name=b"x")
    intake.serve(100)
    last = intake.send(8_000, name=b"x")
    intake.serve(100)
    assert {one.id for one in intake.waiting()} == {soon.id, last.id}


def test_copies_that_were_replaced_do_not_wait_also_when_the_journal_knows_of_no_name_any_more() -> None:
    intake = InspectedIntake()
    intake.serve(50)
    intake.send(8_000, name=b"x")
    intake.serve(100)
    last = intake.send(8_000, name=b"x")
    intake.serve(100)
    assert [one.id for one in intake.waiting()] == [last.id]
    intake.broker.append("in", b"k", None, [("tarry-cancel-name", b"x")], 0)
    intake.serve(3_000)  # a copy of the checkpoint is written, and the names are cleared
    assert intake.waiting() == []


def test_a_record_in_a_bucket_that_the_service_has_not_filed_hides_nothing_of_what_waits_there() -> None:
    scene = InspectedIntake()
    handles = [scene.send(3_000) for _ in range(3)]
    scene.serve(500)
    [waiting] = {found.source for found in scene.waiting()}
    for headers in (None, [(b"\xff", b"1")]):
        scene.broker.append(wheel_topic("in", waiting.level), b"k", b"v", headers, 0)
    found = scene.waiting()
    assert [one.kind for one in found].count("dead") == 2
    assert {one.id for one in found if one.kind == "message"} == {handle.id for handle in handles}


# -- counting by offsets ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("lag_ms", [(0, 0), (0, 40)])
def test_nothing_waits_by_offsets_once_all_is_delivered(lag_ms: tuple[int, int]) -> None:
    scene = InspectedIntake(marker_lag_ms=lag_ms)
    for number in range(20):
        scene.send(number * 1_000, number % 2)
    scene.serve(500)
    assert {row.fields["level"] for row in scene.rows()} >= {1, 2, 3}
    scene.serve(40_000)
    assert len(scene.delivered()) == 20
    assert scene.rows() == []


def test_an_intake_that_was_removed_when_all_was_delivered_holds_none() -> None:
    scene = InspectedIntake()
    scene.send(12_000)
    scene.serve(500)
    there = {"in": 2, "in.results": 2, "in.journal": 2, "in.dead": 2, "out": 1}
    [line] = left_behind(scene.looking, "group", ["other"], there)
    assert line.endswith("; waiting messages: at most 1, which are not delivered")
    scene.serve(30_000)
    scene.stop()
    [line] = left_behind(scene.looking, "group", ["other"], there)
    assert line.endswith("; waiting messages: none")


def test_a_message_whose_transaction_is_still_open_in_the_log_counts() -> None:
    scene = InspectedIntake()
    scene.serve(500)
    producer = scene.broker.clients("writer").producer({"bootstrap.servers": "fake", "transactional.id": "writer"})
    producer.init_transactions(10)
    producer.begin_transaction()
    producer.produce(wheel_topic("in", 2), b"v", b"k", 0)
    producer.flush(10)
    assert [(row.size, row.fields["level"]) for row in scene.rows()] == [(1, 2)]
    producer.commit_transaction(10)
    assert [(row.size, row.fields["level"]) for row in scene.rows()] == [(1, 2)]


# -- records that cannot be read --------------------------------------------------------------------------------------


def packed(due_ms: int) -> bytes:
    """The header of a filed message."""
    message = FiledMessage(due_ms, 7, b"k", b"v", [], False, "out", -1, b"8e8c5b0c-0f5d-4b3e-9a55-0c6b1a3f4d21")
    name, value = filed_headers(message)[-1]
    assert (name, type(value)) == (FILED, bytes)
    return value  # type: ignore[return-value]


def with_flags(header: bytes, flags: int) -> bytes:
    return header[:21] + bytes([flags]) + header[22:]


@pytest.mark.parametrize(
    ("spoil", "is_stranger"),
    [
        (lambda header: header[:40], True),
        (lambda header: b"\x03" + header[1:], True),
        (lambda header: header + b"\xff", False),
        (lambda header: with_flags(header, 4), False),
        (lambda header: with_flags(header + b" unheard-of 1 in", 4), False),
    ],
    ids=["truncated", "a later version", "a target that is not UTF-8", "no dialect", "an unknown dialect"],
)
def test_a_record_that_cannot_be_read_is_of_the_bucket_under_which_the_service_buries_it(
    spoil: "Callable[[bytes], bytes]", is_stranger: bool
) -> None:
    scene = InspectedIntake()
    handle = scene.send(5_000)
    scene.serve(100)
    scene.stop()
    [message] = scene.waiting()
    level, number = message.source
    log, width_ms = wheel_topic("in", level), GEOMETRY.width_of(level)
    offset = scene.broker.append(log, b"bad", b"v", [(FILED, spoil(packed(handle.due_ms)))], 0)
    source, due_ms = (Source(level, STRANGE), None) if is_stranger else (message.source, handle.due_ms)

    [found] = [one for one in scene.waiting() if one.kind == "dead"]
    assert (found.source, found.due_ms, found.key, found.target) == (source, due_ms, b"bad", None)
    assert found.id == derived_id(log, 0, offset).decode()
    backlogs = scene.inspector.survey("in")
    bucket = Bucket(level, number * width_ms)
    listed = list(scene.inspector.in_levels(backlogs, scene.inspector.journals(backlogs), bucket))
    assert [one.id for one in listed] == ([handle.id] if is_stranger else [handle.id, found.id])
    other = bucket._replace(start_ms=bucket.start_ms + width_ms)
    assert list(scene.inspector.in_levels(backlogs, scene.inspector.journals(backlogs), other)) == []

    while not scene.broker.records("in.dead"):
        scene.serve(10)
    [backlog] = scene.inspector.survey("in", 0)
    done = scene.inspector.journals([backlog])[backlog.place].done
    assert [one for one in done if one.level == level and offset in done[one]] == [source]
    assert ids(scene.waiting()) == [handle.id]
    [result] = scene.inspector.results(("in", 0), found.id)
    assert result["outcome"] == "dead"


@pytest.mark.parametrize(("dialect", "kind"), [("etf1", "dead"), ("karafka", "message")])
def test_a_null_value_is_told_of_as_the_service_will_read_it_in_an_intakes_dialect(dialect: str, kind: str) -> None:
    scene = InspectedIntake()
    of = DIALECTS[dialect]
    due_s = scene.clock.now_ms() // 1_000 + 60
    headers: list[tuple[str, bytes | None]] = [(of.due, b"%d" % due_s), (of.target, b"out")]
    if of.kind is not None:
        headers.append((of.kind, of.schedule))
    offsets = {value: scene.broker.append("in", b"k", value, headers, 0) for value in (b"", None)}
    found = {waiting.sequence: waiting.kind for waiting in scene.waiting(IntakePolicy("in", dialect=dialect))}
    assert found == {offsets[b""]: "message", offsets[None]: kind}


@pytest.mark.parametrize("header", [b"", b"\x03" + bytes(80)], ids=["truncated", "of a later version"])
def test_a_record_of_the_parked_log_that_cannot_be_read_is_told_of_in_one_line(header: bytes) -> None:
    scene = InspectedIntake()
    scene.serve(1_000)
    scene.broker.append("in.parked", b"k", b"v", [(FILED, header)], 0)
    with pytest.raises(UsageError, match=r"^in\.parked/0 at offset 0: a record "):
        scene.waiting()


def test_a_schedule_that_continues_is_the_next_record_that_the_service_has_not_read_yet() -> None:
    schedule = b"8e8c5b0c-0f5d-4b3e-9a55-0c6b1a3f4d21"
    headers: list[tuple[str, bytes | None]] = [("tarry-target", b"out"), ("tarry-name", b"n"), ("tarry-every", b"1s")]
    headers.append(("tarry-id", schedule))
    intake = InspectedIntake()
    partition = partition_of(b"k", 2)
    intake.send(0, partition)
    intake.broker.append("in", b"k", b"v", headers, partition)
    intake.serve_until_delivered(2)
    place, entry, _ = intake.inspector.named("in", b"k", b"n")
    assert entry is not None
    assert (place, entry.continues) == (("in", partition), True)
    # Only the record that follows exactly is the next one.
    for follows, id_ in ((entry.place - 1, schedule), (entry.place, b"00000000-0000-4000-8000-000000000001")):
        forged = [one for one in headers if one[0] != "tarry-id"]
        forged += [("tarry-id", id_), ("tarry-next", b"%d %d 2" % (follows, entry.due_ms))]
        intake.broker.append("in", b"k", b"forged", forged, partition)
    [waiting] = intake.waiting()
    assert (waiting.due_ms, waiting.key) == (entry.due_ms, b"k")
    assert waiting.repeated is not None
    assert (waiting.repeated.schedule, waiting.repeated.number) == (schedule, 2)
    assert waiting.repeated.headers["tarry-every"] == b"1s"
    found = intake.find(Handle("in", partition, entry.due_ms, schedule.decode()))
    assert (found.waits_in, found.id, found.repeated) == (INTAKE, waiting.id, waiting.repeated)


def test_a_schedule_is_found_in_a_level() -> None:
    schedule = b"8e8c5b0c-0f5d-4b3e-9a55-0c6b1a3f4d21"
    headers: list[tuple[str, bytes | None]] = [("tarry-target", b"out"), ("tarry-name", b"n"), ("tarry-every", b"1h")]
    headers.append(("tarry-id", schedule))
    intake = InspectedIntake()
    partition = partition_of(b"k", 2)
    intake.broker.append("in", b"k", b"v", headers, partition)
    intake.serve(2_000)
    [waiting] = intake.waiting()
    assert waiting.source.level > 0
    assert waiting.repeated is not None
    assert waiting.repeated.schedule == schedule
    found = intake.find(Handle("in", partition, waiting.due_ms or 0, schedule.decode()))
    assert (found.waits_in, found.repeated) == (waiting.source, waiting.repeated)
