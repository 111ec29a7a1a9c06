"""The two targets of `apply` behind one interface for tests: a schema in PostgreSQL, and Delta tables."""

import shutil
import uuid
from abc import ABC, abstractmethod
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from tarry.pipelines.apply import ApplyJob, ApplyRules, Lake, Postgres
from tarry.pipelines.apply.batch import Total
from tarry.pipelines.apply.job import EVERYTHING
from tarry.pipelines.topics import TopicTables
from tests.support.changelog import (
    DATABASE,
    DELTA,
    KEYS,
    POSTGRES,
    Logged,
    columns,
    record,
)
from tests.support.postgres import Postgres as Server

Rows = dict[str, set[tuple[str | None, ...]]]


class Side(ABC):
    """A target of `apply`, for tests."""

    def __init__(self, topics: TopicTables, checkpoint: Path) -> None:
        self.told: list[str] = []
        self.options: dict[str, Any] = {}
        self.checkpoint = checkpoint
        self._topics = topics

    def run(self, *topic: str, rows_a_batch: int = 100_000, rules: ApplyRules = EVERYTHING) -> Total:
        """Apply the new records; return the total counts."""
        totals: list[Total] = []
        with self._target() as target:
            job = ApplyJob(self._topics, topic, target, self.told.append, rules)
            job.run(str(self.checkpoint), rows_a_batch=rows_a_batch, on_end=totals.append)
        (total,) = totals
        return total

    def run_rejected(self, *topic: str) -> Total:
        """Apply the rejected records again."""
        with self._target() as target:
            return ApplyJob(self._topics, topic, target, self.told.append).run_rejected()

    def lose_checkpoint(self) -> None:
        shutil.rmtree(self.checkpoint)

    @abstractmethod
    def rows(self) -> Rows: ...

    @abstractmethod
    def make(self, table: str, columns: str) -> None:
        """Create a table with the key column `id`."""

    @abstractmethod
    def values(self, table: str, *columns: str) -> list[tuple[str | None, ...]]:
        """Return the values of some columns of a table, as text."""

    @abstractmethod
    def rejects(self) -> list[tuple[int, str, bytes | None]]: ...

    @abstractmethod
    def _target(self) -> AbstractContextManager[Postgres | Lake]: ...


class PostgresSide(Side):
    """A new schema in a real PostgreSQL."""

    def __init__(self, server: Server, topics: TopicTables, directory: Path) -> None:
        super().__init__(topics, directory / "postgres")
        self.server = server
        self.schema = f"apply {uuid.uuid4().hex[:8]}"
        server.rows(f'CREATE SCHEMA "{self.schema}"')
        server.rows(POSTGRES.format(f'"{self.schema}"'))

    def _target(self) -> Postgres:
        return Postgres(self.server.conninfo, "test's", schema=self.schema, **self.options)

    def rows(self) -> Rows:
        found = {}
        for table in KEYS:
            text = columns(table).replace("cast(changed as", "cast(changed at time zone 'UTC' as")
            rows = self.server.rows(f'SELECT {text} FROM "{self.schema}".{table}')  # noqa: S608
            found[table] = set(rows)
            assert len(found[table]) == len(rows)
        return found

    def make(self, table: str, columns: str) -> None:
        self.server.rows(f'CREATE TABLE "{self.schema}".{table} ({columns})')

    def values(self, table: str, *columns: str) -> list[tuple[str | None, ...]]:
        text = ", ".join(f"{column}::text" for column in columns)
        return self.server.rows(f'SELECT {text} FROM "{self.schema}".{table}')  # noqa: S608

    def rejects(self) -> list[tuple[int, str, bytes | None]]:
        return self.server.rows(
            f'SELECT "offset", reason, value FROM "{self.schema}".tarry_apply_rejects ORDER BY partition, "offset"'  # noqa: S608
        )


class LakeSide(Side):
    """Delta tables in a new directory."""

    def __init__(self, spark: SparkSession, topics: TopicTables, directory: Path) -> None:
        super().__init__(topics, directory / "delta")
        self._spark = spark
        self.lake = directory / "lake"
        for table, schema in DELTA.items():
            spark.createDataFrame([], schema).write.format("delta").save(f"{self.lake}/{DATABASE}/{table}")

    def _target(self) -> AbstractContextManager[Lake]:
        return nullcontext(Lake(self._spark, str(self.lake), "test's", KEYS | {"late": ("id",)}, **self.options))

    def rows(self) -> Rows:
        found = {}
        for table in KEYS:
            text = columns(table).replace("varchar(50)", "string")
            data = self._spark.read.format("delta").load(f"{self.lake}/{DATABASE}/{table}")
            rows = [tuple(row) for row in self._spark.sql(f"SELECT {text} FROM {{data}}", data=data).collect()]  # noqa: S608
            found[table] = set(rows)
            assert len(found[table]) == len(rows)
        return found

    def make(self, table: str, columns: str) -> None:
        schema = columns.replace(" PRIMARY KEY", "").replace(" text", " string")
        self._spark.createDataFrame([], schema).write.format("delta").save(f"{self.lake}/{DATABASE}/{table}")

    def values(self, table: str, *columns: str) -> list[tuple[str | None, ...]]:
        data = self._spark.read.format("delta").load(f"{self.lake}/{DATABASE}/{table}")
        return [tuple(row) for row in data.selectExpr(*[f"cast({column} AS string)" for column in columns]).collect()]

    def rejects(self) -> list[tuple[int, str, bytes | None]]:
        data = self._spark.read.format("delta").load(f"{self.lake}/tarry_apply/rejects")
        rows = data.orderBy("partition", "offset").select("offset", "reason", "value").collect()
        return [(row[0], row[1], None if row[2] is None else bytes(row[2])) for row in rows]


def change(kind: str, table: str, data: dict[str, Any], old: dict[str, Any] | None = None, **more: Any) -> Logged:
    return Logged(0, record(kind, table, data, old, **more))
