"""What messages cost that wait in buckets: memory, disk, and the time until a killed worker fires again.

Messages due in 10 to 29 days, on the default wheel, are sent and filed; then, as often as there are rounds, in a life
of the service of its own:

- *Again*: a message every 20 ms, due after 200 ms, is on its way; kill -9 of the worker, which its supervisor starts
  anew. From the kill until a read_committed reader has the first message that the new process has fired.
- *Fresh*: then at once ten messages due after 1 s: how late the latest of them is.
- *Memory*: the resident set of the new process, at rest.

First all that with none waiting: of memory the difference counts, of times both stand side by side. The memory of the
process that filed them is told as well: of what a burst took once an allocator does not give all back. Disk is what the
files of the wheel's topics have grown by, for a message; the intake has its own copy until it is trimmed.
"""

import itertools
import random
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Final

from benches.overflow_levels import filed_by, wait_filed
from benches.overflow_probe import Probe
from benches.support_kafka import Topics, preload
from benches.support_process import Running, Shape, memory_bytes, now_ms, running
from benches.support_run import Run
from tarry.kafka.topics import wheel_topic

DAY_MS: Final = 86_400_000
DUE_IN_MS: Final = (10 * DAY_MS, 29 * DAY_MS)
SHAPE: Final = Shape("30d", {})
LEVELS: Final = 5
FILED_PER_S: Final = 2_000  # no service is as slow
MIB: Final = 2**20


@dataclass(frozen=True, slots=True)
class Restart:
    """One kill.

    Attributes:
        again_ms: until something was fired again.
        fresh_late_ms: how late a message with a delay of 1 s was, sent right after that.
        rss_bytes: the new process, at rest.
    """

    again_ms: int
    fresh_late_ms: int
    rss_bytes: int


@dataclass(frozen=True, slots=True)
class Stage:
    """What was measured with so many waiting.

    Attributes:
        waiting: how many.
        restarts: one for each round.
        filer_rss_bytes: the process that had filed them, at rest.
        disk_bytes: what the wheel's topics take.
    """

    waiting: int
    restarts: Sequence[Restart]
    filer_rss_bytes: int
    disk_bytes: int

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
        """The median of the processes that were started anew."""
        return median(each.rss_bytes for each in self.restarts)


@dataclass(frozen=True, slots=True)
class Figures:
    """What was measured, the first stage with none waiting."""

    stages: Sequence[Stage]

    def rows(self) -> list[tuple[str, str, str, str]]:
        """For the table: figure, value, what stands beside it, and the difference."""
        none = self.stages[0]
        made = []
        for stage in self.stages[1:]:
            name = f"{stage.waiting:,} in buckets: "
            grown = (stage.disk_bytes - none.disk_bytes) / stage.waiting
            made += [
                (f"{name}memory after a restart, MiB", *_beside(stage.rss_bytes / MIB, none.rss_bytes / MIB)),
                (f"{name}memory after filing, MiB", *_beside(stage.filer_rss_bytes / MIB, none.filer_rss_bytes / MIB)),
                (f"{name}disk, bytes a message", f"{grown:,.0f}", "", ""),
                (f"{name}kill -9 to firing again, ms", *_beside(stage.again_ms, none.again_ms)),
                (f"{name}a fresh 1 s delay after it, ms late", *_beside(stage.fresh_late_ms, none.fresh_late_ms)),
            ]
        return made

    def document(self) -> dict[str, object]:
        """For JSON."""
        return {
            "stages": [
                {
                    "waiting": stage.waiting,
                    "filer_rss_bytes": stage.filer_rss_bytes,
                    "disk_bytes": stage.disk_bytes,
                    "again_ms": [each.again_ms for each in stage.restarts],
                    "fresh_late_ms": [each.fresh_late_ms for each in stage.restarts],
                    "rss_bytes": [each.rss_bytes for each in stage.restarts],
                }
                for stage in self.stages
            ]
        }


def _beside(value: float, none: float) -> tuple[str, str, str]:
    return f"{value:,.0f}", f"{none:,.0f} with none", f"{value - none:+,.0f}"


def measure(run: Run, data: Path, waiting: Sequence[int], rounds: int) -> Figures:
    """Measure.

    Args:
        run: the run.
        data: the broker's directory.
        waiting: how many are to wait, ascending: each stage adds to the one before.
        rounds: kills at each stage.
    """
    stages: list[Stage] = []
    with run.topics("service") as (topics, _):
        sizes = [0, *waiting]
        for before, size in itertools.pairwise([0, *sizes]):
            with running("service", run.bootstrap, topics, run.directory, SHAPE) as service:
                filer_rss_bytes = _fill(run, topics, service, size - before)
            disk_bytes = sum(_size_of(data, topics))
            restarts = [_kill(run, topics) for _ in range(rounds)]
            stages.append(Stage(size, restarts, filer_rss_bytes, disk_bytes))
            run.say(
                f"{size:,} in buckets: {stages[-1].rss_bytes / MIB:,.0f} MiB after a restart, "
                f"{filer_rss_bytes / MIB:,.0f} after filing, {disk_bytes / MIB:,.0f} MiB on disk; fires "
                f"{stages[-1].again_ms:,.0f} ms after kill -9, a fresh 1 s delay {stages[-1].fresh_late_ms} ms late"
            )
    return Figures(stages)


def _fill(run: Run, topics: Topics, service: Running, messages: int) -> int:
    """Send messages for days from now, and wait until all are filed; the resident set of the process then."""
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


def _kill(run: Run, topics: Topics) -> Restart:
    """A life of its own: a supervisor waits longer and longer before it starts anew what keeps dying."""
    with (
        running("service", run.bootstrap, topics, run.directory, SHAPE) as service,
        Probe(run.bootstrap, topics) as probe,
    ):
        probe.warm_up()
        again_ms = probe.time_kill(service.pid)
        fresh_late_ms = probe.fresh()
        anew = service.newest()
        _rest(anew)
        return Restart(again_ms, fresh_late_ms, memory_bytes(anew.pid))


def _size_of(data: Path, topics: Topics) -> Iterator[int]:
    """What each file of the wheel's topics takes on disk: blocks, because indexes are made long, and with holes."""
    time.sleep(1.0)  # what was emptied is removed in the background
    names = tuple(wheel_topic(topics.intake, level) + "-" for level in range(1, LEVELS + 1))
    for log in (data / "topics").iterdir():
        if log.name.startswith(names):
            yield from (file.stat().st_blocks * 512 for file in log.iterdir())
