"""Apply changes to PostgreSQL: Spark's tasks stage a batch, and one transaction of the driver merges it.

The same transaction advances the offsets of the batch (`tarry_apply_offsets`). If a batch is repeated, after a crash or
after the loss of its checkpoint, the records below these offsets are skipped. The connection that merges also holds an
advisory lock on the job's name as long as it lives, so a run that has lost the lock can no longer merge.
"""

import os
import secrets
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from hashlib import sha256
from typing import Any, Final, Self
from urllib.parse import quote

import psycopg
from psycopg import sql
from psycopg.conninfo import conninfo_to_dict
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from tarry.errors import ConfigError, UsageError
from tarry.kafka.types import Place
from tarry.pipelines.apply.batch import BatchOutcome, ChangeBatch
from tarry.pipelines.apply.changes import PLACE, TABLE, Table, rejected_records
from tarry.pipelines.apply.merge import Merge, TargetTable, catalog

_LOCK: Final = 0x7461727270  # distinguishes this lock from other advisory locks

_LOCK_WAIT_MS: Final = 5_000
"""How long to wait for the lock: PostgreSQL releases it a moment after a run has closed its connection or died."""

_DRIVER: Final = "org.postgresql.Driver"

_TABLES: Final = (
    """
CREATE TABLE IF NOT EXISTS {schema}.tarry_apply_offsets (
  job text NOT NULL, topic text NOT NULL, partition integer NOT NULL, next_offset bigint NOT NULL,
  changed_at timestamptz NOT NULL DEFAULT now(), PRIMARY KEY (job, topic, partition))""",
    """
CREATE TABLE IF NOT EXISTS {schema}.tarry_apply_ids (
  job text NOT NULL, id uuid NOT NULL, topic text NOT NULL, partition integer NOT NULL, "offset" bigint NOT NULL,
  seen_at timestamptz NOT NULL DEFAULT now(), PRIMARY KEY (job, id))""",
    "CREATE INDEX IF NOT EXISTS tarry_apply_ids_seen_at ON {schema}.tarry_apply_ids (job, seen_at)",
    """
CREATE TABLE IF NOT EXISTS {schema}.tarry_apply_rejects (
  job text NOT NULL, topic text NOT NULL, partition integer NOT NULL, "offset" bigint NOT NULL,
  "timestamp" timestamptz, key bytea, value bytea, reason text NOT NULL, detail text,
  rejected_at timestamptz NOT NULL DEFAULT now(), PRIMARY KEY (job, topic, partition, "offset"))""",
    """
CREATE TABLE IF NOT EXISTS {schema}.tarry_apply_sources (
  "table" text PRIMARY KEY, database text NOT NULL, since timestamptz NOT NULL DEFAULT now())""",
)
_SOURCES: Final = 'SELECT "table", database FROM {schema}.tarry_apply_sources WHERE "table" = ANY (%s)'
_ADD_SOURCE: Final = """
INSERT INTO {schema}.tarry_apply_sources ("table", database) VALUES (%s, %s) ON CONFLICT DO NOTHING"""
_REJECTED: Final = 'SELECT topic, partition, "offset", "timestamp" FROM {schema}.tarry_apply_rejects WHERE job = %s'
_NO_MORE_REJECTED: Final = """
DELETE FROM {schema}.tarry_apply_rejects WHERE job = %s AND topic = %s AND partition = %s AND "offset" = %s"""
# The keys follow the prefix in the names of a job's staging tables.
_STAGING: Final = {
    "steps": """
CREATE UNLOGGED TABLE {name} (
  topic text, partition integer, "offset" bigint, step integer, database text, "table" text, round integer,
  is_delete boolean, present text, doc text, PRIMARY KEY (topic, partition, "offset", step))""",
    "rejects": """
CREATE UNLOGGED TABLE {name} (
  topic text, partition integer, "offset" bigint, "timestamp" timestamptz, key bytea, value bytea, reason text,
  detail text)""",
    "ids": 'CREATE UNLOGGED TABLE {name} (id uuid, topic text, partition integer, "offset" bigint)',
}
_ORPHANS: Final = """
SELECT relname FROM pg_class JOIN pg_namespace AS space ON space.oid = relnamespace
WHERE nspname = %s AND starts_with(relname, %s) AND relkind = 'r'"""
_OFFSETS: Final = "SELECT topic, partition, next_offset FROM {schema}.tarry_apply_offsets WHERE job = %s"
_ADVANCE: Final = """
INSERT INTO {schema}.tarry_apply_offsets (job, topic, partition, next_offset) VALUES (%s, %s, %s, %s)
ON CONFLICT (job, topic, partition) DO UPDATE SET next_offset = EXCLUDED.next_offset, changed_at = now()"""
_ADD_IDS: Final = """
INSERT INTO {schema}.tarry_apply_ids (job, id, topic, partition, "offset")
SELECT %s, id, topic, partition, "offset" FROM {name} ON CONFLICT DO NOTHING"""
_FORGET_IDS: Final = """
DELETE FROM {schema}.tarry_apply_ids WHERE job = %s AND seen_at < now() - %s * interval '1 millisecond'"""
_REJECT: Final = """
INSERT INTO {schema}.tarry_apply_rejects
  (job, topic, partition, "offset", "timestamp", key, value, reason, detail)
"""
_REJECT_ONE: Final = _REJECT + "VALUES (%s, %s, %s, %s, %s, %s, %s, %s, %s) ON CONFLICT DO NOTHING"
_REJECT_STAGED: Final = (
    _REJECT  # noqa: S608
    + 'SELECT %s, topic, partition, "offset", "timestamp", key, value, reason, detail FROM {name}'
    + " ON CONFLICT DO NOTHING"
)


class Postgres:
    """The tables of a PostgreSQL database as target; a context manager.

    Args:
        conninfo: libpq connection string: `postgresql://…` or `host=… dbname=…`.
        job: the job's name; it owns the offsets, and only one run of it works at a time.
        schema: the schema of the target tables and of the job's own tables.
        jdbc: the JDBC URL for Spark's writers; None: derived from `conninfo`.
        ids_for_ms: how long to remember the ids of records.
        merge_databases: whether same-named tables of several databases go to one table.
        zero_dates_as_null: whether MySQL's `0000-00-00` becomes null in columns of dates.

    Raises:
        ConfigError: the JDBC URL cannot be derived from `conninfo`.
        UsageError: the database does not answer or refuses, or another run of the job is active.
    """

    def __init__(
        self,
        conninfo: str,
        job: str,
        *,
        schema: str = "public",
        jdbc: str | None = None,
        ids_for_ms: int = 604_800_000,
        merge_databases: bool = False,
        zero_dates_as_null: bool = False,
    ) -> None:
        self._merge_databases = merge_databases
        self._zero_dates_as_null = zero_dates_as_null
        self._job = job
        self._schema = schema
        self._ids_for_ms = ids_for_ms
        self._jdbc = (jdbc_options(conninfo) if jdbc is None else {"url": jdbc}) | {"driver": _DRIVER}
        self._prefix = f"tarry_apply_{sha256(job.encode()).hexdigest()[:12]}_"
        self._tables: dict[tuple[str, str], TargetTable] = {}
        with _told():
            self._connection = psycopg.connect(conninfo, autocommit=True, application_name=f"tarry apply {job}"[:63])
        try:
            with _told():
                self._open()
        except BaseException:
            self._connection.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._connection.close()

    def next_offsets(self) -> Mapping[Place, int]:
        """The first offset of each partition that is not applied yet."""
        with _told():
            rows = self._connection.execute(self._sql(_OFFSETS), (self._job,)).fetchall()
        return {(topic, partition): offset for topic, partition, offset in rows}

    def find(self, spark: SparkSession, names: Sequence[tuple[str, str]]) -> list[Table]:
        """The tables of the schema with these names, for any database of the log.

        Raises:
            UsageError: a table has no primary key, or would hold the rows of two databases.
        """
        del spark
        with _told():
            shapes = catalog(self._connection, self._schema, [table for _, table in names if "\0" not in table])
        self._tables = {name: shapes[name[1]] for name in names if name[1] in shapes}
        for (_, table), shape in self._tables.items():
            if not shape.key:
                raise UsageError(f"the table {self._schema}.{table} has no primary key: leave it out with --tables")
        if not self._merge_databases:
            self._refuse_two_databases()
        return [
            Table(*name, True, list(shape.key), list(shape.columns), shape.computed)
            for name, shape in self._tables.items()
        ]

    def add_column(self, table: tuple[str, str], column: str) -> None:
        """Add a text column to a table, unless it has a column with that name."""
        add = sql.SQL("ALTER TABLE {} ADD COLUMN IF NOT EXISTS {} text")
        with _told():
            self._connection.execute(add.format(sql.Identifier(self._schema, table[1]), sql.Identifier(column)))

    def rejects(self, spark: SparkSession) -> DataFrame:
        """The rejected records: topic, partition, offset and `timestamp`."""
        with _told():
            places = self._connection.execute(self._sql(_REJECTED), (self._job,)).fetchall()
        return spark.createDataFrame(places, "topic string, partition int, offset long, timestamp timestamp")

    def known(self, ids: DataFrame) -> DataFrame:
        """The recorded ids among these, each with its place."""
        name = self._stage("ids_now", _STAGING["ids"])
        self._write(ids, name)
        query = f"""SELECT DISTINCT id::text, topic, partition, "offset" FROM {self._quoted("tarry_apply_ids")} AS known
            JOIN (SELECT DISTINCT id FROM {self._quoted(name)}) AS now USING (id)
            WHERE job = '{self._job.replace("'", "''")}'"""  # noqa: S608 (JDBC's reader takes no parameters)
        reader = ids.sparkSession.read.format("jdbc").options(**self._jdbc)
        return reader.option("query", query).load()

    def check(self, judged: DataFrame) -> DataFrame:
        """Return the changes unchanged: PostgreSQL itself refuses invalid values during the merge."""
        return judged

    def commit(self, batch: ChangeBatch) -> BatchOutcome:
        """Stage a batch, and merge it in one transaction."""
        staged = self._stage("steps", _STAGING["steps"])
        self._write(
            batch.newest.select(
                *PLACE,
                "step",
                *TABLE,
                "round",
                "is_delete",
                f.to_json("present").alias("present"),
                f.col("text").alias("doc"),
            ),
            staged,
        )
        staged_rejects = None
        if batch.rejected:
            staged_rejects = self._stage("rejects", _STAGING["rejects"])
            self._write(
                rejected_records(batch.judged).withColumn("detail", f.translate("detail", "\0", "")), staged_rejects
            )
        staged_ids = None
        if batch.ids is not None:
            staged_ids = self._stage("ids", _STAGING["ids"])
            self._write(batch.ids.where("not is_known").select("id", *PLACE), staged_ids)
        with _told(), self._connection.transaction():
            outcome = self._merge(batch, staged, staged_rejects, staged_ids)
        self._drop_staging()
        return outcome

    def _refuse_two_databases(self) -> None:
        """Refuse a table that holds rows of another database, from this batch or an earlier one of any job."""
        with _told():
            known: dict[str, str] = dict(
                self._connection.execute(self._sql(_SOURCES), ([table for _, table in self._tables],))
            )
        for database, table in self._tables:
            if (other := known.setdefault(table, database)) != database:
                raise UsageError(
                    f"{other}.{table} and {database}.{table} would both go to {self._schema}.{table}, and overwrite"
                    f" each other's rows: apply one database here, with --tables '{other}.*', and the other with its"
                    " own --schema and --job; or use --merge-databases if their keys never collide"
                )

    def _merge(
        self, batch: ChangeBatch, staged: str, staged_rejects: str | None, staged_ids: str | None
    ) -> BatchOutcome:
        connection = self._connection
        # 1. The database of each table. If another job claims a table at the same time, one of the two waits.
        with connection.cursor() as cursor:
            cursor.executemany(self._sql(_ADD_SOURCE), sorted((table, database) for database, table in self._tables))
        if not self._merge_databases:
            self._refuse_two_databases()
        # Deferred constraints then fail at their statement, not at the commit.
        connection.execute("SET CONSTRAINTS ALL IMMEDIATE")
        # 2. The rows.
        merge = Merge(
            connection,
            sql.Identifier(self._schema, staged),
            self._schema,
            self._tables,
            batch.steps,
            zero_dates_as_null=self._zero_dates_as_null,
        )
        merge.run()
        # 3. The rejects: remove the old ones that this batch retries, add the new ones.
        of_reason = Counter(batch.rejected)
        if batch.source.rejected is not None:
            places = [(self._job, *row) for row in batch.source.rejected.select(*PLACE).collect()]
            with connection.cursor() as cursor:
                cursor.executemany(self._sql(_NO_MORE_REJECTED), places)
        if staged_rejects is not None:
            connection.execute(self._sql(_REJECT_STAGED, staged_rejects), (self._job,))
        if merge.refused:
            of_reason["refused"] = self._reject(batch, merge.refused)
            batch.bound(of_reason)
        # 4. The ids.
        if staged_ids is not None:
            connection.execute(self._sql(_ADD_IDS, staged_ids), (self._job,))
        connection.execute(self._sql(_FORGET_IDS), (self._job, self._ids_for_ms))
        # 5. The offsets.
        with connection.cursor() as cursor:
            cursor.executemany(
                self._sql(_ADVANCE), [(self._job, *place, end) for place, end in batch.source.ends.items()]
            )
        return BatchOutcome(merge.rows, of_reason)

    def _reject(self, batch: ChangeBatch, refused: Mapping[tuple[str, int, int], str]) -> int:
        spark = batch.judged.sparkSession
        places = spark.createDataFrame(list(refused), "topic string, partition int, offset long")
        records = batch.judged.join(f.broadcast(places), list(PLACE), "left_semi")
        rows = [
            (self._job, *place, row["at"], row["key"], row["value"], "refused", refused[place])
            for row in records.select(*PLACE, f.col("timestamp").cast("string").alias("at"), "key", "value").collect()
            for place in [(row["topic"], row["partition"], row["offset"])]
        ]
        with self._connection.cursor() as cursor:
            cursor.executemany(self._sql(_REJECT_ONE), rows)
        return len(rows)

    def _open(self) -> None:
        connection = self._connection
        # Times without a zone in the log are UTC.
        connection.execute("SET TimeZone = 'UTC'")
        connection.execute("SET DateStyle = 'ISO'")
        connection.execute(sql.SQL("SET lock_timeout = {}").format(sql.Literal(_LOCK_WAIT_MS)))
        try:
            connection.execute("SELECT pg_advisory_lock(hashtextextended(%s, %s))", (self._prefix, _LOCK))
        except psycopg.errors.LockNotAvailable as exception:
            raise UsageError(f"another run of the job {self._job} is active on this database") from exception
        connection.execute("RESET lock_timeout")
        for statement in _TABLES:
            connection.execute(self._sql(statement))
        self._drop_staging()

    def _drop_staging(self) -> None:
        """Drop the staging tables of this run and of killed runs. A task that still writes to them fails."""
        for (name,) in self._connection.execute(_ORPHANS, (self._schema, self._prefix)).fetchall():
            self._connection.execute(sql.SQL("DROP TABLE {}").format(sql.Identifier(self._schema, name)))

    def _stage(self, kind: str, statement: str) -> str:
        name = f"{self._prefix}{kind}_{secrets.token_hex(4)}"
        with _told():
            self._connection.execute(self._sql(statement, name))
        return name

    def _write(self, rows: DataFrame, name: str) -> None:
        (
            rows.write.format("jdbc")
            .mode("append")
            .options(
                **self._jdbc,
                dbtable=self._quoted(name),
                batchsize="5000",
                # PostgreSQL converts text to the type of the column, and a statement inserts many rows.
                stringtype="unspecified",
                reWriteBatchedInserts="true",
            )
            .save()
        )

    def _quoted(self, name: str) -> str:
        return sql.Identifier(self._schema, name).as_string(self._connection)

    def _sql(self, statement: str, name: str | None = None) -> sql.Composed:
        parts: dict[str, Any] = {"schema": sql.Identifier(self._schema)}
        if name is not None:
            parts["name"] = sql.Identifier(self._schema, name)
        return sql.SQL(statement).format(**parts)


def jdbc_options(conninfo: str) -> dict[str, str]:
    """The JDBC options for a conninfo; the password comes from PGPASSWORD if the conninfo has none.

    Raises:
        ConfigError: the conninfo is invalid, or names a socket or several hosts.
    """
    try:
        parts = {name: str(value) for name, value in conninfo_to_dict(conninfo).items()}
    except psycopg.ProgrammingError as error:
        raise ConfigError(f"--conninfo: {_line(error)}") from error
    host, user = parts.get("host", ""), parts.get("user", "")
    if not host or host.startswith("/") or "," in host:
        raise ConfigError("--conninfo must name a single host for Spark's writers: give --jdbc URL as well")
    database = quote(parts.get("dbname", user), safe="")
    password = parts.get("password", os.environ.get("PGPASSWORD"))
    given = {"user": user or None, "password": password, "sslmode": parts.get("sslmode")}
    return {
        "url": f"jdbc:postgresql://{host}:{parts.get('port', '5432')}/{database}",
        **{name: value for name, value in given.items() if value is not None},
    }


@contextmanager
def _told() -> Iterator[None]:
    try:
        yield
    except psycopg.Error as error:
        raise UsageError(f"PostgreSQL: {_line(error)}") from error


def _line(error: Exception) -> str:
    return str(error).partition("\n")[0].strip() or type(error).__name__
