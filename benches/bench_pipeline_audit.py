"""The audit's validation of messages on Spark, compared with a plain Python process: `benches.bench_pipeline_audit`.

Both read the same three files of JSON lines (accepted messages, results, arrivals). They find the messages that are
lost, delivered twice, early, or out of order within their key, and must find the same numbers. One message in 200 has a
fault. Spark's session is started before, and uses two cores; Python uses one core, and holds everything in memory.
"""

import argparse
import json
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any, Final

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f
from rich.console import Console

from benches.support_run import say_circumstances
from tarry.pipelines.audit.tables import ACCEPTED, ARRIVED, SETTLED, columns_of
from tarry.pipelines.audit.validation import AuditRules, compare
from tarry.pipelines.session import session

T0: Final = 1_767_268_800_000
WITHIN_MS: Final = 60_000
DELAY_MS: Final = 120_000
PARTITIONS: Final = 4
KEYS: Final = 1_000
RULES: Final = AuditRules(T0 + 10**12, WITHIN_MS)
KINDS: Final = ("lost", "duplicate", "early", "order")
TABLES: Final = {"accepted": ACCEPTED, "settled": SETTLED, "arrived": ARRIVED}


def write(messages: int, directory: Path) -> dict[str, int]:
    """Write the three files; return how many faults of each kind are in them."""
    planted: Counter[str] = Counter()
    ends = [0] * PARTITIONS
    with (
        (directory / "accepted").open("w") as accepted,
        (directory / "settled").open("w") as settled,
        (directory / "arrived").open("w") as arrived,
    ):
        for number in range(messages):
            partition, offset = number % PARTITIONS, number // PARTITIONS
            at_ms = T0 + number // 10
            sent: dict[str, Any] = {"intake": "in", "partition": partition, "offset": offset, "id": f"id-{number:032}"}
            sent |= {"key": f"key-{number % KEYS}", "value_hash": number, "target": "out"}
            due_ms = at_ms + DELAY_MS
            line = sent | {"timestamp_ms": at_ms, "due_ms": due_ms, "is_fixed": False, "was_lost": False}
            accepted.write(json.dumps(line) + "\n")
            result = {name: sent[name] for name in ("intake", "partition", "offset", "id", "target")}
            settled.write(json.dumps(result | {"outcome": "fired", "due_ms": due_ms, "at_ms": due_ms + 4}) + "\n")
            kind = KINDS[number // 200 % 4] if number % 200 == 199 and number < messages - KEYS else ""
            planted[kind] += 1
            late_ms = -1 if kind == "early" else 5
            for _ in range({"lost": 0, "duplicate": 2}.get(kind, 1)):
                place = {"target_partition": partition, "target_offset": ends[partition]}
                ends[partition] += 1
                if kind == "order":
                    # It arrives behind a message of its key that is due later.
                    place["target_offset"] += messages
                arrival = sent | place | {"arrived_ms": due_ms + late_ms, "told_due_ms": due_ms}
                arrived.write(json.dumps(arrival) + "\n")
    del planted[""]
    return dict(planted)


def by_spark(spark: SparkSession, directory: Path) -> dict[str, int]:
    """Faults by kind, from the files to the table and its count."""
    frames = []
    for name, schema in TABLES.items():
        read = spark.read.schema(schema.replace("key binary", "key string")).json(str(directory / name))
        frames.append(read.withColumn("key", f.col("key").cast("binary")) if "key" in read.columns else read)
    messages: DataFrame = compare(frames[0], frames[1], frames[2], RULES)
    path = str(directory / "messages")
    messages.write.mode("overwrite").parquet(path)
    rows = spark.read.parquet(path).select(f.explode("faults").alias("kind")).groupBy("kind").count().collect()
    return {row.kind: row["count"] for row in rows}


def read(directory: Path, name: str) -> Iterator[tuple[Any, ...]]:
    names = columns_of(TABLES[name])
    with (directory / name).open() as lines:
        for line in lines:
            row = json.loads(line)
            yield tuple([row.get(name) for name in names])


def by_python(directory: Path) -> dict[str, int]:
    """The same."""
    faults: Counter[str] = Counter()
    outcomes = {(row[0], row[1], row[2]): row[3] for row in read(directory, "settled")}
    arrivals = defaultdict(list)
    for row in read(directory, "arrived"):
        arrivals[row[8], row[9], row[10]].append(row)
    delivered = []
    ids = set()
    for row in read(directory, "accepted"):
        place, due_ms, target = (row[0], row[1], row[2]), row[7], row[8]
        came = [one for one in arrivals.get(place, ()) if one[0] == target]
        if not came:
            faults["lost"] += outcomes.get(place) in {None, "fired"}
            continue
        first = min(came, key=lambda one: (one[3], one[1], one[2]))
        same = (row[6], due_ms, target)
        faults["duplicate"] += len(came) > 1 or same in ids
        ids.add(same)
        faults["early"] += first[3] < due_ms
        faults["damaged"] += (first[4], first[5], first[6], first[7]) != (row[4], row[5], row[6], due_ms)
        delivered.append((row, first))
    read_ms: dict[tuple[str, int, int], int] = {}
    earliest: dict[tuple[str, int], int] = {}
    for row, first in sorted(delivered, key=lambda pair: -pair[0][2]):
        partition = (row[0], row[1])
        earliest[partition] = read_ms[row[0], row[1], row[2]] = min(first[3], earliest.get(partition, first[3]))
    ahead: dict[tuple[Any, ...], tuple[int, int]] = {}
    for row, first in sorted(delivered, key=lambda pair: pair[1][2]):
        if row[4] is None:
            continue
        sequence, rank = (row[8], first[1], row[0], row[1], row[4]), (row[7], row[2])
        accepted_ms = min(row[3] + WITHIN_MS, read_ms[row[0], row[1], row[2]])
        faults["order"] += accepted_ms <= row[7] and rank < ahead.get(sequence, rank)
        ahead[sequence] = max(rank, ahead.get(sequence, rank))
    return {kind: count for kind, count in faults.items() if count}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--messages", type=int, nargs="*", default=[100_000], help="how many, such as 100000 1000000")
    parser.add_argument("--rounds", type=int, default=2, help="of each; the best counts")
    options = parser.parse_args()
    console = Console(stderr=True)
    with session("bench", None, {}, console.print) as spark, tempfile.TemporaryDirectory() as made:
        print(f"{'messages':>10} {'Spark, rows/s':>14} {'Python, rows/s':>15} {'ratio':>6}")
        for messages in options.messages:
            planted = write(messages, Path(made))
            rates = []
            for judged in (partial(by_spark, spark), by_python):
                best_s = float("inf")
                for _ in range(options.rounds):
                    began_s = time.perf_counter()
                    found = judged(Path(made))
                    best_s = min(best_s, time.perf_counter() - began_s)
                    if found != planted:
                        raise SystemExit(f"{judged} found {found}, and {planted} are there")
                rates.append(messages / best_s)
            print(f"{messages:10,} {rates[0]:14,.0f} {rates[1]:15,.0f} {rates[0] / rates[1]:6.2f}")
    say_circumstances(console, quick=options.rounds < 2)


if __name__ == "__main__":
    main()
