"""The judge of the audit: one fault of each kind planted among sound messages is found, and nothing else."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from tarry.pipelines.audit.judging import Rules, judge
from tarry.pipelines.audit.strays import RANGE, strays
from tarry.pipelines.audit.summary import findings, histogram, lateness, lateness_over_time, summarise
from tarry.pipelines.audit.tables import ACCEPTED, ARRIVED, SETTLED, columns_of
from tarry.pipelines.faults import FAULTS

T0 = 1_767_268_800_000
HORIZON = T0 + 600_000
RULES = Rules(HORIZON)
EVERY = 12
"""Messages of the sound set."""


@dataclass
class World:
    """What topics hold, as rows by name of column: an intake and a target of its own."""

    name: str = "in"
    accepted: list[dict[str, Any]] = field(default_factory=list)
    settled: list[dict[str, Any]] = field(default_factory=list)
    arrived: list[dict[str, Any]] = field(default_factory=list)

    @property
    def target(self) -> str:
        return f"{self.name}.out"

    def send(self, offset: int, delay_ms: int = 120_000, key: bytes | None = b"k", **more: Any) -> dict[str, Any]:
        row = {
            "intake": self.name,
            "partition": 0,
            "offset": offset,
            "timestamp_ms": T0 + offset,
            "key": key,
            "value_hash": 1_000 + offset,
            "id": f"{self.name}-{offset}",
            "due_ms": T0 + offset + delay_ms,
            "target": self.target,
            "is_fixed": False,
            "was_lost": False,
        } | more
        self.accepted.append(row)
        return row

    def settle(self, sent: dict[str, Any], outcome: str, **more: Any) -> None:
        same = ("intake", "partition", "offset", "id", "due_ms", "target")
        row = {name: sent[name] for name in same} | {"outcome": outcome, "at_ms": sent["due_ms"], "reason": None}
        self.settled.append(row | more)

    def deliver(self, sent: dict[str, Any], late_ms: int = 5, **more: Any) -> None:
        """It has arrived, behind all that is there."""
        same = ("intake", "partition", "offset", "id", "key", "value_hash", "target")
        row = {name: sent[name] for name in same} | {
            "target_partition": 0,
            "target_offset": len(self.arrived),
            "arrived_ms": sent["due_ms"] + late_ms,
            "told_due_ms": sent["due_ms"],
        }
        self.arrived.append(row | more)

    def fire(self, sent: dict[str, Any], late_ms: int = 5, **more: Any) -> None:
        """It has its result, and has arrived."""
        self.settle(sent, "fired")
        self.deliver(sent, late_ms, **more)


def sound(name: str = "in") -> World:
    world = World(name)
    for offset in range(EVERY):
        world.fire(world.send(offset, key=[b"a", b"b", None][offset % 3]), late_ms=offset)
    return world


def judged(spark: SparkSession, worlds: Sequence[World], rules: Rules = RULES) -> tuple[DataFrame, DataFrame]:
    """Messages and strays, kept."""

    def frame(rows: Iterable[dict[str, Any]], schema: str) -> DataFrame:
        return spark.createDataFrame([tuple(row[name] for name in columns_of(schema)) for row in rows], schema)

    arrived = frame((row for world in worlds for row in world.arrived), ARRIVED)
    messages = judge(
        frame((row for world in worlds for row in world.accepted), ACCEPTED),
        frame((row for world in worlds for row in world.settled), SETTLED),
        arrived,
        rules,
    ).persist()
    ranges = spark.createDataFrame([(world.name, 0, 0, 0, 900) for world in worlds], RANGE)
    return messages, strays(arrived, messages, ranges).persist()


def counted(beside: DataFrame) -> dict[str, int]:
    return {row.kind: row["count"] for row in beside.groupBy("kind").count().collect()}


def test_a_sound_set_has_no_fault(spark: SparkSession) -> None:
    messages, beside = judged(spark, [sound()])
    summary = summarise(messages, counted(beside), horizon_ms=HORIZON, carried=0, unread=0)
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
    world.fire(world.send(20), target="copies")
    return 20


def twice(world: World) -> int:
    sent = world.send(20)
    world.fire(sent)
    world.deliver(sent, 900)
    return 20


def twice_by_id(world: World) -> int:
    world.fire(world.send(20))
    world.fire(world.send(21, delay_ms=119_999, id=f"{world.name}-20"))
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


PLANTED: dict[Callable[[World], int], str] = {
    lost: "lost",
    fired_without_arrival: "lost",
    at_another_target: "lost",
    twice: "duplicate",
    twice_by_id: "duplicate",
    repeated_and_delivered: "duplicate",
    early: "early",
    early_and_not_due_yet: "early",
    out_of_order: "order",
    out_of_order_among_equals: "order",
    out_of_order_and_short: "order",
    another_value: "damaged",
    another_key: "damaged",
    another_due_time: "damaged",
    another_id: "damaged",
    cancelled_and_delivered: "cancelled",
    dead_and_delivered: "unexpected",
    from_nowhere: "unexpected",
}


def test_planted_faults_are_found_and_nothing_else(spark: SparkSession) -> None:
    """All at once, each in an intake of its own: a run of Spark costs a second, or ten."""
    worlds = {plant.__name__: sound(plant.__name__) for plant in PLANTED}
    offsets = {plant: plant(worlds[plant.__name__]) for plant in PLANTED}
    messages, beside = judged(spark, list(worlds.values()))
    found = sorted((row.intake, row.kind, row.offset) for row in findings(messages, beside).collect())
    assert found == sorted((plant.__name__, kind, offsets[plant]) for plant, kind in PLANTED.items())
    summary = summarise(messages, counted(beside), horizon_ms=HORIZON, carried=0, unread=0)
    assert summary.faults == {kind: list(PLANTED.values()).count(kind) for kind in FAULTS}


def test_what_is_no_fault(spark: SparkSession) -> None:
    world = sound()
    world.settle(world.send(20), "duplicate")
    world.settle(world.send(21), "cancelled")
    world.settle(world.send(22, due_ms=None, target=None), "dead", reason="no-delay")
    world.send(23, delay_ms=3_600_000)
    world.fire(world.send(24, delay_ms=-5_000, key=b"z"), late_ms=5_005)
    copied = world.send(25, key=b"y")
    world.fire(copied)
    world.deliver(copied, target="copies")
    # The same id at another time is another message.
    world.fire(world.send(26, id="in-25", key=b"x"))
    world.send(27, was_lost=True)
    # Accepted behind what was read of the intake.
    world.deliver(dict(world.send(905)))
    world.accepted.pop()
    # What a broker deletes is not judged.
    trimmed, expired, compacted, away = (World(name) for name in ("trimmed", "expired", "compacted", "away"))
    for one in (trimmed, expired, compacted):
        one.send(30)
    away.settle(away.send(30), "fired")
    # Where timestamps step back, due times of a fixed delay do not.
    fixed = World("fixed")
    first = fixed.send(0, due_ms=T0 + 100_000, timestamp_ms=T0 + 40_000, is_fixed=True)
    fixed.fire(first)
    fixed.fire(
        fixed.send(1, due_ms=T0 + 90_000, timestamp_ms=T0 + 30_000, is_fixed=True), 10_007, told_due_ms=first["due_ms"]
    )
    # Nothing shows that the service had read it before it was due.
    slow = World("slow")
    behind, ahead = slow.send(1, delay_ms=100), slow.send(0, delay_ms=200)
    slow.fire(ahead)
    slow.fire(behind, 500)
    rules = Rules(
        HORIZON,
        targets_since={trimmed.target: T0 + 200_000, "other": T0 + 500_000},
        results_since={("expired", 0): T0 + 100_000, ("in", 1): T0 + 100_000},
        compacted=frozenset({compacted.target}),
        gone=frozenset({away.target}),
    )
    messages, beside = judged(spark, [world, trimmed, expired, compacted, away, fixed, slow], rules)
    assert findings(messages, beside).collect() == []
    rows = {(row.intake, row.offset): row for row in messages.collect()}
    fates = {place: (row.fate, row.reason) for place, row in rows.items() if row.fate != "delivered"}
    assert fates == {
        ("in", 20): ("repeated", None),
        ("in", 21): ("cancelled", None),
        ("in", 22): ("dead", "no-delay"),
        ("in", 23): ("waiting", None),
        ("in", 27): ("still lost", "no result"),
        ("trimmed", 30): ("unjudged", "target was trimmed"),
        ("expired", 30): ("unjudged", "results have expired"),
        ("compacted", 30): ("unjudged", "target is compacted"),
        ("away", 30): ("unjudged", "target is gone"),
    }
    summary = summarise(messages, counted(beside), horizon_ms=HORIZON, carried=0, unread=0)
    assert (summary.dead, summary.elsewhere) == ({"no-delay": 1}, 1)
    assert rows["in", 24].lateness_ms == 5, "from when it was sent"
    assert [rows["fixed", offset].order for offset in (0, 1)] == ["judged"] * 2
    assert [rows["slow", offset].order for offset in (0, 1)] == ["unjudged"] * 2


def test_lateness_is_told_by_minute_and_in_ranges(spark: SparkSession) -> None:
    world = World()
    for offset in range(100):
        world.fire(world.send(offset, delay_ms=60_000 * (1 + offset % 2)), late_ms=offset)
    messages, _ = judged(spark, [world])
    rows = {row.minute_ms: row for row in lateness(messages).collect()}
    assert {at: (row["count"], row.p50_ms, row.max_ms) for at, row in rows.items()} == {
        T0 + 60_000: (50, 48, 98),
        T0 + 120_000: (50, 49, 99),
    }
    assert histogram(messages) == {0: 1, 1: 1, 2: 3, 3: 5, 4: 10, 5: 30, 6: 50}
    over_time = lateness_over_time(messages, bins=4).collect()
    assert sum(row["count"] for row in over_time) == 100
    assert len(over_time) <= 4
