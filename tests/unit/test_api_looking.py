"""What the lists and the console show, without Kafka: counts by due time, cursors, pages, what is hidden, figures."""

import json
from collections.abc import Sequence
from http import HTTPStatus
from itertools import pairwise
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tarry.api.access.principal import ANYBODY, Principal, parsed_grants
from tarry.api.console.bars import due_bars, hour_bars
from tarry.api.console.formats import ago, brief, rate, size, span, times
from tarry.api.console.values import form_of, value_as
from tarry.api.looking.cursor import BEGIN, LetterCursor, MessageCursor, letter_cursor, message_cursor
from tarry.api.looking.due import FOREVER_MS, STEPS_MS, bounds, rows, windows
from tarry.api.looking.health import problems_of
from tarry.api.looking.letters import Letters
from tarry.api.looking.message import parsed_place, rounded
from tarry.api.looking.models import DeadHour
from tarry.api.looking.outcomes import outcomes_among
from tarry.api.looking.owners import partition_rows
from tarry.api.looking.paging import First, Wanted, position_of
from tarry.api.looking.published import KEPT_MS, STALE_MS, Follower, Lately, Published, is_stale
from tarry.api.looking.reading import IntakeLook, PartitionLook
from tarry.api.looking.rows import dead_page, due_rows, message_row, target_rows
from tarry.api.looking.search import sought
from tarry.api.looking.shown import Sight, shown
from tarry.api.looking.trouble import groups_among
from tarry.api.problems import ProblemError
from tarry.core.progress.source import INTAKE, PARKED, Source
from tarry.core.request.figures import DeliveredFigures, Figures, ParkedFigures, ProcessFigures
from tarry.core.request.intake_policy import IntakePolicy
from tarry.core.request.pause import Pause
from tarry.core.request.status import Status
from tarry.handle import Handle
from tarry.kafka.backlog_index import DueRange
from tarry.kafka.group import Owner
from tarry.kafka.inspector import ParkedMessages, Waiting

if TYPE_CHECKING:
    from confluent_kafka import Message

NOW_MS = 1_800_000_000_000
ID = "8e8c5b0c-0f5d-4b3e-9a55-0c6b1a3f4d21"


def waiting(due_ms: int, sequence: int = 0, **fields: Any) -> Waiting:
    given = {"source": INTAKE, "kind": "message", "id": ID, "key": b"k", "target": "orders", **fields}
    return Waiting(("in", 0), due_ms=due_ms, sequence=sequence, **given)


# -- counts by due time ------------------------------------------------------------------------------------------------

RANGES = st.builds(
    lambda level, start, width: DueRange(level, NOW_MS + start, NOW_MS + start + width),
    st.integers(1, 4),
    st.integers(-10_000, 10**9),
    st.integers(1, 10**8),
)


@given(st.dictionaries(RANGES, st.integers(1, 1_000), max_size=20), st.integers(0, 1_000))
def test_rows_hold_all_that_waits_whatever_its_ranges(counts: dict[DueRange, int], in_memory: int) -> None:
    found = rows(counts, in_memory, NOW_MS + 5_000, NOW_MS, bounds(NOW_MS))
    assert sum(row.at_most for row in found) == sum(counts.values()) + in_memory
    assert [row.from_ms for row in found[1:]] == [row.until_ms for row in found[:-1]]
    assert (found[0].from_ms, found[-1].until_ms) == (None, None)


@given(st.integers(0, 10**12), st.integers(2_000, 10**12))
def test_a_zoomed_view_has_about_24_rows_within_its_bounds(start: int, width: int) -> None:
    edges = bounds(NOW_MS, start, start + width)
    whole = [edge for edge in edges if edge is not None]
    assert whole == edges
    assert (whole[0], whole[-1]) == (start, start + width)
    assert all(one < other for one, other in pairwise(whole))
    assert len(whole) <= 30


def test_a_row_narrower_than_a_bucket_says_by_how_wide_a_range_it_is_known() -> None:
    counts = {DueRange(2, 1_000, 5_000): 40}
    found = rows(counts, 0, 0, 0, [0, 1_000, 2_000, 3_000, 4_000, 5_000])
    assert [row.at_most for row in found] == [0, 10, 10, 10, 10]
    assert {row.resolution_ms for row in found[1:]} == {4_000}


@given(st.dictionaries(RANGES, st.integers(1, 50_000), max_size=30), st.integers(0, 10**8))
def test_windows_cover_all_due_times_once(counts: dict[DueRange, int], after: int) -> None:
    found = list(windows(counts, NOW_MS + after, FOREVER_MS, 20_000))
    assert found[0].from_ms == NOW_MS + after
    assert found[-1].until_ms == FOREVER_MS
    assert all(one.until_ms == other.from_ms for one, other in pairwise(found))
    assert all(one.from_ms < one.until_ms for one in found)


def test_bars_of_the_widest_view_are_labelled_and_lead_to_a_zoom() -> None:
    counts = {DueRange(1, NOW_MS + 90_000, NOW_MS + 100_000): 7}
    found = due_rows(rows(counts, 0, NOW_MS, NOW_MS, bounds(NOW_MS)))
    bars = due_bars(found, lambda first, last: f"{first}-{last}", is_late=False)
    assert [bar.label for bar in bars] == ["now", "10s", "1m", "10m", "1h", "6h", "1d", "7d", "30d", "1y", "later"]
    [bar] = [bar for bar in bars if bar.messages]
    assert (bar.label, bar.messages, bar.height, bar.is_spread) == ("10m", 7, 100, False)
    assert bar.href == f"{NOW_MS + STEPS_MS[1]}-{NOW_MS + STEPS_MS[2]}"


def test_bars_of_dead_letters_hold_older_ones_in_the_first() -> None:
    hours = [DeadHour(hour=0, count=5), DeadHour(hour=NOW_MS // 3_600_000 * 3_600_000, count=2)]
    bars = hour_bars(hours, NOW_MS)
    assert (bars[0].messages, bars[-1].messages, len(bars)) == (5, 2, 48)


# -- cursors and pages -------------------------------------------------------------------------------------------------


def test_a_cursor_comes_back_as_it_was() -> None:
    cursor = MessageCursor("in", [5, 7], NOW_MS, (NOW_MS + 1, 1, 6))
    assert message_cursor(cursor.text()) == cursor
    assert cursor.checked("in", [5, 9], NOW_MS + 1) == cursor
    assert letter_cursor(LetterCursor(1, 2, 3).text()) == LetterCursor(1, 2, 3)


@pytest.mark.parametrize("text", ["", "x", "{}", LetterCursor(1, 2, 3).text(), "W10", "[" * 50_000, "é", "A" * 70_000])
def test_what_is_no_cursor_is_refused(text: str) -> None:
    with pytest.raises(ProblemError) as refused:
        message_cursor(text)
    assert refused.value.status == HTTPStatus.BAD_REQUEST


@pytest.mark.parametrize(("ends", "later_ms"), [([4, 7], 0), ([5], 0), ([5, 7], 3_600_001), ([5, 7], -3_600_001)])
def test_a_cursor_expires_by_time_and_when_the_intake_is_recreated(ends: list[int], later_ms: int) -> None:
    with pytest.raises(ProblemError) as refused:
        MessageCursor("in", [5, 7], NOW_MS, BEGIN).checked("in", ends, NOW_MS + later_ms)
    assert (refused.value.status, refused.value.code) == (HTTPStatus.GONE, "cursor-expired")


@given(
    st.lists(st.tuples(st.integers(0, 50), st.integers(0, 50)), max_size=60), st.integers(1, 20), st.integers(-1, 50)
)
def test_a_page_keeps_the_first_messages_behind_its_cursor_each_once(
    places: list[tuple[int, int]], most: int, after: int
) -> None:
    first = First(most, (after, -1, -1))
    for due_ms, sequence in places:
        first.take(waiting(due_ms, sequence))
    expected = sorted({(due_ms, 0, sequence) for due_ms, sequence in places if (due_ms, 0, sequence) > (after, -1, -1)})
    assert [position_of(one) for one in first.sorted()] == expected[:most]


def test_a_filter_holds_for_target_key_id_and_due_time() -> None:
    one = waiting(10)
    assert Wanted(target="orders", key=b"k", id=ID, from_ms=10, until_ms=11).holds(one)
    assert Wanted(target="ord*").holds(one)
    for wanted in (Wanted(target="order"), Wanted(key=b"j"), Wanted(id="x"), Wanted(from_ms=11), Wanted(until_ms=10)):
        assert not wanted.holds(one)
    assert not Wanted().holds(waiting(10, kind="cancel"))


# -- what is hidden ----------------------------------------------------------------------------------------------------


def test_keys_are_hidden_by_target() -> None:
    sight = Sight(Principal("eve", parsed_grants(["look", "look-keys:mail.*"])))
    hidden = message_row(waiting(1), sight)
    assert (hidden.key, hidden.hidden) == (None, ["key", "name", "headers", "value"])
    seen = message_row(waiting(1, target="mail.daily", source=Source(3, 9)), sight)
    assert seen.key is not None
    assert (seen.key.text, seen.hidden, seen.where, seen.level) == ("k", ["headers", "value"], "level", 3)
    assert message_row(waiting(1, source=Source(PARKED, 0)), sight).where == "parked"


@given(st.binary(max_size=400))
def test_any_bytes_are_shown(raw: bytes) -> None:
    found = shown(raw)
    assert found.size_bytes == len(raw)
    assert found.is_cut == (len(raw) > 256)
    assert json.loads(found.model_dump_json())["size_bytes"] == len(raw)


def test_a_character_that_is_cut_in_two_is_left_out() -> None:
    found = shown("é".encode() * 200, 255)
    assert (found.text, found.is_utf8, found.is_cut) == ("é" * 127, True, True)
    assert shown(b"\xff").text == "\\xff"


# -- dead letters ------------------------------------------------------------------------------------------------------


class _Letter:
    """A record of a topic of dead letters: only what is asked of it."""

    def __init__(
        self,
        offset: int,
        key: bytes | None = b"k" * 600,
        value: bytes | None = b"v",
        more: Sequence[tuple[str, bytes]] = (),
        /,
        **headers: bytes,
    ) -> None:
        self._offset, self._key, self._value = offset, key, value
        self._headers = [*((name.replace("_", "-"), one) for name, one in headers.items()), *more]

    def offset(self) -> int:
        return self._offset

    def headers(self) -> list[tuple[str, bytes]]:
        return self._headers

    def key(self) -> bytes | None:
        return self._key

    def value(self) -> bytes | None:
        return self._value

    def timestamp(self) -> tuple[int, int]:
        return 1, NOW_MS + self._offset


def letters(*records: _Letter, most: int = 100) -> Letters:
    found = Letters("in.dead", most)
    for record in records:
        taken: Any = record
        message: Message = taken
        found.take(("in.dead", 0), message)
    return found


def test_a_letter_that_was_sent_again_is_not_counted() -> None:
    found = letters(
        _Letter(0, tarry_error=b"expired", tarry_target=b"orders"),
        _Letter(1, tarry_error=b"expired", tarry_target=b"orders"),
        _Letter(2, None, None, tarry_redriven_offset=b"0"),
    )
    page = dead_page("in", found, Sight(ANYBODY), 10)
    assert (page.open, [one.offset for one in page.letters], [one.count for one in page.counts]) == (1, [1], [1])
    assert page.letters[0].key is not None
    assert page.letters[0].key.size_bytes == 600
    both = dead_page("in", found, Sight(ANYBODY), 10, sent_again_too=True)
    assert [(one.offset, one.is_sent_again) for one in both.letters] == [(1, False), (0, True)]


def test_a_letter_whose_message_has_the_headers_of_a_note_or_of_a_letter_takes_no_other_out() -> None:
    forged = {"tarry_error": b"expired", "tarry_target": b"orders"}
    found = letters(
        _Letter(0, **forged),
        _Letter(1, None, None, tarry_redriven_offset=b"0", **forged),
        _Letter(2, tarry_redriven_offset=b"1", tarry_dismissed=b"", **forged),
        _Letter(3, b"k", b"v", [("tarry-error", b"unknown-target")], **forged),
    )
    page = dead_page("in", found, Sight(ANYBODY), 10)
    assert [(one.offset, one.code) for one in page.letters] == [
        (3, "unknown-target"),
        (2, "expired"),
        (1, "expired"),
        (0, "expired"),
    ]


def test_dead_letters_come_in_pages_and_only_the_last_are_kept() -> None:
    found = letters(*(_Letter(offset, tarry_error=b"expired") for offset in range(25)), most=20)
    assert found.forgotten == 5
    first = dead_page("in", found, Sight(ANYBODY), 12)
    assert first.next is not None
    second = dead_page("in", found, Sight(ANYBODY), 12, letter_cursor(first.next))
    offsets = [one.offset for page in (first, second) for one in page.letters]
    assert (offsets, second.next) == (list(range(24, 4, -1)), None)


def test_a_letter_for_another_target_is_not_seen() -> None:
    found = letters(_Letter(0, tarry_error=b"expired", tarry_target=b"orders"))
    page = dead_page("in", found, Sight(Principal("eve", parsed_grants(["look:mail"]))), 10)
    assert (page.open, page.letters, page.counts) == (0, [], [])


# -- figures -----------------------------------------------------------------------------------------------------------


def record(status: Status | None) -> "Message":
    value = None if status is None else status.value()
    return cast("Message", SimpleNamespace(key=lambda: b"k", value=lambda: value))


def published(*statuses: Status | None, now_ms: int = NOW_MS, partitions: int = 2) -> Published:
    follower = Follower("in", pytest.fail)
    for status in statuses:
        follower.take(record(status))
    return follower.published(partitions, now_ms)


def status_of(partition: int, owner: str, at_ms: int, *targets: DeliveredFigures, **process: Any) -> Status:
    of_process = ProcessFigures(**{"host": f"host of {owner}", "period_ms": 5_000, "targets": targets, **process})
    parked = (ParkedFigures("mail", 3, at_ms - 7_000),)
    figures = Figures(at_ms, held=4, waiting=7, bytes=900, parked=parked, obeyed=2, process=of_process)
    return Status(partition, IntakePolicy("in"), owner, NOW_MS - 100_000, figures)


def test_rates_and_lateness_are_those_that_the_owners_published() -> None:
    orders = [DeliveredFigures("orders", 60, 3, 9, 20), DeliveredFigures("orders", 120, 5, 8, 30)]
    late = DeliveredFigures("mail", 6, 1, 2, 4_000)
    found = published(
        status_of(0, "a", NOW_MS - 120_000, late),
        status_of(0, "a", NOW_MS - 6_000, orders[0]),
        status_of(1, "a", NOW_MS - 6_000, orders[0]),  # the same period, in the record of another partition
        None,
        status_of(1, "b", NOW_MS, orders[1]),
    )
    assert found.as_of_ms == NOW_MS
    assert found.lately("orders") == Lately(3.0, 5, 9, 30)
    assert found.lately("mail") == Lately(), "more than a minute ago"
    assert (found.targets, found.last_ms("mail"), found.last_ms("none")) == (["mail", "orders"], NOW_MS - 120_000, None)
    points = found.series()
    assert sum(rate * 5 for _, rate, _ in points["orders"]) == pytest.approx(180)
    assert max(worst for *_, worst in points["mail"]) == 4_000
    assert [at for at, *_ in points["mail"]] == list(range(points["mail"][0][0], NOW_MS, 5_000))
    assert published(now_ms=NOW_MS) == Published()
    assert Published().series() == {}
    young = published(status_of(0, "a", NOW_MS, DeliveredFigures("orders", 5, 1, 1, 1))).series()["orders"]
    assert [rate for _, rate, _ in young] == [0.0] * 11 + [1.0], "a chart is a minute wide at least"


def test_deliveries_are_forgotten_after_ten_minutes_and_the_owners_are_not() -> None:
    found = published(status_of(0, "a", NOW_MS, DeliveredFigures("orders", 1, 1, 1, 1)), now_ms=NOW_MS + KEPT_MS)
    assert (found.periods, found.targets, found.lately("orders")) == ((), [], Lately())
    assert found.as_of_ms == NOW_MS
    assert is_stale(found.as_of_ms, NOW_MS + STALE_MS + 1)
    assert not is_stale(found.as_of_ms, NOW_MS + STALE_MS)


def test_the_clock_of_a_machine_is_known_while_its_figures_are_young() -> None:
    found = published(
        status_of(0, "a", NOW_MS, clock_skew_ms=2_500),
        status_of(1, "b", NOW_MS - STALE_MS - 1, clock_skew_ms=-90_000),
    )
    assert [(one.host, one.ahead_ms, one.is_wrong) for one in found.clocks(NOW_MS)] == [("host of a", 2_500, True)]


def test_a_partition_says_how_its_owner_does_and_how_old_that_is() -> None:
    found = published(
        status_of(0, "a", NOW_MS - STALE_MS - 1, resident_bytes=5_000, takeovers=3),
        status_of(1, "b", NOW_MS, standby=("in/0",)),
    )
    looks = [PartitionLook(("in", number), 0, 0, 0, 0, 0, None, is_known=True, is_released=False) for number in (0, 1)]
    owners = [Owner("client", frozenset({("in", 0), ("in", 1)}))]
    old, young = partition_rows(IntakeLook(looks), owners, found, {}, NOW_MS)
    assert (old.figures_are_stale, young.figures_are_stale) == (True, False)
    assert (old.owner, old.held, old.memory_bytes, old.process_bytes, old.process_takeovers) == ("a", 4, 900, 5_000, 3)
    assert (old.kept_by, young.kept_by, old.obeyed) == (["b"], [], 2)


def test_what_is_parked_counts_whether_it_is_in_memory_or_in_the_parked_log() -> None:
    found = published(status_of(0, "a", NOW_MS), status_of(1, "a", NOW_MS))
    in_log = [ParkedMessages(("in", 0), "mail", 2, NOW_MS - 9_000), ParkedMessages(("in", 0), "more", 8, NOW_MS)]
    look = IntakeLook(parked=in_log)
    pause = Pause("mail", paused=True, reason="r", who="w", at_ms=NOW_MS)
    rows = target_rows("in", look, found, Letters("in.dead"), [pause], Sight(ANYBODY), NOW_MS)
    assert [(one.target, one.parked, one.parked_since) for one in rows] == [
        ("mail", 6, NOW_MS - 9_000),
        ("more", 8, NOW_MS),
    ]
    assert rows[0].paused_by == "w"


def test_a_schedule_has_the_last_outcomes_of_its_occurrences() -> None:
    def result(number: int, outcome: str = "fired", schedule: str = ID) -> bytes:
        fields = {"outcome": outcome, "schedule": schedule, "occurrence": number, "due_ms": number, "at_ms": number + 1}
        return json.dumps(fields).encode()

    values = [(0, result(number)) for number in range(1, 5)]
    values += [
        (0, b"no result"),
        (0, b"{}"),
        (0, result(9, schedule="another")),
        (1, result(8)),
        (0, result(5, "dead")),
    ]
    found = outcomes_among([*values, (0, None)], {(0, ID)})
    assert [(one.outcome, one.occurrence, one.at_ms) for one in found[0, ID]] == [
        ("dead", 5, 6),
        ("fired", 4, 5),
        ("fired", 3, 4),
    ]
    assert found.keys() == {(0, ID)}


# -- search, groups, formats -------------------------------------------------------------------------------------------


def test_what_a_text_can_be() -> None:
    handle = Handle("in.1", 2, NOW_MS, ID)
    assert sought(f" {handle} ").handle == handle
    assert sought(ID.upper()).id == ID
    assert sought("orders/3/17").place == ("orders", 3, 17)
    assert sought("orders.daily").topic == "orders.daily"
    found = sought("customer 17 report")
    assert (found.topic, found.key, found.name) == (None, b"customer 17 report", b"report")
    assert sought("  ") == sought("")


@pytest.mark.parametrize("text", ["", "a", "a/1", "a/x/1", "a/1/-1", f"a/{'1' * 30}/1", "/1/1"])
def test_what_is_no_place(text: str) -> None:
    assert parsed_place(text) is None


@pytest.mark.parametrize(
    ("grants", "kinds"),
    [(["look"], ["paused", "parked", "dead"]), (["look:orders"], ["paused"]), (["look:other"], [])],
)
def test_what_is_not_well_names_no_target_that_may_not_be_seen(grants: list[str], kinds: list[str]) -> None:
    look = IntakeLook(parked=[ParkedMessages(("in", 0), "bills", 3, NOW_MS), ParkedMessages(("in", 0), "orders", 1, 5)])
    pauses = [Pause("orders", paused=True, reason="the warehouse is down", who="eve", at_ms=NOW_MS)]
    sight = Sight(Principal("p", parsed_grants(grants)))
    dead = 1 if sight.sees("bills") else 0
    found = list(problems_of("in", look, [], pauses, dead, NOW_MS, sight.sees))
    assert [one.kind for one in found] == kinds
    assert ("warehouse" in str(found)) == ("paused" in kinds)
    assert ("bills" in str(found)) == ("parked" in kinds)


def test_groups_that_retry_are_found_by_their_topics() -> None:
    topics = {
        "a": 1, "a.b": 2, "a.b.c.d.retry": 2, "a.b.c.d.retry-state": 2,
        "x.g.retry-state": 1, "y": 1, "y.g.retry": 1, "y.g.retry-state": 1,
    }  # fmt: skip
    found = [(one.topic, one.group) for one in groups_among(topics.items())]
    assert found == [("a.b", "c.d"), ("y", "g")]


def test_durations_numbers_and_sizes_are_short() -> None:
    assert [span(ms) for ms in (None, 0, 999, 1_200, 59_000, 3_700_000, 90_000_000)] == [
        "\N{EN DASH}", "0 ms", "999 ms", "1.2 s", "59 s", "1 h", "1 d",
    ]  # fmt: skip
    assert [brief(count) for count in (0, 999, 1_200, 12_000, 3_400_000)] == ["0", "999", "1.2k", "12k", "3.4M"]
    assert [rate(per_s) for per_s in (0, 0.031, 4.2, 12_345.6)] == ["0", "0.03", "4.2", "12\u202f346"]
    assert [size(count) for count in (1, 900, 2048, 5 * 2**20)] == ["1 byte", "900 bytes", "2 KiB", "5 MiB"]
    assert ago(NOW_MS + 90_000, NOW_MS) == "in 1 min"
    assert ago(NOW_MS - 7_200_000, NOW_MS) == "2 h ago"
    assert rounded(7_384_000) == "2 h 3 min"


def test_instants_in_a_text_become_elements_and_the_rest_is_escaped() -> None:
    found = times("<b> from 2030-01-31T12:00:00.000Z on")
    assert found.startswith("&lt;b&gt; from <time datetime=")
    assert 'data-ms="1896091200000"' in found


@pytest.mark.parametrize(
    ("raw", "form"),
    [(b'{"a":1}', "json"), (b"[1", "json"), (b"text", "text"), (b"\xff", "hex"), (b"\x00", "hex"), (None, "text")],
)
def test_the_form_of_a_value_follows_from_its_bytes(raw: bytes | None, form: str) -> None:
    assert form_of(raw) == form


@given(st.none() | st.binary(max_size=300), st.sampled_from(["json", "text", "hex"]))
def test_any_value_is_shown_in_any_form(raw: bytes | None, form: str) -> None:
    found = value_as(raw, form)
    assert found.is_null == (raw is None)
    assert found.size_bytes == len(raw or b"")


def test_a_large_value_is_cut_and_says_so() -> None:
    found = value_as(b"[" + b"1," * 100_000 + b"1]", "json")
    assert len(found.text) == 64 * 1024
    assert "200,003 bytes" in found.note
