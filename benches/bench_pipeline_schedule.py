"""`tarry spark schedule`, compared with a plain Python process that sends the same rows.

    python -m benches.bench_pipeline_schedule [--rows 1000000] [--master 'local[2]'] [--rounds 3] [--json FILE]

There is one CSV file, one embedded broker, and a new intake of four partitions for each measurement. The plain process
reads the file and sends each row by `DelayedProducer.send_many`, with an id derived from the row key. It does not look
for ids that the intake knows already, and keeps no rejected rows. The job does everything that it does for a user: it
reads the known ids of the intake, looks for repeated keys, sorts the rows of each key, and sends them. `again` is a
second run, which finds that every row is known and sends none.

Compare the ratios: both run one after the other, on the same machine and broker. The start of Spark is printed
separately.
"""

import argparse
import csv
import json
import os
import statistics
import tempfile
import time
import uuid
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from threading import Event
from typing import Any, Final

from pyspark.sql import SparkSession
from rich.console import Console
from rich.table import Table

from benches.support_kafka import Progress, Topics, create_topics, delete_topics, large_broker
from benches.support_run import say_circumstances
from tarry.client import DelayedMessage, DelayedProducer
from tarry.clock import SystemClock
from tarry.core.request.intake_policy import IntakePolicy
from tarry.kafka.settings import Cluster
from tarry.pipelines import topics
from tarry.pipelines.schedule import tables
from tarry.pipelines.schedule.job import ScheduleParameters, schedule
from tarry.pipelines.schedule.messages import Expressions, namespace_of
from tarry.pipelines.session import session

KEYS: Final = 1_000
TEXT: Final = "The quick brown fox jumps over the lazy dog. " * 4


@dataclass(frozen=True, slots=True)
class Figures:
    """Rows per second, one value for each round."""

    spark: list[float] = field(default_factory=list)
    again: list[float] = field(default_factory=list)
    plain: list[float] = field(default_factory=list)

    def medians(self) -> dict[str, float]:
        """Of all rounds."""
        return {name: statistics.median(getattr(self, name)) for name in ("spark", "again", "plain")}


def write_table(path: Path, rows: int) -> None:
    """Write rows of about 230 B, due within one hour that begins tomorrow."""
    tomorrow = datetime.now(UTC).replace(microsecond=0) + timedelta(days=1)
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["id", "customer", "due", "text"])
        for number in range(rows):
            due = tomorrow + timedelta(seconds=number * 7_919 % 3_600)
            writer.writerow([number, f"customer-{number % KEYS}", due.isoformat(), TEXT])


def by_spark(spark: SparkSession, bootstrap: str, names: Topics, table: Path, job: str) -> tuple[float, dict[str, Any]]:
    """Run the job; return its seconds and its summary."""
    plan = ScheduleParameters(
        job,
        tables.TableSource(str(table)),
        Expressions("id", f"'{names.target}'", key="customer", due="due"),
        IntakePolicy(names.intake),
        str(table.parent / "state"),
        str(table.parent / "rejects"),
    )
    with topics.TopicTables(spark, Cluster(bootstrap)) as opened:
        started = time.monotonic()
        summary = schedule(opened, plan, clock=SystemClock(), stop=Event(), on_progress=lambda _line: None)
        return time.monotonic() - started, summary


def by_one_process(bootstrap: str, names: Topics, table: Path) -> float:
    """Read and send all rows; return the seconds."""
    namespace = namespace_of("plain")

    def messages() -> Iterator[DelayedMessage]:
        with table.open(encoding="utf-8", newline="") as file:
            for row in csv.DictReader(file):
                yield DelayedMessage(
                    names.target,
                    json.dumps(row),
                    row["customer"],
                    at=datetime.fromisoformat(row["due"]),
                    id=uuid.uuid5(namespace, row["id"]),
                )

    started = time.monotonic()
    with DelayedProducer(bootstrap, names.intake) as producer:
        for _ in producer.send_many(messages()):
            pass
    return time.monotonic() - started


def measure(spark: SparkSession, bootstrap: str, directory: Path, rows: int, rounds: int, console: Console) -> Figures:
    """Run all rounds. Each contender first has a small round that does not count, to warm up broker and clients."""
    figures = Figures()
    for number in range(rounds + 1):
        count = rows if number else min(rows, 10_000)
        table = directory / f"{count}.csv"
        if not table.exists():
            write_table(table, count)
        for contender in ("plain", "spark"):
            names = Topics(f"bench-{number}-{contender}")
            create_topics(bootstrap, [names.intake, names.results, names.target])
            arrived = Progress(bootstrap, names.intake)
            seconds = {}
            if contender == "plain":
                seconds["plain"] = by_one_process(bootstrap, names, table)
            else:
                job = f"bench-{number}"
                seconds["spark"], summary = by_spark(spark, bootstrap, names, table, job)
                seconds["again"], again = by_spark(spark, bootstrap, names, table, job)
                if (summary["sent"], again["sent"], again["known"]) != (count, 0, count):
                    raise SystemExit(f"not each row once: {summary}, then {again}")
            if arrived.stable() != count:
                raise SystemExit(f"{contender}: {count:,} rows, {arrived.stable():,} records")
            delete_topics(bootstrap, names.name)
            for name, taken in seconds.items():
                console.print(f"{name}: {count:,} rows in {taken:.1f} s{'' if number else ' (not counted)'}")
                if number:
                    getattr(figures, name).append(count / taken)
    return figures


def main() -> None:
    parser = argparse.ArgumentParser(description="the job `schedule` next to one plain process")
    parser.add_argument("--rows", type=int, default=100_000)
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--master", help="Spark's; by default local[2]")
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write the figures to this file")
    arguments = parser.parse_args()
    console = Console(highlight=False)
    with (
        tempfile.TemporaryDirectory(prefix="tarry-bench-") as directory,
        large_broker() as broker,
    ):
        started = time.monotonic()
        with session("bench", arguments.master, {}, console.print) as spark:
            start_s = time.monotonic() - started
            figures = measure(
                spark, broker.bootstrap_servers, Path(directory), arguments.rows, arguments.rounds, console
            )
    medians = figures.medians()
    made = Table(f"{arguments.rows:,} rows", "rows/s", "of the plain process")
    for name, rate in medians.items():
        made.add_row(name, f"{rate:,.0f}", f"{rate / medians['plain']:.2f}")
    console.print(made)
    console.print(f"Spark took {start_s:.1f} s to start")
    load = say_circumstances(console, quick=arguments.rows < 100_000)
    if arguments.json:
        document = {
            "cores": os.cpu_count(),
            "load_5_minutes": load,
            "rows": arguments.rows,
            "start_s": start_s,
            "rows_per_s": medians,
            "ratios": {name: rate / medians["plain"] for name, rate in medians.items()},
        }
        arguments.json.write_text(json.dumps(document, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
