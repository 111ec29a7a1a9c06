"""Convert records of a change log to changes, and changes to steps: pure functions on tables.

A change log has the format in which Maxwell writes MySQL's binlog: a JSON object for each changed row, with `database`,
`table`, `type`, `data` (the whole row) and, for an update, `old` (the former values of the changed columns).

From table to table: records (`tarry.pipelines.topics`) → `read` → changes → `validate_changes`, which compares them
with the target's tables → `steps`, each of which upserts or deletes one row → `newest`, the steps that decide the final
rows of a batch.
"""

from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

from pyspark.sql import Column, DataFrame, SparkSession, Window
from pyspark.sql import functions as f

from tarry.headers import ID
from tarry.pipelines.columns import text_header

UPSERTS: Final = ("insert", "update", "bootstrap-insert")
DELETE: Final = "delete"
MARKS: Final = ("bootstrap-start", "bootstrap-complete")
DEFINITIONS: Final = (
    "table-create",
    "table-alter",
    "table-drop",
    "database-create",
    "database-alter",
    "database-drop",
)

PLACE: Final = ("topic", "partition", "offset")
TABLE: Final = ("database", "table")

ZERO_DATE: Final = r"^0000-00-00( 00:00:00([.]0+)?)?$"
"""MySQL's zero date, with or without a time: a pattern for PostgreSQL and Spark."""

_UUID: Final = r"\A[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}\z"
_LONGEST_DETAIL: Final = 500


class Table(NamedTuple):
    """A table that changes refer to.

    Attributes:
        database: the name of the database in the log.
        table: the name of the table in the log.
        is_wanted: whether the run applies the table's changes.
        key: the columns of the primary key, in order; None: the target has no such table.
        columns: the columns that a change may set.
        computed: the columns that the target computes; their values in changes are ignored.
    """

    database: str
    table: str
    is_wanted: bool
    key: list[str] | None
    columns: list[str] | None
    computed: Sequence[str] = ()


def read_changes(records: DataFrame) -> DataFrame:
    """Parse records into changes, one for each record.

    Columns: those of a table of records, except its headers; `id`, a UUID in lower case or null; `database`, `table`,
    `type`, `sql` (text, as in the record), `data` and `old` (maps of text, null if there is no object), `text` (the
    value), `kind`, and, for the kind `rejected`, `reason` and `detail`.

    Kinds: `upsert`, `delete`; `mark` and `definition`, which change no row; `tombstone` (no value); `rejected`.
    """
    text = f.try_validate_utf8(f.col("value").cast("string"))
    given = text_header(ID)
    parsed = records.select(
        *PLACE,
        "timestamp",
        "key",
        "value",
        f.when(given.rlike(_UUID), f.lower(given)).alias("id"),
        text.alias("text"),
        # A variant keeps decimals of up to 38 digits exactly, and refuses a repeated name.
        # Text after the object is allowed, except NUL, which PostgreSQL's text cannot hold.
        f.when(~f.contains(text, f.lit("\0")), f.try_parse_json(text)).alias("read"),
    )
    fields = parsed.select(
        *parsed.drop("read").columns,
        f.col("read").isNotNull().alias("is_json"),
        *[f.try_variant_get("read", f"$.{name}", "string").alias(name) for name in (*TABLE, "type", "sql")],
        *[f.try_variant_get("read", f"$.{name}", "map<string,string>").alias(name) for name in ("data", "old")],
    )
    kind = f.col("type")
    has_row = f.col("database").isNotNull() & f.col("table").isNotNull() & f.col("data").isNotNull()
    fault = (
        f.when(~f.col("is_json"), "not JSON, or a repeated name in an object")
        .when(kind.isNull(), "no type")
        .when(kind.isin(*MARKS, *DEFINITIONS), f.lit(None))
        .when(~kind.isin(*UPSERTS, DELETE), f.concat(f.lit("unknown type: "), kind))
        .when(~has_row, "no database, no table, or no object as data")
    )
    is_bad = f.col("value").isNotNull() & fault.isNotNull()
    return fields.select(
        *[name for name in fields.columns if name != "is_json"],
        f.when(f.col("value").isNull(), "tombstone")
        .when(is_bad, "rejected")
        .when(kind.isin(*UPSERTS), "upsert")
        .when(kind == DELETE, "delete")
        .when(kind.isin(*MARKS), "mark")
        .otherwise("definition")
        .alias("kind"),
        f.when(is_bad, "bad-record").alias("reason"),
        f.when(is_bad, f.substring(fault, 1, _LONGEST_DETAIL)).alias("detail"),
    )


def first_of(ids: DataFrame, known: DataFrame) -> DataFrame:
    """The first place of each id.

    Args:
        ids: `id` and the place of records; null ids are left out.
        known: `id` and place of the ids that earlier batches have recorded, each once.

    Returns:
        `id`, its first place, and `is_known`. The place stays the same if a batch is repeated.
    """
    first = ids.where("id is not null").groupBy("id").agg(f.min(f.struct(*PLACE)).alias("first"))
    before = known.select("id", f.struct(*PLACE).alias("before"))
    place = f.coalesce("before", "first")
    return first.join(before, "id", "left").select(
        "id", *[place[name].alias(name) for name in PLACE], f.col("before").isNotNull().alias("is_known")
    )


def without_doubles(changes: DataFrame, first: DataFrame) -> DataFrame:
    """The changes, except those whose id came first at another place, according to `first_of`."""
    there = first.select("id", f.struct(*PLACE).alias("first"))
    return (
        changes.join(there, "id", "left")
        .where(f.col("first").isNull() | (f.col("first") == f.struct(*PLACE)))
        .select(*changes.columns)
    )


def validate_changes(changes: DataFrame, tables: Iterable[Table], spark: SparkSession) -> DataFrame:
    """Validate changes against their tables.

    Args:
        changes: the result of `read`.
        tables: all tables that the changes name.
        spark: the session.

    Returns:
        The same columns, and: `row_key` and `old_key` (the former key, for an update that changed it), as text;
        `key_columns`; `present`, the table's columns that the change has; `is_whole`, whether it has all of them; and
        `unknown`, the names in the change that the table lacks. The kind is `other` if the table is not wanted.
    """
    known = spark.createDataFrame(
        [table._replace(computed=list(table.computed)) for table in tables],
        "database string, table string, is_wanted boolean, key_columns array<string>, has array<string>, "
        "computed array<string>",
    )
    joined = (
        changes.join(f.broadcast(known), list(TABLE), "left")
        .withColumn("row_key", f.transform("key_columns", lambda name: f.try_element_at("data", name)))
        .withColumn(
            "old_key",
            f.transform(
                "key_columns",
                lambda name: f.when(
                    f.map_contains_key(f.coalesce("old", f.create_map().cast("map<string,string>")), name),
                    f.try_element_at("old", name),
                ).otherwise(f.try_element_at("data", name)),
            ),
        )
        .withColumn("present", f.array_intersect("has", f.map_keys("data")))
    )
    is_row = f.col("kind").isin("upsert", "delete")
    is_other = is_row & ~f.coalesce("is_wanted", f.lit(False))
    reason = (
        f.when(f.col("key_columns").isNull(), "unknown-table")
        .when(f.exists("row_key", lambda value: value.isNull()), "no-key")
        .when(f.exists("old_key", lambda value: value.isNull()), "no-key")
    )
    is_bad = is_row & ~is_other & reason.isNotNull()
    has_moved = (f.col("type") == "update") & (f.col("old_key") != f.col("row_key"))
    return joined.select(
        *[name for name in changes.columns if name not in {"kind", "reason", "detail"}],
        f.when(is_other, "other").when(is_bad, "rejected").otherwise(f.col("kind")).alias("kind"),
        f.when(is_bad, reason).otherwise(f.col("reason")).alias("reason"),
        f.when(is_bad, f.concat_ws(".", *TABLE)).otherwise(f.col("detail")).alias("detail"),
        "row_key",
        f.when(has_moved, f.col("old_key")).alias("old_key"),
        "key_columns",
        "present",
        (f.size("present") == f.size("has")).alias("is_whole"),
        f.array_except(f.map_keys("data"), f.concat("has", "computed")).alias("unknown"),
    )


def unknown_columns(judged: DataFrame) -> DataFrame:
    """Columns in upserts that their tables lack: `database`, `table`, `column`, and `n`, the number of values."""
    columns = judged.where("kind = 'upsert'").select(*TABLE, f.explode("unknown").alias("column"))
    return columns.groupBy(*TABLE, "column").agg(f.count("*").alias("n"))


def reject(judged: DataFrame, reason: str, detail: Column) -> DataFrame:
    """Reject the validated changes that have a `detail`."""
    is_bad = f.col("kind").isin("upsert", "delete") & detail.isNotNull()
    return judged.withColumns(
        {
            "kind": f.when(is_bad, "rejected").otherwise(f.col("kind")),
            "reason": f.when(is_bad, reason).otherwise(f.col("reason")),
            "detail": f.when(is_bad, detail).otherwise(f.col("detail")),
        }
    )


def of_same_rows(judged: DataFrame, places: DataFrame) -> DataFrame:
    """The validated changes at some places, and all other changes of the same rows, also under former or later keys."""
    at = judged.join(f.broadcast(places.select(*PLACE).distinct()), list(PLACE), "left_semi").localCheckpoint()
    rows, known = _rows(at), 0
    while (count := rows.count()) > known:
        known = count
        rows = _rows(judged.join(_touching(judged, rows), list(PLACE), "left_semi")).union(rows).distinct()
        rows = rows.localCheckpoint()
    touching = _touching(judged, rows).union(at.select(*PLACE)).distinct()
    return judged.join(touching, list(PLACE), "left_semi").localCheckpoint()


def _rows(judged: DataFrame) -> DataFrame:
    """The rows that changes touch: `database`, `table`, `row_key`."""
    keys = judged.select(*TABLE, f.explode(f.array("row_key", "old_key")).alias("row_key"))
    return keys.where("row_key is not null").distinct()


def _touching(judged: DataFrame, rows: DataFrame) -> DataFrame:
    """The places of changes that touch rows."""
    keys = judged.select(*PLACE, *TABLE, f.explode(f.array("row_key", "old_key")).alias("row_key"))
    return keys.join(rows, [*TABLE, "row_key"], "left_semi").select(*PLACE).distinct()


def steps(judged: DataFrame) -> DataFrame:
    """Convert changes to steps, each for one row: an update that changed the key deletes a row and upserts another.

    Columns: the place, `step` (0 or 1 within a change), `database`, `table`, `row_key`, `is_delete`, `present`,
    `is_whole`, `data` (for a delete: the key's columns), and `text`: a JSON object that contains `data`.
    """
    rows = judged.where(f.col("kind").isin("upsert", "delete"))
    is_delete = f.col("kind") == "delete"

    def gone(key: str) -> list[Column]:
        # A delete uses only the key: other values of the row may not fit their columns.
        data = f.map_from_arrays("key_columns", key)
        return [f.col("key_columns").alias("present"), data.alias("data"), f.to_json(f.struct(data.alias("data")))]

    present, data, text = gone("old_key")
    moved = rows.where("old_key is not null").select(
        *PLACE,
        f.lit(0).alias("step"),
        *TABLE,
        f.col("old_key").alias("row_key"),
        f.lit(True).alias("is_delete"),
        present,
        f.lit(False).alias("is_whole"),
        data,
        text.alias("text"),
    )
    present, data, text = gone("row_key")
    return moved.unionByName(
        rows.select(
            *PLACE,
            f.lit(1).alias("step"),
            *TABLE,
            "row_key",
            is_delete.alias("is_delete"),
            f.when(is_delete, present).otherwise(f.col("present")).alias("present"),
            "is_whole",
            f.when(is_delete, data).otherwise(f.col("data")).alias("data"),
            f.when(is_delete, text).otherwise(f.col("text")).alias("text"),
        )
    )


def newest(steps: DataFrame) -> DataFrame:
    """The steps that give each row the same final value as all steps in turn, each with its `round`.

    A delete or an upsert of all columns makes all earlier steps of its row irrelevant. Of upserts with the same columns
    only the last counts. So one step for each row is left, except if upserts lack some columns: these steps are applied
    in rounds, one after the other.
    """
    at = f.struct(*PLACE, "step")
    row = Window.partitionBy(*TABLE, "row_key")
    alike = Window.partitionBy(*TABLE, "row_key", "is_delete", "present").orderBy(at.desc())
    fresh = f.max(f.when(f.col("is_delete") | f.col("is_whole"), at)).over(row)
    return (
        steps.withColumn("fresh", fresh)
        .where(f.col("fresh").isNull() | (at >= f.col("fresh")))
        .withColumn("turn", f.row_number().over(alike))
        .where("turn = 1")
        .withColumn("round", f.row_number().over(row.orderBy(at)))
        .drop("fresh", "turn")
    )


def rejected_records(judged: DataFrame) -> DataFrame:
    """The rejected records, unchanged: place, `timestamp`, `key`, `value`, `reason`, `detail`."""
    return judged.where("kind = 'rejected'").select(*PLACE, "timestamp", "key", "value", "reason", "detail")
