"""Tables of a lake or a database as DataFrames: Parquet, CSV, JSON lines, JDBC.

Every table has one column more, `UNREADABLE`: the text of a line that could not be read, whose other columns are null
or half read. A line is data from outside: it does not end a job.
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
"""The column with the text of a line that could not be read; else null."""

_BY_SUFFIX: Final[dict[str, Format]] = {
    ".parquet": "parquet",
    ".csv": "csv",
    ".json": "json",
    ".jsonl": "json",
    ".ndjson": "json",
}
_COMPRESSED: Final = (".gz", ".bz2", ".zst")
# RFC 4180: a header, and a quote is doubled. Files whose headers differ are an error, not columns changed about.
_CSV: Final = {"header": "true", "escape": '"', "enforceSchema": "false"}


@dataclass(frozen=True, slots=True)
class Table:
    """Where a table is.

    Args:
        path: of a file or directory on any file system that Spark knows; a glob; or a JDBC URL.
        format: of it; None: by the path.
        jdbc_table: the table, or a query in parentheses with a name behind it; of JDBC only.
        schema: of CSV and JSON lines, as Spark's DDL has it; None: texts in CSV, and in JSON lines what is found.
        options: more options of Spark's reader.
    """

    path: str
    format: Format | None = None
    jdbc_table: str | None = None
    schema: str | None = None
    options: Mapping[str, str] = field(default_factory=dict)

    def format_or_suffix(self) -> Format:
        """Its format.

        Raises:
            UsageError: it is not given, and the path does not say.
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
        raise UsageError(f"{self.path}: its name does not say what it is: give --format parquet, csv, json or jdbc")


def read_table(spark: SparkSession, table: Table) -> DataFrame:
    """A table, with the column `UNREADABLE`; it is read when it is used.

    Raises:
        UsageError: what it is does not fit what is told of it.
    """
    form = table.format_or_suffix()
    if (form == "jdbc") != (table.jdbc_table is not None):
        raise UsageError("--jdbc-table and a JDBC URL as --table come together")
    if table.schema is not None and form not in {"csv", "json"}:
        raise UsageError(f"a schema is for CSV and JSON lines; {form} has its own")
    if form in {"csv", "json"}:
        return _read_lines(spark, table, form)
    reader = spark.read.format(form)
    if form == "jdbc":
        # A time without a zone stays one: else Spark takes it for one of the zone in which its Java happens to run.
        reader = (
            reader.option("url", table.path).option("dbtable", table.jdbc_table).option("preferTimestampNTZ", "true")
        )
        if table.path.startswith("jdbc:postgresql:"):
            reader = reader.option("driver", "org.postgresql.Driver")
        rows = reader.options(**table.options).load()
    else:
        rows = reader.options(**table.options).load(table.path)
    return rows.withColumn(UNREADABLE, f.lit(None).cast("string"))


def _read_lines(spark: SparkSession, table: Table, form: Format) -> DataFrame:
    options = {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": UNREADABLE, **(_CSV if form == "csv" else {})}
    if form == "csv" and table.schema is not None:
        options["enforceSchema"] = "true"  # names are the schema's, by position
    reader = spark.read.format(form).options(**(options | dict(table.options)))
    found = reader.load(table.path).schema if table.schema is None else StructType.fromDDL(table.schema)
    if not isinstance(found, StructType):
        raise UsageError(f"--schema: columns such as 'id long, at timestamp' are wanted: {table.schema}")
    columns = [column for column in found.fields if column.name != UNREADABLE]
    if not columns:
        raise UsageError(f"{table.path}: no line of it can be read")
    return reader.schema(StructType([*columns, StructField(UNREADABLE, StringType())])).load(table.path)
