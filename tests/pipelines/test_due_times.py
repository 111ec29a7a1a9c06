"""Due times from tables, against `tarry.units`, which reads the same texts."""

from collections.abc import Callable, Sequence
from decimal import Decimal
from functools import reduce

import pytest
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as f

from tarry.errors import UsageError
from tarry.pipelines.schedule.due_times import due_after, due_at, one_of
from tarry.units import MAX_EPOCH_MS, parse_duration_ms, parse_instant_ms

BASE_MS = 1_767_268_800_000  # 2026-01-01T12:00:00Z

INSTANTS = [
    "2026-01-02T00:00:00Z",
    "2026-01-02t00:00:00z",
    "2026-01-02 00:00:00Z",
    "2026-01-02T00:00:00.5Z",
    "2026-01-02T00:00:00.0001Z",
    "2026-01-02T00:00:00.123000000000000000Z",
    "2026-01-02T00:00:00.123000000000000001Z",
    "2026-01-02T00:00:00.999999999Z",
    "2026-01-02T00:00:00+01:30",
    "2026-01-02T00:00:00-11:00",
    "2026-01-02T00:00:00+23:59",
    "2024-02-29T23:59:59Z",
    "2026-06-30T23:59:60Z",
    "2026-06-30T23:59:60.25+02:00",
    "1970-01-01T00:00:00Z",
    "1999-12-31T23:59:59.001Z",
    "2255-06-05T23:47:34.740993Z",
    "9999-12-31T23:59:59.999Z",
    # none
    "",
    "tomorrow",
    "2026-01-02",
    "2026-01-02T00:00:00",
    "2026-02-30T00:00:00Z",
    "2025-02-29T00:00:00Z",
    "2026-13-01T00:00:00Z",
    "2026-01-02T24:00:00Z",
    "2026-01-02T00:60:00Z",
    "2026-01-02T00:00:61Z",
    "2026-01-02T00:00:00+24:00",
    "2026-01-02T00:00:00+01:60",
    "2026-01-02T00:00:00.Z",
    "2026-01-02T00:00:00.1234567890123456789Z",
    "2026-01-02T00:00:00Z\n.",
    "1969-12-31T23:59:59Z",
    "9999-12-31T23:59:59.9991Z",
    "9999-12-31T23:59:59-01:00",
    "0000-01-01T00:00:00Z",
    "\u0662\u0660\u0662\u0666-01-02T00:00:00Z",
    "x" * 100_000,
]
DURATIONS = [
    *("0ms", "5s", "250ms", "1h30m", "30d", "1.5s", "0.001s", "1d2h3m4s5ms", "2m", "2ms", " 5s ", "2.5h", "1m1ms"),
    *("100000000000000d", "999999999999999d999999999999999h"),
    # none
    *(
        "",
        "5",
        "s",
        "5 s",
        "s5",
        "1s1m",
        "1s1s",
        "0.0001s",
        "1e3s",
        "5S",
        "5s\n.",
        "1.s",
        "\u0665s",
        "P1D",
        "x" * 100_000,
    ),
    *("1.0000000001s", "1234567890123456s", "-5s", "-5", "- 5s", "-", "-x"),
]


Cases = Sequence[tuple[str, str, Sequence[object]]]
"""SQL that turns `x` into the instant or delay, the type of `x`, and its values."""


def readings(spark: SparkSession, cases: Cases) -> list[list[Row]]:
    """Evaluate the values of all cases in one job; return the due time or code of each, by case."""

    def due(number: int, sql: str, kind: str, values: Sequence[object]) -> DataFrame:
        frame = spark.createDataFrame([(at, one) for at, one in enumerate(values)], f"n int, x {kind}")
        value = frame.select("n", f.expr(sql).alias("x"))
        given = value.schema["x"].dataType
        column = due_at(f.col("x"), given) if "delay" not in sql else due_after(f.col("x"), given, BASE_MS)
        return value.select(f.lit(number).alias("number"), "n", column.alias("due"))

    found: list[list[Row]] = [[] for _ in cases]
    evaluated = [due(number, *case) for number, case in enumerate(cases)]
    for row in reduce(DataFrame.unionAll, evaluated).orderBy("number", "n").collect():
        found[row["number"]].append(row["due"])
    return found


def read(spark: SparkSession, sql: str, over: Sequence[object], kind: str) -> list[Row]:
    [found] = readings(spark, [(sql, kind, over)])
    return found


def or_none(parse: Callable[[str], int], text: str) -> int | None:
    try:
        return parse(text)
    except ValueError:
        return None


def test_instants_as_text_are_read_as_everywhere(spark: SparkSession) -> None:
    for text, found in zip(INSTANTS, read(spark, "x", INSTANTS, "string"), strict=True):
        known = or_none(parse_instant_ms, text)
        if known is not None and 0 <= known <= MAX_EPOCH_MS:
            assert (found.due_ms, found.code) == (known, None), text
        else:
            assert (found.due_ms, found.code) == (None, "bad-time"), text


def test_delays_as_text_are_read_as_everywhere(spark: SparkSession) -> None:
    for text, found in zip(DURATIONS, read(spark, "x /* delay */", DURATIONS, "string"), strict=True):
        known = or_none(parse_duration_ms, text)
        if known is not None and known <= MAX_EPOCH_MS - BASE_MS:
            assert (found.due_ms, found.code) == (BASE_MS + known, None), text
        elif known is not None:
            assert found.code == "beyond-max-delay", text
        else:
            is_negative = text.startswith("-") and any(one.isdigit() for one in text)
            assert found.code == ("negative-delay" if is_negative else "bad-delay"), text


READINGS: list[tuple[str, str, list[object], list[int | str | None]]] = [
    (
        "x",
        "long",
        [BASE_MS, 1_767_268_800, 0, -5, 10**12, MAX_EPOCH_MS, MAX_EPOCH_MS + 1, 2**63 - 1],
        [BASE_MS, "looks-like-seconds", "looks-like-seconds", "bad-time", 10**12, MAX_EPOCH_MS, *["bad-time"] * 2],
    ),
    (
        "x",
        "string",
        [str(BASE_MS), f" {BASE_MS} ", "1767268800", "9" * 18, "9" * 40, "-5", "+5", None],
        [BASE_MS, BASE_MS, "looks-like-seconds", *["bad-time"] * 4, None],
    ),
    (
        "x",
        "double",
        [float(BASE_MS), BASE_MS + 0.25, 1e300, float("nan"), float("inf"), -1.0, 5.0],
        [BASE_MS, BASE_MS + 1, *["bad-time"] * 4, "looks-like-seconds"],
    ),
    ("cast(x as decimal(38, 0))", "string", [str(BASE_MS), "9" * 38], [BASE_MS, "bad-time"]),
    (
        "cast(x as timestamp)",
        "string",
        ["2026-01-01T12:00:00Z", "2026-01-01T12:00:00.000001Z", "9999-12-31T23:59:59.999001Z", "1969-01-01"],
        [BASE_MS, BASE_MS + 1, "bad-time", "bad-time"],
    ),
    (
        "from_utc_timestamp(x, 'UTC')",
        "string",
        ["3000-01-01T00:00:00.000999Z"],
        [parse_instant_ms("3000-01-01T00:00:00.001Z")],
    ),
    (
        "x /* delay */",
        "long",
        [0, 5_000, -1, 2**63 - 1, None],
        [BASE_MS, BASE_MS + 5_000, "negative-delay", "beyond-max-delay", None],
    ),
    (
        "x /* delay */",
        "double",
        [0.5, 1e300, float("nan"), -0.5, -1.5],
        [BASE_MS + 1, "bad-delay", "bad-delay", BASE_MS, "negative-delay"],
    ),
    (
        "make_dt_interval(0, 0, 0, x) /* delay */",
        "decimal(18,6)",
        ["1.5", "0.000001", "-1"],
        [BASE_MS + 1_500, BASE_MS + 1, "negative-delay"],
    ),
]
"""SQL, the type of `x`, its values, and what is read of each."""


def test_every_type_has_its_reading(spark: SparkSession) -> None:
    def given(kind: str, values: list[object]) -> list[object]:
        return [Decimal(one) if kind.startswith("decimal") and isinstance(one, str) else one for one in values]

    found = readings(spark, [(sql, kind, given(kind, values)) for sql, kind, values, _ in READINGS])
    assert [[row and (row.code or row.due_ms) for row in rows] for rows in found] == [case[3] for case in READINGS]


def test_a_time_without_a_zone_and_a_delay_of_months_are_refused(spark: SparkSession) -> None:
    with pytest.raises(UsageError, match="--due is of type timestamp_ntz: it must be a timestamp with a zone"):
        read(spark, "cast(x as timestamp_ntz)", ["2026-01-01T00:00:00"], "string")
    with pytest.raises(UsageError, match="--due is of type boolean"):
        read(spark, "x", [True], "boolean")
    with pytest.raises(UsageError, match="--delay is of type interval month"):
        read(spark, "interval '1' month /* delay */", [1], "int")


def test_a_row_says_either_when_or_after_how_long(spark: SparkSession) -> None:
    rows = spark.createDataFrame(
        [(1, BASE_MS, None), (2, None, "5s"), (3, BASE_MS, "5s"), (4, None, None), (5, 5, None)],
        "n int, at long, after string",
    )
    at, after = (
        due_at(f.col("at"), rows.schema["at"].dataType),
        due_after(f.col("after"), rows.schema["after"].dataType, BASE_MS),
    )
    found = rows.select(one_of(at, after).alias("due"), one_of(at, None).alias("at")).collect()
    assert [row.due.code or row.due.due_ms for row in found] == [
        BASE_MS,
        BASE_MS + 5_000,
        "two-delays",
        "no-delay",
        "looks-like-seconds",
    ]
    assert [row["at"].code for row in found] == [None, "no-delay", None, "no-delay", "looks-like-seconds"]
