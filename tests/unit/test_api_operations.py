"""What bulk acts keep in tokens and in Kafka: which records, how far, and whose turn it is; without a broker."""

import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tarry.api.looking.letters import Letter
from tarry.api.operations.letters import WantedLetters
from tarry.api.operations.pick import SHOWN, Pick
from tarry.api.operations.picked import MOST_OFFSET, Bits, Picked
from tarry.api.operations.records import (
    MOST_COUNTS,
    Act,
    Asked,
    Content,
    Progress,
    Single,
    State,
    Stop,
    key_of,
    read_record,
    value_of,
)
from tarry.api.operations.table import MOST, MOST_ACTS, Table, Turns
from tarry.client.retry.core.redrive import DISMISSED, REDRIVEN_OFFSET, DeadLetter, dismissed, matching_letters

PLACES = st.sets(st.tuples(st.integers(0, 5), st.integers(0, MOST_OFFSET)), max_size=60)
ID = "8e8c5b0c-0f5d-4b3e-9a55-0c6b1a3f4d21"


def asked(id_: str = ID, act: Act = Act.REDRIVE, intake: str = "in", offsets: int = 3) -> Asked:
    picked = Picked({0: range(offsets)})
    return Asked(id_, act, intake, "topic-id", picked, {"orders": offsets}, {"expired": offsets}, who="ann", at_ms=5)


def progress(state: State = State.RUNNING, done: int = 1) -> Progress:
    return Progress(state, done, {"expired": 1}, Bits(3).text(), 7, "replica", "")


def read(content: Content, id_: str = ID) -> Any:
    return read_record(key_of(id_, content), value_of(content))


# -- which records -----------------------------------------------------------------------------------------------------


@given(PLACES)
def test_a_list_of_records_is_the_same_after_it_was_json(places: set[tuple[int, int]]) -> None:
    picked = Picked.decoded(json.loads(json.dumps(Picked.of(places).encoded())))
    assert len(picked) == len(places)
    numbers = [picked.number(partition, offset) for partition, offset in sorted(places)]
    assert numbers == list(range(len(places)))


@given(PLACES, st.tuples(st.integers(0, 6), st.integers(0, MOST_OFFSET)))
def test_no_other_record_has_a_number(places: set[tuple[int, int]], other: tuple[int, int]) -> None:
    assert (Picked.of(places).number(*other) is not None) == (other in places)


@pytest.mark.parametrize(
    "found",
    [
        None,
        {},
        "text",
        [1],
        [[]],
        [[0]],
        [[0, -1]],
        [[0, 1.0]],
        [[0, True]],
        [[0, 1, 0]],
        [[0, 1], [0, 2]],
        [[0, MOST_OFFSET, 1]],
        [["0", 1]],
    ],
)
def test_what_is_no_list_of_records_is_refused(found: Any) -> None:
    with pytest.raises(ValueError, match="list of records"):
        Picked.decoded(found)


@given(st.integers(0, 200), st.data())
def test_bits_are_the_same_after_they_were_text(size: int, data: st.DataObject) -> None:
    numbers = data.draw(st.sets(st.integers(0, max(size - 1, 0)), max_size=size))
    bits = Bits(size)
    bits.update([*numbers, -1, size, size + 9])
    found = Bits.of(bits.text(), size)
    assert {number for number in range(-1, size + 10) if number in found} == numbers
    assert len(found) == len(numbers)


@pytest.mark.parametrize("text", ["", "?", "AAAA", Bits(9).text(), Bits(10**7).text()])
def test_bits_of_another_size_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match="bits"):
        Bits.of(text, 8)


def test_a_dry_run_takes_no_more_than_its_most_and_says_so() -> None:
    pick: Pick[int] = Pick("", most=SHOWN + 2)
    taken = [pick.take((0, number), number, "orders", "expired") for number in range(SHOWN + 3)]
    assert taken == [True] * (SHOWN + 2) + [False]
    assert (len(pick.picked()), len(pick.sample), pick.is_whole) == (SHOWN + 2, SHOWN, False)
    assert pick.targets == {"orders": SHOWN + 2}


def test_a_dry_run_is_about_a_limited_number_of_targets() -> None:
    pick: Pick[int] = Pick("", most=10 * MOST_COUNTS)
    for number in range(2 * MOST_COUNTS):
        pick.take((0, number), number, f"target-{number}", f"code-{number}")
    assert len(pick.targets) == len(pick.places) == MOST_COUNTS
    assert not pick.is_whole
    content = replace(asked(), targets=pick.targets, codes=pick.codes)
    assert read(content)[1].targets == pick.targets


@pytest.mark.parametrize(
    ("wanted", "holds"),
    [
        (WantedLetters(), True),
        (WantedLetters(code="expired"), True),
        (WantedLetters(code="expire"), False),
        (WantedLetters(target="orders"), True),
        (WantedLetters(target=""), False),
        (WantedLetters(code="expired", target="bills"), False),
    ],
)
def test_letters_are_chosen_by_code_and_target(wanted: WantedLetters, *, holds: bool) -> None:
    letter = Letter(("in.dead", 0), 1, 2, "expired", "", "orders", None, None, None)
    assert wanted.hold(letter) is holds
    assert WantedLetters(target="").hold(letter._replace(target=None))


def test_a_dismissed_letter_is_not_redriven() -> None:
    letters = [DeadLetter(0, offset, b"k", b"v", []) for offset in (3, 4)]
    note = dismissed("in.dead", 0, 3)
    assert (note.partition, note.key, note.value) == (0, None, None)
    assert dict(note.headers) == {REDRIVEN_OFFSET: b"3", DISMISSED: None}
    found = matching_letters([*letters, DeadLetter(0, 5, note.key, note.value, note.headers)], [])
    assert [letter.offset for letter in found] == [4]


# -- records -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "content",
    [progress(), Stop("bob", "why", 9), Single("pause", "ann", 3, "orders", None, "why")],
)
def test_a_record_says_the_same_when_it_is_read(content: Content) -> None:
    assert read(content) == (ID, content)


def test_what_was_asked_is_the_same_when_it_is_read() -> None:
    id_, found = read(asked())
    assert id_ == ID
    assert found.fields() == asked().fields()


@pytest.mark.parametrize(
    ("key", "value"),
    [
        (b"x/asked", b"not json"),
        (b"x/asked", b"[]"),
        (b"x/asked", b"{}"),
        (b"x/asked", b'{"v": 2}'),
        (b"x/asked", value_of(asked()).replace(b"redrive", b"rm -rf")),
        (b"x/asked", value_of(asked()).replace(b'"by_ms":0', b'"by_ms":-1')),
        (b"x/progress", value_of(progress()).replace(b'"done":1', b'"done":"1"')),
        (b"x/stop", b'{"v": 1}'),
        (b"x/act", b"[" * 100_000),
        (b"\xff/act", b"{}"),
    ],
)
def test_what_is_no_record_is_an_error_of_one_line(key: bytes, value: bytes) -> None:
    with pytest.raises(ValueError) as caught:  # noqa: PT011 - the texts differ
        read_record(key, value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(("key", "value"), [(None, b"{}"), (b"x", b"{}"), (b"x/later", b"{}"), (b"x/asked", None)])
def test_records_of_other_kinds_are_passed_over(key: bytes | None, value: bytes | None) -> None:
    assert read_record(key, value) is None


def test_half_a_character_in_a_reason_does_no_harm() -> None:
    value = value_of(Stop("ann", "x", 1)).replace(b'"x"', b'"\\ud800"')
    found = read_record(b"x/stop", value)
    assert found is not None
    assert isinstance(found[1], Stop)
    assert found[1].reason == "?"


# -- whose turn it is --------------------------------------------------------------------------------------------------


def state_of(table: Table, id_: str = ID) -> State:
    row = table.find(id_)
    assert row is not None
    return row.state


def test_an_operation_goes_from_waiting_to_its_end() -> None:
    table = Table("in")
    table.take(ID, asked(), 0)
    assert state_of(table) is State.WAITING
    table.take(ID, progress(), 1)
    assert state_of(table) is State.RUNNING
    table.take(ID, Stop("bob", "first", 9), 2)
    table.take(ID, Stop("eve", "second", 10), 3)
    assert state_of(table) is State.STOPPING
    table.take(ID, progress(State.STOPPED), 4)
    row = table.find(ID)
    assert row is not None
    assert (row.state, row.heard_ms, row.total, len(row.asked.picked)) == (State.STOPPED, 4, 3, 0)
    assert row.stop == Stop("bob", "first", 9)
    assert table.next_of(of_letters=True) is None
    assert table.unfinished == 0


def test_the_same_operation_asked_for_twice_does_not_begin_anew() -> None:
    table = Table("in")
    for content in (asked(), progress(State.DONE, 3), asked()):
        table.take(ID, content, 0)
    assert state_of(table) is State.DONE
    assert table.next_of(of_letters=True) is None


def test_compaction_may_leave_progress_before_what_was_asked() -> None:
    table = Table("in")
    for content in (progress(), Stop("bob", "why", 9), asked()):
        table.take(ID, content, 0)
    assert state_of(table) is State.STOPPING
    row = table.find(ID)
    assert row is not None
    assert row.progress == progress()


def test_operations_of_a_track_have_their_turn_one_after_the_other() -> None:
    table = Table("in")
    acts = [Act.CANCEL, Act.REDRIVE, Act.DISMISS, Act.MOVE]
    for number, act in enumerate(acts):
        table.take(str(number), asked(str(number), act), 0)
    of_letters, of_waiting = table.next_of(of_letters=True), table.next_of(of_letters=False)
    assert of_letters is not None
    assert of_waiting is not None
    assert (of_letters.asked.id, of_waiting.asked.id) == ("1", "0")
    table.take("1", progress(State.FAILED), 0)
    after = table.next_of(of_letters=True)
    assert after is not None
    assert after.asked.id == "2"


def test_an_operation_that_cannot_go_on_holds_up_no_other_track() -> None:
    tables, turns = [Table("a"), Table("b")], Turns()
    for table in tables:
        for number, act in enumerate([Act.REDRIVE, Act.CANCEL, Act.MOVE]):
            table.take(f"{table.intake}{number}", asked(f"{table.intake}{number}", act, table.intake), 0)
    had = []
    for _ in range(8):
        ready = [table.next_of(of_letters=of_letters) for table in tables for of_letters in (True, False)]
        row = turns.next(row for row in ready if row is not None)
        assert row is not None
        had.append(row.asked.id)
    assert had == ["a0", "a1", "b0", "b1"] * 2
    assert turns.next([]) is None


def test_an_operation_that_was_given_back_is_known_as_such() -> None:
    table = Table("in")
    table.take(ID, asked(), 0)
    row = table.find(ID)
    assert row is not None
    assert not row.is_released
    table.take(ID, replace(progress(State.WAITING), replica=""), 1)
    assert row.is_released


def test_an_operation_of_another_intake_or_id_is_not_taken() -> None:
    table = Table("in")
    table.take(ID, asked(intake="other"), 0)
    table.take("another", asked(), 0)
    assert list(table.rows()) == []


def test_a_table_holds_a_limited_number_of_operations_and_acts() -> None:
    table = Table("in")
    for number in range(MOST + 5):
        table.take(str(number), asked(str(number)), 0)
        table.take(f"early-{number}", progress(), 0)
    for number in range(MOST_ACTS + 5):
        table.take(str(number), Single("pause", "ann", number), 0)
    assert len(list(table.rows())) == MOST
    assert len(list(table.acts())) == MOST_ACTS
    assert table.find("0") is None
    assert table.find(str(MOST + 4)) is not None
