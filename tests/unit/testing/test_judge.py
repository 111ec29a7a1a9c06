"""The judge of the promises, with one planted fault of each kind, and with records that are no fault."""

import random
from collections import Counter
from typing import NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tarry.testing.judge import EXAMPLES, NEVER_MS, Acceptance, Judge, Lateness, Report, percentile


class Message(NamedTuple):
    due_ms: int
    offset: int = 0

    @property
    def rank(self) -> tuple[int, int]:
        return self.due_ms, self.offset


def faults(report: Report) -> dict[str, int]:
    return {kind: len(texts) for kind, texts in report.faults.items()}


@pytest.mark.parametrize(
    ("stamp_ms", "seen_ms", "found"),
    [(10, 10, {}), (11, 30, {}), (9, 10, {"early": 1}), (10, 9, {"early": 1}), (9, 9, {"early": 1})],
)
def test_a_record_before_the_due_time_by_either_clock_is_early(
    stamp_ms: int, seen_ms: int, found: dict[str, int]
) -> None:
    report = Report()
    Judge[Message](report).never_early(Message(10), stamp_ms, seen_ms)
    assert faults(report) == found
    assert report.late_ms == {seen_ms - 10: 1}


@pytest.mark.parametrize(("times", "found"), [(0, {"lost": 1}), (1, {}), (2, {"twice": 1}), (3, {"twice": 1})])
def test_a_message_without_a_record_is_lost_and_one_with_several_came_twice(times: int, found: dict[str, int]) -> None:
    report = Report()
    Judge[Message](report).once(Message(10), times, " as a result")
    assert faults(report) == found
    assert report.is_clean == (not found)
    assert ("as a result" in str(report)) == bool(found)


def in_order(*line: tuple[Message, int | None]) -> Report:
    """The report on a line: its messages as they stand, each with the end of the log when it was accepted."""
    report = Report()
    judge = Judge[Message](report)
    for offset, (message, accepted_at) in enumerate(line):
        judge.in_order("line", message, offset, accepted_at)
    return report


SOON, LATER, LAST = Message(10, 5), Message(20, 3), Message(20, 4)


def test_messages_by_due_time_and_offset_are_in_order() -> None:
    report = in_order((SOON, 0), (LATER, 0), (LAST, 0))
    assert (faults(report), report.judged, report.overtaken) == ({}, 3, 0)


@pytest.mark.parametrize("line", [(LATER, SOON), (LAST, LATER), (SOON, LAST, LATER)])
def test_a_message_that_was_overtaken_is_out_of_order(line: tuple[Message, ...]) -> None:
    assert faults(in_order(*((message, 0) for message in line))) == {"out of order": 1}


def test_all_messages_that_one_message_has_overtaken_are_out_of_order() -> None:
    assert faults(in_order((LAST, 0), (SOON, 0), (LATER, 0))) == {"out of order": 2}


def test_a_message_that_was_accepted_too_late_may_be_overtaken_and_is_counted_apart() -> None:
    report = in_order((LATER, 0), (SOON, None), (LAST, None))
    assert (faults(report), report.judged, report.overtaken) == ({}, 1, 1)


def test_a_message_that_was_accepted_too_late_may_not_overtake_one_that_was_accepted_in_time() -> None:
    assert faults(in_order((LATER, None), (SOON, 0))) == {"out of order": 1}


def test_a_record_that_was_written_before_a_message_was_accepted_did_not_overtake_it() -> None:
    assert faults(in_order((LATER, 0), (SOON, 1))) == {}
    assert faults(in_order((LAST, 0), (LATER, 1), (SOON, 1))) == {"out of order": 1}


def test_lines_do_not_share_an_order() -> None:
    report = Report()
    judge = Judge[Message](report)
    judge.in_order("one", LATER, 0, 0)
    judge.in_order("other", SOON, 1, 0)
    assert report.is_clean


def test_callers_may_name_other_kinds_of_faults() -> None:
    report = Report()
    judge = Judge[Message](report)
    judge.in_order("line", LATER, 0, 0)
    judge.in_order("line", SOON, 1, 0, "out of the log's order")
    report.add("damaged", "its value")
    assert faults(report) == {"out of the log's order": 1, "damaged": 1}
    assert "damaged 1, unexpected 0, out of the log's order 1" in str(report)


@given(
    st.lists(st.tuples(st.integers(0, 9), st.none() | st.integers(0, 12)), max_size=12),
    st.randoms(use_true_random=False),
)
def test_the_order_of_any_line_is_judged_as_by_comparing_all_pairs(
    sent: list[tuple[int, int | None]], shuffle: random.Random
) -> None:
    line = [(Message(due_ms, offset), accepted_at) for offset, (due_ms, accepted_at) in enumerate(sent)]
    shuffle.shuffle(line)
    report = in_order(*line)

    def is_overtaken(end: int, message: Message, accepted_at: int) -> bool:
        return any(ahead.rank > message.rank for ahead, _ in line[:end][accepted_at:])

    wrong = [at is not None and is_overtaken(end, one, at) for end, (one, at) in enumerate(line)]
    apart = [at is None and is_overtaken(end, one, 0) for end, (one, at) in enumerate(line)]
    assert (report.count("out of order"), report.overtaken) == (sum(wrong), sum(apart))
    assert report.judged == sum(at is not None for _, at in line)


@given(st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9))))
def test_a_message_was_accepted_by_the_first_delivery_at_or_behind_it(deliveries: list[tuple[int, int]]) -> None:
    acceptance = Acceptance()
    for delivery in deliveries:
        acceptance.add(*delivery)
    for offset in range(11):
        at_ms = min((delivered_ms for other, delivered_ms in deliveries if other >= offset), default=NEVER_MS)
        assert acceptance.by(offset) == at_ms


def test_an_order_of_which_enough_was_judged_is_kept() -> None:
    Report(sent=100, judged=30).assert_kept()
    Report(sent=5, judged=4).assert_kept(0.8)


@pytest.mark.parametrize(("judged", "least"), [(29, 0.3), (89, 0.9), (0, 0.0)])
def test_an_order_of_which_too_little_was_judged_is_not_kept(judged: int, least: float) -> None:
    report = Report(sent=100, judged=judged)
    report.assert_clean()
    with pytest.raises(AssertionError, match=f"the order was judged for fewer than {least:.0%}"):
        report.assert_kept(least)


def test_without_messages_no_order_is_kept() -> None:
    with pytest.raises(AssertionError, match="the order was judged for fewer than 30%"):
        Report().assert_kept()


def test_a_broken_promise_is_not_kept_however_much_was_judged() -> None:
    report = Report(sent=1, judged=1)
    report.add("early", "1 ms")
    with pytest.raises(AssertionError, match="promises broken"):
        report.assert_kept()


def test_the_report_names_counts_and_the_first_examples_only() -> None:
    report = Report(sent=100)
    for number in range(100):
        report.add("lost", f"message {number}")
    assert "lost 100, twice 0, early 0, out of order 0, damaged 0" in str(report)
    assert str(report).count("  lost: message") == EXAMPLES
    assert f"and {100 - EXAMPLES} more" in str(report)


def test_counting_faults_adds_none() -> None:
    report = Report()
    assert report.count("lost") == 0
    assert report.is_clean
    assert report.faults == {}


@pytest.mark.parametrize(("percent", "expected"), [(0, 1), (50, 2), (51, 3), (99, 4), (100, 4)])
def test_a_percentile_is_the_nearest_rank(percent: float, expected: int) -> None:
    assert percentile(Counter([1, 2, 3, 4]), percent) == expected


def test_lateness_is_by_nearest_rank() -> None:
    choose = random.Random(7)
    late_ms = [choose.randint(0, 500) for _ in range(321)]
    assert Report().lateness == Lateness(None, None, None)
    report = Report(late_ms=Counter(late_ms))
    late_ms.sort()
    # Nearest rank: ceil(321 * p / 100) is 161 and 318.
    assert report.lateness == Lateness(late_ms[160], late_ms[317], late_ms[-1])
