"""The judge of the audit: one fault of each kind planted among sound messages is found, and nothing else."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pytest
from pyspark.sql import Row, SparkSession

from tarry.pipelines.audit.judging import Rules, judge
from tarry.pipelines.audit.strays import RANGE, strays
from tarry.pipelines.audit.summary import findings, histogram, lateness, lateness_over_time, summarise
from tarry.pipelines.audit.tables import ACCEPTED, ARRIVED, SETTLED, columns_of

T0 = 1_767_268_800_000
HORIZON = T0 + 600_000
EVERY = 12
"""Messages of the sound set."""


@dataclass
class World:
    """What topics hold, as rows by name of column."""

    accepted: list[dict[str, Any]] = field(default_factory=list)
    settled: list[dict[str, Any]] = field(default_factory=list)
    arrived: list[dict[str, Any]] = field(default_factory=list)
    rules: Rules = Rules(HORIZON)

    def send(self, offset: int, delay_ms: int = 120_000, key: bytes | None = b"k", **more: Any) -> dict[str, Any]:
        row = {
            "intake": "in",
            "partition": 0,
            "offset": offset,
            "timestamp_ms": T0 + offset,
            "key": key,
            "value_hash": 1_000 + offset,
            "id": f"id-{offset}",
            "due_ms": T0 + offset + delay_ms,
            "target": "out",
            "is_fixed": False,
            "was_lost": False,
        } | more
        self.accepted.append(row)
        return row

    def settle(self, sent: dict[str, Any], outcome: str, **more: Any) -> None:
        same = ("intake", "partition", "offset", "id", "due_ms", "target")
        row = {name: sent[name] for name in same} | {"outcome": outcome, "at_ms": sent["due_ms"], "reason": None}
        self.settled.append(row | more)

    def deliver(self, sent: dict[str, Any], late_ms: int = 5, **more: Any) -> dict[str, Any]:
        """It has arrived, behind all that is there, and has its result."""
        same = ("intake", "partition", "offset", "id", "key", "value_hash", "target")
        row = {name: sent[name] for name in same} | {
            "target_partition": 0,
            "target_offset": len(self.arrived),
            "arrived_ms": sent["due_ms"] + late_ms,
            "told_due_ms": sent["due_ms"],
        }
        self.arrived.append(row | more)
        return self.arrived[-1]

    def fire(self, sent: dict[str, Any], late_ms: int = 5, **more: Any) -> dict[str, Any]:
        self.settle(sent, "fired")
        return self.deliver(sent, late_ms, **more)


def sound() -> World:
    world = World()
    for offset in range(EVERY):
        world.fire(world.send(offset, key=[b"a", b"b", None][offset % 3]), late_ms=offset)
    return world


def judged(spark: SparkSession, world: World) -> tuple[dict[int, Row], list[tuple[str, int]], Any]:
    """Messages by offset, faults as kind and offset, and the summary."""

    def frame(rows: Sequence[dict[str, Any]], schema: str) -> Any:
        return spark.createDataFrame([tuple(row[name] for name in columns_of(schema)) for row in rows], schema)

    arrived = frame(world.arrived, ARRIVED)
    messages = judge(frame(world.accepted, ACCEPTED), frame(world.settled, SETTLED), arrived, world.rules).persist()
    ranges = spark.createDataFrame([("in", 0, 0, 0, 900)], RANGE)
    beside = strays(arrived, messages, ranges).persist()
    found = [(row.kind, row.offset) for row in findings(messages, beside).collect()]
    kinds: dict[str, int] = {}
    for row in beside.collect():
        kinds[row.kind] = kinds.get(row.kind, 0) + 1
    summary = summarise(messages, kinds, horizon_ms=HORIZON, carried=0, unread=0)
    return {row.offset: row for row in messages.collect()}, sorted(found), summary


def test_a_sound_set_has_no_fault(spark: SparkSession) -> None:
    messages, found, summary = judged(spark, sound())
    assert found == []
    assert {row.fate for row in messages.values()} == {"delivered"}
    assert summary.line == (
        "accepted 12, delivered 12, dead 0, waiting 0, lost 0, duplicate 0, early 0, order 0, damaged 0, "
        "cancelled but delivered 0, unexpected 0"
    )
    assert summary.order == {"judged": 8, "unjudged": 0}
    assert summary.lateness == {"count": 12, "p50_ms": 5, "p90_ms": 10, "p99_ms": 11, "max_ms": 11}


def lost(world: World) -> int:
    world.send(20)
    return 20


def fired_without_arrival(world: World) -> int:
    world.settle(world.send(20), "fired")
    return 20


def at_another_target(world: World) -> int:
    world.fire(world.send(20), target="elsewhere")
    return 20


def twice(world: World) -> int:
    sent = world.send(20)
    world.fire(sent)
    world.deliver(sent, 900)
    return 20


def twice_by_id(world: World) -> int:
    world.fire(world.send(20))
    world.fire(world.send(21, delay_ms=119_999, id="id-20"))
    return 21


def repeated_and_delivered(world: World) -> int:
    sent = world.send(20)
    world.settle(sent, "duplicate")
    world.deliver(sent)
    return 20


def early(world: World) -> int:
    world.fire(world.send(20), late_ms=-1)
    return 20


def early_and_not_due_yet(world: World) -> int:
    world.fire(world.send(20, delay_ms=3_600_000), late_ms=-1_000_000)
    return 20


def out_of_order(world: World) -> int:
    first, second = world.send(20), world.send(21)
    world.fire(second)
    world.fire(first, 900)
    return 20


def out_of_order_among_equals(world: World) -> int:
    first, second = world.send(20), world.send(21, delay_ms=119_999)
    world.fire(second)
    world.fire(first, 900)
    return 20


def out_of_order_and_short(world: World) -> int:
    """A message behind it was delivered in time, so it had been read."""
    first, second, third = (world.send(offset, delay_ms) for offset, delay_ms in ((20, 500), (21, 900), (22, 100)))
    world.fire(third)
    world.fire(second)
    world.fire(first, 1_000)
    return 20


def another_value(world: World) -> int:
    world.fire(world.send(20), value_hash=7)
    return 20


def another_key(world: World) -> int:
    world.fire(world.send(20), key=None)
    return 20


def another_due_time(world: World) -> int:
    sent = world.send(20)
    world.fire(sent, told_due_ms=sent["due_ms"] + 1)
    return 20


def another_id(world: World) -> int:
    world.fire(world.send(20), id="id-x")
    return 20


def cancelled_and_delivered(world: World) -> int:
    sent = world.send(20)
    world.settle(sent, "cancelled")
    world.deliver(sent)
    return 20


def dead_and_delivered(world: World) -> int:
    sent = world.send(20)
    world.settle(sent, "dead", reason="unknown-target")
    world.deliver(sent)
    return 20


def from_nowhere(world: World) -> int:
    world.deliver(dict(world.send(20)))
    world.accepted.pop()
    return 20


@pytest.mark.parametrize(
    ("kind", "plant"),
    [
        ("lost", lost),
        ("lost", fired_without_arrival),
        ("lost", at_another_target),
        ("duplicate", twice),
        ("duplicate", twice_by_id),
        ("duplicate", repeated_and_delivered),
        ("early", early),
        ("early", early_and_not_due_yet),
        ("order", out_of_order),
        ("order", out_of_order_among_equals),
        ("order", out_of_order_and_short),
        ("damaged", another_value),
        ("damaged", another_key),
        ("damaged", another_due_time),
        ("damaged", another_id),
        ("cancelled", cancelled_and_delivered),
        ("unexpected", dead_and_delivered),
        ("unexpected", from_nowhere),
    ],
    ids=lambda one: getattr(one, "__name__", one),
)
def test_a_planted_fault_is_found_and_nothing_else(
    spark: SparkSession, kind: str, plant: Callable[[World], int]
) -> None:
    world = sound()
    offset = plant(world)
    _, found, summary = judged(spark, world)
    assert found == [(kind, offset)]
    assert summary.faults == {name: int(name == kind) for name in summary.faults}


def test_what_is_no_fault(spark: SparkSession) -> None:
    world = sound()
    world.settle(world.send(20), "duplicate")
    world.settle(world.send(21), "cancelled")
    world.settle(world.send(22, due_ms=None, target=None), "dead", due_ms=None, target=None, reason="no-delay")
    world.send(23, delay_ms=3_600_000)
    world.fire(world.send(24, delay_ms=-5_000, key=b"z"))
    copied = world.send(25, key=b"y")
    world.fire(copied)
    world.deliver(copied, target="copies")
    # The same id at another time is another message.
    world.fire(world.send(26, id="id-24", key=b"x"))
    world.send(27, was_lost=True)
    world.deliver(dict(world.send(905)))
    world.accepted.pop()
    messages, found, summary = judged(spark, world)
    assert found == []
    fates = {offset: (row.fate, row.reason) for offset, row in messages.items() if offset >= 20}
    assert fates == {
        20: ("repeated", None),
        21: ("cancelled", None),
        22: ("dead", "no-delay"),
        23: ("waiting", None),
        24: ("delivered", None),
        25: ("delivered", None),
        26: ("delivered", None),
        27: ("still lost", "no result"),
    }
    assert (summary.dead, summary.elsewhere) == ({"no-delay": 1}, 1)
    assert messages[24].lateness_ms == 5 - 5_000, "from when it was sent: it came before, which is the record's time"


def test_one_that_was_accepted_too_late_has_no_place_in_the_order(spark: SparkSession) -> None:
    world = World()
    late, second = world.send(1, delay_ms=100), world.send(0, delay_ms=200)
    world.fire(second)
    world.fire(late, 500)
    messages, found, summary = judged(spark, world)
    assert found == []
    assert summary.order == {"judged": 0, "unjudged": 2}
    assert {row.order for row in messages.values()} == {"unjudged"}


def test_a_fixed_delay_is_ranked_by_what_the_service_made_of_it(spark: SparkSession) -> None:
    """Where timestamps step back, due times do not."""
    world = World()
    first = world.send(0, due_ms=T0 + 100_000, timestamp_ms=T0 + 40_000, is_fixed=True)
    second = world.send(1, due_ms=T0 + 90_000, timestamp_ms=T0 + 30_000, is_fixed=True)
    world.fire(first)
    world.fire(second, 10_007, told_due_ms=first["due_ms"])
    _, found, summary = judged(spark, world)
    assert (found, summary.order["judged"]) == ([], 2)


@pytest.mark.parametrize(
    ("rules", "reason"),
    [
        (Rules(HORIZON, targets_since={"out": T0 + 200_000}), "target was trimmed"),
        (Rules(HORIZON, results_since={("in", 0): T0 + 100_000}), "results have expired"),
        (Rules(HORIZON, results_since={("in", 1): T0 + 100_000}), None),
        (Rules(HORIZON, targets_since={"other": T0 + 200_000}), None),
        (Rules(HORIZON, compacted=frozenset({"out"})), "target is compacted"),
    ],
)
def test_what_has_been_deleted_is_not_judged(spark: SparkSession, rules: Rules, reason: str | None) -> None:
    world = replace(sound(), rules=rules)
    world.send(20)
    messages, found, summary = judged(spark, world)
    assert messages[20].fate == ("unjudged" if reason else "lost")
    assert summary.unjudged == ({reason: 1} if reason else {})
    assert found == ([] if reason else [("lost", 20)])


def test_what_was_fired_to_a_target_that_is_gone_is_not_judged(spark: SparkSession) -> None:
    world = replace(sound(), rules=Rules(HORIZON, gone=frozenset({"away"})))
    world.settle(world.send(20, target="away"), "fired")
    world.send(21, target="away")
    messages, found, _ = judged(spark, world)
    assert (messages[20].reason, found) == ("target is gone", [("lost", 21)])


def test_lateness_is_told_by_minute_and_in_ranges(spark: SparkSession) -> None:
    world = World()
    for offset in range(100):
        world.fire(world.send(offset, delay_ms=60_000 * (1 + offset % 2)), late_ms=offset)
    schemas = ((world.accepted, ACCEPTED), (world.settled, SETTLED), (world.arrived, ARRIVED))
    frames = [
        spark.createDataFrame([tuple(row[name] for name in columns_of(schema)) for row in rows], schema)
        for rows, schema in schemas
    ]
    messages = judge(frames[0], frames[1], frames[2], Rules(HORIZON)).persist()
    rows = {row.minute_ms: row for row in lateness(messages).collect()}
    assert {at: (row["count"], row.p50_ms, row.max_ms) for at, row in rows.items()} == {
        T0 + 60_000: (50, 48, 98),
        T0 + 120_000: (50, 49, 99),
    }
    assert histogram(messages) == {0: 1, 1: 1, 2: 3, 3: 5, 4: 10, 5: 30, 6: 50}
    over_time = lateness_over_time(messages, bins=4).collect()
    assert sum(row["count"] for row in over_time) == 100
    assert len(over_time) <= 4
