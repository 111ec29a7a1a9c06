"""Changes per second that `tarry spark apply` writes to PostgreSQL, compared with a plain Python process.

    python -m benches.bench_pipeline_apply [--changes 100000] [--rows 20000] [--batch 100000]

A change log of two tables in four partitions is applied twice, each time to the tables of a separate schema. First by
the job on `local[2]`, whose Spark session is started before. Then by a process with a consumer and psycopg, which keeps
the last change of each row of a batch, and writes these with `executemany`, and its offsets, in one transaction. At the
end both schemas have the tables that a replay of the log gives.
"""

import argparse
import json
import multiprocessing
import tempfile
import time
import uuid
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final

import psycopg
from confluent_kafka import Consumer, TopicPartition

from benches.support_kafka import large_broker
from tarry.kafka.settings import Cluster
from tarry.pipelines.apply import ApplyJob, Postgres
from tarry.pipelines.session import session
from tarry.pipelines.topics import TopicTables
from tests.support.changelog import KEYS, POSTGRES, ChangeLog, put, replay
from tests.support.postgres import Postgres as Server
from tests.support.postgres import programs
from tests.support.stage import Stage

PARTITIONS: Final = 4
PLAIN_BATCH: Final = 10_000
COLUMNS: Final = {"orders": ("id", "note", "amount", "changed", "paid"), "lines": ("order_id", "line", "pieces")}


def main() -> None:
    parser = argparse.ArgumentParser(description="measure how fast changes are written to PostgreSQL")
    parser.add_argument("--changes", type=int, default=100_000)
    parser.add_argument("--rows", type=int, default=20_000, help="of each table, at most")
    parser.add_argument("--batch", type=int, default=100_000, help="changes that the job takes at once")
    arguments = parser.parse_args()
    with ExitStack() as until_the_end:
        broker = until_the_end.enter_context(large_broker())
        server = Server(programs())
        until_the_end.callback(server.close)
        server.start()
        stage = Stage(broker.bootstrap_servers, f"apply-{uuid.uuid4().hex[:8]}", PARTITIONS, until_the_end)
        topic = stage.make_topic(stage.target, PARTITIONS)
        records = list(ChangeLog(1, PARTITIONS, arguments.rows).records(arguments.changes))
        put(stage, topic, records)
        wanted = {table: len(rows) for table, rows in replay(records).items()}
        directory = Path(until_the_end.enter_context(tempfile.TemporaryDirectory()))
        spark = until_the_end.enter_context(session("bench", None, {}, print))
        topics = until_the_end.enter_context(TopicTables(spark, Cluster(broker.bootstrap_servers)))

        def by_spark(schema: str) -> None:
            with Postgres(server.conninfo, schema, schema=schema) as target:
                checkpoint = str(directory / schema)
                ApplyJob(topics, [topic], target, print).run(checkpoint, rows_a_batch=arguments.batch)

        def by_python(schema: str) -> None:
            values = (broker.bootstrap_servers, topic, server.conninfo, schema, arguments.changes)
            process = multiprocessing.get_context("spawn").Process(target=plain, args=values)
            process.start()
            process.join()
            if process.exitcode:
                raise SystemExit("the plain process failed")

        rates = {}
        # The first run is slower: Java's JIT compiler has not compiled the code yet.
        for name, run in (("job, cold", by_spark), ("job, warm", by_spark), ("plain Python", by_python)):
            took_s = measure(server, name.replace(", ", "_").replace(" ", "_"), run, wanted)
            rates[name] = arguments.changes / took_s
            print(f"{name:>12}: {rates[name]:>9,.0f} changes/s, {took_s:.1f} s", flush=True)
        print(f"job, warm / plain Python: {rates['job, warm'] / rates['plain Python']:.2f}")


def measure(server: Server, schema: str, run: Callable[[str], None], wanted: dict[str, int]) -> float:
    """Apply the log to tables of a new schema; return the seconds."""
    server.rows(f"CREATE SCHEMA {schema}")
    server.rows(POSTGRES.format(schema))
    began = time.perf_counter()
    run(schema)
    took_s = time.perf_counter() - began
    found = {table: server.rows(f"SELECT count(*) FROM {schema}.{table}")[0][0] for table in KEYS}  # noqa: S608
    if found != wanted:
        raise SystemExit(f"{schema}: {found} rows, not {wanted}")
    return took_s


def plain(bootstrap: str, topic: str, conninfo: str, schema: str, count: int) -> None:
    """Apply this number of records, and end."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "plain",
            "isolation.level": "read_committed",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
        }
    )
    consumer.assign([TopicPartition(topic, partition, 0) for partition in range(PARTITIONS)])
    with psycopg.connect(conninfo) as connection:
        connection.execute("SET TimeZone = 'UTC'")
        connection.execute(f"CREATE TABLE {schema}.offsets (partition int PRIMARY KEY, next_offset bigint)")
        connection.commit()
        done = 0
        while done < count:
            records = consumer.consume(PLAIN_BATCH, 1.0)
            newest: dict[str, dict[tuple[Any, ...], dict[str, Any] | None]] = {table: {} for table in KEYS}
            ends = {}
            for one in records:
                ends[one.partition()] = (one.offset() or 0) + 1
                value = one.value()
                if value is None:
                    continue
                fields = json.loads(value)
                kind, data, old = fields["type"], fields["data"], fields.get("old") or {}
                if kind not in {"insert", "update", "delete", "bootstrap-insert"}:
                    continue
                rows, key = newest[fields["table"]], KEYS[fields["table"]]
                if any(name in old for name in key):
                    rows[tuple(old.get(name, data[name]) for name in key)] = None
                rows[tuple(data[name] for name in key)] = None if kind == "delete" else data
            with connection.transaction(), connection.cursor() as cursor:
                for table, rows in newest.items():
                    write(cursor, f"{schema}.{table}", table, rows)
                cursor.executemany(
                    f"INSERT INTO {schema}.offsets VALUES (%s, %s) ON CONFLICT (partition)"  # noqa: S608
                    " DO UPDATE SET next_offset = EXCLUDED.next_offset",
                    list(ends.items()),
                )
            done += len(records)
    consumer.close()


def write(
    cursor: psycopg.Cursor[Any], target: str, table: str, rows: dict[tuple[Any, ...], dict[str, Any] | None]
) -> None:
    """Write the final state of some rows of one table."""
    key, columns = KEYS[table], COLUMNS[table]
    cursor.executemany(
        f"DELETE FROM {target} WHERE {' AND '.join(f'{name} = %s' for name in key)}".encode(),  # noqa: S608
        [one for one, row in rows.items() if row is None],
    )
    sets = ", ".join(f"{name} = EXCLUDED.{name}" for name in columns if name not in key)
    marks = ", ".join("%s::boolean" if name == "paid" else "%s" for name in columns)
    cursor.executemany(
        f"INSERT INTO {target} ({', '.join(columns)}) VALUES ({marks})"  # noqa: S608
        f" ON CONFLICT ({', '.join(key)}) DO UPDATE SET {sets}".encode(),
        [tuple(_plain(row[name], name) for name in columns) for row in rows.values() if row is not None],
    )


def _plain(value: Any, name: str) -> Any:
    return bool(value) if name == "paid" and value is not None else value


if __name__ == "__main__":
    main()
