"""One batch of a change log: read, judged by what the target holds, handed to it, and told of."""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import Final, Protocol

from pyspark import StorageLevel
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as f

from tarry.kafka.place import Place
from tarry.pipelines.apply import changes
from tarry.pipelines.apply.changes import PLACE, TABLE, Table
from tarry.units import shown

_SHOWN_DEFINITIONS: Final = 3


@dataclass(frozen=True, slots=True)
class Batch:
    """What a target is to do.

    Attributes:
        number: of the stream's batch.
        stream: the id of the stream, which lasts as long as its checkpoint.
        judged: the changes, as `changes.judge` and the target judged them.
        steps: all that they do.
        newest: what is left to do of them.
        rejected: how many of them are rejected, by reason.
        ids: where each id came first, with `is_known`; None: no record has an id.
        ends: the offset behind the last record of each partition.
    """

    number: int
    stream: str
    judged: DataFrame
    steps: DataFrame
    newest: DataFrame
    rejected: Mapping[str, int]
    ids: DataFrame | None
    ends: Mapping[Place, int]


@dataclass(slots=True)
class Outcome:
    """What a target did: rows by action, and rejected records by reason."""

    rows: Counter[str] = field(default_factory=Counter)
    rejected: Counter[str] = field(default_factory=Counter)


class Target(Protocol):
    """Where changes go. Only the stream's thread calls it."""

    def next_offsets(self) -> Mapping[Place, int]:
        """The first offset of each partition that is not applied yet, where the target knows."""
        ...

    def find(self, spark: SparkSession, names: Sequence[tuple[str, str]]) -> list[Table]:
        """The tables of (database, table) that the target holds."""
        ...

    def known(self, ids: DataFrame) -> DataFrame:
        """Those ids that are recorded, each with its place."""
        ...

    def check(self, judged: DataFrame) -> DataFrame:
        """Changes, of which those are rejected whose values the target can't hold, as far as it is known before."""
        ...

    def commit(self, batch: Batch) -> Outcome:
        """Apply a batch. A batch that is done again changes nothing."""
        ...


class Batches:
    """Applies a stream's batches, one after the other.

    Args:
        target: where they go.
        globs: which tables, as `database.table`.
        on_progress: told of each batch.
    """

    def __init__(self, target: Target, globs: Sequence[str], on_progress: Callable[[str], None]) -> None:
        self._target = target
        self._globs = globs
        self._on_progress = on_progress
        self.error: BaseException | None = None
        """What ended the stream, where it was raised here: Spark makes text of it."""

    def __call__(self, records: DataFrame, number: int) -> None:
        """Apply the records of a batch: for Spark's `foreachBatch`."""
        try:
            self._apply(records, number)
        except BaseException as error:
            self.error = error
            raise

    def _apply(self, records: DataFrame, number: int) -> None:
        spark = records.sparkSession
        fresh = records
        for (topic, partition), offset in self._target.next_offsets().items():
            is_done = (f.col("topic") == topic) & (f.col("partition") == partition) & (f.col("offset") < offset)
            fresh = fresh.where(~is_done)
        read = changes.read(fresh).persist(StorageLevel.MEMORY_AND_DISK)
        try:
            found = _summary(read)
            if not found:
                return
            stream = str(spark.sparkContext.getLocalProperty("sql.streaming.queryId"))
            ids = self._ids(read) if any(row["ids"] for row in found) else None
            kept = read if ids is None else changes.without_doubles(read, ids)
            # Checkpointed, not only persisted: what is made of it is planned many times over, from here on.
            judged = self._target.check(changes.judge(kept, self._tables(spark, found), spark)).localCheckpoint()
        finally:
            read.unpersist()
        kinds = judged.groupBy("kind", "type", "reason").agg(f.count("*").alias("n"), f.sum("unknown").alias("unknown"))
        counted = kinds.collect()
        rejected: Counter[str] = Counter()
        for row in counted:
            if row["kind"] == "rejected":
                rejected[row["reason"]] += row["n"]
        steps = changes.steps(judged)
        outcome = self._target.commit(
            Batch(number, stream, judged, steps, changes.newest(steps), rejected, ids, _ends(found))
        )
        self._tell(number, sum(row["n"] for row in found), counted, outcome)
        self._tell_definitions(judged, counted)

    def _ids(self, read: DataFrame) -> DataFrame:
        ids = read.where("id is not null").select("id", *PLACE)
        return changes.first_of(ids, self._target.known(ids)).localCheckpoint()

    def _tables(self, spark: SparkSession, found: Sequence[Row]) -> list[Table]:
        names = sorted({(row["database"], row["table"]) for row in found if row["kind"] in {"upsert", "delete"}})
        wanted = [name for name in names if any(fnmatchcase(".".join(name), glob) for glob in self._globs)]
        held = {(table.database, table.table): table for table in self._target.find(spark, wanted)}
        return [held.get(name, Table(*name, name in wanted, None, None)) for name in names]

    def _tell(self, number: int, records: int, counted: Sequence[Row], outcome: Outcome) -> None:
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
        unknown = sum(row["unknown"] or 0 for row in counted if row["kind"] in {"upsert", "delete"})
        parts += [f"{doubles:,} doubles"] if doubles else []
        parts += [f"{unknown:,} values of unknown columns"] if unknown else []
        self._on_progress(f"apply: batch {number}: {'; '.join(parts)}")

    def _tell_definitions(self, judged: DataFrame, counted: Sequence[Row]) -> None:
        if not any(row["kind"] == "definition" for row in counted):
            return
        for row in judged.where("kind = 'definition'").orderBy(*PLACE).limit(_SHOWN_DEFINITIONS).collect():
            named = ".".join(row[name] for name in TABLE if row[name])
            self._on_progress(f"apply: not applied: {shown(row['type'])} {shown(named)}: {shown(row['sql'] or '')}")


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
