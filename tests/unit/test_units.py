"""Durations, sizes and instants as text."""

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tarry.units import (
    MAX_EPOCH_MS,
    format_duration,
    format_instant,
    format_size,
    parse_duration_ms,
    parse_instant_ms,
    parse_size_bytes,
)


@pytest.mark.parametrize(
    ("text", "expected_ms"),
    [
        ("250ms", 250),
        ("5s", 5_000),
        ("20s", 20_000),
        ("30d", 2_592_000_000),
        ("1h30m", 5_400_000),
        ("1d2h3m4s5ms", 93_784_005),
        ("1.5s", 1_500),
        ("0ms", 0),
        (" 5s ", 5_000),
    ],
)
def test_a_duration_is_read_in_milliseconds(text: str, expected_ms: int) -> None:
    assert parse_duration_ms(text) == expected_ms


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("30", "needs a unit"),
        ("0", "needs a unit"),
        ("1.5", "needs a unit"),
        ("-5s", "not be negative"),
        ("-5", "not be negative"),
        ("", "not a duration"),
        ("s", "not a duration"),
        ("5 s", "not a duration"),
        ("5S", "not a duration"),
        ("5s!", "not a duration"),
        ("\u0665s", "not a duration"),
        ("1e3s", "not a duration"),
        ("30m1h", "large to small"),
        ("1s1s", "large to small"),
        ("0.5ms", "whole milliseconds"),
        ("9" * 400 + "d", "not a duration"),
        ("five\nseconds", "not a duration"),
    ],
)
def test_a_malformed_duration_is_refused_in_one_line(text: str, says: str) -> None:
    with pytest.raises(ValueError, match=says) as refusal:
        parse_duration_ms(text)
    assert "\n" not in str(refusal.value)
    assert len(str(refusal.value)) < 200


@given(st.integers(min_value=0, max_value=MAX_EPOCH_MS))
def test_a_duration_written_is_read_back(duration_ms: int) -> None:
    assert parse_duration_ms(format_duration(duration_ms)) == duration_ms


def test_a_duration_is_written_in_its_largest_units() -> None:
    assert [format_duration(each) for each in (0, 1, 5_400_000, 2_592_000_000)] == [
        "0ms",
        "1ms",
        "1h30m",
        "30d",
    ]


@pytest.mark.parametrize(
    ("text", "expected_bytes"),
    [
        ("100B", 100),
        ("64KiB", 65_536),
        ("500MB", 500_000_000),
        ("1GiB", 1_073_741_824),
        ("1 gib", 1_073_741_824),
        ("0.5KiB", 512),
        ("0B", 0),
    ],
)
def test_a_size_is_read_in_bytes(text: str, expected_bytes: int) -> None:
    assert parse_size_bytes(text) == expected_bytes


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("1024", "needs a unit"),
        ("-1KiB", "not be negative"),
        ("1XB", "not a size"),
        ("ib", "not a size"),
        ("1ib", "not a size"),
        ("", "not a size"),
        ("0.5B", "whole bytes"),
    ],
)
def test_a_malformed_size_is_refused(text: str, says: str) -> None:
    with pytest.raises(ValueError, match=says):
        parse_size_bytes(text)


@given(st.integers(min_value=0, max_value=2**49))
def test_a_size_written_is_read_back(size_bytes: int) -> None:
    assert parse_size_bytes(format_size(size_bytes)) == size_bytes


def test_sizes_and_durations_below_zero_are_never_written() -> None:
    with pytest.raises(ValueError, match="not be negative"):
        format_size(-1)
    with pytest.raises(ValueError, match="not be negative"):
        format_duration(-1)


@pytest.mark.parametrize(
    ("text", "expected_ms"),
    [
        ("1970-01-01T00:00:00Z", 0),
        ("1970-01-01t00:00:00z", 0),
        ("1970-01-01 00:00:00.001Z", 1),
        ("2026-01-01T01:00:00+01:00", 1_767_225_600_000),
        ("2025-12-31T18:30:00.250-05:30", 1_767_225_600_250),
        ("2026-01-01T00:00:00.0000001Z", 1_767_225_600_001),
        ("2016-12-31T23:59:60Z", 1_483_228_800_000),
        ("9999-12-31T23:59:59.999Z", MAX_EPOCH_MS),
        ("0001-01-01T00:00:00+23:59", -62_135_683_140_000),
    ],
)
def test_a_time_with_its_offset_is_an_instant(text: str, expected_ms: int) -> None:
    assert parse_instant_ms(text) == expected_ms


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("2026-01-01T00:00:00", "needs its offset"),
        ("2026-02-30T00:00:00Z", "no such time"),
        ("2026-01-01T24:00:00Z", "no such time"),
        ("0000-01-01T00:00:00Z", "no such time"),
        ("2026-01-01T00:00:00+24:00", "no such offset"),
        ("2026-01-01T00:00:00+0100", "not an RFC 3339"),
        ("2026-W01-1T00:00:00Z", "not an RFC 3339"),
        ("2026-01-01", "not an RFC 3339"),
        ("2026-01-01T00:00:00Z\n", "not an RFC 3339"),
        ("\u0662026-01-01T00:00:00Z", "not an RFC 3339"),
        ("tomorrow", "not an RFC 3339"),
    ],
)
def test_a_malformed_instant_is_refused(text: str, says: str) -> None:
    with pytest.raises(ValueError, match=says):
        parse_instant_ms(text)


@given(st.datetimes(timezones=st.just(UTC)))
def test_an_instant_agrees_with_datetime(moment: datetime) -> None:
    rounded_up_ms = -((datetime(1970, 1, 1, tzinfo=UTC) - moment) // timedelta(milliseconds=1))
    assert parse_instant_ms(moment.isoformat()) == rounded_up_ms


@given(st.integers(min_value=-62_135_596_800_000, max_value=MAX_EPOCH_MS))
def test_an_instant_written_is_read_back(epoch_ms: int) -> None:
    text = format_instant(epoch_ms)
    assert len(text) == len("2026-01-01T00:00:00.000Z")
    assert parse_instant_ms(text) == epoch_ms


def test_an_instant_past_the_year_9999_has_no_text() -> None:
    with pytest.raises(ValueError, match="years 1 to 9999"):
        format_instant(MAX_EPOCH_MS + 1)
