"""Determine the fate and the faults of every accepted message.

**Fates.** Each message has one fate: `delivered`, `dead`, `cancelled`, `replaced` or `skipped` (by name),
`repeated` (its result is `duplicate`), `lost`, `still lost` (an earlier run reported it as lost), `stub` (its dead
letter fits nowhere, which holds it back), `waiting` (not due before the horizon: the next run judges it) or `unjudged`
(the records that would show its fate were deleted). `reason` gives more detail.

**Faults.** A message may have any number of faults, of the kinds in `tarry.pipelines.faults`.

**Records.** The first of the records at the target that name a message is its delivery: it is `matched`, or counted
under the last of its faults. Each further record is a duplicate. Records of a waiting message are carried to the next
run.

**Order.** Messages with the same key, target partition and intake partition are a sequence, ranked by due time and then
by offset. A message that comes after a message of higher rank is out of order, if the service accepted it before it was
due. No record shows when the owner of a partition read a message. But the owner reads in the order of offsets, so it
had read the message by the time at which a message at the same or a higher offset was delivered. Also, it has read the
message after `accepted_within_ms`. If neither time is before the due time, the order of the message is not judged.

**Due time and target** are those that the record requests. In an intake with a fixed delay or target the record does
not request them, and no record contains the configuration at the time when it was read, or whether its timestamp was
ahead of the service's clock. So in such an intake the audit takes the values of the result, and compares the delivery
with them. A delivery whose result has another target, or an earlier due time, than the current configuration gives is
no fault, but is counted separately from matched ones: `otherwise`. Without a result, the record at the target may be
forged, and its message is due no earlier than the configuration says.

**Schedules.** Each record of a schedule in the intake, a sender's or a next one, is a message, and its occurrence the
delivery. The result of an occurrence names its schedule. The schedule's own end, in a result without that, may name the
record that was delivered last: it does not count there.

**Result and delivery** are written in one transaction. The results that are read after the targets show which
deliveries have a result above the end of this run: those messages wait for the next run. If a message was delivered and
has no result at all, the service did not deliver it, or its results have expired.

Cost: a shuffle by place, two joins, and a sort for each window, by intake partition, by key and by id. The sorts spill
to disk.
"""

import json
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as f

from tarry.headers import Outcome
from tarry.pipelines.audit.tables import SOURCE_PLACE
from tarry.pipelines.faults import CARRIED, FAULTS, MATCHED, OTHERWISE
from tarry.pipelines.murmur2 import positive_murmur2

RESULTS_EXPIRED: Final = "results have expired"
"""The reason why a message without a result is not judged: its result may have expired."""

_PARTITIONS: Final = "map<string, array<int>>"

_TAKEN_BACK: Final = (Outcome.CANCELLED, Outcome.REPLACED, Outcome.SKIPPED)
"""The outcomes of messages that are never delivered, because somebody said so."""


@dataclass(frozen=True, slots=True)
class AuditRules:
    """The rules by which messages are judged.

    Args:
        horizon_ms: messages that are due before this time should have been delivered.
        accepted_within_ms: the service has read a message at the latest this long after its timestamp.
        targets_since: for targets that have lost records, the time from which they are complete.
        results_since: the same for results, by intake and partition.
        compacted: compacted targets, which may lose any record.
        gone: targets that no longer exist.
        partitions: the current and former numbers of partitions of each target; each may have decided a key's
            partition.
        max_late_ms: a later arrival is a fault; None: lateness is no fault.
    """

    horizon_ms: int
    accepted_within_ms: int = 60_000
    targets_since: Mapping[str, int] = field(default_factory=dict)
    results_since: Mapping[tuple[str, int], int] = field(default_factory=dict)
    compacted: frozenset[str] = frozenset()
    gone: frozenset[str] = frozenset()
    partitions: Mapping[str, Collection[int]] = field(default_factory=dict)
    max_late_ms: int | None = None


def compare(
    accepted: DataFrame,
    settled: DataFrame,
    arrived: DataFrame,
    rules: AuditRules,
    told_later: DataFrame | None = None,
    stubs: DataFrame | None = None,
) -> DataFrame:
    """One row for each accepted message: its fate and its faults.

    Columns: those of `accepted`, where `due_ms` and `target` come from the result if the headers are not clear or the
    intake's configuration sets them; fate, reason, faults (array of text); arrivals (count); arrived_ms,
    target_partition and target_offset of the first arrival; again (the place of the last arrival, if there are
    several); ahead_offset (the intake offset of the message that it came after); lateness_ms; order (`judged`,
    `unjudged`, or null if the message has no order); has_result; results (count); record (the kind of the first record
    at the target: `matched`, `otherwise`, `carried`, or a fault; null if there is no record).

    Args:
        accepted: accepted messages, as in `tarry.pipelines.audit.tables`; so are `settled` and `arrived`.
        settled: results.
        arrived: records at targets.
        rules: the rules.
        told_later: the places of messages whose results are above the end of `settled`. These results were read after
            the targets.
        stubs: the stubs among the dead letters.
    """
    messages = _awaiting(_held_back(_joined(accepted, settled, arrived, rules), stubs), told_later)
    return _verdict(_placed(messages, rules), rules)


def _joined(accepted: DataFrame, settled: DataFrame, arrived: DataFrame, rules: AuditRules) -> DataFrame:
    """Messages with their results and their arrivals."""
    said = (
        _own(settled)
        .groupBy(*SOURCE_PLACE)
        .agg(
            *[
                f.max(f.col("outcome") == str(outcome)).alias(f"is_{outcome}")
                for outcome in (Outcome.FIRED, *_TAKEN_BACK, Outcome.DUPLICATE, Outcome.DEAD)
            ],
            f.max("reason").alias("code"),
            f.max("target").alias("said_target"),
            f.max("due_ms").alias("said_due_ms"),
            f.max("at_ms").alias("said_at_ms"),
            f.max("id").alias("said_id"),
            f.lit(True).alias("has_result"),
            f.count("*").alias("results"),
        )
    )
    # A copy in another topic, with the same headers, is no delivery. So the join includes the target.
    content = ("key", "value_hash", "id", "told_due_ms")
    first = f.struct("arrived_ms", "target_partition", "target_offset", *content)
    came = (
        arrived.where(f.col("intake").isNotNull())
        .groupBy(*SOURCE_PLACE, "target")
        .agg(
            f.count("*").alias("arrivals"),
            f.min(first).alias("first"),
            f.max(f.struct("arrived_ms", "target_partition", "target_offset")).alias("last"),
            (~f.min(f.struct(*content)).eqNullSafe(f.max(f.struct(*content)))).alias("differ"),
        )
    )
    sure_due = f.when(~f.col("is_fixed"), f.col("own_due_ms"))
    sure_target = f.when(~_sure(f.col("is_target_fixed")), f.col("own_target"))
    return (
        accepted.withColumnsRenamed({"due_ms": "own_due_ms", "target": "own_target"})
        .join(said, list(SOURCE_PLACE), "left")
        .withColumn("target", f.coalesce(sure_target, "said_target", "own_target"))
        .join(came, [*SOURCE_PLACE, "target"], "left")
        # A record alone, without a result, cannot make its message due earlier than the configuration says.
        .withColumn("due_ms", f.coalesce(sure_due, "said_due_ms", f.greatest("own_due_ms", "first.told_due_ms")))
        .withColumn("arrivals", f.coalesce("arrivals", f.lit(0)))
        .withColumn("has_result", f.coalesce("has_result", f.lit(False)))
        .withColumn("is_early", _sure(f.col("first.arrived_ms") < f.col("due_ms")))
        .withColumn(
            "is_judged",
            _sure(f.col("due_ms") < rules.horizon_ms) | _sure(f.col(f"is_{Outcome.DEAD}")) | f.col("is_early"),
        )
    )


def _own(settled: DataFrame) -> DataFrame:
    """Leave out the end of a schedule where the occurrence that it names has a result of its own."""
    has_own = f.max(f.col("schedule").isNotNull()).over(Window.partitionBy(*SOURCE_PLACE))
    is_end = f.col("schedule").isNull()
    return settled.withColumn("has_own", has_own).where(~(is_end & f.col("has_own"))).drop("has_own")


def _held_back(messages: DataFrame, stubs: DataFrame | None) -> DataFrame:
    """Mark the messages that have a stub and no result. They are judged even if they are not due."""
    if stubs is None:
        return messages.withColumns({"is_stub": f.lit(False), "stub_code": f.lit(None).cast("string")})
    found = stubs.groupBy(*SOURCE_PLACE).agg(f.max(f.coalesce("code", f.lit(""))).alias("stub_code"))
    return (
        messages.join(found, list(SOURCE_PLACE), "left")
        .withColumn("is_stub", f.col("stub_code").isNotNull() & ~f.col("has_result"))
        .withColumn("is_judged", f.col("is_judged") | f.col("is_stub"))
    )


def _awaiting(messages: DataFrame, told_later: DataFrame | None) -> DataFrame:
    """Mark the messages whose result the next run reads. They are not judged in this run."""
    if told_later is None:
        return messages.withColumn("is_told_later", f.lit(False))
    later = told_later.select(*SOURCE_PLACE, f.lit(True).alias("is_told")).distinct()
    told = ~f.col("has_result") & _sure(f.col("is_told"))
    return (
        messages.join(later, list(SOURCE_PLACE), "left")
        .withColumn("is_told_later", told)
        # With a fixed delay, only that result shows whether the delivery is early.
        .withColumn("is_judged", f.col("is_judged") & (~told | (f.col("is_early") & ~f.col("is_fixed"))))
    )


def _placed(messages: DataFrame, rules: AuditRules) -> DataFrame:
    """Add what precedes each message: in the order of its key, and under the same id."""
    # From here to the end of the intake.
    behind = Window.partitionBy("intake", "partition").orderBy(f.col("offset").desc())
    behind = behind.rowsBetween(Window.unboundedPreceding, Window.currentRow)
    is_delivered = f.col("arrivals") > 0
    is_ranked = is_delivered & f.col("key").isNotNull()
    # A message without a place in an order is a sequence of its own; otherwise all of them would be one large window.
    before = Window.partitionBy(
        "target", "first.target_partition", "intake", "partition", "key", f.when(~is_ranked, f.col("offset"))
    )
    before = before.orderBy("first.target_offset").rowsBetween(Window.unboundedPreceding, -1)
    same_id = Window.partitionBy("id", "due_ms", "target", f.when(~is_delivered, f.col("offset")))
    same_id = same_id.orderBy("first.arrived_ms", *SOURCE_PLACE)
    rank = f.struct("due_ms", "offset")
    return (
        messages.withColumn("read_ms", f.min("first.arrived_ms").over(behind))
        .withColumn("accepted_ms", f.least(f.col("timestamp_ms") + rules.accepted_within_ms, "read_ms"))
        .withColumn("promised", is_ranked & _sure(f.col("accepted_ms") <= f.col("due_ms")))
        .withColumn("order", f.when(is_ranked, f.when(f.col("promised"), "judged").otherwise("unjudged")))
        .withColumn("ahead", f.max(rank).over(before))
        .withColumn("is_overtaken", f.col("promised") & _sure(rank < f.col("ahead")))
        .withColumn("is_same", is_delivered & f.col("id").isNotNull() & (f.row_number().over(same_id) > 1))
    )


def _verdict(messages: DataFrame, rules: AuditRules) -> DataFrame:
    is_delivered = f.col("arrivals") > 0
    is_repeated, is_dead, is_fired = (
        _sure(f.col(f"is_{outcome}")) for outcome in (Outcome.DUPLICATE, Outcome.DEAD, Outcome.FIRED)
    )
    is_taken_back = f.greatest(*[_sure(f.col(f"is_{outcome}")) for outcome in _TAKEN_BACK])
    targets_since = _looked_up({(target,): at_ms for target, at_ms in rules.targets_since.items()}, "target")
    results_since = _looked_up(rules.results_since, "intake", "partition")
    unjudged = f.coalesce(
        f.when(is_fired & f.col("target").isin(*rules.gone), "target is gone"),
        f.when(f.col("target").isin(*rules.compacted), "target is compacted"),
        f.when(f.coalesce("said_at_ms", "due_ms") <= targets_since, "target was trimmed"),
        f.when(~f.col("has_result") & (f.col("timestamp_ms") <= results_since), RESULTS_EXPIRED),
    )
    fate = (
        f.when(~f.col("is_judged"), "waiting")
        .when(is_delivered, "delivered")
        .when(is_dead, "dead")
        .when(_sure(f.col(f"is_{Outcome.CANCELLED}")), "cancelled")
        .when(_sure(f.col(f"is_{Outcome.REPLACED}")), "replaced")
        .when(_sure(f.col(f"is_{Outcome.SKIPPED}")), "skipped")
        .when(is_repeated, "repeated")
        .when(f.col("is_stub"), "stub")
        .when(unjudged.isNotNull(), "unjudged")
        .when(f.col("was_lost"), "still lost")
        .otherwise("lost")
    )
    reason = (
        f.when(f.col("fate") == "dead", f.col("code"))
        .when(f.col("fate") == "stub", f.col("stub_code"))
        .when(f.col("fate") == "unjudged", unjudged)
        .when(f.col("fate").isin("lost", "still lost"), f.when(is_fired, "fired").otherwise("no result"))
    )
    is_expired = _sure(f.col("first.arrived_ms") <= results_since)
    # A message that was already due when it was sent is late from that time. With a fixed delay the timestamp may be
    # ahead, so it does not count.
    on_time_ms = f.when(f.col("is_fixed"), f.col("due_ms")).otherwise(f.greatest("due_ms", "timestamp_ms"))
    lateness_ms = f.col("first.arrived_ms") - on_time_ms
    # The faults of the first record at the target.
    of_first = {
        "duplicate": f.col("is_same") | (is_repeated & is_delivered),
        "early": f.col("is_early"),
        "order": f.col("is_overtaken"),
        "damaged": is_delivered & _is_damaged(),
        "misplaced": is_delivered & _is_misplaced(rules.partitions),
        "late": f.lit(False) if rules.max_late_ms is None else _sure(lateness_ms > rules.max_late_ms),
        "cancelled": is_taken_back & is_delivered,
        "no-result": is_delivered & ~f.col("has_result") & ~f.col("is_told_later") & ~is_expired,
        "settled-twice": is_delivered & _sure(f.col("results") > 1),
        "unexpected": is_dead & is_delivered,
    }
    faults = of_first | {
        "lost": f.col("fate") == "lost",
        "duplicate": (f.col("arrivals") > 1) | of_first["duplicate"],
        "damaged": of_first["damaged"] | _sure(f.col("differ")),
        "settled-twice": _sure(f.col("results") > 1),
    }
    found = f.array_compact(f.array(*[f.when(faults[kind], kind) for kind in FAULTS]))
    none = f.array().cast("array<string>")
    record = f.when(~f.col("is_judged"), CARRIED)
    is_otherwise = (f.col("due_ms") < f.col("own_due_ms")) | (f.col("target") != f.col("own_target"))
    for kind in [kind for kind in reversed(FAULTS) if kind in of_first]:
        record = record.when(of_first[kind], kind)
    last = f.concat_ws("/", "target", *[f.col(f"last.{name}") for name in ("target_partition", "target_offset")])
    return (
        messages.withColumn("fate", fate)
        .withColumn("reason", reason)
        .select(
            *SOURCE_PLACE,
            "timestamp_ms",
            "key",
            "value_hash",
            f.coalesce("id", "said_id", "first.id").alias("id"),
            "due_ms",
            "target",
            "asked_partition",
            "is_fixed",
            "is_target_fixed",
            "was_lost",
            "fate",
            "reason",
            f.when(f.col("is_judged"), found).otherwise(none).alias("faults"),
            "arrivals",
            "first.arrived_ms",
            "first.target_partition",
            "first.target_offset",
            f.when(f.col("arrivals") > 1, last).alias("again"),
            f.when(f.col("is_overtaken"), f.col("ahead.offset")).alias("ahead_offset"),
            lateness_ms.alias("lateness_ms"),
            f.when(f.col("is_judged"), f.col("order")).alias("order"),
            "has_result",
            f.coalesce("results", f.lit(0)).alias("results"),
            f.when(is_delivered, record.when(_sure(is_otherwise), OTHERWISE).otherwise(MATCHED)).alias("record"),
        )
    )


def _is_damaged() -> Column:
    """Whether the first arrival differs from the message that was sent."""
    return (
        ~f.col("key").eqNullSafe(f.col("first.key"))
        | (f.col("value_hash") != f.col("first.value_hash"))
        | ~f.col("first.told_due_ms").eqNullSafe(f.col("due_ms"))
        | f.col("first.id").isNull()
        | _sure(f.col("id") != f.col("first.id"))
    )


def _is_misplaced(partitions: Mapping[str, Collection[int]]) -> Column:
    """Whether the first arrival is not at the requested partition, or not at the partition of its key.

    If it is not known whether a partition was requested, there is no fault.
    """
    numbers = f.from_json(f.lit(json.dumps({of: sorted(each) for of, each in partitions.items()})), _PARTITIONS)
    at, asked, hashed = f.col("first.target_partition"), f.col("asked_partition"), positive_murmur2(f.col("key"))
    is_keys = f.exists(f.try_element_at(numbers, f.col("target")), lambda number: hashed % number == at)
    return _sure(f.when(asked >= 0, asked != at).when(asked == -1, ~is_keys))


def _looked_up(times: Mapping[tuple[Any, ...], int], *keys: str) -> Column:
    """Look up a time by the values of some columns; null if there is none."""
    found = f.lit(None).cast("long")
    for values, at_ms in times.items():
        is_meant = f.lit(True)
        for name, value in zip(keys, values, strict=True):
            is_meant &= f.col(name) == f.lit(value)
        found = f.when(is_meant, f.lit(at_ms)).otherwise(found)
    return found


def _sure(condition: Column) -> Column:
    return f.coalesce(condition, f.lit(False))
