"""A target that is away for an hour while 1,000 messages a second become due for it: what that costs.

    python -m benches.bench_away [--quick] [--minutes 60] [--rate 1000] [--json FILE]

Nobody may write to the target, so all of its messages are parked, and go to the parked log. (Messages for a topic that
does not exist would become dead letters.) Ten times in that hour (twice in a quick run) a worker is killed with kill
-9, and its supervisor starts a new one. Measured each time:

- *Memory*: the resident set before the kill, and of the new worker five seconds after it fires.
- *Again*: a message to another target is sent every 20 ms, with a delay of 200 ms. Time from the kill until a
  read_committed reader gets the first one of the new worker.
- *Journal*: how many offsets of it are retained, which a take-over reads.

All of this must be as at the beginning, however long the target is away. In the end the service may write to it: each
message must arrive once.
"""

import argparse
import json
import tempfile
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from typing import Final

from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._acl import AclOperation
from rich.console import Console
from rich.table import Table

from benches.overflow_backlog import MIB, SHAPE
from benches.overflow_probe import Probe
from benches.support_kafka import AwayTopics, Progress, Topics, create_topics, large_broker
from benches.support_process import memory_bytes, running
from benches.support_run import Run, say_circumstances
from tarry.kafka.topics import JOURNAL, PARKED
from tests.support.rights import AUTHORIZER, allow, deny
from tests.support.topics import ends_of, starts_of

KILLS: Final = 10
QUICK_KILLS: Final = 2
SETTLES_S: Final = 5.0
DELAYS_MS: Final = (500, 3_000)
DELIVERED_PER_S: Final = 2_000  # far fewer than any run needs


@dataclass(frozen=True, slots=True)
class Look:
    """The figures around one kill.

    Attributes:
        after_s: how long the target was away by then.
        before_bytes: resident set of the worker that was killed.
        rss_bytes: resident set of the new one.
        again_ms: time until a message to another target was fired again.
        journal: offsets that the journal retains.
        parked: offsets that the parked log retains.
    """

    after_s: float
    before_bytes: int
    rss_bytes: int
    again_ms: int
    journal: int
    parked: int


@dataclass(frozen=True, slots=True)
class Figures:
    """All figures.

    Attributes:
        looks: around each kill.
        sent: how many messages were sent to the target that was away.
        per_s: how many of them a second arrived when it was there.
    """

    looks: list[Look]
    sent: int
    per_s: float


def retained(bootstrap: str, topic: str) -> int:
    """Return how many offsets a topic retains."""
    return sum(ends_of(bootstrap, topic, committed=False).values()) - sum(starts_of(bootstrap, topic).values())


def measure(run: Run, seconds: float, rate: int, kills: int) -> Figures:
    """Let a target be away for so long, kill workers meanwhile, and bring it back in the end."""
    with run.topics("service") as (topics, _):
        away, admin = AwayTopics(topics.name), AdminClient({"bootstrap.servers": run.bootstrap})
        create_topics(run.bootstrap, [away.target])
        deny(admin, away.target, AclOperation.WRITE)
        with running("service", run.bootstrap, topics, run.directory, SHAPE):
            load = run.load(topics, rate, seconds, DELAYS_MS, "--away")
            began = time.monotonic()
        looks = [_kill(run, topics, began, seconds * number / (kills + 1)) for number in range(1, kills + 1)]
        with running("service", run.bootstrap, topics, run.directory, SHAPE):
            load.wait(seconds)
            sent = run.told(load)["sent"]
            arrives = Progress(run.bootstrap, away.target)
            allow(admin, away.target, AclOperation.WRITE)
            moves = arrives.settled(15.0, 60 + sent / DELIVERED_PER_S, every_s=0.1, since=0)
            took_s = (moves[-1][0] - moves[0][0]) / 1_000
            run.say(f"{sent:,} messages arrived within {took_s:,.0f} s")
        run.all_arrived(away, sent)
    return Figures(looks, sent, sent / max(0.001, took_s))


def _kill(run: Run, topics: Topics, began: float, at_s: float) -> Look:
    """Kill at a time with a new service, because a supervisor waits longer with each restart of its worker."""
    with (
        running("service", run.bootstrap, topics, run.directory, SHAPE) as service,
        Probe(run.bootstrap, topics) as probe,
    ):
        time.sleep(max(0.0, began + at_s - time.monotonic()))
        before = memory_bytes(service.pid)
        probe.warm_up()
        again_ms = probe.time_kill(service.pid)
        time.sleep(SETTLES_S)  # the new worker is never idle; by then it holds what it usually does
        logs = [retained(run.bootstrap, topics.intake + suffix) for suffix in (JOURNAL, PARKED)]
        look = Look(time.monotonic() - began, before, memory_bytes(service.newest().pid), again_ms, *logs)
    run.say(
        f"away for {look.after_s:,.0f} s: {before / MIB:,.0f} MiB, {look.rss_bytes / MIB:,.0f} after a kill; fires "
        f"{again_ms:,} ms after it; journal {look.journal:,} offsets, parked log {look.parked:,}"
    )
    return look


def table(figures: Figures) -> Table:
    """The figures, the first kill beside the last one."""
    made = Table("figure", "first kill", "median", "last kill")
    looks = figures.looks
    for name, values in (
        ("away for, s", [look.after_s for look in looks]),
        ("memory before a kill, MiB", [look.before_bytes / MIB for look in looks]),
        ("memory after it, MiB", [look.rss_bytes / MIB for look in looks]),
        ("kill -9 to firing again, ms", [float(look.again_ms) for look in looks]),
        ("journal, offsets retained", [float(look.journal) for look in looks]),
        ("parked log, offsets retained", [float(look.parked) for look in looks]),
    ):
        made.add_row(name, *(f"{value:,.0f}" for value in (values[0], median(values), values[-1])))
    made.add_row("delivered when it is there, msg/s", "", f"{figures.per_s:,.0f}", "")
    for column in made.columns[1:]:
        column.justify = "right"
    return made


def main() -> None:
    lines = (__doc__ or "").split("\n\n")
    parser = argparse.ArgumentParser(
        description=lines[0], epilog="example:\n" + lines[1], formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="two minutes, which only show that the benchmark works")
    parser.add_argument("--minutes", type=float, default=60.0, help="how long the target is away (60)")
    parser.add_argument("--rate", type=int, default=1_000, help="messages a second to it (1,000)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write the figures to this file")
    arguments = parser.parse_args()
    seconds = 120.0 if arguments.quick else arguments.minutes * 60
    progress, result = Console(stderr=True), Console()
    with (
        tempfile.TemporaryDirectory(prefix="tarry-bench-") as directory,
        large_broker(AUTHORIZER) as broker,
        Run(broker.bootstrap_servers, Path(directory), progress) as run,
    ):
        figures = measure(run, seconds, arguments.rate, QUICK_KILLS if arguments.quick else KILLS)
    result.print(table(figures))
    load = say_circumstances(result, quick=arguments.quick)
    if arguments.json:
        document = {"load_5_minutes": load, "quick": arguments.quick, **asdict(figures)}
        arguments.json.write_text(json.dumps(document, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
