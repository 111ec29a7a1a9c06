"""Random change logs in Maxwell's format, and their final tables, computed by a replay in plain Python."""

import json
import random
import uuid
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final, NamedTuple

from confluent_kafka import Producer

from tests.support.stage import Stage

DATABASE: Final = "shop"
KEYS: Final = {"orders": ("id",), "lines": ("order_id", "line")}

POSTGRES: Final = """
CREATE TABLE {0}.orders (id bigint PRIMARY KEY, note text, amount numeric(30,10), changed timestamptz, paid boolean);
CREATE TABLE {0}.lines (order_id integer, line text, pieces integer NOT NULL, PRIMARY KEY (order_id, line))"""
DELTA: Final = {
    "orders": "id bigint, note string, amount decimal(30,10), changed timestamp, paid boolean",
    "lines": "order_id int, line string, pieces int",
}

Row = dict[str, Any]
Tables = dict[str, dict[tuple[Any, ...], Row]]


class Logged(NamedTuple):
    """A record of a change log."""

    partition: int
    value: bytes | None
    id: str | None = None


def record(kind: str, table: str, data: Row, old: Row | None = None, **more: Any) -> bytes:
    """The value of a record."""
    fields = {"database": DATABASE, "table": table, "type": kind, "ts": 1_477_053_217, "xid": 23_396, "data": data}
    return json.dumps(fields | ({} if old is None else {"old": old}) | more).encode()


class ChangeLog:
    """A change log of two tables; equal seeds give equal logs.

    Args:
        seed: the seed of all random choices.
        partitions: partitions of its topic; all changes of a row are in one, even if its key changes.
        rows: the maximum number of rows of a table.
        has_ids: whether its records have ids, and some records come twice.
    """

    def __init__(self, seed: int, partitions: int = 1, rows: int = 200, *, has_ids: bool = False) -> None:
        self._random = random.Random(seed)
        self._partitions = partitions
        self._rows = rows
        self._has_ids = has_ids
        self._tables: Tables = {table: {} for table in KEYS}
        self._recent: list[Logged] = []

    def records(self, count: int) -> Iterator[Logged]:
        """Return a number of further records."""
        for _ in range(count):
            if self._has_ids and self._recent and self._random.random() < 0.03:
                yield self._random.choice(self._recent)
                continue
            change = self._change()
            self._recent = [*self._recent[-50:], change]
            yield change

    def _change(self) -> Logged:
        chance = self._random
        table = chance.choice(list(KEYS))
        rows = self._tables[table]
        action = chance.random()
        one_id = str(uuid.UUID(int=chance.getrandbits(128))) if self._has_ids else None
        if action < 0.01:
            mark = chance.choice(("table-alter", "bootstrap-start", "bootstrap-complete", "table-create"))
            return Logged(chance.randrange(self._partitions), record(mark, table, {}, sql="ALTER …"), one_id)
        if action < 0.015:
            return Logged(chance.randrange(self._partitions), None, one_id)
        if not rows or (action < 0.3 and len(rows) < self._rows):
            row = self._row(table)
            kind = "bootstrap-insert" if action < 0.05 else "insert"
            rows[self._key(table, row)] = row
            return Logged(self._partition(table, row), record(kind, table, row), one_id)
        key = chance.choice(list(rows))
        row = rows.pop(key)
        partition = self._partition(table, row)
        if action < 0.45:
            return Logged(partition, record("delete", table, row), one_id)
        new = row | self._others(table)
        if action < 0.55:
            moved = new | {name: self._row(table)[name] for name in KEYS[table]}
            if self._partition(table, moved) == partition and self._key(table, moved) not in rows:
                new = moved
        rows[self._key(table, new)] = new
        old = {name: value for name, value in row.items() if new[name] != value}
        return Logged(partition, record("update", table, new, old), one_id)

    def _row(self, table: str) -> Row:
        number = self._random.randrange(self._rows * 2)
        key: Row = {"id": number} if table == "orders" else {"order_id": number // 4, "line": f"{number % 4} 'ä'"}
        return key | self._others(table)

    def _others(self, table: str) -> Row:
        chance = self._random
        if table == "lines":
            return {"pieces": chance.randrange(1000)}
        at = f"2026-{chance.randrange(1, 13):02}-{chance.randrange(1, 29):02} 0{chance.randrange(10)}:30:00.123456"
        return {
            "note": chance.choice([None, "", 'a "quoted"\n ünïcode 🎈', str(chance.random())]),
            "amount": chance.choice([None, 0, 109.03, -1, 12345678901]),
            "changed": chance.choice([None, at]),
            "paid": chance.choice([None, 0, 1]),
        }

    def _partition(self, table: str, row: Row) -> int:
        return hash_of(table, self._key(table, row)) % self._partitions

    @staticmethod
    def _key(table: str, row: Row) -> tuple[Any, ...]:
        return tuple(row[name] for name in KEYS[table])


def hash_of(table: str, key: Sequence[Any]) -> int:
    """Return a hash that is the same in every process."""
    return random.Random(f"{table}/{key}").randrange(1 << 30)


def replay(records: Iterable[Logged]) -> Tables:
    """Return the final tables of a log: apply each record in turn, and each id once."""
    tables: Tables = {table: {} for table in KEYS}
    seen = set()
    for one in records:
        if one.id is not None:
            if one.id in seen:
                continue
            seen.add(one.id)
        if one.value is None:
            continue
        fields = json.loads(one.value)
        table, data, old, kind = fields["table"], fields["data"], fields.get("old", {}), fields["type"]
        if kind == "delete":
            tables[table].pop(tuple(data[name] for name in KEYS[table]), None)
        elif kind in {"insert", "update", "bootstrap-insert"}:
            if any(name in old for name in KEYS[table]):
                tables[table].pop(tuple(old.get(name, data[name]) for name in KEYS[table]), None)
            tables[table][tuple(data[name] for name in KEYS[table])] = data
    return tables


def as_text(tables: Tables) -> dict[str, set[tuple[str | None, ...]]]:
    """Format rows as the targets' queries return them, in the order of their columns."""
    found: dict[str, set[tuple[str | None, ...]]] = {}
    for table, rows in tables.items():
        found[table] = {tuple(_text(name, value) for name, value in row.items()) for row in rows.values()}
        assert len(found[table]) == len(rows)
    return found


def columns(table: str) -> str:
    """Return the select list, for PostgreSQL and Spark, that formats rows as `as_text` does."""
    if table == "lines":
        return "cast(order_id as varchar(50)), line, cast(pieces as varchar(50))"
    amount = "cast(cast(amount as decimal(30,2)) as varchar(50))"
    return f"cast(id as varchar(50)), note, {amount}, cast(changed as varchar(50)), cast(paid as varchar(50))"


def _text(name: str, value: Any) -> str | None:
    if value is None:
        return None
    if name == "amount":
        return f"{value:.2f}"
    if name == "paid":
        return "true" if value else "false"
    return str(value)


def put(stage: Stage, topic: str, records: Iterable[Logged]) -> None:
    """Write the records of a log to its topic, in order."""
    producer = Producer(stage.cluster.client(linger_ms=20))
    for number, one in enumerate(records):
        headers: list[tuple[str, str | bytes | None]] = [("tarry-id", one.id.encode())] if one.id is not None else []
        while True:
            try:
                producer.produce(topic, one.value, b"k", partition=one.partition, headers=headers)
            except BufferError:
                producer.poll(0.1)
            else:
                break
        if number % 1000 == 0:
            producer.poll(0)
    assert producer.flush(60) == 0
    producer.close()
