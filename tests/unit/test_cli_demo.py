"""The demo's judge, its pace and what it prints: all of it without a broker."""

import io

import pytest
import typer
from rich.console import Console
from typer.testing import CliRunner

from tarry.cli.demo import demo
from tarry.cli.demo.screen import LineScreen, LiveScreen, render, screen_for, summary
from tarry.cli.demo.sending import LONGEST_MS, SHORTEST_MS, SendPace
from tarry.cli.demo.tally import Arrival, RunTally, SentMessage

DUE_MS = 1_900_000_000_000


def _sent(name: str, due_ms: int = DUE_MS, offset: int = 0, key: str = "k") -> SentMessage:
    return SentMessage(name, key, due_ms, 0, offset)


def _seen(name: str, at_ms: int = DUE_MS + 5, stamp_ms: int | None = None) -> Arrival:
    return Arrival(name, at_ms if stamp_ms is None else stamp_ms, at_ms)


def _faults(tally: RunTally) -> dict[str, int]:
    return {kind: len(texts) for kind, texts in tally.report.faults.items()}


def test_a_message_waits_until_it_arrives() -> None:
    tally = RunTally()
    tally.add_sent([_sent("a"), _sent("b", offset=1)])
    assert (tally.report.sent, tally.waiting, tally.delivered) == (2, 2, 0)
    tally.add_arrivals([_seen("a")])
    assert (tally.report.sent, tally.waiting, tally.delivered) == (2, 1, 1)
    assert [delivery.late_ms for delivery in tally.recent] == [5]
    assert tally.report.is_clean


@pytest.mark.parametrize(
    ("arrivals", "faults"),
    [
        ([_seen("a"), _seen("b")], {}),
        ([_seen("a", DUE_MS), _seen("b")], {}),
        ([_seen("a", DUE_MS - 1), _seen("b")], {"early": 1}),
        ([_seen("a", DUE_MS + 5, DUE_MS - 1), _seen("b")], {"early": 1}),
        ([_seen("a"), _seen("a"), _seen("b")], {"twice": 1}),
        ([_seen("b"), _seen("a", DUE_MS + 6)], {}),
        ([_seen("proof", DUE_MS), _seen("b"), _seen("a", DUE_MS + 6)], {"out of order": 1}),
        ([_seen("a"), _seen("b"), _seen("stranger")], {"unexpected": 1}),
        ([_seen(""), _seen("a"), _seen("b")], {"unexpected": 1}),
    ],
)
def test_each_broken_promise_is_counted_as_what_it_is(arrivals: list[Arrival], faults: dict[str, int]) -> None:
    tally = RunTally()
    tally.add_sent([_sent("a", offset=1), _sent("b", offset=2)])
    # Its arrival shows that the service had read "a" by then.
    tally.add_sent([_sent("proof", DUE_MS - 9, 3, "j")] if _seen("proof", DUE_MS) in arrivals else [])
    tally.add_arrivals(arrivals)
    tally.close()
    assert _faults(tally) == faults
    assert tally.waiting == 0


def test_equal_due_times_are_ranked_by_offset_and_other_keys_do_not_count() -> None:
    tally = RunTally()
    tally.add_sent([_sent("late", DUE_MS + 9, 1), _sent("soon", DUE_MS, 2), _sent("other", DUE_MS - 9, 3, "j")])
    tally.add_arrivals([_seen("soon", DUE_MS + 20), _seen("late", DUE_MS + 20), _seen("other", DUE_MS + 20)])
    assert tally.report.is_clean


def test_an_arrival_that_is_quicker_than_its_acknowledgement_is_judged_when_that_comes() -> None:
    tally = RunTally()
    tally.add_arrivals([_seen("a")])
    assert (tally.delivered, _faults(tally)) == (0, {})
    tally.add_sent([_sent("a")])
    tally.close()
    assert (tally.delivered, _faults(tally), tally.waiting) == (1, {}, 0)


def test_messages_due_next_are_shown_by_due_time_and_offset() -> None:
    tally = RunTally()
    tally.add_sent([_sent("c", DUE_MS + 2, 0), _sent("b", DUE_MS, 2), _sent("a", DUE_MS, 1)])
    assert [message.id for message in tally.next_due(2)] == ["a", "b"]


@pytest.mark.parametrize("for_ms", [2_000, 3_000, 20_000, 600_000])
def test_all_that_is_sent_is_due_before_the_end(for_ms: int) -> None:
    pace = SendPace(rate=50, for_ms=for_ms)
    assert 0 < pace.send_until_ms < for_ms
    for elapsed_ms in range(0, pace.send_until_ms + 1, 100):
        longest_ms = pace.longest_ms(elapsed_ms)
        assert SHORTEST_MS <= longest_ms <= LONGEST_MS
        assert elapsed_ms + longest_ms < for_ms
    assert pace.wanted(1_000) == min(50, pace.wanted(for_ms))
    assert pace.wanted(for_ms) == pace.wanted(pace.send_until_ms)


def test_the_live_table_shows_what_is_due_next_and_what_arrived_how_late() -> None:
    tally = RunTally()
    tally.add_sent([_sent("aaaaaaaa-1", key="ada"), _sent("bbbbbbbb-2", DUE_MS + 3_000, 1, "grace")])
    tally.add_arrivals([_seen("aaaaaaaa-1", DUE_MS + 7)])
    text = io.StringIO()
    console = Console(file=text, width=80, force_terminal=True, color_system=None)
    console.print(render(tally, 4_000, 20_000, DUE_MS + 500))
    shown = text.getvalue()
    assert "4 of 20 s  sent 2  waiting 1  delivered 1" in shown
    assert "bbbbbbbb" in shown
    assert "2.5 s" in shown
    assert "aaaaaaaa" in shown
    assert "7 ms" in shown
    assert "late p50 7 p99 7 max 7 ms" in shown
    assert "early 0  twice 0  out of order 0" in shown
    assert max(len(line.rstrip()) for line in shown.splitlines()) <= 80
    assert len(shown.splitlines()) <= 24


def test_without_a_terminal_there_is_a_line_now_and_then() -> None:
    text = io.StringIO()
    screen = screen_for(Console(file=text, width=40), 20_000)
    assert isinstance(screen, LineScreen)
    tally = RunTally()
    with screen:
        for elapsed_ms in range(0, 5_000, 100):
            screen.show(tally, elapsed_ms, DUE_MS)
    lines = text.getvalue().splitlines()
    assert [line.split(" s ")[0].strip() for line in lines] == ["0.0", "2.0", "4.0"]
    assert lines[0].endswith("early 0  twice 0  out of order 0")


def test_a_terminal_gets_the_live_table() -> None:
    text = io.StringIO()
    screen = screen_for(Console(file=text, width=80, force_terminal=True), 20_000)
    assert isinstance(screen, LiveScreen)
    with screen:
        screen.show(RunTally(), 0, DUE_MS)
    assert "due next" in text.getvalue()


def test_a_missing_message_counts_as_lost_at_the_end_and_as_waiting_after_an_interrupt() -> None:
    tally = RunTally()
    tally.add_sent([_sent("a"), _sent("b", offset=1)])
    tally.add_arrivals([_seen("a")])
    assert "still waiting 1" in summary(tally)[0]
    assert tally.report.is_clean
    tally.close()
    assert summary(tally)[0].startswith("sent 2, delivered 1: lost 1, twice 0, early 0, out of order 0")
    assert _faults(tally) == {"lost": 1}


@pytest.mark.parametrize("wrong", ["20", "1s", "-5s", "2h", "soon"])
def test_a_run_of_no_length_or_a_wrong_one_is_refused_before_anything_starts(wrong: str) -> None:
    app = typer.Typer()
    app.command("demo")(demo)
    result = CliRunner().invoke(app, [f"--for={wrong}"])
    assert result.exit_code == 2
    assert "--for" in result.output
