"""The cost of messages that wait in buckets: memory, disk, the time until a killed worker fires again, and `pending`.

The benchmark sends messages that are due in 10 to 29 days, on the default wheel, and waits until they are filed. Each
round then starts the service and measures:

- *Again*: a message is sent every 20 ms, with a delay of 200 ms. The worker is killed with kill -9, and its supervisor
  starts a new one. Time from the kill until a read_committed reader gets the first message of the new worker.
- *Fresh*: right after that, ten messages with a delay of 1 s are sent. The lateness of the latest of them.
- *Memory*: the resident set of the new worker when it is idle.

The first stage has no waiting messages. For memory, the difference between stages counts; times are printed side by
side. The memory of the worker that filed the messages is printed as well: it is larger, because an allocator does not
return everything that a burst has used. Disk is the growth of the files of the levels and of the journal, for each
message, beside the growth of the intake's files: the same messages as their producer sent them. The intake is measured
at the first stage, whose messages are still in its newest segment. `pending` is the command, its start included.
"""

import itertools
import os
import random
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Final

from benches.overflow_levels import filed_by, wait_filed
from benches.overflow_probe import Probe
from benches.support_kafka import Topics, preload
from benches.support_process import Running, Service, Shape, memory_bytes, now_ms, running
from benches.support_run import Run
from tarry.kafka.topics import JOURNAL, wheel_topic

DAY_MS: Final = 86_400_000
DUE_IN_MS: Final = (10 * DAY_MS, 29 * DAY_MS)
SHAPE: Final = Shape("30d", {})
LEVELS: Final = 4
FILED_PER_S: Final = 2_000  # far more than any run needs
MIB: Final = 2**20


@dataclass(frozen=True, slots=True)
class Restart:
    """The figures after one kill.

    Attributes:
        again_ms: time until a message was fired again.
        fresh_late_ms: lateness of a message with a delay of 1 s that was sent right after that.
        rss_bytes: resident set of the new worker when it is idle.
    """

    again_ms: int
    fresh_late_ms: int
    rss_bytes: int


@dataclass(frozen=True, slots=True)
class Stage:
    """The figures with a given number of waiting messages.

    Attributes:
        waiting: the number of waiting messages.
        restarts: one for each round.
        filer_rss_bytes: resident set of the worker that filed them, when it is idle.
        levels_bytes: disk space of the levels' logs.
        journal_bytes: disk space of the journal.
        intake_bytes: disk space of the intake.
        pending_s: how long `tarry pending` took.
    """

    waiting: int
    restarts: Sequence[Restart]
    filer_rss_bytes: int
    levels_bytes: int
    journal_bytes: int
    intake_bytes: int
    pending_s: float

    @property
    def again_ms(self) -> float:
        """The median."""
        return median(each.again_ms for each in self.restarts)

    @property
    def fresh_late_ms(self) -> int:
        """The worst."""
        return max(each.fresh_late_ms for each in self.restarts)

    @property
    def rss_bytes(self) -> float:
        """The median over the new workers."""
        return median(each.rss_bytes for each in self.restarts)


@dataclass(frozen=True, slots=True)
class Figures:
    """The figures of all stages; the first stage has no waiting messages."""

    stages: Sequence[Stage]

    def rows(self) -> list[tuple[str, str, str, str]]:
        """Rows of the table: figure, value, the value that it is compared with, and the difference."""
        none, first = self.stages[:2]
        sent = (first.intake_bytes - none.intake_bytes) / first.waiting
        made = []
        for stage in self.stages[1:]:
            name = f"{stage.waiting:,} in buckets: "
            levels, journal = (
                (getattr(stage, each) - getattr(none, each)) / stage.waiting
                for each in ("levels_bytes", "journal_bytes")
            )
            disk = levels + journal
            made += [
                (f"{name}memory after a restart, MiB", *_beside(stage.rss_bytes / MIB, none.rss_bytes / MIB)),
                (f"{name}memory after filing, MiB", *_beside(stage.filer_rss_bytes / MIB, none.filer_rss_bytes / MIB)),
                (
                    f"{name}disk, bytes a message: levels, journal",
                    f"{levels:,.1f}, {journal:,.1f}",
                    f"intake {sent:,.1f}",
                    f"{disk / sent:.2f}",
                ),
                (f"{name}kill -9 to firing again, ms", *_beside(stage.again_ms, none.again_ms)),
                (f"{name}a fresh 1 s delay after it, ms late", *_beside(stage.fresh_late_ms, none.fresh_late_ms)),
                (f"{name}`tarry pending`, ms", *_beside(stage.pending_s * 1_000, none.pending_s * 1_000)),
            ]
        return made

    def document(self) -> dict[str, object]:
        """For JSON."""
        return {
            "stages": [
                {
                    "waiting": stage.waiting,
                    "filer_rss_bytes": stage.filer_rss_bytes,
                    "levels_bytes": stage.levels_bytes,
                    "journal_bytes": stage.journal_bytes,
                    "intake_bytes": stage.intake_bytes,
                    "pending_s": stage.pending_s,
                    "again_ms": [each.again_ms for each in stage.restarts],
                    "fresh_late_ms": [each.fresh_late_ms for each in stage.restarts],
                    "rss_bytes": [each.rss_bytes for each in stage.restarts],
                }
                for stage in self.stages
            ]
        }


def _beside(value: float, none: float) -> tuple[str, str, str]:
    return f"{value:,.0f}", f"{none:,.0f} with none", f"{value - none:+,.0f}"


def measure(run: Run, name: Service, data: Path, waiting: Sequence[int], rounds: int) -> Figures:
    """Measure.

    Args:
        run: the run.
        name: the service.
        data: the broker's directory.
        waiting: the number of waiting messages at each stage, ascending; each stage adds to the one before.
        rounds: the number of kills at each stage.
    """
    stages: list[Stage] = []
    with run.topics(name) as (topics, _):
        sizes = [0, *waiting]
        for before, size in itertools.pairwise([0, *sizes]):
            with running(name, run.bootstrap, topics, run.directory, SHAPE) as service:
                filer_rss_bytes = _fill(run, topics, service, size - before)
            disk_bytes = _disk(data, topics)
            pending_s = _pending_s(run, topics)
            restarts = [_kill(run, name, topics) for _ in range(rounds)]
            stages.append(Stage(size, restarts, filer_rss_bytes, *disk_bytes, pending_s))
            run.say(
                f"{name}, {size:,} in buckets: {stages[-1].rss_bytes / MIB:,.0f} MiB after a restart, "
                f"{filer_rss_bytes / MIB:,.0f} after filing, {sum(disk_bytes[:2]) / MIB:,.0f} MiB on disk; fires "
                f"{stages[-1].again_ms:,.0f} ms after kill -9, a fresh 1 s delay {stages[-1].fresh_late_ms} ms late; "
                f"pending takes {pending_s:.2f} s"
            )
    return Figures(stages)


def _fill(run: Run, topics: Topics, service: Running, messages: int) -> int:
    """Send messages that are due in days, and wait until all are filed; return the worker's resident set then."""
    choose = random.Random(messages)
    dues = (now_ms() + choose.randint(*DUE_IN_MS) for _ in range(messages))
    if messages:
        filed = filed_by(service)
        took_s = preload(run.bootstrap, topics, dues)
        run.say(f"{messages:,} sent in {took_s:,.0f} s, {filed_by(service) - filed:,} of them filed meanwhile")
        wait_filed(service, filed + messages, 60 + messages / FILED_PER_S)
    _rest(service)
    return memory_bytes(service.pid)


def _rest(service: Running) -> None:
    if not service.wait_idle(60, below=0.2):
        raise SystemExit("the service is busy with messages that are not due")


def _kill(run: Run, name: Service, topics: Topics) -> Restart:
    """Use a new service, because a supervisor waits longer with each restart of a worker that dies repeatedly."""
    with (
        running(name, run.bootstrap, topics, run.directory, SHAPE) as service,
        Probe(run.bootstrap, topics) as probe,
    ):
        probe.warm_up()
        again_ms = probe.time_kill(service.pid)
        fresh_late_ms = probe.fresh()
        anew = service.newest()
        _rest(anew)
        return Restart(again_ms, fresh_late_ms, memory_bytes(anew.pid))


def _pending_s(run: Run, topics: Topics) -> float:
    """Return how long `tarry pending` takes, in seconds."""
    command = [sys.executable, "-m", "tarry", "pending", "--intake", topics.intake]
    environment = {**os.environ, "TARRY_SERVICE__GROUP": topics.name}
    started = time.monotonic()
    subprocess.run(
        [*command, "--bootstrap-servers", run.bootstrap], check=True, env=environment, stdout=subprocess.DEVNULL
    )
    return time.monotonic() - started


def _disk(data: Path, topics: Topics) -> tuple[int, int, int]:
    """Return the disk space of the levels' logs, of the journal and of the intake, in bytes."""
    time.sleep(1.0)  # files of trimmed logs are deleted in the background
    levels = [wheel_topic(topics.intake, level) for level in range(1, LEVELS + 1)]
    return (
        sum(size for level in levels for size in _sizes(data, level)),
        sum(_sizes(data, topics.intake + JOURNAL)),
        sum(_sizes(data, topics.intake)),
    )


def _sizes(data: Path, topic: str) -> Iterator[int]:
    """Disk space of each file of a topic, in blocks: index files are sparse, so length says nothing."""
    for log in (data / "topics").iterdir():
        if log.name.rpartition("-")[0] == topic:
            yield from (file.stat().st_blocks * 512 for file in log.iterdir())
