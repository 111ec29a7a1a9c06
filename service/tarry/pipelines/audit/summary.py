"""The findings of an audit: a table of faults, lateness, and counts."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as f

from tarry.errors import UsageError
from tarry.pipelines.audit.tables import SOURCE_PLACE
from tarry.pipelines.faults import CARRIED, FAULTS, MATCHED, NO_FAULTS

EDGES_MS: Final = tuple(mantissa * 10**power for power in range(8) for mantissa in (1, 2, 5))
"""The upper ends of the histogram's bars: 1 ms to 14 h. A last bar counts later messages."""

_MINUTE_MS: Final = 60_000
_ACCURACY: Final = 10_000
_LONGEST_SHOWN: Final = 300


@dataclass(frozen=True, slots=True)
class Summary:
    """The figures of one run.

    Args:
        horizon_ms: messages due before this time were judged.
        accepted: audited messages, including those carried over from earlier runs.
        carried: messages carried over from earlier runs.
        fates: the number of messages of each fate.
        faults: the number of faults of each kind. Every kind is present, except `late` if there is no limit.
        records: the number of records at the targets.
        accounted: the number of records of each kind: `matched`, `carried`, or another of `tarry.pipelines.faults`;
            each record is counted once.
        dead: dead messages by code.
        unjudged: unjudged messages by reason.
        order: of the messages with a key that arrived, how many were `judged` and `unjudged` in their order.
        unread: offsets of intakes that were deleted before any run read them.
        lateness: count, p50_ms, p90_ms, p99_ms, max_ms; null if no message arrived.
    """

    horizon_ms: int
    accepted: int
    carried: int
    fates: dict[str, int]
    faults: dict[str, int]
    records: int
    accounted: dict[str, int]
    dead: dict[str, int]
    unjudged: dict[str, int]
    order: dict[str, int]
    unread: int
    lateness: dict[str, int | None] = field(default_factory=dict)

    @property
    def line(self) -> str:
        """A readable summary in one line."""
        parts = [f"accepted {self.accepted:,}"]
        parts += [f"{fate} {self.fates.get(fate, 0):,}" for fate in ("delivered", "dead", "waiting")]
        parts += [
            f"{fate} {self.fates[fate]:,}"
            for fate in ("cancelled", "replaced", "skipped", "repeated", "stub", "still lost", "unjudged")
            if fate in self.fates
        ]
        names = {"cancelled": "cancelled but delivered"}
        parts += [f"{names.get(kind, kind)} {count:,}" for kind, count in self.faults.items()]
        if self.unread:
            parts.append(f"deleted before they were read {self.unread:,}")
        return ", ".join(parts)

    @property
    def account(self) -> str:
        """The kinds of the records at the targets, as a sum in one line."""
        always = (MATCHED, CARRIED)
        parts = [f"{kind} {count:,}" for kind, count in self.accounted.items() if count or kind in always]
        return f"{self.records:,} records at targets = {' + '.join(parts)}"

    def balance(self) -> None:
        """Check that each record at a target is counted exactly once.

        Raises:
            UsageError: the sum differs from the number of records.
        """
        if (total := sum(self.accounted.values())) != self.records:
            raise UsageError(
                f"no conclusion: {self.account}, but the sum is {total:,}; were topics recreated or trimmed during the"
                " run? Run the audit again; if the error repeats, report a bug"
            )


def findings(messages: DataFrame, unmatched: DataFrame, again: DataFrame) -> DataFrame:
    """One row for each fault.

    Columns: kind; intake, partition, offset, id, key, target, due_ms of the message; arrived_ms; at (the place at the
    target) and beside (the place of the other arrival, or of the message that is ahead, or the `tarry-source` of an
    unexpected record); detail.

    Args:
        messages: judged messages.
        unmatched: the result of `told_apart` in `tarry.pipelines.audit.unmatched`.
        again: results of messages that an earlier run has settled.
    """
    kind = f.col("kind")
    at = f.concat_ws("/", "target", "target_partition", "target_offset")
    ahead = f.concat_ws("/", "intake", "partition", "ahead_offset")
    of_messages = messages.withColumn("kind", f.explode("faults")).select(
        "kind",
        *SOURCE_PLACE,
        "id",
        "key",
        "target",
        "due_ms",
        "arrived_ms",
        f.when(f.col("arrivals") > 0, at).alias("at"),
        f.when(kind == "duplicate", f.col("again")).when(kind == "order", ahead).alias("beside"),
        f.when(kind == "lost", f.col("reason"))
        .when((kind == "duplicate") & f.col("again").isNull(), "another message with this id was delivered")
        .when(kind == "unexpected", "it is dead")
        .when(kind == "late", f.concat(f.col("lateness_ms").cast("string"), f.lit(" ms")))
        .when(kind == "settled-twice", f.concat(f.col("results").cast("string"), f.lit(" results")))
        .alias("detail"),
    )
    faulty = unmatched.where(kind.isin(*FAULTS))
    damaged = unmatched.where("is_damaged").withColumns({"kind": f.lit("damaged"), "detail": f.lit("a further copy")})
    of_unmatched = faulty.unionByName(damaged).select(
        "kind",
        *SOURCE_PLACE,
        "id",
        "key",
        "target",
        f.col("told_due_ms").alias("due_ms"),
        "arrived_ms",
        at.alias("at"),
        f.when(f.col("kind") == "unexpected", f.substring("named", 1, _LONGEST_SHOWN)).alias("beside"),
        "detail",
    )
    of_results = again.select(
        f.lit("settled-twice").alias("kind"),
        *SOURCE_PLACE,
        "id",
        f.lit(None).cast("binary").alias("key"),
        "target",
        "due_ms",
        *[f.lit(None).cast(kind).alias(name) for name, kind in (("arrived_ms", "long"), ("at", "string"))],
        f.lit(None).cast("string").alias("beside"),
        f.lit("an earlier run had settled it").alias("detail"),
    )
    return of_messages.unionByName(of_unmatched).unionByName(of_results)


def lateness_by_minute(messages: DataFrame) -> DataFrame:
    """The lateness of messages: intake, target, minute_ms (of the due time), count, p50_ms, p90_ms, p99_ms, max_ms."""
    minute = (f.floor(f.col("due_ms") / _MINUTE_MS) * _MINUTE_MS).cast("long").alias("minute_ms")
    return _late(messages).groupBy("intake", "target", minute).agg(*_percentiles())


def lateness_by_target(messages: DataFrame) -> DataFrame:
    """The lateness of messages: intake, target, count, p50_ms, p90_ms, p99_ms, max_ms."""
    return _late(messages).groupBy("intake", "target").agg(*_percentiles()).orderBy("intake", "target")


def lateness_over_time(messages: DataFrame, bins: int = 120) -> DataFrame:
    """The lateness of messages by bins of due time: at_ms (the start of a bin), with its figures.

    Args:
        messages: judged messages.
        bins: the maximum number of bins.
    """
    late = _late(messages)
    span = late.agg(f.min("due_ms").alias("from_ms"), f.max("due_ms").alias("to_ms"))
    width = f.greatest(f.ceil((f.col("to_ms") - f.col("from_ms") + 1) / bins), f.lit(1))
    at = f.col("from_ms") + f.floor((f.col("due_ms") - f.col("from_ms")) / width) * width
    return (
        late.crossJoin(f.broadcast(span)).groupBy(at.cast("long").alias("at_ms")).agg(*_percentiles()).orderBy("at_ms")
    )


def histogram(messages: DataFrame) -> dict[int, int]:
    """The number of messages in each range of lateness: range 0 is below `EDGES_MS[0]`, and so on."""
    bar = f.size(f.filter(f.array(*map(f.lit, EDGES_MS)), lambda edge: edge <= f.col("lateness_ms")))
    return {row.bar: row["count"] for row in _late(messages).groupBy(bar.alias("bar")).count().collect()}


@dataclass(frozen=True, slots=True)
class Beside:
    """Counts besides those of the messages.

    Args:
        unmatched: records at targets that belong to no judged message, by kind.
        damaged: how many of them differ from the message that was sent.
        again: results of messages that an earlier run has settled.
        records: the number of records at the targets, counted before they were processed.
    """

    unmatched: Mapping[str, int]
    damaged: int
    again: int
    records: int


def beside(unmatched: DataFrame, again: DataFrame, records: int) -> Beside:
    """Make the counts besides those of the messages.

    Args:
        unmatched: the result of `told_apart` in `tarry.pipelines.audit.unmatched`.
        again: results of messages that an earlier run has settled.
        records: the number of records at the targets.
    """
    rows = unmatched.groupBy("kind").agg(f.count("*").alias("n"), f.count_if("is_damaged").alias("damaged")).collect()
    return Beside({row.kind: row.n for row in rows}, sum(row.damaged for row in rows), again.count(), records)


def summarise_run(
    messages: DataFrame, there: Beside, *, horizon_ms: int, carried: int, unread: int, is_late_judged: bool = False
) -> Summary:
    """Make the figures of a run.

    Args:
        messages: judged messages.
        there: the counts besides those of the messages.
        horizon_ms: the horizon of the rules.
        carried: the number of messages from earlier runs.
        unread: the number of offsets that were deleted before a run read them.
        is_late_judged: whether there is a limit for lateness.
    """
    fates = messages.groupBy("fate", "reason").count().collect()
    faults = {
        row.kind: row["count"]
        for row in messages.select(f.explode("faults").alias("kind")).groupBy("kind").count().collect()
    }
    order = {row.order: row["count"] for row in messages.where("order is not null").groupBy("order").count().collect()}
    (late,) = _late(messages).agg(*_percentiles()).collect()
    faults["damaged"] = faults.get("damaged", 0) + there.damaged
    faults["settled-twice"] = faults.get("settled-twice", 0) + there.again
    kinds = [kind for kind in FAULTS if kind != "late" or is_late_judged]
    by_fate: dict[str, int] = {}
    for row in fates:
        by_fate[row.fate] = by_fate.get(row.fate, 0) + row["count"]
    return Summary(
        horizon_ms=horizon_ms,
        accepted=sum(by_fate.values()),
        carried=carried,
        fates=by_fate,
        faults={kind: faults.get(kind, 0) + there.unmatched.get(kind, 0) for kind in kinds},
        records=there.records,
        accounted=_accounted(messages, there.unmatched),
        dead={str(row.reason): row["count"] for row in fates if row.fate == "dead"},
        unjudged={row.reason: row["count"] for row in fates if row.fate == "unjudged"},
        order={name: order.get(name, 0) for name in ("judged", "unjudged")},
        unread=unread,
        lateness=_plain(late.asDict()),
    )


def _accounted(messages: DataFrame, unmatched: Mapping[str, int]) -> dict[str, int]:
    """The number of records at targets by kind: first records from the messages, all others from the records."""
    found = Counter(unmatched)
    further = f.sum(f.col("arrivals") - 1).alias("further")
    rows = messages.where("arrivals > 0").groupBy("record").agg(f.count("*").alias("first"), further).collect()
    for row in rows:
        found[row.record] += row.first
        found[CARRIED if row.record == CARRIED else "duplicate"] += row.further
    kinds = [
        MATCHED,
        CARRIED,
        *(kind for kind in FAULTS if kind != "lost"),
        *(kind for kind in NO_FAULTS if kind not in {MATCHED, CARRIED}),
    ]
    return {kind: found[kind] for kind in kinds} | {kind: n for kind, n in found.items() if kind not in kinds}


def _late(messages: DataFrame) -> DataFrame:
    return messages.where((f.col("fate") == "delivered") & f.col("lateness_ms").isNotNull())


def _percentiles() -> list[Column]:
    late = f.col("lateness_ms")
    return [
        f.count("*").alias("count"),
        *[f.percentile_approx(late, part / 100, _ACCURACY).alias(f"p{part}_ms") for part in (50, 90, 99)],
        f.max(late).alias("max_ms"),
    ]


def _plain(row: dict[str, Any]) -> dict[str, int | None]:
    return {name: None if value is None else int(value) for name, value in row.items()}
