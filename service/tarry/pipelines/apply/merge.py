"""Merge staged steps into their tables: in bulk, or, if PostgreSQL refuses, down to the single refused record.

All steps of one table, round and kind are one statement. If it fails, it is retried after the others. If it still
fails, it is bisected under savepoints until the refused rows are found. All changes of such a row in this batch are
then applied one by one, in the order of the log, as if each was a batch: a valid insert stays, although an invalid
update follows it.
"""

import json
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby
from operator import itemgetter
from typing import Any, Final, NamedTuple

import psycopg
from psycopg import Connection, sql
from pyspark.sql import DataFrame
from pyspark.sql import functions as f

from tarry.pipelines.apply.changes import PLACE, TABLE, ZERO_DATE

Name = tuple[str, str]
Step = tuple[str, int, int, int]
"""Topic, partition, offset, and the number of the step within the change."""

# Classes of errors that a value causes: cardinality, data, integrity, check option, program limits, and errors that
# triggers raise. All other errors end the run, because no value causes them.
_REFUSALS: Final = ("21", "22", "23", "44", "54", "P0")

_CATALOG: Final = """
SELECT relname, attname, COALESCE(attnum = ANY ((indkey::smallint[])[0:indnkeyatts - 1]), false),
  atttypid = 'bytea'::regtype, attidentity = 'a',
  array_position(indkey::smallint[], attnum), attgenerated <> '',
  atttypid IN ('date'::regtype, 'timestamp'::regtype, 'timestamptz'::regtype)
FROM pg_class AS of
JOIN pg_namespace AS space ON space.oid = relnamespace
JOIN pg_attribute ON attrelid = of.oid AND attnum > 0 AND NOT attisdropped
LEFT JOIN pg_index ON indrelid = of.oid AND indisprimary
WHERE nspname = %s AND relname = ANY (%s) AND relkind IN ('r', 'p')
ORDER BY relname, attnum"""

_GROUPS: Final = """
SELECT round, is_delete, database, "table", present FROM {} GROUP BY 1, 2, 3, 4, 5
ORDER BY round, is_delete DESC, 3, 4, 5"""
_OF_GROUP: Final = 'round = %s AND is_delete = %s AND database = %s AND "table" = %s AND present = %s'
# These texts contain values only as parameters, and names only as identifiers.
_STEPS: Final = 'SELECT topic, partition, "offset", step FROM {} WHERE ' + _OF_GROUP + " ORDER BY 1, 2, 3, 4"  # noqa: S608
_STAGED: Final = "(SELECT doc FROM {} WHERE " + _OF_GROUP + ")"  # noqa: S608
_STAGED_BETWEEN: Final = (
    "(SELECT doc FROM {} WHERE "  # noqa: S608
    + _OF_GROUP
    + ' AND (topic, partition, "offset", step) BETWEEN (%s, %s, %s, %s) AND (%s, %s, %s, %s))'
)


_DATA: Final = sql.SQL("(staged.doc::jsonb -> 'data')")
_WITHOUT_ZERO_DATES: Final = sql.SQL(
    "({data} - ARRAY(SELECT key FROM jsonb_each_text({data}) WHERE key = ANY ({dates}) AND value ~ {zero}))"
)


class _Column(NamedTuple):
    name: str
    is_key: bool
    is_bytea: bool
    is_always: bool
    key_part: int | None
    is_generated: bool
    is_date: bool


class TargetTable(NamedTuple):
    """A table of the target, from PostgreSQL's catalogue.

    Attributes:
        key: the columns of the primary key, in order.
        columns: the columns that a change may set.
        bytea: the columns that hold bytes.
        always: `GENERATED ALWAYS` identity columns; a change may set them only in a new row.
        dates: the columns of dates, or dates with times.
        computed: the columns that are generated from others.
    """

    key: Sequence[str]
    columns: Sequence[str]
    bytea: frozenset[str]
    always: frozenset[str]
    dates: frozenset[str]
    computed: Sequence[str]


def catalog(connection: Connection[Any], schema: str, names: Sequence[str]) -> dict[str, TargetTable]:
    """The tables of a schema with these names."""
    columns: dict[str, list[_Column]] = defaultdict(list)
    for table, *column in connection.execute(_CATALOG, (schema, list(names))):
        columns[table].append(_Column(*column))
    return {
        table: TargetTable(
            [one.name for one in sorted((one for one in found if one.is_key), key=lambda one: int(one.key_part or 0))],
            [one.name for one in found if not one.is_generated],
            frozenset(one.name for one in found if one.is_bytea),
            frozenset(one.name for one in found if one.is_always),
            frozenset(one.name for one in found if one.is_date),
            [one.name for one in found if one.is_generated],
        )
        for table, found in columns.items()
    }


class Merge:
    """The merge of one batch, inside a transaction.

    Args:
        connection: the connection, in the transaction.
        staged: the staging table with the newest steps.
        schema: the schema of the target tables.
        tables: the target tables, by database and table of the log.
        steps: all steps of the batch.
        zero_dates_as_null: whether MySQL's `0000-00-00` becomes null in columns of dates.
    """

    def __init__(
        self,
        connection: Connection[Any],
        staged: sql.Identifier,
        schema: str,
        tables: Mapping[Name, TargetTable],
        steps: DataFrame,
        *,
        zero_dates_as_null: bool,
    ) -> None:
        self._connection = connection
        self._staged = staged
        self._schema = schema
        self._tables = tables
        self._steps = steps
        self._zero_dates_as_null = zero_dates_as_null
        self.rows: Counter[str] = Counter()
        """The number of upserted and deleted rows."""
        self._refused: dict[Step, str] = {}

    @property
    def refused(self) -> dict[tuple[str, int, int], str]:
        """The places of the records that PostgreSQL refused, with its reasons."""
        return {step[:3]: error for step, error in self._refused.items()}

    def run(self) -> None:
        """Merge all staged steps."""
        groups = self._connection.execute(sql.SQL(_GROUPS).format(self._staged)).fetchall()
        refused: list[Step] = []
        for _, of_round in groupby(groups, key=itemgetter(0)):
            left = list(of_round)
            while left:
                # A group that refers to rows of a later group succeeds in the next pass.
                again = [group for group in left if not self._whole(group)]
                if len(again) == len(left):
                    refused += [step for group in again for step in self._bisect(group)]
                    break
                left = again
        if refused:
            self._one_by_one(refused)

    def _whole(self, group: tuple[Any, ...]) -> bool:
        """Apply all steps of a group. Return False if PostgreSQL refused; then none is applied."""
        _, is_delete, *name, present = group
        source = sql.SQL(_STAGED).format(self._staged)
        return self._do((name[0], name[1]), json.loads(present), is_delete, source, group) is None

    def _bisect(self, group: tuple[Any, ...]) -> list[Step]:
        """Apply the steps of a group, except refused ones, which are returned."""
        _, is_delete, database, table, present = group
        name, columns = (database, table), json.loads(present)
        steps = self._connection.execute(sql.SQL(_STEPS).format(self._staged), group).fetchall()
        between = sql.SQL(_STAGED_BETWEEN).format(self._staged)
        refused: list[Step] = []
        # Depth first from the front, to keep the order of the log.
        left = _halves(steps)
        while left:
            part = left.pop()
            if self._do(name, columns, is_delete, between, (*group, *part[0], *part[-1])) is not None:
                if len(part) == 1:
                    refused.append(part[0])
                else:
                    left += _halves(part)
        return refused

    def _one_by_one(self, refused: Iterable[Step]) -> None:
        """Apply all steps of the rows that have a refused step, in the order of the log."""
        schema = "topic string, partition int, offset long, step int"
        places = self._steps.sparkSession.createDataFrame(list(refused), schema)
        on = [*PLACE, "step"]
        rows = self._steps.join(f.broadcast(places), on, "left_semi").select(*TABLE, "row_key").distinct()
        found = self._steps.join(f.broadcast(rows), [*TABLE, "row_key"], "left_semi").orderBy(*on).collect()
        source = sql.SQL("(SELECT %s::text AS doc)")
        newest = {(*(row[name] for name in TABLE), *row["row_key"]): row for row in found}
        left = found
        while left:
            again = []
            for row in left:
                step = (row["topic"], row["partition"], row["offset"], row["step"])
                name = (row["database"], row["table"])
                error = self._do(name, row["present"], row["is_delete"], source, (row["text"],))
                if error is None:
                    self._refused.pop(step, None)
                else:
                    self._refused[step] = error
                    # A step that refers to a row later in this pass may succeed in the next pass.
                    if newest[*name, *row["row_key"]] is row:
                        again.append(row)
            left = again if len(again) < len(left) else []

    def _do(
        self, name: Name, columns: Sequence[str], is_delete: bool, source: sql.Composable, values: Sequence[Any]
    ) -> str | None:
        """Execute one statement. If PostgreSQL refuses it, nothing changes and the reason is returned."""
        shape = self._tables[name]
        target = sql.Identifier(self._schema, name[1])
        make = _delete if is_delete else _upsert
        try:
            with self._connection.transaction():
                done = self._connection.execute(make(target, shape, columns, source, self._row(shape)), values)
        except psycopg.Error as error:
            if not (error.sqlstate or "").startswith(_REFUSALS):
                raise
            return f"{error.sqlstate}: {str(error).partition(chr(10))[0]}"
        self.rows["deleted" if is_delete else "upserted"] += max(0, done.rowcount)
        return None

    def _row(self, shape: TargetTable) -> sql.Composable:
        """The columns of a staged step, as a JSON object."""
        if not (self._zero_dates_as_null and shape.dates):
            return _DATA
        dates = sql.Literal(sorted(shape.dates))
        return _WITHOUT_ZERO_DATES.format(data=_DATA, dates=dates, zero=sql.Literal(ZERO_DATE))


def _upsert(
    target: sql.Identifier, shape: TargetTable, columns: Sequence[str], source: sql.Composable, row: sql.Composable
) -> sql.Composed:
    updated = [name for name in columns if name not in shape.key and name not in shape.always]
    sets = sql.SQL(", ").join(sql.SQL("{0} = EXCLUDED.{0}").format(sql.Identifier(name)) for name in updated)
    return sql.SQL(
        "INSERT INTO {target} ({columns}) OVERRIDING SYSTEM VALUE SELECT {values} FROM {source} AS staged"
        " CROSS JOIN LATERAL jsonb_populate_record(NULL::{target}, {row}) AS filled"
        " ON CONFLICT ({key}) DO {action}"
    ).format(
        target=target,
        columns=_names(columns),
        values=sql.SQL(", ").join(_value(name, shape) for name in columns),
        source=source,
        row=row,
        key=_names(shape.key),
        action=sql.SQL("UPDATE SET {}").format(sets) if updated else sql.SQL("NOTHING"),
    )


def _delete(
    target: sql.Identifier, shape: TargetTable, _columns: Sequence[str], source: sql.Composable, row: sql.Composable
) -> sql.Composed:
    same = [sql.SQL("target.{} = {}").format(sql.Identifier(name), _value(name, shape)) for name in shape.key]
    return sql.SQL(
        "DELETE FROM {target} AS target USING {source} AS staged"
        " CROSS JOIN LATERAL jsonb_populate_record(NULL::{target}, {row}) AS filled WHERE {same}"
    ).format(target=target, source=source, row=row, same=sql.SQL(" AND ").join(same))


def _value(name: str, shape: TargetTable) -> sql.Composed:
    if name in shape.bytea:  # bytes are Base64 in the log
        return sql.SQL("decode(staged.doc::jsonb -> 'data' ->> {}, 'base64')").format(sql.Literal(name))
    return sql.SQL("filled.{}").format(sql.Identifier(name))


def _names(names: Iterable[str]) -> sql.Composed:
    return sql.SQL(", ").join(map(sql.Identifier, names))


def _halves(steps: list[Step]) -> list[list[Step]]:
    """The non-empty halves of a list, the front half last, so that a stack returns it first."""
    middle = len(steps) // 2
    return [part for part in (steps[middle:], steps[:middle]) if part]
