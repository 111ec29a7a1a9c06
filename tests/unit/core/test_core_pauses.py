"""Pauses: their records, which count as a pause if they cannot be read, and which targets are paused at a time."""

import json
from dataclasses import replace

import pytest

from tarry.core.partition import PartitionState
from tarry.core.progress.checkpoint import Checkpoint, Geometry, Obeyed, decode_checkpoint
from tarry.core.progress.done_set import DoneSet
from tarry.core.progress.recovered import Recovered
from tarry.core.request.intake_policy import IntakePolicy
from tarry.core.request.pause import LONGEST_TEXT, Pause, read_pause
from tarry.core.request.pauses import Pauses
from tarry.core.request.reader import RequestReader
from tarry.timer import TimingWheel
from tarry.units import format_instant

AT_MS = 1_767_225_600_000
PAUSE = Pause("orders", paused=True, reason='too "many"\n🐌', who="ada", at_ms=AT_MS, until_ms=AT_MS + 5)


@pytest.mark.parametrize(
    "pause",
    [PAUSE, replace(PAUSE, until_ms=None), replace(PAUSE, paused=False, reason="", who="")],
    ids=["until", "for good", "resumed"],
)
def test_a_pause_comes_back(pause: Pause) -> None:
    assert read_pause(pause.key(), pause.value(), 1) == pause


def test_the_form_is_that_of_version_1() -> None:
    assert PAUSE.key() == b"orders"
    assert json.loads(PAUSE.value()) == {
        "v": 1,
        "target": "orders",
        "paused": True,
        "reason": PAUSE.reason,
        "who": "ada",
        "at_ms": AT_MS,
        "until_ms": AT_MS + 5,
    }


def test_unknown_fields_are_ignored_and_long_texts_are_cut() -> None:
    fields = {**json.loads(PAUSE.value()), "more": [1], "reason": "x" * 5_000}
    assert read_pause(b"orders", json.dumps(fields).encode(), 1) == replace(PAUSE, reason="x" * LONGEST_TEXT)


def test_a_record_without_a_value_says_that_the_target_is_not_paused() -> None:
    assert read_pause(b"orders", None, 7) == Pause("orders", paused=False, reason="", who="", at_ms=7)


def changed(**fields: object) -> bytes:
    return json.dumps({**json.loads(PAUSE.value()), **fields}).encode()


@pytest.mark.parametrize(
    "value",
    [
        b"",
        b"x",
        b"\xff",
        b"[]",
        b"{}",
        b"null",
        b"9" * 5_000,
        b"[" * 100_000,
        changed(v=2, paused=False),
        changed(v=True),
        changed(v="1"),
        changed(target="bills", paused=False),
        changed(paused=0),
        changed(paused="no"),
        changed(at_ms=None),
        changed(at_ms=1.5),
        changed(at_ms=10**30),
        changed(until_ms="soon"),
        changed(until_ms=False),
    ],
)
def test_a_record_that_cannot_be_read_is_a_pause_without_an_end(value: bytes) -> None:
    found = read_pause(b"orders", value, 7)
    assert found is not None
    assert found.unreadable
    assert found == Pause("orders", paused=True, reason="", who="", at_ms=7, unreadable=found.unreadable)
    assert found.holds_at(1 << 60)
    assert len(found.unreadable) < 500


@pytest.mark.parametrize("key", [None, b"", b"\xff", b"no/topic", b".", b"x" * 250])
def test_a_key_that_is_no_topic_is_about_no_target(key: bytes | None) -> None:
    assert read_pause(key, PAUSE.value(), 1) is None


def test_a_pause_holds_until_its_end_and_not_at_it() -> None:
    assert PAUSE.holds_at(AT_MS + 4)
    assert not PAUSE.holds_at(AT_MS + 5)
    assert replace(PAUSE, until_ms=None).holds_at(1 << 60)
    assert not replace(PAUSE, paused=False).holds_at(AT_MS)


def test_the_last_record_of_a_target_counts() -> None:
    pauses = Pauses()
    pauses.take(3, PAUSE)
    pauses.take(4, replace(PAUSE, target="bills", until_ms=None))
    assert pauses.paused_at(AT_MS) == {"orders", "bills"}
    assert pauses.position == 5
    assert pauses.paused_at(AT_MS + 5) == {"bills"}
    pauses.take(5, replace(PAUSE, target="bills", paused=False))
    assert pauses.paused_at(AT_MS) == {"orders"}
    pauses.take(6, replace(PAUSE, target="bills", until_ms=None, who="bob"))
    assert [pause.who for pause in pauses.of({"bills", "orders", "none"})] == ["ada", "bob"]
    pauses.take(7, None)
    pauses.reach(20)
    pauses.reach(9)
    assert pauses.position == 20


# -- the gate ----------------------------------------------------------------------------------------------------------


def state_with(obeyed: Obeyed | None = None) -> PartitionState:
    checkpoint = Checkpoint(("writer",), False, Geometry(20_000, 10, 0), obeyed=obeyed)
    recovered = Recovered(0, checkpoint, DoneSet(), 0)
    reader = RequestReader(IntakePolicy("in"))
    return PartitionState("in", 0, reader, False, lambda start_ms: TimingWheel(1, 64, start_ms), recovered, AT_MS)


def due(state: PartitionState, offset: int, target: str = "orders") -> None:
    headers: list[tuple[str, bytes | None]] = [("tarry-target", target.encode()), ("tarry-delay-ms", b"0")]
    state.arrivals.accept(offset, AT_MS, b"k", b"v", headers, AT_MS)


def test_nothing_fires_before_the_pauses_are_known() -> None:
    state = state_with()
    state.knows_pauses = False
    due(state, 0)
    assert state.is_gated
    assert not state.collect(AT_MS)
    assert state.next_due_ms() is None
    state.knows_pauses = True
    assert state.collect(AT_MS)
    assert [message.offset for message in state.take(10, AT_MS).due] == [0]


def test_what_was_due_before_a_partition_stood_by_waits_for_the_pauses_too() -> None:
    state = state_with()
    due(state, 0)
    due(state, 1, "no/topic")
    assert state.collect(AT_MS)
    state.knows_pauses = False
    assert state.next_due_ms() == 0, "a dead letter needs no delivery"
    batch = state.take(10, AT_MS)
    assert (len(batch.due), len(batch.dead)) == (0, 1)
    state.settle(batch)
    state.confirm(batch)
    assert not state.collect(AT_MS)
    assert state.next_due_ms() is None
    state.knows_pauses = True
    assert len(state.take(10, AT_MS).due) == 1


def test_parked_messages_are_not_tried_before_the_pauses_are_known() -> None:
    state = state_with()
    due(state, 0)
    state.collect(AT_MS)
    assert not state.take(10, AT_MS, {"orders"})
    state.knows_pauses = False
    assert not state.take_parked("orders", 10, AT_MS)
    state.knows_pauses = True
    assert len(state.take_parked("orders", 10, AT_MS)) == 1


def test_what_is_obeyed_is_in_each_checkpoint_and_counts_once_that_is_committed() -> None:
    before, after = Obeyed(3, "id"), Obeyed(5, "id")
    state = state_with(before)
    assert state.obeyed == before
    assert not state.obey(before), "the committed checkpoint says so already"
    assert state.obey(after)
    assert state.obeyed == before
    rest = state.settle_checkpoint()
    assert decode_checkpoint(rest.metadata).obeyed == after
    assert state.obey(after), "it is not committed yet"
    state.confirm_checkpoint()
    assert state.obeyed == after
    assert not state.obey(after)
    due(state, 0)
    state.collect(AT_MS)
    assert state.obey(Obeyed(6, "id"))
    batch = state.take(10, AT_MS)
    assert decode_checkpoint(state.settle(batch).metadata).obeyed == Obeyed(6, "id")
    state.confirm(batch)
    assert state.obeyed == Obeyed(6, "id")
    assert decode_checkpoint(state.plain_checkpoint(released=True)[1]).obeyed == Obeyed(6, "id")


@pytest.mark.parametrize("stamp_ms", [-(1 << 62), -1, 1 << 62])
def test_a_record_with_an_impossible_timestamp_has_a_time_that_can_be_shown(stamp_ms: int) -> None:
    found = read_pause(b"orders", b"damaged", stamp_ms)
    assert found is not None
    assert format_instant(found.at_ms)


def test_a_text_of_a_record_can_be_written_anywhere() -> None:
    found = read_pause(b"orders", changed(reason="half \ud83d of it"), 1)
    assert found is not None
    assert found.reason.encode() == b"half ? of it"
