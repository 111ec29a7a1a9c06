"""The judge of the audit: one fault of each kind planted among sound messages is found, and nothing else."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from tarry.core.murmur2 import partition_of
from tarry.errors import UsageError
from tarry.pipelines.audit.capture import CLOCKS_APART_MS, complete_since
from tarry.pipelines.audit.summary import (
    beside,
    findings,
    histogram,
    lateness_by_minute,
    lateness_over_time,
    summarise_run,
)
from tarry.pipelines.audit.tables import ACCEPTED, ARRIVED, SETTLED, STUBS, columns_of, stubs
from tarry.pipelines.audit.unmatched import RANGE, known_of, settled_again, told_apart, unmatched, vouched_for
from tarry.pipelines.audit.validation import AuditRules, compare
from tarry.pipelines.faults import FAULTS
from tarry.pipelines.topics import RECORD

T0 = 1_767_268_800_000
HORIZON = T0 + 600_000
RULES = AuditRules(HORIZON)
EVERY = 12
"""Messages of the sound set."""


@dataclass
class World:
    """The records of topics, as rows by column name: an intake and a target."""

    name: str = "in"
    accepted: list[dict[str, Any]] = field(default_factory=list)
    settled: list[dict[str, Any]] = field(default_factory=list)
    stubs: list[dict[str, Any]] = field(default_factory=list)
    range: tuple[int, int, int, int, int] = (0, 0, 0, 900, 910)
    """Offsets of the intake: since, reached, first, end, last."""
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
            "asked_partition": -1,
            "is_fixed": False,
            "is_target_fixed": False,
            "was_lost": False,
        } | more
        self.accepted.append(row)
        return row

    def settle(self, sent: dict[str, Any], outcome: str, **more: Any) -> None:
        same = ("intake", "partition", "offset", "id", "due_ms", "target")
        row = {name: sent[name] for name in same} | {"outcome": outcome, "at_ms": sent["due_ms"], "reason": None}
        row["schedule"] = None
        self.settled.append(row | more)

    def deliver(self, sent: dict[str, Any], late_ms: int = 5, **more: Any) -> None:
        """It has arrived, behind all that is there."""
        same = ("intake", "partition", "offset", "id", "key", "value_hash", "target")
        row = {name: sent[name] for name in same} | {
            "target_partition": 0,
            "target_offset": len(self.arrived),
            "arrived_ms": sent["due_ms"] + late_ms,
            "told_due_ms": sent["due_ms"],
            "named": f"{sent['intake']}/{sent['partition']}/{sent['offset']}",
        }
        self.arrived.append(row | more)

    def fire(self, sent: dict[str, Any], late_ms: int = 5, **more: Any) -> None:
        """It has its result, and has arrived."""
        self.settle(sent, "fired")
        self.deliver(sent, late_ms, **more)

    def fire_otherwise(self, sent: dict[str, Any], late_ms: int = 5, **said: Any) -> None:
        """As `fire`, with another due time or target than the configuration of now says."""
        self.fire(sent | said, late_ms)


def sound(name: str = "in") -> World:
    world = World(name)
    for offset in range(EVERY):
        world.fire(world.send(offset, key=[b"a", b"b", None][offset % 3]), late_ms=offset)
    return world


class Judged:
    """The findings of an audit of some worlds, with one partition per target and complete results."""

    def __init__(
        self,
        spark: SparkSession,
        worlds: Sequence[World],
        rules: AuditRules = RULES,
        told_later: World | None = None,
        held: Iterable[dict[str, Any]] = (),
    ) -> None:
        def frame(rows: Iterable[dict[str, Any]], schema: str) -> DataFrame:
            return spark.createDataFrame([tuple(row[name] for name in columns_of(schema)) for row in rows], schema)

        rules = replace(rules, partitions={world.target: {1} for world in worlds} | dict(rules.partitions))
        settled = frame((row for world in worlds for row in world.settled), SETTLED)
        arrived = frame((row for world in worlds for row in world.arrived), ARRIVED)
        later = None if told_later is None else frame(told_later.settled, SETTLED)
        accepted = frame((row for world in worlds for row in world.accepted), ACCEPTED)
        held_back = frame((row for world in worlds for row in world.stubs), STUBS)
        self.messages = compare(accepted, settled, arrived, rules, later, held_back).persist()
        ranges = spark.createDataFrame([(world.name, 0, *world.range) for world in worlds], RANGE)
        known = known_of(self.messages)
        found = unmatched(arrived, known, ranges, ["neighbour"])
        found = vouched_for(found, settled, since_ms=T0, targets=[world.target for world in worlds])
        self.unmatched = told_apart(found, frame(held, ACCEPTED), ranges).persist()
        again = settled_again(settled, known, ranges)
        self.findings = findings(self.messages, self.unmatched, again)
        records = sum(len(world.arrived) for world in worlds)
        there = beside(self.unmatched, again, records)
        is_late_judged = rules.max_late_ms is not None
        self.summary = summarise_run(
            self.messages, there, horizon_ms=HORIZON, carried=0, unread=0, is_late_judged=is_late_judged
        )
        self.summary.balance()


def test_a_sound_set_has_no_fault(spark: SparkSession) -> None:
    summary = Judged(spark, [sound()]).summary
    assert summary.line == (
        "accepted 12, delivered 12, dead 0, waiting 0, lost 0, duplicate 0, early 0, order 0, damaged 0, misplaced 0, "
        "cancelled but delivered 0, no-result 0, settled-twice 0, unexpected 0"
    )
    assert summary.account == "12 records at targets = matched 12 + carried 0"
    assert summary.order == {"judged": 8, "unjudged": 0}
    assert summary.lateness == {"count": 12, "p50_ms": 5, "p90_ms": 10, "p99_ms": 11, "max_ms": 11}


def schedule(world: World, ends: str) -> None:
    """A schedule with three occurrences: its headers do not say when they are due, nor their ids."""
    unknown = {"id": None, "due_ms": None}
    for offset in (20, 30, 40):
        sent = world.send(offset)
        world.accepted[-1] = sent | unknown
        of_schedule = {"id": "schedule"}
        if offset == 40 and ends == "replaced":
            world.settle(sent, ends, **of_schedule)
            continue
        if offset == 40 and ends == "cancelled":  # by the handle of the occurrence, which has a result, too
            world.settle(sent, ends, schedule="schedule")
            world.settle(sent, ends, **of_schedule)
            continue
        world.settle(sent, "fired", id=f"{world.name}-{offset}", schedule="schedule")
        world.deliver(sent)
        if offset == 40 and ends == "cancelled between two":
            world.settle(sent, "cancelled", **of_schedule)


def test_the_occurrences_of_a_schedule_are_messages_and_its_end_is_no_further_result(spark: SparkSession) -> None:
    ends = ["replaced", "cancelled", "cancelled between two", "goes on"]
    worlds = [World(end) for end in ends]
    for world in worlds:
        schedule(world, world.name)
    # A next record that came too late, behind what replaced the schedule, has no result.
    worlds[-1].accepted.append(worlds[-1].send(50) | {"id": None, "due_ms": None})
    del worlds[-1].accepted[-2]
    judged = Judged(spark, worlds)
    assert judged.findings.collect() == []
    fates = {(row.intake, row.offset): row.fate for row in judged.messages.collect()}
    first = {(end, offset): "delivered" for end in ends for offset in (20, 30)}
    assert fates == first | {
        ("replaced", 40): "replaced",
        ("cancelled", 40): "cancelled",
        ("cancelled between two", 40): "delivered",
        ("goes on", 40): "delivered",
        ("goes on", 50): "waiting",
    }
    assert judged.summary.account == "10 records at targets = matched 10 + carried 0"


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


def twice_and_the_second_is_damaged(world: World) -> int:
    sent = world.send(20)
    world.fire(sent)
    world.deliver(sent, 900, value_hash=7)
    return 20


def at_another_partition(world: World) -> int:
    world.fire(world.send(20), target_partition=1)
    return 20


def at_another_partition_than_asked(world: World) -> int:
    world.fire(world.send(20, asked_partition=2))
    return 20


def without_a_result(world: World) -> int:
    world.deliver(world.send(20))
    return 20


def fired_twice(world: World) -> int:
    sent = world.send(20)
    world.settle(sent, "fired")
    world.fire(sent)
    return 20


def fired_and_cancelled_and_nowhere(world: World) -> int:
    sent = world.send(20)
    world.settle(sent, "cancelled")
    world.settle(sent, "cancelled")
    return 20


def very_late(world: World) -> int:
    world.fire(world.send(20), late_ms=200_000)
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


def replaced_and_delivered(world: World) -> int:
    sent = world.send(20)
    world.settle(sent, "replaced")
    world.deliver(sent)
    return 20


def skipped_and_delivered(world: World) -> int:
    sent = world.send(20)
    world.settle(sent, "skipped", reason="waiting")
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


def occurrence_fired_twice(world: World) -> int:
    sent = world.send(20)
    for _ in range(2):
        world.settle(sent, "fired", schedule="schedule")
    world.settle(sent, "replaced", id="schedule")
    return 20


PLANTED: dict[Callable[[World], int], str] = {
    lost: "lost",
    fired_without_arrival: "lost",
    at_another_target: "lost",
    twice: "duplicate",
    twice_by_id: "duplicate",
    twice_and_the_second_is_damaged: "duplicate damaged",
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
    at_another_partition: "misplaced",
    at_another_partition_than_asked: "misplaced",
    very_late: "late",
    without_a_result: "no-result",
    fired_twice: "settled-twice",
    fired_and_cancelled_and_nowhere: "settled-twice",
    occurrence_fired_twice: "lost settled-twice",
    cancelled_and_delivered: "cancelled",
    replaced_and_delivered: "cancelled",
    skipped_and_delivered: "cancelled",
    dead_and_delivered: "unexpected",
    from_nowhere: "unexpected",
}


def test_planted_faults_are_found_and_nothing_else(spark: SparkSession) -> None:
    """All at once, each in an intake of its own: a run of Spark costs a second, or ten."""
    worlds = {plant.__name__: sound(plant.__name__) for plant in PLANTED}
    offsets = {plant: plant(worlds[plant.__name__]) for plant in PLANTED}
    judged = Judged(spark, list(worlds.values()), replace(RULES, max_late_ms=150_000))
    found = sorted((row.intake, row.kind, row.offset) for row in judged.findings.collect())
    assert found == sorted(
        (plant.__name__, kind, offsets[plant]) for plant, kinds in PLANTED.items() for kind in kinds.split()
    )
    assert judged.summary.faults == {kind: len([one for one in found if one[1] == kind]) for kind in FAULTS}
    # Each record once: a second copy is a duplicate, and where nothing arrived there is none.
    assert {kind: count for kind, count in judged.summary.accounted.items() if count} == {
        "matched": len(PLANTED) * EVERY + 7,
        "elsewhere": 1,
        "duplicate": 4,
        "early": 2,
        "order": 3,
        "damaged": 4,
        "misplaced": 2,
        "late": 1,
        "no-result": 1,
        "settled-twice": 1,
        "cancelled": 3,
        "unexpected": 2,
    }


def forged(world: World, named: str | None, **more: Any) -> None:
    """A record that the service has not written, at the world's target."""
    place = (named or "").split("/")
    sent: dict[str, Any] = {"intake": None, "partition": None, "offset": None}
    if len(place) == 3:
        sent = {"intake": place[0], "partition": int(place[1]), "offset": int(place[2])}
    row = sent | {"id": None, "key": b"k", "value_hash": 1, "target": world.target, "due_ms": T0 + 100_000}
    world.deliver(row, 0, named=named, **more)


def test_each_record_at_a_target_is_something(spark: SparkSession) -> None:
    world = World(range=(5, 8, 10, 900, 910))
    # Offsets 5 to 7 were settled by earlier runs, 8 and 9 were deleted unread, 0 to 4 before the series began.
    expected: dict[str | None, tuple[str, str | None]] = {
        None: ("foreign", None),
        "garbage": ("unexpected", "its tarry-source is no place in an intake"),
        "nosuch.in/0/1": ("unexpected", "there is no such partition of an intake"),
        "in/7/1": ("unexpected", "there is no such partition of an intake"),
        "in/0/999999": ("unexpected", "the intake ended before that offset"),
        "in/0/910": ("unexpected", "the intake ended before that offset"),
        "in/0/909": ("carried", None),
        "in/0/899": ("unexpected", "the intake holds no such message"),
        "neighbour/3/17": ("other-intake", None),
        "in/0/6": ("duplicate", "an earlier run had settled it"),
        "in/0/3": ("unexpected", "no result tells of it"),
        "in/0/9": ("unexpected", "no result tells of it"),
        "in/0/4": ("unjudged", None),
        "in/0/20": ("unexpected", "that message has no target"),
    }
    world.settle(world.send(20, target=None), "dead", reason="no-target")
    for named in expected:
        forged(world, named)
    world.settle(world.send(4), "fired")
    world.accepted.pop()
    copied = world.send(30)
    world.fire(copied)
    world.deliver(copied, target="other")
    judged = Judged(spark, [world, World("other")])
    found = {row.named: (row.kind, row.detail) for row in judged.unmatched.collect()}
    assert found == expected | {"in/0/30": ("elsewhere", None)}
    assert judged.summary.account == (
        "16 records at targets = matched 1 + carried 1 + duplicate 1 + unexpected 9 + elsewhere 1 + foreign 1"
        " + other-intake 1 + unjudged 1"
    )
    # Where the results are not complete, what they do not tell of may have been delivered.
    late = World(range=(5, 8, 10, 900, 910))
    forged(late, "in/0/3", arrived_ms=T0)
    assert Judged(spark, [late]).summary.accounted["unjudged"] == 1


@pytest.mark.exhaustive
def test_a_result_that_is_told_twice_over_two_runs_is_found(spark: SparkSession) -> None:
    world = World(range=(0, 8, 8, 900, 910))
    world.settle(world.send(6), "fired")
    world.accepted.pop()
    judged = Judged(spark, [world])
    assert [(row.kind, row.offset) for row in judged.findings.collect()] == [("settled-twice", 6)]
    assert judged.summary.faults["settled-twice"] == 1


@pytest.mark.exhaustive
def test_a_message_whose_result_is_behind_the_read_end_waits_for_the_next_run(spark: SparkSession) -> None:
    world, later = sound(), World()
    sent = world.send(20)
    world.deliver(sent)
    later.settle(sent, "fired")
    judged = Judged(spark, [world], told_later=later)
    assert judged.findings.collect() == []
    assert judged.summary.fates == {"delivered": EVERY, "waiting": 1}
    assert judged.summary.account == "13 records at targets = matched 12 + carried 1"


def test_a_further_record_of_what_an_earlier_run_has_settled_is_compared_with_the_intake(spark: SparkSession) -> None:
    """An intake with a fixed target may have had another one."""
    world, former = World(range=(0, 2_000, 0, 2_001, 2_001)), World("former")
    for sent in (world.send(1_001), world.send(1_002, **FIXED)):
        world.deliver(sent)
        world.deliver(sent, target=former.target)
    settled = world.accepted
    judged = Judged(spark, [replace(world, accepted=[]), former], held=settled)
    found = sorted((row.offset, row.target, row.kind) for row in judged.unmatched.collect())
    assert found == [
        (1_001, former.target, "elsewhere"),
        (1_001, world.target, "duplicate"),
        (1_002, former.target, "duplicate"),
        (1_002, world.target, "duplicate"),
    ]


@pytest.mark.exhaustive
def test_where_the_sum_is_another_nothing_is_concluded(spark: SparkSession) -> None:
    summary = Judged(spark, [sound()]).summary
    with pytest.raises(UsageError, match="no conclusion: 13 records at targets = matched 12"):
        replace(summary, records=13).balance()


def test_kinds_that_are_no_fault(spark: SparkSession) -> None:
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
    world.settle(world.send(40), "replaced")
    world.settle(world.send(41), "skipped", reason="not-waiting")
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
    held_up = fixed.send(1, due_ms=T0 + 90_000, timestamp_ms=T0 + 30_000, is_fixed=True)
    fixed.fire_otherwise(held_up, due_ms=first["due_ms"])
    # Nothing shows that the service had read it before it was due.
    slow = World("slow")
    behind, ahead = slow.send(1, delay_ms=100), slow.send(0, delay_ms=200)
    slow.fire(ahead)
    slow.fire(behind, 500)
    # One that had asked for its partition, and one that came before its target had four.
    world.fire(world.send(28, key=b"p", asked_partition=5), target_partition=5)
    grown = World("grown")
    grown.fire(grown.send(0, key=b"4"), target_partition=partition_of(b"4", 4))
    grown.fire(grown.send(1, key=b"4"), target_partition=partition_of(b"4", 3))
    rules = AuditRules(
        HORIZON,
        partitions={grown.target: {3, 4}},
        targets_since={trimmed.target: T0 + 200_000, "other": T0 + 500_000},
        results_since={("expired", 0): T0 + 100_000, ("in", 1): T0 + 100_000},
        compacted=frozenset({compacted.target}),
        gone=frozenset({away.target}),
    )
    copies = World("copies")
    judged = Judged(spark, [world, trimmed, expired, compacted, away, fixed, slow, grown, copies], rules)
    assert judged.findings.collect() == []
    rows = {(row.intake, row.offset): row for row in judged.messages.collect()}
    fates = {place: (row.fate, row.reason) for place, row in rows.items() if row.fate != "delivered"}
    assert fates == {
        ("in", 20): ("repeated", None),
        ("in", 21): ("cancelled", None),
        ("in", 22): ("dead", "no-delay"),
        ("in", 23): ("waiting", None),
        ("in", 27): ("still lost", "no result"),
        ("in", 40): ("replaced", None),
        ("in", 41): ("skipped", None),
        ("trimmed", 30): ("unjudged", "target was trimmed"),
        ("expired", 30): ("unjudged", "results have expired"),
        ("compacted", 30): ("unjudged", "target is compacted"),
        ("away", 30): ("unjudged", "target is gone"),
    }
    assert (judged.summary.dead, judged.summary.accounted["elsewhere"]) == ({"no-delay": 1}, 1)
    assert rows["in", 24].lateness_ms == 5, "from when it was sent"
    assert [rows["fixed", offset].order for offset in (0, 1)] == ["judged"] * 2
    assert [rows["slow", offset].order for offset in (0, 1)] == ["unjudged"] * 2


FIXED: dict[str, Any] = {"is_fixed": True, "is_target_fixed": True}


@pytest.mark.exhaustive
def test_the_result_gives_the_fixed_delay_and_target_at_the_time_of_reading(spark: SparkSession) -> None:
    fixed, former = World("fixed"), World("former")
    # The stamp was an hour ahead; the delay was 5 s shorter; the target was another one.
    ahead = fixed.send(0, timestamp_ms=T0 + 3_600_000, due_ms=T0 + 3_700_000, **FIXED)
    fixed.fire_otherwise(ahead, due_ms=T0 + 100_000)
    fixed.fire_otherwise(fixed.send(1, due_ms=T0 + 110_000, **FIXED), due_ms=T0 + 105_000)
    fixed.fire_otherwise(fixed.send(2, **FIXED), target=former.target)
    fixed.fire(fixed.send(3, **FIXED))
    judged = Judged(spark, [fixed, former])
    assert judged.findings.collect() == []
    assert judged.summary.fates == {"delivered": 4}
    assert judged.summary.account == "4 records at targets = matched 1 + carried 0 + otherwise 3"
    assert judged.summary.lateness["max_ms"] == 5


@pytest.mark.exhaustive
def test_a_delivery_must_agree_with_its_result_about_a_fixed_delay(spark: SparkSession) -> None:
    world = World()
    world.fire(world.send(0, key=b"a", **FIXED), late_ms=-1)
    world.fire(sent := world.send(1, key=b"b", **FIXED), told_due_ms=sent["due_ms"] - 1)
    judged = Judged(spark, [world])
    found = sorted((row.offset, row.kind) for row in judged.findings.collect())
    assert found == [(0, "early"), (1, "damaged")]


@pytest.mark.exhaustive
def test_a_record_without_a_result_is_not_due_sooner_than_the_configuration_says(spark: SparkSession) -> None:
    """All results have expired, so none is missing. Somebody writes a copy, with a due time that has been."""
    world = World()
    # In `ahead` the record's word is later than the configuration's.
    sent, ahead = world.send(0, delay_ms=3_600_000, key=b"a", **FIXED), world.send(1, key=b"b", **FIXED)
    world.deliver(sent | {"due_ms": T0 - 60_000}, late_ms=120_000)
    world.deliver(ahead | {"due_ms": ahead["due_ms"] + 1_000})
    judged = Judged(spark, [world], replace(RULES, results_since={("in", 0): HORIZON + CLOCKS_APART_MS}))
    assert sorted((row.offset, row.kind) for row in judged.findings.collect()) == [(0, "damaged"), (0, "early")]
    assert judged.summary.account == "2 records at targets = matched 1 + carried 0 + damaged 1"


@pytest.mark.exhaustive
def test_a_message_delivered_under_a_shorter_delay_is_not_early_until_its_result_is_read(spark: SparkSession) -> None:
    world, later = World(), World()
    sent = world.send(0, delay_ms=3_600_000, **FIXED)
    world.deliver(sent | {"due_ms": T0 + 60_000})
    later.settle(sent, "fired", due_ms=T0 + 60_000)
    judged = Judged(spark, [world], told_later=later)
    assert judged.findings.collect() == []
    assert judged.summary.fates == {"waiting": 1}


@pytest.mark.exhaustive
def test_a_record_at_the_former_target_is_carried_as_long_as_its_result_is_not_read(spark: SparkSession) -> None:
    world, former, later = World(), World("former"), World()
    sent = world.send(0, **FIXED)
    world.deliver(sent, target=former.target)
    later.settle(sent, "fired", target=former.target)
    judged = Judged(spark, [world, former], told_later=later)
    assert judged.summary.account == "1 records at targets = matched 0 + carried 1"
    assert judged.summary.fates == {"waiting": 1}


@pytest.mark.exhaustive
def test_a_message_with_only_a_stub_is_not_lost(spark: SparkSession) -> None:
    world = sound()
    for offset in (20, 21, 22):
        sent = world.send(offset)
        world.stubs.append({"intake": "in", "partition": 0, "offset": offset, "code": "unknown-target"})
    # Tried again in vain; written whole; not even due.
    world.stubs.append(world.stubs[0])
    world.settle(world.accepted[-2], "dead", reason="unknown-target")
    sent["due_ms"] = None
    judged = Judged(spark, [world])
    assert judged.findings.collect() == []
    assert judged.summary.fates == {"delivered": EVERY, "stub": 2, "dead": 1}
    assert "stub 2" in judged.summary.line


def test_a_stub_is_of_its_own_partition_and_has_no_value(spark: SparkSession) -> None:
    def letter(offset: int, value: bytes | None, *headers: tuple[str, bytes]) -> tuple[Any, ...]:
        return "in.dead", 3, offset, datetime.fromtimestamp(T0 / 1_000, UTC), b"k", value, list(headers)

    stub, code = ("tarry-stub", b"in/3/7"), ("tarry-error", b"too-large")
    letters = [
        letter(0, None, ("tarry-source", b"in/3/7"), stub, code),
        letter(1, b"a whole one", ("tarry-source", b"in/3/8"), stub, code),
        letter(2, None, ("tarry-source", b"in/3/9"), code),
        letter(3, None, ("tarry-source", b"in/4/7"), stub, code),
        letter(4, None, ("tarry-source", b"other/3/7"), stub, code),
        letter(5, None, stub, code),
    ]
    assert stubs(spark.createDataFrame(letters, RECORD)).collect() == [("in", 3, 7, "too-large")]


def test_the_oldest_remaining_results_may_have_timestamps_of_a_clock_that_was_behind(spark: SparkSession) -> None:
    """Results went up to T0; then another process wrote them, a minute behind, and those in front expired."""
    world = World()
    world.settle(world.send(1), "fired", at_ms=T0 - 60_000)
    settled = spark.createDataFrame(
        [tuple(row[name] for name in columns_of(SETTLED)) for row in world.settled], SETTLED
    )
    arrived = spark.createDataFrame([], ARRIVED)
    lost = {("in.results", 0), ("in.results", 1)}
    since = complete_since(lost, settled, arrived, now_ms=T0 + 50)
    assert since == {("in.results", 0): T0 - 60_000 + CLOCKS_APART_MS, ("in.results", 1): T0 + 50 + CLOCKS_APART_MS}
    assert complete_since(set(), settled, arrived, now_ms=T0) == {}


@pytest.mark.exhaustive
def test_lateness_is_told_by_minute_and_in_ranges(spark: SparkSession) -> None:
    world = World()
    for offset in range(100):
        world.fire(world.send(offset, delay_ms=60_000 * (1 + offset % 2)), late_ms=offset)
    messages = Judged(spark, [world]).messages
    rows = {row.minute_ms: row for row in lateness_by_minute(messages).collect()}
    assert {at: (row["count"], row.p50_ms, row.max_ms) for at, row in rows.items()} == {
        T0 + 60_000: (50, 48, 98),
        T0 + 120_000: (50, 49, 99),
    }
    assert histogram(messages) == {0: 1, 1: 1, 2: 3, 3: 5, 4: 10, 5: 30, 6: 50}
    over_time = lateness_over_time(messages, bins=4).collect()
    assert sum(row["count"] for row in over_time) == 100
    assert len(over_time) <= 4
