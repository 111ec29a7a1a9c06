"""One batch of a change log: read it, validate it against the target's tables, apply it, and report it."""

import gc
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import Final, Protocol
from uuid import uuid4

from pyspark import StorageLevel
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as f

from tarry.errors import UsageError
from tarry.kafka.types import Place
from tarry.pipelines.apply import changes
from tarry.pipelines.apply.changes import PLACE, TABLE, Table
from tarry.pipelines.unknown_column import OnUnknownColumn
from tarry.units import shown

_SHOWN_DEFINITIONS: Final = 3
_SHOWN_COLUMNS: Final = 10


@dataclass(frozen=True, slots=True)
class BatchOrigin:
    """The origin of a batch.

    Attributes:
        stream: the id of the stream, which stays the same as long as its checkpoint exists.
        number: the number of the stream's batch.
        ends: the offset after the last record of each partition.
        rejected: the places of the rejected records that this batch applies again; None: a regular batch.
    """

    stream: str
    number: int
    ends: Mapping[Place, int]
    rejected: DataFrame | None


@dataclass(frozen=True, slots=True)
class ChangeBatch:
    """A batch for a target.

    Attributes:
        source: the origin of the batch.
        judged: the changes, validated by `changes.validate_changes` and the target.
        steps: all steps of the changes.
        newest: the steps that have an effect on the final rows.
        rejected: the number of rejected changes, by reason.
        ids: the first place of each id, with `is_known`; None: no record has an id.
        bound: called with the rejected counts by reason before they are stored; raises if they exceed the limit.
    """

    source: BatchOrigin
    judged: DataFrame
    steps: DataFrame
    newest: DataFrame
    rejected: Mapping[str, int]
    ids: DataFrame | None
    bound: Callable[[Mapping[str, int]], None]


@dataclass(slots=True)
class BatchOutcome:
    """The counts of a target: rows by action, and rejected records by reason."""

    rows: Counter[str] = field(default_factory=Counter)
    rejected: Counter[str] = field(default_factory=Counter)


@dataclass(slots=True)
class Total:
    """The totals of a run: batches, records, rows by action, rejected records by reason, ignored values by column."""

    batches: int = 0
    records: int = 0
    rows: Counter[str] = field(default_factory=Counter)
    rejected: Counter[str] = field(default_factory=Counter)
    unknown: Counter[str] = field(default_factory=Counter)

    def summary(self) -> dict[str, int | dict[str, int]]:
        """The totals as plain types."""
        return {
            "batches": self.batches,
            "records": self.records,
            "rows": dict(self.rows),
            "rejected": dict(self.rejected),
            "unknown": dict(self.unknown),
        }

    def add(self, records: int, outcome: BatchOutcome, unknown: Counter[str]) -> None:
        """Add the counts of a batch."""
        self.unknown += unknown
        self.batches += 1
        self.records += records
        self.rows += outcome.rows
        self.rejected += outcome.rejected


class ChangeTarget(Protocol):
    """The target of changes. Only the stream's thread calls it."""

    def next_offsets(self) -> Mapping[Place, int]:
        """The first offset of each partition that is not applied yet; empty if the target does not store offsets."""
        ...

    def find(self, spark: SparkSession, names: Sequence[tuple[str, str]]) -> list[Table]:
        """The tables among these (database, table) names that the target has."""
        ...

    def add_column(self, table: tuple[str, str], column: str) -> None:
        """Add a text column to a table (database, table), unless it has a column with that name."""
        ...

    def rejects(self, spark: SparkSession) -> DataFrame:
        """The rejected records: topic, partition, offset and `timestamp`."""
        ...

    def known(self, ids: DataFrame) -> DataFrame:
        """The recorded ids among these, each with its place."""
        ...

    def check(self, judged: DataFrame) -> DataFrame:
        """Reject the changes whose values the target cannot hold, as far as this is known before the commit."""
        ...

    def commit(self, batch: ChangeBatch) -> BatchOutcome:
        """Apply a batch. A repeated batch changes nothing."""
        ...


@dataclass(frozen=True, slots=True)
class ApplyRules:
    """Which changes a run applies.

    Attributes:
        tables: globs over `database.table`; changes of other tables are left out.
        on_unknown_column: what to do if a change has a column that its table lacks.
        max_rejects: the run ends if it rejects more records; the batch that exceeds the limit is not applied.
    """

    tables: Sequence[str] = ("*",)
    on_unknown_column: OnUnknownColumn = OnUnknownColumn.FAIL
    max_rejects: int | None = None


class Batches:
    """Applies batches of records, one after the other.

    Args:
        target: the target of the changes.
        rules: which changes are applied.
        on_progress: called with one line for each batch.
    """

    def __init__(self, target: ChangeTarget, rules: ApplyRules, on_progress: Callable[[str], None]) -> None:
        self._target = target
        self._rules = rules
        self._on_progress = on_progress
        self.total = Total()
        """The totals so far."""
        self.error: BaseException | None = None
        """The error that ended the stream, if this object raised it. Spark itself keeps only its text."""

    def __call__(self, records: DataFrame, number: int) -> None:
        """Apply the records of a stream's batch; the callback for Spark's `foreachBatch`."""
        try:
            self._apply(records, number)
        except BaseException as error:
            self.error = error
            raise
        finally:
            # Py4J's references to Java objects are in cycles, so only Python's garbage collector releases them. It does
            # not see the Java heap, and may first run after dozens of batches: Java would keep all their plans.
            gc.collect()

    def again(self, records: DataFrame, rejected: DataFrame) -> None:
        """Apply rejected records again, with all other changes of the same rows, as one batch.

        Args:
            records: the log, from the first rejected record on.
            rejected: the places of the rejected records.
        """
        with self._judged(records) as (found, ids, judged):
            picked = changes.of_same_rows(judged, rejected)
            # Rejects of tables that another run applies stay in the rejects.
            applied = picked.join(f.broadcast(rejected), list(PLACE), "left_semi").where("kind <> 'other'")
            self._commit(BatchOrigin(f"again {uuid4()}", 0, {}, applied.select(*PLACE)), found, ids, picked)

    def _apply(self, records: DataFrame, number: int) -> None:
        fresh = records
        for (topic, partition), offset in self._target.next_offsets().items():
            is_done = (f.col("topic") == topic) & (f.col("partition") == partition) & (f.col("offset") < offset)
            fresh = fresh.where(~is_done)
        stream = str(records.sparkSession.sparkContext.getLocalProperty("sql.streaming.queryId"))
        with self._judged(fresh) as (found, ids, judged):
            if found:
                self._commit(BatchOrigin(stream, number, _ends(found), None), found, ids, judged)

    @contextmanager
    def _judged(self, records: DataFrame) -> Iterator[tuple[list[Row], DataFrame | None, DataFrame]]:
        """Yield the counts by partition, table and kind; the first place of each id; and the validated changes."""
        read = changes.read_changes(records).persist(StorageLevel.MEMORY_AND_DISK)
        try:
            found = _summary(read)
            ids = self._ids(read) if any(row["ids"] for row in found) else None
            kept = read if ids is None else changes.without_doubles(read, ids)
            yield found, ids, self._by_the_target(kept, found) if found else read
        finally:
            read.unpersist()

    def _by_the_target(self, kept: DataFrame, found: Sequence[Row]) -> DataFrame:
        judged = self._validated(kept, found)
        on_unknown = self._rules.on_unknown_column
        if on_unknown is OnUnknownColumn.IGNORE:
            return judged
        unknown = changes.unknown_columns(judged).collect()
        if unknown and on_unknown is OnUnknownColumn.ADD:
            for row in unknown:
                self._target.add_column((row["database"], row["table"]), row["column"])
                self._on_progress(f"apply: added the text column {shown(_dotted(row))}")
            judged = self._validated(kept, found)
            unknown = changes.unknown_columns(judged).collect()
        if unknown:
            named = ", ".join(sorted(shown(_dotted(row)) for row in unknown)[:_SHOWN_COLUMNS])
            raise UsageError(
                f"the log has columns that the target lacks: {named}; no change of this batch is applied: add the"
                " columns, or use --on-unknown-column ignore or add"
            )
        return judged

    def _validated(self, kept: DataFrame, found: Sequence[Row]) -> DataFrame:
        spark = kept.sparkSession
        # Checkpointed, not only persisted: otherwise Spark would plan all earlier steps again for each later query.
        return self._target.check(changes.validate_changes(kept, self._tables(spark, found), spark)).localCheckpoint()

    def _commit(self, source: BatchOrigin, found: Sequence[Row], ids: DataFrame | None, judged: DataFrame) -> None:
        unknown: Counter[str] = Counter()
        if self._rules.on_unknown_column is OnUnknownColumn.IGNORE:  # else there are none
            unknown.update({_dotted(row): row["n"] for row in changes.unknown_columns(judged).collect()})
        counted = judged.groupBy("kind", "type", "reason").agg(f.count("*").alias("n")).collect()
        rejected: Counter[str] = Counter()
        for row in counted:
            if row["kind"] == "rejected":
                rejected[row["reason"]] += row["n"]
        steps = changes.steps(judged)
        self._bound(rejected)
        outcome = self._target.commit(
            ChangeBatch(source, judged, steps, changes.newest(steps), rejected, ids, self._bound)
        )
        records = sum(row["n"] for row in (found if source.rejected is None else counted))
        self.total.add(records, outcome, unknown)
        self._tell(source.number, records, counted, unknown, outcome)
        self._tell_definitions(judged, counted)

    def _bound(self, rejected: Mapping[str, int]) -> None:
        """End the run if it rejects too many records.

        Raises:
            UsageError: there are more rejects than `max_rejects`.
        """
        most, count = self._rules.max_rejects, sum(rejected.values()) + sum(self.total.rejected.values())
        if most is not None and count > most:
            why = ", ".join(f"{n:,} {reason}" for reason, n in sorted(rejected.items()))
            raise UsageError(
                f"{count:,} records are rejected, more than --max-rejects {most:,}; this batch ({why}) is not applied"
            )

    def _ids(self, read: DataFrame) -> DataFrame:
        ids = read.where("id is not null").select("id", *PLACE)
        return changes.first_of(ids, self._target.known(ids)).localCheckpoint()

    def _tables(self, spark: SparkSession, found: Sequence[Row]) -> list[Table]:
        names = sorted({(row["database"], row["table"]) for row in found if row["kind"] in {"upsert", "delete"}})
        wanted = [name for name in names if any(fnmatchcase(".".join(name), glob) for glob in self._rules.tables)]
        held = {(table.database, table.table): table for table in self._target.find(spark, wanted)}
        return [held.get(name, Table(*name, name in wanted, None, None)) for name in names]

    def _tell(
        self, number: int, records: int, counted: Sequence[Row], unknown: Mapping[str, int], outcome: BatchOutcome
    ) -> None:
        kinds: Counter[str] = Counter()
        for row in counted:
            kinds[row["kind"]] += row["n"]
        parts = [f"{records:,} records"]
        types = {row["type"]: row["n"] for row in counted if row["kind"] in {"upsert", "delete"}}
        parts += [f"{count:,} {name}" for name, count in sorted(types.items())]
        parts.append(
            "rows: " + (", ".join(f"{count:,} {name}" for name, count in outcome.rows.items() if count) or "0")
        )
        parts += [f"rejected: {count:,} {reason}" for reason, count in sorted(outcome.rejected.items())]
        names = {"mark": "bootstrap marks", "definition": "DDL", "tombstone": "tombstones", "other": "of other tables"}
        parts += [f"{kinds[kind]:,} {name}" for kind, name in names.items() if kinds[kind]]
        doubles = records - sum(kinds.values())
        parts += [f"{doubles:,} duplicates"] if doubles else []
        parts += [f"ignored: {count:,} values of {shown(name)}" for name, count in sorted(unknown.items())]
        self._on_progress(f"apply: batch {number}: {'; '.join(parts)}")

    def _tell_definitions(self, judged: DataFrame, counted: Sequence[Row]) -> None:
        if not any(row["kind"] == "definition" for row in counted):
            return
        for row in judged.where("kind = 'definition'").orderBy(*PLACE).limit(_SHOWN_DEFINITIONS).collect():
            named = ".".join(row[name] for name in TABLE if row[name])
            self._on_progress(f"apply: not applied: {shown(row['type'])} {shown(named)}: {shown(row['sql'] or '')}")


def _dotted(row: Row) -> str:
    return f"{row['database']}.{row['table']}.{row['column']}"


def _summary(read: DataFrame) -> list[Row]:
    return (
        read.groupBy("topic", "partition", *TABLE, "kind")
        .agg(f.count("*").alias("n"), f.count("id").alias("ids"), (f.max("offset") + 1).alias("end"))
        .collect()
    )


def _ends(found: Sequence[Row]) -> dict[Place, int]:
    ends: dict[Place, int] = {}
    for row in found:
        place = (row["topic"], row["partition"])
        ends[place] = max(row["end"], ends.get(place, 0))
    return ends
