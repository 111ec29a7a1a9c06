"""What became of every accepted message, and what is wrong with it.

**Fates.** Each message has one: `delivered`, `dead`, `cancelled`, `repeated` (its result is `duplicate`), `lost`,
`still lost` (an earlier run has said so), `waiting` (not due before the horizon: the next run judges it) or `unjudged`,
where what would show it has been deleted; `reason` says more.

**Faults.** Each message has any number of them, of the kinds in `tarry.pipelines.faults`.

**Order.** Messages of one key, target partition and intake partition are a sequence, ranked by due time and then by
offset. One that comes behind a greater one is out of order, if it was accepted before it was due. When the owner of a
partition had read a message is not written anywhere; but it reads in the order of offsets, so it had read this one when
a message at or behind its offset was delivered. And after so long a time as `accepted_within_ms` it has read it anyhow.
Where neither was before the due time, the message is not judged.

Cost: a shuffle by place, two joins, and a sort for each of the windows, which spill to disk: by intake partition, by
key, and by id.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as f

from tarry.headers import Outcome
from tarry.pipelines.audit.tables import SOURCE_PLACE

RESULTS_EXPIRED: Final = "results have expired"
"""Why a message is not judged that has no result, and may have had one."""


@dataclass(frozen=True, slots=True)
class Rules:
    """By what messages are judged.

    Args:
        horizon_ms: what is due before it should have been delivered.
        accepted_within_ms: how long after its timestamp a message has been read by the service.
        targets_since: of targets that have lost records, since when they are complete.
        results_since: the same of results, by intake and partition.
        compacted: targets that may lose any record.
        gone: targets that do not exist any more.
    """

    horizon_ms: int
    accepted_within_ms: int = 60_000
    targets_since: Mapping[str, int] = field(default_factory=dict)
    results_since: Mapping[tuple[str, int], int] = field(default_factory=dict)
    compacted: frozenset[str] = frozenset()
    gone: frozenset[str] = frozenset()


def judge(accepted: DataFrame, settled: DataFrame, arrived: DataFrame, rules: Rules) -> DataFrame:
    """One row for each accepted message: its fate and its faults.

    Columns: those of `accepted`, `due_ms` and `target` taken from what the service says where the headers are not
    clear; fate, reason, faults (array of text); arrivals (count); of the first arrival arrived_ms, target_partition,
    target_offset; again (the place of the last arrival, where there are several); ahead_offset (in the intake, of the
    message that it came behind); lateness_ms; order (`judged`, `unjudged`, or null where there is none);
    has_result.

    Args:
        accepted: as in `tarry.pipelines.audit.tables`, and so the next two.
        settled: results.
        arrived: what targets hold.
        rules: by what.
    """
    return _verdict(_placed(_joined(accepted, settled, arrived, rules), rules), rules)


def _joined(accepted: DataFrame, settled: DataFrame, arrived: DataFrame, rules: Rules) -> DataFrame:
    """Messages with their results and their arrivals."""
    said = settled.groupBy(*SOURCE_PLACE).agg(
        *[
            f.max(f.col("outcome") == str(outcome)).alias(f"is_{outcome}")
            for outcome in (Outcome.FIRED, Outcome.CANCELLED, Outcome.DUPLICATE, Outcome.DEAD)
        ],
        f.max("reason").alias("code"),
        f.max("target").alias("said_target"),
        f.max("due_ms").alias("said_due_ms"),
        f.max("at_ms").alias("said_at_ms"),
        f.max("id").alias("said_id"),
        f.lit(True).alias("has_result"),
    )
    # What somebody has copied to another topic, headers and all, is no delivery: it is joined by the target as well.
    first = f.struct("arrived_ms", "target_partition", "target_offset", "key", "value_hash", "id", "told_due_ms")
    came = (
        arrived.where(f.col("intake").isNotNull())
        .groupBy(*SOURCE_PLACE, "target")
        .agg(
            f.count("*").alias("arrivals"),
            f.min(first).alias("first"),
            f.max(f.struct("arrived_ms", "target_partition", "target_offset")).alias("last"),
        )
    )
    told_due = f.coalesce(f.col("first.told_due_ms"), f.col("said_due_ms"))
    # A fixed delay never lets a due time step back: it may be later than the timestamp says.
    due = f.when(f.col("is_fixed"), f.greatest("own_due_ms", told_due)).otherwise(f.coalesce("own_due_ms", told_due))
    return (
        accepted.withColumnRenamed("due_ms", "own_due_ms")
        .join(said, list(SOURCE_PLACE), "left")
        .withColumn("target", f.coalesce("target", "said_target"))
        .join(came, [*SOURCE_PLACE, "target"], "left")
        .withColumn("due_ms", due)
        .withColumn("arrivals", f.coalesce("arrivals", f.lit(0)))
        .withColumn("has_result", f.coalesce("has_result", f.lit(False)))
        .withColumn("is_early", _sure(f.col("first.arrived_ms") < f.col("due_ms")))
        .withColumn(
            "is_judged",
            _sure(f.col("due_ms") < rules.horizon_ms) | _sure(f.col(f"is_{Outcome.DEAD}")) | f.col("is_early"),
        )
    )


def _placed(messages: DataFrame, rules: Rules) -> DataFrame:
    """Messages with what stands before them: in the order of a key, and under the same id."""
    # From here to the end of the intake.
    behind = Window.partitionBy("intake", "partition").orderBy(f.col("offset").desc())
    behind = behind.rowsBetween(Window.unboundedPreceding, Window.currentRow)
    is_delivered = f.col("arrivals") > 0
    is_ranked = is_delivered & f.col("key").isNotNull()
    # What has no place in an order is a sequence by itself: it would make a large one of nothing.
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


def _verdict(messages: DataFrame, rules: Rules) -> DataFrame:
    is_delivered = f.col("arrivals") > 0
    is_cancelled, is_repeated, is_dead, is_fired = (
        _sure(f.col(f"is_{outcome}")) for outcome in (Outcome.CANCELLED, Outcome.DUPLICATE, Outcome.DEAD, Outcome.FIRED)
    )
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
        .when(is_cancelled, "cancelled")
        .when(is_repeated, "repeated")
        .when(unjudged.isNotNull(), "unjudged")
        .when(f.col("was_lost"), "still lost")
        .otherwise("lost")
    )
    reason = (
        f.when(f.col("fate") == "dead", f.col("code"))
        .when(f.col("fate") == "unjudged", unjudged)
        .when(f.col("fate").isin("lost", "still lost"), f.when(is_fired, "fired").otherwise("no result"))
    )
    faults = {
        "lost": f.col("fate") == "lost",
        "duplicate": (f.col("arrivals") > 1) | f.col("is_same") | (is_repeated & is_delivered),
        "early": f.col("is_early"),
        "order": f.col("is_overtaken"),
        "damaged": is_delivered & _is_damaged(),
        "cancelled": is_cancelled & is_delivered,
        "unexpected": is_dead & is_delivered,
    }
    found = f.array_compact(f.array(*[f.when(is_found, kind) for kind, is_found in faults.items()]))
    none = f.array().cast("array<string>")
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
            "is_fixed",
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
            # What was sent too late to be on time is late from when it was sent.
            (f.col("first.arrived_ms") - f.greatest("due_ms", "timestamp_ms")).alias("lateness_ms"),
            f.when(f.col("is_judged"), f.col("order")).alias("order"),
            "has_result",
        )
    )


def _is_damaged() -> Column:
    """Whether the first arrival is another message than the one that was sent."""
    own_due, told_due = f.col("own_due_ms"), f.col("first.told_due_ms")
    is_other_due = f.when(f.col("is_fixed"), told_due < own_due).otherwise(told_due != own_due)
    return (
        ~f.col("key").eqNullSafe(f.col("first.key"))
        | (f.col("value_hash") != f.col("first.value_hash"))
        | told_due.isNull()
        | _sure(is_other_due)
        | f.col("first.id").isNull()
        | _sure(f.col("id") != f.col("first.id"))
    )


def _looked_up(times: Mapping[tuple[Any, ...], int], *keys: str) -> Column:
    """A time by some columns; null where there is none."""
    found = f.lit(None).cast("long")
    for values, at_ms in times.items():
        is_meant = f.lit(True)
        for name, value in zip(keys, values, strict=True):
            is_meant &= f.col(name) == f.lit(value)
        found = f.when(is_meant, f.lit(at_ms)).otherwise(found)
    return found


def _sure(condition: Column) -> Column:
    return f.coalesce(condition, f.lit(False))
