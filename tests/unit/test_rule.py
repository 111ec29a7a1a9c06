"""The times of a schedule: intervals, and cron rules in zones."""

import random
import re
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tarry.core.request.header_values import HeaderFault
from tarry.core.request.rule import Rule, read_rule, zone_of
from tarry.headers import ErrorCode
from tarry.units import format_instant, parse_instant_ms

NOW_MS = 1_767_225_600_123
HOUR_MS = 3_600_000


def rule(**headers: str) -> Rule:
    read = read_rule({f"tarry-{name.replace('_', '-')}": value.encode() for name, value in headers.items()})
    assert isinstance(read, Rule), read
    return read


def fault(**headers: str) -> HeaderFault:
    read = read_rule({f"tarry-{name.replace('_', '-')}": value.encode() for name, value in headers.items()})
    assert isinstance(read, HeaderFault), read
    assert "\n" not in read.detail
    return read


def times(of: Rule, after: str, count: int) -> list[str]:
    at_ms, found = parse_instant_ms(after), list[str]()
    for _ in range(count):
        next_ms = of.after(at_ms)
        assert next_ms is not None
        assert next_ms > at_ms
        found.append(format_instant(next_ms))
        at_ms = next_ms
    return found


# -- intervals -----------------------------------------------------------------------------------------------------


@given(st.integers(1_000, 10**12), st.integers(0, 10**13))
def test_an_interval_counts_from_the_epoch(every_ms: int, at_ms: int) -> None:
    next_ms = Rule(every_ms, None, "", "").after(at_ms)
    assert next_ms is not None
    assert next_ms % every_ms == 0
    assert at_ms < next_ms <= at_ms + every_ms


@given(st.integers(1_000, 10**10), st.integers(10**12, 10**13), st.integers(0, 10**13))
def test_an_interval_counts_from_a_given_time_and_does_not_begin_before_it(
    every_ms: int, first_ms: int, at_ms: int
) -> None:
    next_ms = Rule(every_ms, first_ms, "", "").after(at_ms)
    assert next_ms is not None
    assert (next_ms - first_ms) % every_ms == 0
    assert next_ms == first_ms if at_ms < first_ms else at_ms < next_ms <= at_ms + every_ms


def test_an_interval_does_not_drift_and_leaves_out_what_has_passed() -> None:
    every = rule(every="15m")
    assert times(every, "2026-01-01T12:00:00.001Z", 3) == [
        "2026-01-01T12:15:00.000Z",
        "2026-01-01T12:30:00.000Z",
        "2026-01-01T12:45:00.000Z",
    ]
    assert times(every, "2026-01-01T19:59:59.999Z", 1) == ["2026-01-01T20:00:00.000Z"]
    anchored = rule(every="1d", deliver_at="2026-01-01T06:30:00Z")
    assert times(anchored, "2025-06-01T00:00:00Z", 2) == ["2026-01-01T06:30:00.000Z", "2026-01-02T06:30:00.000Z"]


@pytest.mark.parametrize("value", ["", "15", "15x", "-1s", "1.0001s", "one second"])
def test_a_bad_interval_is_a_bad_schedule(value: str) -> None:
    assert fault(every=value).code == ErrorCode.BAD_SCHEDULE


def test_an_interval_is_at_least_a_second() -> None:
    assert fault(every="999ms") == HeaderFault(ErrorCode.BAD_SCHEDULE, "tarry-every is less than 1s: '999ms'")
    assert rule(every="1s").after(0) == 1_000
    assert read_rule({"tarry-every": None}).__class__ is HeaderFault
    assert read_rule({"tarry-every": b"\xff"}).__class__ is HeaderFault


def test_an_interval_is_50_years_at_most() -> None:
    # The time after an occurrence of today must fit into the entry of its name, and be no later than the year 9999.
    assert fault(every="18300d1ms") == HeaderFault(
        ErrorCode.BAD_SCHEDULE, "tarry-every is more than 50 years (18300d): '18300d1ms'"
    )
    assert fault(every="9000000d", deliver_at="2026-01-01T06:30:00Z").code == ErrorCode.BAD_SCHEDULE
    assert rule(every="18300d").after(0) == 18_300 * 86_400_000


def test_the_faults_of_a_time_are_those_of_that_time() -> None:
    assert fault(every="1h", deliver_at="tomorrow").code == ErrorCode.BAD_TIME
    assert fault(every="1h", deliver_at="1767225600").code == ErrorCode.LOOKS_LIKE_SECONDS
    assert fault(cron="0 9 * * *", deliver_at="2026-01-01T06:30:00Z").code == ErrorCode.TWO_DELAYS


# -- cron ----------------------------------------------------------------------------------------------------------


def test_working_days_at_nine_in_a_zone() -> None:
    nine = rule(cron="0 9 * * MON-FRI", zone="Europe/Berlin")
    assert times(nine, "2026-07-02T12:00:00Z", 3) == [
        "2026-07-03T07:00:00.000Z",
        "2026-07-06T07:00:00.000Z",
        "2026-07-07T07:00:00.000Z",
    ]


def test_without_a_zone_it_is_utc_and_letters_may_be_small() -> None:
    assert times(rule(cron=" 5  4 * *  sun "), "2026-07-01T00:00:00Z", 1) == ["2026-07-05T04:05:00.000Z"]


def test_what_is_due_now_is_due_next_time() -> None:
    assert times(rule(cron="0 9 * * *"), "2026-07-01T09:00:00Z", 1) == ["2026-07-02T09:00:00.000Z"]
    assert times(rule(cron="0 9 * * *"), "2026-07-01T08:59:59.999Z", 1) == ["2026-07-01T09:00:00.000Z"]


def test_the_last_day_the_last_working_day_and_the_second_tuesday_of_a_month() -> None:
    assert times(rule(cron="0 0 L * *"), "2026-01-31T12:00:00Z", 2) == [
        "2026-02-28T00:00:00.000Z",
        "2026-03-31T00:00:00.000Z",
    ]
    assert times(rule(cron="0 0 LW * *"), "2026-01-31T12:00:00Z", 1) == ["2026-02-27T00:00:00.000Z"]
    assert times(rule(cron="0 0 * * TUE#2"), "2026-01-31T12:00:00Z", 1) == ["2026-02-10T00:00:00.000Z"]


def test_a_leap_day_comes_every_four_years_but_for_2100() -> None:
    assert times(rule(cron="0 0 29 2 *"), "2092-03-01T00:00:00Z", 2) == [
        "2096-02-29T00:00:00.000Z",
        "2104-02-29T00:00:00.000Z",
    ]


CHANGES = {
    # zone, rule, a time before: the times that follow, found by hand from the dates of the changes.
    "berlin, begin": (
        *("Europe/Berlin", "30 2 * * *", "2026-03-28T12:00:00Z"),
        ["2026-03-29T01:00:00.000Z", "2026-03-30T00:30:00.000Z"],
    ),
    "berlin, end": (
        *("Europe/Berlin", "30 2 * * *", "2026-10-24T12:00:00Z"),
        ["2026-10-25T00:30:00.000Z", "2026-10-26T01:30:00.000Z"],
    ),
    "berlin, begin, each hour": (
        *("Europe/Berlin", "30 * * * *", "2026-03-29T00:00:00Z"),
        ["2026-03-29T00:30:00.000Z", "2026-03-29T01:30:00.000Z"],
    ),
    "berlin, end, each hour": (
        *("Europe/Berlin", "30 * * * *", "2026-10-25T00:00:00Z"),
        ["2026-10-25T00:30:00.000Z", "2026-10-25T01:30:00.000Z", "2026-10-25T02:30:00.000Z"],
    ),
    "new york, begin": (
        *("America/New_York", "15 2 * * *", "2026-03-07T12:00:00Z"),
        ["2026-03-08T07:00:00.000Z", "2026-03-09T06:15:00.000Z"],
    ),
    "new york, end": (
        *("America/New_York", "30 1 * * *", "2026-10-31T12:00:00Z"),
        ["2026-11-01T05:30:00.000Z", "2026-11-02T06:30:00.000Z"],
    ),
    "lord howe, begin, half an hour": (
        *("Australia/Lord_Howe", "15 2 * * *", "2026-10-02T20:00:00Z"),
        ["2026-10-03T15:30:00.000Z", "2026-10-04T15:15:00.000Z"],
    ),
    "lord howe, end, half an hour": (
        *("Australia/Lord_Howe", "45 1 * * *", "2026-04-03T20:00:00Z"),
        ["2026-04-04T14:45:00.000Z", "2026-04-05T15:15:00.000Z"],
    ),
    "santiago, begin, at midnight": (
        *("America/Santiago", "10 0 * * *", "2026-09-05T12:00:00Z"),
        ["2026-09-06T04:00:00.000Z", "2026-09-07T03:10:00.000Z"],
    ),
    "santiago, end, at midnight": (
        *("America/Santiago", "30 23 * * *", "2026-04-04T12:00:00Z"),
        ["2026-04-05T02:30:00.000Z", "2026-04-06T03:30:00.000Z"],
    ),
    "auckland, begin": (
        *("Pacific/Auckland", "30 2 * * *", "2026-09-26T00:00:00Z"),
        ["2026-09-26T14:00:00.000Z", "2026-09-27T13:30:00.000Z"],
    ),
    "auckland, end": (
        *("Pacific/Auckland", "30 2 * * *", "2026-04-04T00:00:00Z"),
        ["2026-04-04T13:30:00.000Z", "2026-04-05T14:30:00.000Z"],
    ),
}


@pytest.mark.parametrize("name", CHANGES)
def test_both_changes_of_daylight_saving_in_five_zones(name: str) -> None:
    zone, cron, before, expected = CHANGES[name]
    assert times(rule(cron=cron, zone=zone), before, len(expected)) == expected


def test_an_hour_that_comes_twice_has_each_occurrence_once_from_wherever_one_looks() -> None:
    # The first 02:30 is over, and the second one is ahead: it is not due again, and never in the past.
    two_thirty = rule(cron="30 2 * * *", zone="Europe/Berlin")
    at_ms = parse_instant_ms("2026-10-25T00:30:00Z")
    for minutes in range(90):
        assert two_thirty.after(at_ms + minutes * 60_000) == parse_instant_ms("2026-10-26T01:30:00Z"), minutes


def test_several_times_that_are_left_out_are_due_once() -> None:
    assert times(rule(cron="0,20,40 2,3 * * *", zone="Europe/Berlin"), "2026-03-29T00:30:00Z", 3) == [
        "2026-03-29T01:00:00.000Z",
        "2026-03-29T01:20:00.000Z",
        "2026-03-29T01:40:00.000Z",
    ]


def test_cron_agrees_with_a_walk_through_all_minutes() -> None:
    choose = random.Random(1)
    for _ in range(60):
        minutes = sorted(choose.sample(range(60), choose.choice((1, 3))))
        hours = sorted(choose.sample(range(24), choose.choice((1, 4))))
        days = sorted(choose.sample(range(1, 32), choose.choice((1, 5)))) if choose.random() < 0.4 else []
        fields = [",".join(map(str, of)) or "*" for of in (minutes, hours, days)]
        at = datetime(2026, choose.randint(1, 12), choose.randint(1, 28), choose.randint(0, 23), 7, tzinfo=UTC)
        walk = at + timedelta(minutes=1)
        while not (walk.minute in minutes and walk.hour in hours and (not days or walk.day in days)):
            walk += timedelta(minutes=1)
        cron = f"{' '.join(fields)} * *"
        assert rule(cron=cron).after(round(at.timestamp() * 1000)) == round(walk.timestamp() * 1000), cron


BAD_CRONS = ["", "* * * *", "* * * * * *", "60 * * * *", "* 24 * * *", "* * 0 * *", "* * * 13 *", "* * * * 8"]


@pytest.mark.parametrize("cron", [*BAD_CRONS, "*/0 * * * *", "5-1 * * * *", "x * * * *", "@daily", "0 0 31 2,4 *"])
def test_a_bad_cron_rule_is_a_bad_schedule(cron: str) -> None:
    assert fault(cron=cron).code == ErrorCode.BAD_SCHEDULE


@pytest.mark.parametrize("zone", ["", "Mars/Olympus", "../../etc/passwd", "Europe", "Europe/Berlin/", "tzdata.zi", "é"])
def test_an_unknown_zone_is_a_bad_schedule(zone: str) -> None:
    assert re.match("tarry-zone: not a zone such as Europe/Berlin", fault(cron="0 9 * * *", zone=zone).detail)


def test_the_rules_exclude_each_other_and_a_zone_is_of_a_cron_rule() -> None:
    assert fault(every="1h", cron="0 9 * * *").code == ErrorCode.BAD_SCHEDULE
    assert fault(every="1h", zone="Europe/Berlin").detail == "tarry-zone needs tarry-cron"


def test_a_time_that_never_comes_and_one_after_the_year_9999_are_no_time() -> None:
    assert Rule(0, None, "0 0 30 2 1#5", "UTC").after(NOW_MS) is not None  # each fifth Monday of February
    assert rule(cron="0 0 29 2 *").after(parse_instant_ms("9996-03-01T00:00:00Z")) is None


@given(st.text(alphabet="0123456789*/,-#LWMONJAN ?", max_size=30), st.integers(0, 10**13))
def test_any_text_is_a_rule_or_a_fault(cron: str, at_ms: int) -> None:
    read = read_rule({"tarry-cron": cron.encode()})
    if isinstance(read, Rule):
        next_ms = read.after(at_ms)
        assert next_ms is None or next_ms > at_ms


def test_zones_are_those_of_the_package_and_not_of_the_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONTZPATH", "/nowhere")
    assert zone_of("Europe/Berlin").key == "Europe/Berlin"
    assert times(rule(cron="0 12 * * *", zone="Asia/Kathmandu"), "2026-01-01T00:00:00Z", 1) == [
        "2026-01-01T06:15:00.000Z"
    ]
