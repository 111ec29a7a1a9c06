"""The pages of the console, and the lists of `/v1`, while millions of messages wait.

    python -m benches.bench_console [--waiting 1000000 10000000] [--rounds 20] [--json FILE]
    python -m benches.bench_console --fill-only --waiting 10000000       # then measure as often as you like:
    python -m benches.bench_console --bootstrap HOST:PORT --name NAME    # measure what another one has filled

The service itself files what is sent to its intake. Half of the messages are due at any time of the next 29 days. The
other half is due within one hour in ten days: the bucket that holds it has millions of messages. One of a hundred
thousand is for another target, and 100 schedules wait among them.

A real `tarry api` is asked for each page in turn, over and over. Each is asked anew: pauses between two rounds are
longer than answers are shared. For the lists: the first page, pages of the middle by cursor, in the large bucket and
elsewhere, and pages with a filter. The figure is the time until the whole answer is there, p50 and p95 of all rounds.
"""

import argparse
import json
import os
import random
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any, Final

import httpx
from confluent_kafka import Producer
from rich.console import Console
from rich.table import Table

from benches.overflow_backlog import SHAPE
from benches.overflow_levels import filed_by, wait_filed
from benches.support_kafka import KEYS, PARTITIONS, VALUE, Topics, create_topics, large_broker, load_producer
from benches.support_process import memory_bytes, now_ms, running
from benches.support_run import Run, say_circumstances
from tarry.client import DelayedProducer
from tarry.units import format_instant
from tests.support.api import Api, ApiConfig

DAY_MS: Final = 86_400_000
SPREAD_MS: Final = (60_000, 29 * DAY_MS)
CROWD_MS: Final = (10 * DAY_MS, 10 * DAY_MS + 3_600_000)
"""When half of the messages are due, from now on."""

RARE: Final = 100_000
"""One of so many messages is for another target."""

SCHEDULES: Final = 100
FILED_PER_S: Final = 2_000
CALM_S: Final = 6.0
"""Answers are shared for so long, at most."""

PAGES: Final = ("/", "/waiting", "/schedules", "/dead", "/targets", "/retries", "/partitions")


@dataclass(slots=True)
class Figures:
    """What was measured with a number of messages waiting: seconds by what was asked, and the API's memory."""

    waiting: int
    seconds: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))
    rss_bytes: int = 0

    def p(self, asked: str, share: float) -> float:
        """Return a percentile, in milliseconds."""
        found = sorted(self.seconds[asked])
        return found[min(len(found) - 1, int(len(found) * share))] * 1_000


def fill(bootstrap: str, topics: Topics, messages: int) -> None:
    """Send messages, half of them far apart and half of them near each other, and schedules among them."""
    choose, producer, begun_ms = random.Random(messages), load_producer(bootstrap), now_ms()
    with DelayedProducer(bootstrap, topics.intake) as client:
        for number in range(SCHEDULES):
            name, every = f"schedule-{number}", timedelta(days=1)
            client.repeat(topics.target, "again", KEYS[number].decode(), name=name, every=every)
    for number in range(messages):
        span_ms = CROWD_MS if number % 2 else SPREAD_MS
        target = f"{topics.name}.rare" if number % RARE == 0 else topics.target
        due_ms = begun_ms + span_ms[0] + int(choose.random() * (span_ms[1] - span_ms[0]))
        _produce(producer, topics.intake, number, target, due_ms)
    producer.flush()


def _produce(producer: Producer, intake: str, number: int, target: str, due_ms: int) -> None:
    headers: list[tuple[str, str | bytes | None]] = [
        ("tarry-target", target),
        ("tarry-deliver-at", str(due_ms)),
        ("tarry-id", f"{number:08x}-0000-4000-8000-{due_ms % 10**12:012}"),
    ]
    while True:
        try:
            producer.produce(intake, VALUE, KEYS[number % 1_000], headers=headers)
        except BufferError:
            producer.poll(0.01)
        else:
            return


class Asking:
    """Asks the API, and notes how long that takes."""

    def __init__(self, client: httpx.Client, topics: Topics, figures: Figures) -> None:
        self._client = client
        self._topics = topics
        self._figures = figures

    def rounds(self, count: int, say: Callable[[str], None]) -> None:
        """Ask for all pages, over and over."""
        for number in range(count):
            for path in PAGES:
                self._get(f"page {path}", path)
            message = self._lists()
            spot = {"at": f"{message['level']}.{message['level_offset']}"}
            self._get("page /message/{handle}", f"/message/{message['handle']}", spot)
            say(f"round {number + 1} of {count}")
            time.sleep(CALM_S)

    def _lists(self) -> dict[str, Any]:
        """Ask for the lists; return a message of the large bucket."""
        crowd_ms = now_ms() + (CROWD_MS[0] + CROWD_MS[1]) // 2
        lists = {
            "first page": {},
            "a span of the days": {"due_from": format_instant(now_ms() + 15 * DAY_MS)},
            "a minute of the crowd": {
                "due_from": format_instant(crowd_ms),
                "due_until": format_instant(crowd_ms + 60_000),
            },
            "one target": {"target": f"{self._topics.name}.rare"},
            "one key": {"key": KEYS[7].decode()},
        }
        self._get("/v1/pending", "/v1/pending", {})
        self._get("/v1/pending, an hour", "/v1/pending", {"due_from": format_instant(crowd_ms), "due_until":
                                                          format_instant(crowd_ms + 3_600_000)})  # fmt: skip
        met: dict[str, Any] = {}
        for name, wanted in lists.items():
            found = self._get(f"/v1/pending/messages, {name}", "/v1/pending/messages", wanted)
            met = next((one for one in found["messages"] if one["level_offset"] is not None), met)
            for _ in range(3):
                if found["next"]:
                    found = self._get(
                        f"/v1/pending/messages, {name}, next",
                        "/v1/pending/messages",
                        {**wanted, "cursor": found["next"]},
                    )
        return met

    def _get(self, name: str, path: str, query: Mapping[str, str] | None = None) -> Any:
        begun = time.monotonic()
        answer = self._client.get(path, params={"intake": self._topics.intake, **(query or {})})
        self._figures.seconds[name].append(time.monotonic() - begun)
        if answer.status_code != 200:
            raise SystemExit(f"{path}: {answer.status_code} {answer.text[:500]}")
        return answer.json() if path.startswith("/v1") else None


def measure(bootstrap: str, topics: Topics, directory: Path, rounds: int, say: Callable[[str], None]) -> Figures:
    """Start an API beside what is there, and measure."""
    config = ApiConfig(
        bootstrap,
        topics.intake,
        PARTITIONS,
        topics.name,
        intake_settings={"max_delay": SHAPE.max_delay},
        overflow=SHAPE.overflow,
    )
    with Api(config, directory) as api, api.client() as client:
        pending = client.get("/v1/pending", params={"intake": topics.intake}).json()
        figures = Figures(pending["at_most"])
        say(f"{figures.waiting:,} wait, at most")
        Asking(client, topics, figures).rounds(rounds, say)
        figures.rss_bytes = memory_bytes(api.process.pid, "VmHWM")
    return figures


def filled(run: Run, sizes: list[int]) -> Iterator[tuple[int, Topics]]:
    """Fill a broker to each of these sizes, one after the other; the service runs meanwhile."""
    with run.topics("service") as (topics, _):
        create_topics(run.bootstrap, [f"{topics.name}.rare"], 1)
        before = 0
        with running("service", run.bootstrap, topics, run.directory, SHAPE) as service:
            for size in sizes:
                filed, begun = filed_by(service), time.monotonic()
                fill(run.bootstrap, topics, size - before)
                run.say(f"{size - before:,} sent in {time.monotonic() - begun:,.0f} s")
                # A few are due within the hot window, and stay in memory.
                wait_filed(service, filed + round((size - before) * 0.999), 60 + (size - before) / FILED_PER_S)
                run.say(f"filed after {time.monotonic() - begun:,.0f} s")
                before = size
                yield size, topics


def table(found: list[Figures]) -> Table:
    """Return all figures."""
    made = Table("ms", *(f"{one.waiting:,} wait: {share}" for one in found for share in ("p50", "p95")))
    for name in found[0].seconds:
        made.add_row(name, *(f"{one.p(name, share):,.0f}" for one in found for share in (0.5, 0.95)))
    made.add_row("memory of the API, MiB", *(cell for one in found for cell in (f"{one.rss_bytes / 2**20:,.0f}", "")))
    for column in made.columns[1:]:
        column.justify = "right"
    return made


def main() -> None:
    parser = argparse.ArgumentParser(description="measure the console while millions of messages wait")
    parser.add_argument("--quick", action="store_true", help="a small run that only shows that the benchmark works")
    parser.add_argument("--waiting", type=int, nargs="+", default=[1_000_000, 10_000_000], help="ascending numbers")
    parser.add_argument("--rounds", type=int, default=20, help="how often each page is asked for (20)")
    parser.add_argument("--fill-only", action="store_true", help="fill, say where, and wait for Ctrl-C")
    parser.add_argument("--bootstrap", metavar="HOST:PORT", help="a broker that is filled already")
    parser.add_argument("--name", default="bench-1-service", help="how its topics begin")
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write the figures to this file")
    arguments = parser.parse_args()
    sizes, rounds = ([20_000], 2) if arguments.quick else (arguments.waiting, arguments.rounds)
    progress, console, found = Console(stderr=True), Console(), list[Figures]()
    with ExitStack() as until_the_end:
        directory = Path(until_the_end.enter_context(tempfile.TemporaryDirectory(prefix="tarry-bench-")))
        if arguments.bootstrap:
            found.append(measure(arguments.bootstrap, Topics(arguments.name), directory, rounds, progress.print))
        else:
            broker = until_the_end.enter_context(large_broker())
            run = until_the_end.enter_context(Run(broker.bootstrap_servers, directory, progress))
            for _, topics in filled(run, sizes):
                if arguments.fill_only:
                    progress.print(f"--bootstrap {broker.bootstrap_servers} --name {topics.name}")
                    sys.stdin.read()
                else:
                    found.append(measure(broker.bootstrap_servers, topics, directory, rounds, run.say))
    if found:
        console.print(table(found))
        load = say_circumstances(console, quick=arguments.quick)
        if arguments.json:
            document = {
                "cores": os.cpu_count(),
                "load_5_minutes": load,
                "stages": [
                    {
                        "waiting": one.waiting,
                        "rss_bytes": one.rss_bytes,
                        "ms": {name: {"p50": one.p(name, 0.5), "p95": one.p(name, 0.95)} for name in one.seconds},
                    }
                    for one in found
                ],
            }
            arguments.json.write_text(json.dumps(document, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
