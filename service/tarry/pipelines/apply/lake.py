"""Apply changes to Delta tables: one merge for each table and batch, whose commit records the stream and the batch.

Delta has no transaction over several tables. After a kill the job repeats the batch, and the tables that already have
it skip it. The result depends only on the records and on the first place of each id, which is recorded before. So if
the log is read again from its start, without the checkpoint, the tables first go back to older values and then reach
the same final state.
"""

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from functools import reduce
from typing import Final

from delta.tables import DeltaTable
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.types import BinaryType, DataType, DateType, StructField, StructType, TimestampNTZType, TimestampType

from tarry.errors import UsageError
from tarry.kafka.types import Place
from tarry.pipelines.apply.batch import BatchOutcome, ChangeBatch
from tarry.pipelines.apply.changes import PLACE, TABLE, ZERO_DATE, Table, reject, rejected_records
from tarry.pipelines.apply.delta_values import can_hold, is_bad, is_scalar, value
from tarry.pipelines.files import Files

Name = tuple[str, str]

OWN: Final = "tarry_apply"
"""The directory of the tables `ids` and `rejects`."""

# The metadata in which Spark stores the length and the default of a column.
_TYPE: Final = "__CHAR_VARCHAR_TYPE_STRING"
_LENGTH: Final = re.compile(r"(?:var)?char\((\d+)\)")
_DEFAULT: Final = "CURRENT_DEFAULT"

# Allowed names of directories: names from a record must not lead out of the lake.
_PLAIN: Final = re.compile(r"[\w$-][\w$ -]*(\.[\w$ -]+)*")

_DATES: Final = (DateType, TimestampType, TimestampNTZType)

_IDS: Final = "job string, id string, topic string, partition int, offset long, seen_at timestamp"
_REJECTS: Final = (
    "job string, topic string, partition int, offset long, timestamp timestamp, key binary, value binary, "
    "reason string, detail string, rejected_at timestamp"
)
_SAME_RECORD: Final = " AND ".join(f"there.{name} = new.{name}" for name in ("job", *PLACE))


class Lake:
    """Delta tables at DATABASE/TABLE below a directory, as target.

    Args:
        spark: the session.
        lake: a directory on any file system that Spark supports.
        job: the job's name; it owns the ids and rejects.
        keys: the columns of each table's primary key, by `table` or `database.table`.
        ids_for_ms: how long to remember the ids of records.
        zero_dates_as_null: whether MySQL's `0000-00-00` becomes null in columns of dates or times.

    Raises:
        UsageError: a key fits none of the existing tables with its name.
    """

    def __init__(
        self,
        spark: SparkSession,
        lake: str,
        job: str,
        keys: Mapping[str, Sequence[str]],
        *,
        ids_for_ms: int = 604_800_000,
        zero_dates_as_null: bool = False,
    ) -> None:
        self._spark = spark
        self._zero_dates_as_null = zero_dates_as_null
        # Delta interprets a relative path as a table's name.
        self._lake = Files(spark).absolute(lake).rstrip("/")
        self._job = job
        self._keys = keys
        self._ids_for_ms = ids_for_ms
        self._shapes: dict[Name, StructType] = {}
        self._refuse_keys(Files(spark))
        for name, schema in (("ids", _IDS), ("rejects", _REJECTS)):
            DeltaTable.createIfNotExists(spark).location(self._own(name)).addColumns(_schema(spark, schema)).execute()

    def _refuse_keys(self, files: Files) -> None:
        """Refuse a key that fits none of its tables, before the log is read: the log may be long, or still empty.

        A key given by table name alone applies to all databases in the log. These are not known yet, so the key must
        fit at least one table with that name.
        """
        tables: dict[str, list[Name]] = {}
        for database in files.names(self._lake):
            for table in files.names(f"{self._lake}/{database}"):
                named = next((key for key in (f"{database}.{table}", table) if key in self._keys), None)
                if named is not None:
                    tables.setdefault(named, []).append((database, table))
        for names in tables.values():
            fitting, refusals = 0, []
            for name in names:
                try:
                    fitting += len(self.find(self._spark, [name]))
                except UsageError as refusal:
                    refusals.append(refusal)
            if refusals and not fitting:
                raise refusals[0]

    def next_offsets(self) -> Mapping[Place, int]:
        """An empty mapping: the position of the stream is in its checkpoint."""
        return {}

    def find(self, spark: SparkSession, names: Sequence[Name]) -> list[Table]:
        """The tables among these names that exist.

        Raises:
            UsageError: the key of a table is not given or is not one of its columns, or changes cannot be written to
                the type of a column.
        """
        self._shapes = {}
        found = []
        for name in names:
            is_plain = all(_PLAIN.fullmatch(part) for part in name) and name[0] != OWN
            if not is_plain or not DeltaTable.isDeltaTable(spark, self._path(name)):
                continue
            dotted = ".".join(name)
            key = self._key(name)
            if key is None:
                raise UsageError(f"the key of {dotted} is not known: give --key {dotted}=COLUMN[,COLUMN]")
            shape = spark.read.format("delta").load(self._path(name)).schema
            if missing := [column for column in key if column not in shape.names]:
                raise UsageError(f"--key {dotted}: the table has no column {missing[0]}")
            _refuse_types(dotted, shape, key)
            self._shapes[name] = shape
            found.append(Table(*name, True, list(key), shape.names))
        return found

    def add_column(self, table: Name, column: str) -> None:
        """Add a text column to a table, unless it has a column with that name."""
        if column not in self._shapes[table].names:
            path = self._path(table).replace("`", "``")
            self._spark.sql(f"ALTER TABLE delta.`{path}` ADD COLUMNS ({_of('', column)} string)")

    def rejects(self, spark: SparkSession) -> DataFrame:
        """The rejected records: topic, partition, offset and `timestamp`."""
        table = spark.read.format("delta").load(self._own("rejects"))
        return table.where(f.col("job") == self._job).select(*PLACE, "timestamp")

    def known(self, ids: DataFrame) -> DataFrame:
        """The recorded ids among these, each with its place."""
        table = ids.sparkSession.read.format("delta").load(self._own("ids"))
        return table.where(f.col("job") == self._job).join(ids.select("id").distinct(), "id", "left_semi")

    def check(self, judged: DataFrame) -> DataFrame:
        """Reject the changes with a value that its column cannot hold.

        The values of keys are normalised to the types of their columns, so `1` and `1.0` are one row if they are equal.
        """
        detail: Column = f.lit(None).cast("string")
        keys = {"row_key": f.col("row_key"), "old_key": f.col("old_key")}
        for name, shape in self._shapes.items():
            is_here = (f.col("database") == name[0]) & (f.col("table") == name[1])
            detail = f.when(is_here, f.coalesce(*[self._fault(field) for field in shape])).otherwise(detail)
            key = self._key(name) or ()
            for of, column in keys.items():
                parts = [_text(f.get(f.col(of), f.lit(i)), shape[part].dataType) for i, part in enumerate(key)]
                keys[of] = f.when(is_here & f.col(of).isNotNull(), f.array(*parts)).otherwise(column)
        checked = reject(judged, "bad-value", detail).withColumns(keys)
        no_key = f.exists("row_key", lambda value: value.isNull()) | f.exists("old_key", lambda value: value.isNull())
        return reject(checked, "bad-value", f.when(no_key, "a value of the key"))

    def commit(self, batch: ChangeBatch) -> BatchOutcome:
        """Apply a batch, table by table."""
        spark = batch.judged.sparkSession
        # 1. The ids: the result of a repeated batch depends on them.
        if batch.ids is not None:
            self._record(batch, batch.ids.where("not is_known"))
        # 2. The rows.
        newest = batch.newest.localCheckpoint()
        groups = newest.groupBy(*TABLE, "round", "is_delete").agg(f.count("*").alias("n")).collect()
        rows: Counter[str] = Counter()
        for row in groups:
            rows["deleted" if row["is_delete"] else "upserted"] += row["n"]
        for turn, *name in sorted({(row["round"], row["database"], row["table"]) for row in groups}):
            self._merge(spark, batch, newest, (name[0], name[1]), turn)
        # 3. The rejects.
        if batch.rejected:
            new = rejected_records(batch.judged).select(
                f.lit(self._job).alias("job"), "*", f.current_timestamp().alias("rejected_at")
            )
            self._note(spark, batch, "rejects")
            there = DeltaTable.forPath(spark, self._own("rejects")).alias("there")
            there.merge(new.alias("new"), _SAME_RECORD).whenMatchedUpdateAll().whenNotMatchedInsertAll().execute()
        # 4. Remove the retried rejects that are now applied. After a kill before this step, the next run retries them.
        if batch.source.rejected is not None:
            gone = batch.source.rejected.join(
                rejected_records(batch.judged).select(*PLACE), list(PLACE), "left_anti"
            ).select(f.lit(self._job).alias("job"), *PLACE)
            self._note(spark, batch, "rejects gone")
            there = DeltaTable.forPath(spark, self._own("rejects")).alias("there")
            there.merge(gone.alias("new"), _SAME_RECORD).whenMatchedDelete().execute()
        return BatchOutcome(rows, Counter(batch.rejected))

    def _key(self, name: Name) -> Sequence[str] | None:
        """The columns of a table's key: those given for the table, or for all tables with its name."""
        return self._keys.get(".".join(name), self._keys.get(name[1]))

    def _merge(self, spark: SparkSession, batch: ChangeBatch, newest: DataFrame, name: Name, turn: int) -> None:
        shape = self._shapes[name]
        key = self._key(name) or ()
        is_turn = (f.col("database") == name[0]) & (f.col("table") == name[1]) & (f.col("round") == turn)
        new = newest.where(is_turn).select(
            f.struct(*[value(self._given(field), field.dataType).alias(field.name) for field in shape]).alias("row"),
            "present",
            "is_delete",
        )
        same = reduce(
            lambda left, right: left & right, [f.col(_of("there", part)) == f.col(_of("new.row", part)) for part in key]
        )
        values: dict[str, str | Column] = {
            _of("", field.name): f.when(
                f.array_contains("new.present", f.lit(field.name)), f.col(_of("new.row", field.name))
            ).otherwise(_default(field))
            for field in shape
        }
        updated: dict[str, str | Column] = {
            _of("", column): f.when(
                f.array_contains("new.present", f.lit(column)), f.col(_of("new.row", column))
            ).otherwise(f.col(_of("there", column)))
            for column in shape.names
        }
        self._note(spark, batch, f"round {turn}")
        (
            DeltaTable.forPath(spark, self._path(name))
            .alias("there")
            .merge(new.alias("new"), same)
            .whenMatchedDelete("new.is_delete")
            .whenMatchedUpdate(set=updated)
            .whenNotMatchedInsert("NOT new.is_delete", values)
            .execute()
        )

    def _given(self, field: StructField) -> Column:
        text = f.try_element_at("data", f.lit(field.name))
        if self._zero_dates_as_null and isinstance(field.dataType, _DATES):
            return f.when(~text.rlike(ZERO_DATE), text)
        return text

    def _fault(self, field: StructField) -> Column:
        """The column's name if it cannot hold its value, or must not be null and has no value; otherwise null."""
        held, fault = value(self._given(field), field.dataType), is_bad(self._given(field), field.dataType)
        if length := _LENGTH.fullmatch(field.metadata.get(_TYPE, "")):
            # Otherwise the merge would fail and end the run; trailing spaces count too.
            fault = fault | (f.length(held) > int(length[1]))
        if not field.nullable:
            has_default = _DEFAULT in field.metadata
            given = f.when(_has(field.name), held).otherwise(_default(field)) if has_default else held
            fault = fault | given.isNull()
        # Of a deleted row only the key matters.
        return f.when(fault & (f.col("kind") == "upsert"), f.lit(field.name))

    def _record(self, batch: ChangeBatch, ids: DataFrame) -> None:
        spark = ids.sparkSession
        new = ids.select(f.lit(self._job).alias("job"), "id", *PLACE, f.current_timestamp().alias("seen_at"))
        self._note(spark, batch, "ids")
        there = DeltaTable.forPath(spark, self._own("ids"))
        is_old = f.col("there.seen_at") < f.timestamp_millis(f.unix_millis(f.current_timestamp()) - self._ids_for_ms)
        (
            there.alias("there")
            .merge(new.alias("new"), "there.job = new.job AND there.id = new.id")
            .whenNotMatchedInsertAll()
            .whenNotMatchedBySourceDelete((f.col("there.job") == self._job) & is_old)
            .execute()
        )

    def _note(self, spark: SparkSession, batch: ChangeBatch, what: str) -> None:
        """Tag the next commit of this session, so that Delta skips it if the table already has it."""
        spark.conf.set("spark.databricks.delta.write.txnAppId", f"tarry apply {batch.source.stream} {what}")
        spark.conf.set("spark.databricks.delta.write.txnVersion", str(batch.source.number))

    def _path(self, name: Name) -> str:
        return f"{self._lake}/{name[0]}/{name[1]}"

    def _own(self, name: str) -> str:
        return f"{self._lake}/{OWN}/{name}"


def _refuse_types(dotted: str, shape: StructType, key: Sequence[str]) -> None:
    for field in shape:
        of = field.metadata.get(_TYPE, field.dataType.simpleString())
        if field.name in key and not is_scalar(field.dataType):
            raise UsageError(f"--key {dotted}: the column {field.name} has the type {of}, which a key cannot have")
        # Only Delta can check lengths inside nested types: a value that is too long would end every run.
        has_lengths = not _LENGTH.fullmatch(kind := field.metadata.get(_TYPE, "")) and "char(" in kind
        if has_lengths or not can_hold(field.dataType):
            raise UsageError(
                f"{dotted}: changes cannot be written to the column {field.name} of the type {of}; exclude the table"
                " with --tables, or give the column another type"
            )


def _schema(spark: SparkSession, text: str) -> StructType:
    return spark.createDataFrame([], text).schema


def _text(text: Column, of: DataType) -> Column:
    """A key's value, in the text form of its type."""
    return text if isinstance(of, BinaryType) else value(text, of).cast("string")


def _has(name: str) -> Column:
    return f.coalesce(f.map_contains_key("data", f.lit(name)), f.lit(False))


def _default(field: StructField) -> Column:
    """The column's value in a new row if the record has none."""
    return f.expr(field.metadata.get(_DEFAULT, "NULL")).cast(field.dataType)


def _of(owner: str, name: str) -> str:
    quoted = f"`{name.replace('`', '``')}`"
    return f"{owner}.{quoted}" if owner else quoted
