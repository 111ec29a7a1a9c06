"""Predicates over waiting messages, what a plan makes of them, and what a forecast counts: without a broker."""

import uuid
from collections import Counter
from functools import reduce
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as f

from tarry.core.request.intake_policy import IntakePolicy
from tarry.errors import ConfigError, UsageError
from tarry.pipelines.backlog import forecast, plan
from tarry.pipelines.backlog.waiting import left, matching_messages

HOUR_MS = 3_600_000
NOON_MS = 1_767_268_800_000
POLICY = IntakePolicy("in")
NAME = uuid.UUID(int=1)
IDS = [str(uuid.UUID(int=number)) for number in range(10)]

Headers = list[tuple[str, bytes | None]] | None
Given = tuple[int, int, int, str | None, str | None, int | None, bytes | None, bytes | None, Headers]
SCHEMA = (
    "partition int, offset long, level int, id string, target string, due_ms long, key binary, value binary, "
    "headers array<struct<key: string, value: binary>>"
)
OWN: list[tuple[str, bytes | None]] = [
    ("tarry-target", b"campaign"),
    ("tarry-delay-ms", b"5"),
    ("tarry-partition", b"2"),
    ("tenant", b"acme"),
    ("tenant", b"other"),
    ("raw", b"\xff"),
    ("tarry-source", b"x"),
]
GIVEN: list[Given] = [
    (0, 5, 0, IDS[0], "campaign", NOON_MS + 1, b"x1", b'{"n": 1}', OWN),
    (0, 6, 2, IDS[1], "campaign", NOON_MS + HOUR_MS, b"y1", None, None),
    (1, 5, 1, IDS[2], "bills", NOON_MS + 2 * HOUR_MS, b"\xff", b"\xff", []),
    (1, 9, 1, IDS[3], "bills", NOON_MS + 2 * HOUR_MS, None, b"v", [("empty", None)]),
    (1, 12, 0, None, None, None, b"x9", b"not sure", None),
]


def table(spark: SparkSession, rows: list[Given]) -> DataFrame:
    return spark.createDataFrame(rows, SCHEMA).selectExpr("'in' as intake", "*")


def planned(messages: DataFrame, action: plan.Action, by_ms: int, policy: IntakePolicy = POLICY) -> list[Row]:
    made = plan.plan(messages, policy, action, by_ms=by_ms, name=NAME, made_ms=NOON_MS)
    return made.orderBy("partition", "offset").collect()


SELECTED: dict[str, list[tuple[int, int]]] = {
    "target = 'campaign' and key like 'x%'": [(0, 5)],
    "key is null": [(1, 5), (1, 9)],
    "key_bytes = x'ff' or value is null and target = 'campaign'": [(0, 6), (1, 5)],
    "headers['tenant'] = 'acme'": [(0, 5)],
    "headers['raw'] is null and map_contains_key(headers, 'raw')": [(0, 5)],
    "get_json_object(value, '$.n') = 1": [(0, 5)],
    "due >= '2026-01-01 13:00' and level > 1": [(0, 6)],
    "true": [(0, 5), (0, 6), (1, 5), (1, 9)],
}
"""Predicates, and the messages that they select, by partition and offset."""


def test_a_predicate_selects(spark: SparkSession) -> None:
    given = table(spark, GIVEN)
    chosen = [
        matching_messages(given, where).select(f.lit(where).alias("where"), "partition", "offset") for where in SELECTED
    ]
    found: dict[str, list[tuple[int, int]]] = {where: [] for where in SELECTED}
    for row in reduce(DataFrame.unionAll, chosen).collect():
        found[row["where"]].append((row.partition, row.offset))
    assert {where: sorted(places) for where, places in found.items()} == SELECTED


@pytest.mark.parametrize("where", ["no_such_column = 1", "target =", "count(*) > 1", "5"])
def test_a_malformed_predicate_is_refused_in_one_line(spark: SparkSession, where: str) -> None:
    with pytest.raises(ConfigError, match=r"^--where: .+\Z") as refused:
        matching_messages(table(spark, GIVEN), where)
    assert "\n" not in str(refused.value)


def test_a_shift_gives_each_message_a_new_id_and_keeps_its_headers(spark: SparkSession) -> None:
    rows = planned(matching_messages(table(spark, GIVEN), "true"), "shift", 2 * HOUR_MS)
    assert [row.handle for row in rows] == [f"1.in.{one[0]}.{one[5]}.{one[3]}" for one in GIVEN[:4]]
    assert [row.new_due_ms - row.due_ms for row in rows] == [2 * HOUR_MS] * 4
    assert [row.new_id for row in rows] == [str(uuid.uuid5(NAME, f"in/{one[0]}/{one[1]}")) for one in GIVEN[:4]]
    assert [(row.key, row.value) for row in rows] == [(one[6], one[7]) for one in GIVEN[:4]]
    assert [(header.key, header.value) for header in rows[0].headers] == [
        *[("tarry-partition", b"2"), ("tenant", b"acme"), ("tenant", b"other"), ("raw", b"\xff")],
        ("tarry-target", b"campaign"),
        ("tarry-deliver-at", b"%d" % (NOON_MS + 1 + 2 * HOUR_MS)),
        ("tarry-id", rows[0].new_id.encode()),
    ]


def expiring(offset: int, expires: bytes) -> Given:
    window: tuple[str, bytes | None] = ("tarry-window-ms", b"60000")
    headers: Headers = [("tarry-target", b"bills"), ("tarry-expires-at", expires), window]
    return (0, offset, 1, IDS[offset], "bills", NOON_MS, b"k", b"v", headers)


def test_a_shift_keeps_an_expiry_and_leaves_out_what_would_expire(spark: SparkSession) -> None:
    later_ms = NOON_MS + 2 * HOUR_MS
    given = [
        expiring(1, b"%d" % later_ms),
        expiring(2, b"%d" % (later_ms - 1)),
        expiring(3, b"2026-01-01T14:00:00.000Z"),
        expiring(4, b"2026-01-01T13:59:59.999Z"),
        # Spark cannot read it for certain: the service decides.
        expiring(5, b"2026-01-01T13:00:00.1234567Z"),
    ]
    rows = planned(table(spark, given), "shift", 2 * HOUR_MS)
    assert [row.offset for row in rows] == [1, 3, 5]
    assert [dict(row.headers)["tarry-expires-at"] for row in rows] == [(given[at][8] or [])[1][1] for at in (0, 2, 4)]
    # The due time has the jitter already.
    assert all("tarry-window-ms" not in dict(row.headers) for row in rows)
    assert [row.offset for row in planned(table(spark, given), "cancel", 0)] == [1, 2, 3, 4, 5]


def test_a_shift_keeps_the_name_of_a_message_and_replaces_it_only_if_it_waits(spark: SparkSession) -> None:
    headers: Headers = [("tarry-name", "zahlen √".encode()), ("tarry-if", b"absent"), ("tenant", b"acme")]
    messages = table(spark, [(0, 5, 2, IDS[0], "campaign", NOON_MS, b"k", b"v", headers)])
    (row,) = planned(messages, "shift", HOUR_MS)
    assert row.name == "zahlen √"
    assert [(header.key, header.value) for header in row.headers] == [
        ("tenant", b"acme"),
        ("tarry-target", b"campaign"),
        ("tarry-deliver-at", b"%d" % (NOON_MS + HOUR_MS)),
        ("tarry-id", row.new_id.encode()),
        ("tarry-name", "zahlen √".encode()),
        ("tarry-if", b"present"),
    ]
    (row,) = planned(messages, "cancel", 0)
    assert row.name is None


def test_a_shift_leaves_out_schedules(spark: SparkSession) -> None:
    rules: list[tuple[str, bytes | None]] = [("tarry-every", b"15m"), ("tarry-cron", b"* * * * *"), ("x", b"y")]
    given: list[Given] = [
        (0, at, 1, IDS[at], "bills", NOON_MS, b"k", b"v", [("tarry-name", b"n"), rule]) for at, rule in enumerate(rules)
    ]
    assert [row.offset for row in planned(table(spark, given), "shift", HOUR_MS)] == [2]
    assert [row.offset for row in planned(table(spark, given), "cancel", 0)] == [0, 1, 2]


def test_a_new_due_time_is_rounded_up_to_the_tick_and_stays_a_time(spark: SparkSession) -> None:
    messages = matching_messages(table(spark, GIVEN), "offset = 9")
    coarse = IntakePolicy("in", tick_ms=100)
    assert [row.new_due_ms for row in planned(messages, "shift", 1, coarse)] == [NOON_MS + 2 * HOUR_MS + 100]
    assert [row.new_due_ms for row in planned(messages, "shift", -1, coarse)] == [NOON_MS + 2 * HOUR_MS]
    assert [row.new_due_ms for row in planned(messages, "shift", -NOON_MS)] == [10**12]


def test_a_plan_to_cancel_sends_no_replacements(spark: SparkSession) -> None:
    (row,) = planned(matching_messages(table(spark, GIVEN), "offset = 6"), "cancel", 0)
    assert (row.handle, row.new_id, row.new_due_ms, row.headers) == (
        f"1.in.0.{NOON_MS + HOUR_MS}.{IDS[1]}",
        None,
        None,
        None,
    )


@pytest.mark.parametrize(
    ("policy", "action", "reason"),
    [
        (IntakePolicy("in", fixed_delay_ms=5, fixed_target="t"), "cancel", "fixed delay"),
        (IntakePolicy("in", fixed_delay_ms=5, fixed_target="t"), "shift", "fixed delay"),
        (IntakePolicy("in", dialect="etf1"), "shift", "the dialect etf1, whose headers"),
    ],
)
def test_an_intake_that_takes_no_cancels_or_no_headers_of_ours_is_refused(
    policy: IntakePolicy, action: plan.Action, reason: str
) -> None:
    with pytest.raises(UsageError, match=reason):
        plan.refuse_unsuitable(policy, action)


def test_a_plan_is_read_as_it_was_written_and_only_whole(spark: SparkSession, tmp_path: Path) -> None:
    messages = matching_messages(table(spark, GIVEN), "true")
    path = str(tmp_path / "plan")
    made = plan.plan(messages, POLICY, "shift", by_ms=1, name=NAME, made_ms=NOON_MS)
    plan.refuse_existing(spark, path)
    plan.write(made, path)
    assert plan.read_plan(spark, path, "shift").orderBy("partition", "offset").collect() == planned(
        messages, "shift", 1
    )
    with pytest.raises(UsageError, match="exists already"):
        plan.refuse_existing(spark, path)
    with pytest.raises(UsageError, match="a plan to shift, not to cancel"):
        plan.read_plan(spark, path, "cancel")
    (tmp_path / "plan" / "_SUCCESS").unlink()
    with pytest.raises(UsageError, match="not written completely"):
        plan.read_plan(spark, path, "shift")


def test_a_message_that_moves_during_the_read_is_one_row_and_a_finished_one_is_none(
    spark: SparkSession,
) -> None:
    def at(offset: int, level: int, id_: str, due_ms: int = NOON_MS) -> Given:
        return (0, offset, level, id_, "t", due_ms, None, None, None)

    met = [
        [at(1, 0, IDS[1]), at(2, 0, IDS[2]), at(3, 0, IDS[3]), at(4, 0, IDS[4]), at(5, 0, IDS[5])],
        [at(2, 2, IDS[2]), at(3, 2, IDS[3]), at(6, 2, IDS[6]), at(7, 2, IDS[6]), at(8, 2, IDS[6], NOON_MS + 1)],
        [at(3, 1, IDS[3])],
    ]
    tables = [table(spark, rows).selectExpr("*", "false as is_cancel") for rows in met]
    # What stands behind a cancel is a new message.
    tables.append(table(spark, [at(10, 1, IDS[5])]).selectExpr("*", "false as is_cancel"))
    cancels = table(spark, [at(9, 1, IDS[5])]).selectExpr("*", "true as is_cancel")
    told = [("fired", "in/0/4"), ("cancel-filed", "in/0/1"), ("cancel-too-late", "in/0/2"), (None, None)]
    results = spark.createDataFrame(told, "outcome string, source string")
    found = left([*tables, cancels], results).orderBy("offset").collect()
    assert [(row.offset, row.level) for row in found] == [(1, 0), (2, 2), (3, 1), (6, 2), (8, 2), (10, 1)]


def test_a_forecast_counts_by_target_and_step(spark: SparkSession) -> None:
    counted = forecast.forecast(table(spark, GIVEN), HOUR_MS)
    assert counted.columns == ["intake", "target", "due", "due_ms", "count"]
    rows = forecast.rows_of(counted)
    assert Counter({(row.target, row.due_ms): row.count for row in rows}) == Counter(
        {
            ("campaign", NOON_MS): 1,
            ("campaign", NOON_MS + HOUR_MS): 1,
            ("bills", NOON_MS + 2 * HOUR_MS): 2,
            (forecast.UNSURE, None): 1,
        }
    )
    lines = forecast.text(rows, HOUR_MS)
    assert [line.split() for line in lines[1:]] == [
        ["due", "from", "bills", "campaign", "(unread)", "all"],
        ["2026-01-01T12:00:00.000Z", "0", "1", "0", "1"],
        ["2026-01-01T13:00:00.000Z", "0", "1", "0", "1"],
        ["2026-01-01T14:00:00.000Z", "2", "0", "0", "2"],
        ["not", "read", "yet", "0", "0", "1", "1"],
        ["all", "2", "2", "1", "5"],
    ]
    picture = forecast.plot(rows, HOUR_MS, NOON_MS).decode()
    assert "<svg" in picture
    assert forecast.step_of(table(spark, GIVEN)) == 300_000


def test_an_empty_forecast_has_a_plot_too(spark: SparkSession) -> None:
    messages = table(spark, [])
    step_ms = forecast.step_of(messages)
    rows = forecast.rows_of(forecast.forecast(messages, step_ms))
    assert forecast.text(rows, step_ms) == ["nothing waits"]
    assert b"<svg" in forecast.plot(rows, step_ms, NOON_MS)


def test_many_targets_are_shown_as_the_largest_and_the_others() -> None:
    rows = [forecast.ForecastRow("in", f"t{number}", NOON_MS, number + 1) for number in range(20)]
    header, line = forecast.text(rows, HOUR_MS)[1:3]
    assert header.split() == ["due", "from", *[f"t{number}" for number in range(19, 12, -1)], "(others)", "all"]
    assert line.split()[-2:] == ["91", "210"]
