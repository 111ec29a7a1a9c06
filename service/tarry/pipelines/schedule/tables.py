"""Tables of a lake or a database as DataFrames: Parquet, CSV, JSON lines, JDBC.

Every table has an additional column, `UNREADABLE`: the text of a line that could not be parsed. The other columns of
such a line are null or partly parsed. A malformed line is bad input data and does not end the job.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, Literal

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.types import StringType, StructField, StructType

from tarry.errors import UsageError

Format = Literal["parquet", "csv", "json", "jdbc"]

UNREADABLE: Final = "_unreadable"
"""The column with the text of a line that could not be parsed; null for all other lines."""

_BY_SUFFIX: Final[dict[str, Format]] = {
    ".parquet": "parquet",
    ".csv": "csv",
    ".json": "json",
    ".jsonl": "json",
    ".ndjson": "json",
}
_COMPRESSED: Final = (".gz", ".bz2", ".zst")
# RFC 4180: a header line, and doubled quotes. Files with different headers are an error; columns are not mixed up.
_CSV: Final = {"header": "true", "escape": '"', "enforceSchema": "false"}


@dataclass(frozen=True, slots=True)
class TableSource:
    """The location and format of a table.

    Args:
        path: a file, a directory or a glob on any file system that Spark supports, or a JDBC URL.
        format: the format; None: derived from the path.
        jdbc_table: for JDBC only: the table, or a query in parentheses followed by a name.
        schema: for CSV and JSON lines: the schema as Spark DDL; None: all columns of CSV are text, and Spark infers
            the types of JSON lines.
        options: more options of Spark's reader.
    """

    path: str
    format: Format | None = None
    jdbc_table: str | None = None
    schema: str | None = None
    options: Mapping[str, str] = field(default_factory=dict)

    def format_or_suffix(self) -> Format:
        """The given format, or the format that the path implies.

        Raises:
            UsageError: no format is given, and the path implies none.
        """
        if self.format is not None:
            return self.format
        if self.path.startswith("jdbc:"):
            return "jdbc"
        path = self.path.rstrip("/").lower()
        for compressed in _COMPRESSED:
            path = path.removesuffix(compressed)
        for suffix, form in _BY_SUFFIX.items():
            if path.endswith(suffix):
                return form
        raise UsageError(f"{self.path}: the format is unknown: give --format parquet, csv, json or jdbc")


def read_table(spark: SparkSession, table: TableSource) -> DataFrame:
    """A table, with the column `UNREADABLE`. Spark reads it each time it is used.

    Raises:
        UsageError: the options do not fit the table's format or content.
    """
    form = table.format_or_suffix()
    if (form == "jdbc") != (table.jdbc_table is not None):
        raise UsageError("a JDBC URL as --table needs --jdbc-table, and --jdbc-table needs a JDBC URL")
    if table.schema is not None and form not in {"csv", "json"}:
        raise UsageError(f"--schema is only for CSV and JSON lines; {form} has its own schema")
    if form in {"csv", "json"}:
        return _read_lines(spark, table, form)
    reader = spark.read.format(form)
    if form == "jdbc":
        # A time without a zone stays one. Otherwise Spark would interpret it in the zone of its Java process.
        reader = (
            reader.option("url", table.path).option("dbtable", table.jdbc_table).option("preferTimestampNTZ", "true")
        )
        if table.path.startswith("jdbc:postgresql:"):
            reader = reader.option("driver", "org.postgresql.Driver")
        rows = reader.options(**table.options).load()
    else:
        rows = reader.options(**table.options).load(table.path)
    return rows.withColumn(UNREADABLE, f.lit(None).cast("string"))


def _read_lines(spark: SparkSession, table: TableSource, form: Format) -> DataFrame:
    options = {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": UNREADABLE, **(_CSV if form == "csv" else {})}
    if form == "csv" and table.schema is not None:
        options["enforceSchema"] = "true"  # the schema names the columns, by position
    reader = spark.read.format(form).options(**(options | dict(table.options)))
    found = reader.load(table.path).schema if table.schema is None else StructType.fromDDL(table.schema)
    if not isinstance(found, StructType):
        raise UsageError(f"--schema: must be columns such as 'id long, at timestamp': {table.schema}")
    columns = [column for column in found.fields if column.name != UNREADABLE]
    if not columns:
        raise UsageError(f"{table.path}: no line can be parsed")
    return reader.schema(StructType([*columns, StructField(UNREADABLE, StringType())])).load(table.path)
