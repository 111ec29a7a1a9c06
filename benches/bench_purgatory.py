"""The purgatory under the load of Kafka's own benchmark: requests at a steady rate, most of which complete in time.

Requests arrive as a Poisson process. Each request is completed after a latency drawn from a log-normal distribution,
which is given by two of its percentiles. A request with a latency above the timeout expires. There are two modes:

    forced   as in Kafka's benchmark: all requests watch the same keys, and each is completed directly; its entries
             under the keys are left to the purge
    by key   as for an awaited outcome: each request watches a separate key, and a check of that key completes it

Each mode runs in a separate process, with the garbage collector off, as in the service. Memory is the growth of the
resident set since just before the first request, sampled while requests come. After the last purge no request waits and
no entry is left. Python then still holds memory, because it returns only whole arenas of 1 MiB to the system and uses
the rest again. So the number of allocated blocks shows how much the purgatory has freed.

    python -m benches.bench_purgatory
    python -m benches.bench_purgatory --num 300000 --timeout 60000 --pct50 20000 --pct75 30000
"""

from __future__ import annotations

import argparse
import gc
import json
import math
import os
import random
import subprocess
import sys
import threading
import time
from dataclasses import asdict, dataclass
from heapq import heappop, heappush
from pathlib import Path
from typing import TYPE_CHECKING, Final

from benches.support_process import memory_bytes
from tarry.clock import SystemClock
from tarry.native import core
from tarry.timer import DelayedOperation, DelayedOperationPurgatory, SystemTimer

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

NORMAL_75TH: Final = 0.674490
"""The 75th percentile of the standard normal distribution."""
SAMPLE_EVERY: Final = 500
PATIENCE_S: Final = 600
WAYS: Final = ("forced", "by key")


@dataclass(frozen=True, slots=True)
class Load:
    """The load; times in ms."""

    num: int
    rate: float
    keys: int
    timeout: int
    pct50: float
    pct75: float
    purge_interval: int

    def latencies_ms(self) -> list[int]:
        """Draw for each request the time from its arrival to its completion."""
        mu = math.log(self.pct50)
        sigma = (math.log(self.pct75) - mu) / NORMAL_75TH
        rng = random.Random(self.num)
        return [int(rng.lognormvariate(mu, sigma)) for _ in range(self.num)]


@dataclass(frozen=True, slots=True)
class Figures:
    """The figures of one run.

    Attributes:
        enqueued_per_s: requests per second, from first to last; equal to the load's rate if the process keeps up.
        cpu_us: CPU time of the whole process per request, from enqueuing to its end.
        wall_s: time until the last request was completed.
        completed: requests that completed in time.
        expired: requests that expired.
        peak_watched: maximum number of entries under keys, sampled while requests came.
        peak_delayed: maximum number of waiting requests, sampled in the same way.
        peak_bytes: maximum growth of the resident set.
        after_bytes: growth of the resident set after the last purge.
        peak_blocks: maximum growth of Python's allocated blocks.
        after_blocks: growth of Python's allocated blocks after the last purge.
        left: entries under keys after the last purge.
    """

    enqueued_per_s: float
    cpu_us: float
    wall_s: float
    completed: int
    expired: int
    peak_watched: int
    peak_delayed: int
    peak_bytes: int
    after_bytes: int
    peak_blocks: int
    after_blocks: int
    left: int


class Tally:
    """Counts completed requests, and those of them that expired. Thread-safe."""

    def __init__(self, expected: int) -> None:
        self._lock = threading.Lock()
        self._expected = expected
        self.ended = 0
        self.expired = 0
        self.all_ended = threading.Event()

    def end(self) -> None:
        """Count a completion."""
        with self._lock:
            self.ended += 1
            if self.ended == self._expected:
                self.all_ended.set()

    def expire(self) -> None:
        """Count a request that expired."""
        with self._lock:
            self.expired += 1


class Request(DelayedOperation):
    """A request that can be completed once its latency has passed."""

    def __init__(self, timeout_ms: int, completes_ms: int, tally: Tally) -> None:
        super().__init__(timeout_ms)
        self.completes_ms = completes_ms
        self.tally = tally

    def try_complete(self) -> bool:
        """Complete the request if its latency has passed."""
        return time.monotonic_ns() // 1_000_000 >= self.completes_ms and self.force_complete()

    def on_complete(self) -> None:
        """Count it."""
        self.tally.end()

    def on_expiration(self) -> None:
        """Count it as late."""
        self.tally.expire()


class Completer(threading.Thread):
    """Completes requests when their latency has passed, in a separate thread."""

    def __init__(self, complete: Callable[[int, Request], object]) -> None:
        super().__init__(name="completer", daemon=True)
        self._complete = complete
        self._queue: list[tuple[int, int, Request]] = []
        self._lock = threading.Lock()
        self._stopping = threading.Event()

    def add(self, number: int, request: Request) -> None:
        """Complete a request at its time."""
        with self._lock:
            heappush(self._queue, (request.completes_ms, number, request))

    def run(self) -> None:
        """Complete what is due, each millisecond."""
        while not self._stopping.wait(0.001):
            while (due := self._next_due()) is not None:
                self._complete(*due)

    def stop(self) -> None:
        """End, and wait for the thread."""
        self._stopping.set()
        self.join()

    def _next_due(self) -> tuple[int, Request] | None:
        with self._lock:
            if not self._queue or self._queue[0][0] > time.monotonic_ns() // 1_000_000:
                return None
            return heappop(self._queue)[1:]


def run(way: str, load: Load) -> Figures:
    clock = SystemClock()
    tally = Tally(load.num)
    latencies_ms = load.latencies_ms()
    intervals = random.Random(load.keys)
    purgatory = DelayedOperationPurgatory[Request](
        "bench", SystemTimer("bench", clock), purge_interval=load.purge_interval
    )
    shared = [f"key-{number}" for number in range(load.keys)]

    def complete(number: int, request: Request) -> None:
        if way == "forced":
            request.force_complete()
        else:
            purgatory.check_and_complete(number)

    completer = Completer(complete)
    peak_watched = peak_delayed = 0
    before_bytes = peak_bytes = memory_bytes(os.getpid())
    before_blocks = peak_blocks = sys.getallocatedblocks()

    def sample() -> None:
        nonlocal peak_watched, peak_delayed, peak_bytes, peak_blocks
        peak_watched = max(peak_watched, purgatory.watched())
        peak_delayed = max(peak_delayed, purgatory.delayed())
        peak_bytes = max(peak_bytes, memory_bytes(os.getpid()))
        peak_blocks = max(peak_blocks, sys.getallocatedblocks())

    with purgatory:
        completer.start()
        began_s, began_cpu_s = time.monotonic(), time.process_time()
        arrives_s = began_s
        for number, latency_ms in enumerate(latencies_ms):
            arrives_s += intervals.expovariate(load.rate)
            if (ahead_s := arrives_s - time.monotonic()) > 0:
                time.sleep(ahead_s)
            request = Request(load.timeout, clock.monotonic_ms() + latency_ms, tally)
            if way == "forced":
                purgatory.try_complete_else_watch(request, *shared)
            else:
                purgatory.try_complete_else_watch(request, number)
            if latency_ms < load.timeout:
                completer.add(number, request)
            del request
            if number % SAMPLE_EVERY == 0:
                sample()
        enqueued_s = time.monotonic() - began_s
        sample()
        if not tally.all_ended.wait(PATIENCE_S):
            raise SystemExit(f"{tally.ended:,} of {load.num:,} requests have ended")
        wall_s, cpu_s = time.monotonic() - began_s, time.process_time() - began_cpu_s
        completer.stop()
    purgatory.advance_clock(0)
    return Figures(
        enqueued_per_s=load.num / enqueued_s,
        cpu_us=cpu_s / load.num * 1e6,
        wall_s=wall_s,
        completed=tally.ended - tally.expired,
        expired=tally.expired,
        peak_watched=peak_watched,
        peak_delayed=peak_delayed,
        peak_bytes=peak_bytes - before_bytes,
        after_bytes=memory_bytes(os.getpid()) - before_bytes,
        peak_blocks=peak_blocks - before_blocks,
        after_blocks=sys.getallocatedblocks() - before_blocks,
        left=purgatory.watched(),
    )


def in_fresh_process(way: str, arguments: Sequence[str]) -> Figures:
    command = [sys.executable, "-m", "benches.bench_purgatory", *arguments, "--one", way]
    ran = subprocess.run(
        command, stdout=subprocess.PIPE, text=True, check=True, cwd=Path(__file__).resolve().parent.parent
    )
    return Figures(**json.loads(ran.stdout))


def print_table(rows: dict[str, Figures]) -> None:
    print(f"{'':>32}" + "".join(f"{way:>14}" for way in rows))
    lines: list[tuple[str, Callable[[Figures], str]]] = [
        ("enqueued, a second", lambda run: f"{run.enqueued_per_s:,.0f}"),
        ("CPU for a request, us", lambda run: f"{run.cpu_us:.1f}"),
        ("completed in time", lambda run: f"{run.completed:,}"),
        ("expired", lambda run: f"{run.expired:,}"),
        ("watched, at most", lambda run: f"{run.peak_watched:,}"),
        ("delayed, at most", lambda run: f"{run.peak_delayed:,}"),
        ("memory, at most", lambda run: f"{run.peak_bytes / 2**20:.1f} MiB"),
        ("for each that waited then", lambda run: f"{run.peak_bytes / run.peak_delayed:,.0f} B"),
        ("memory after the last purge", lambda run: f"{run.after_bytes / 2**20:.1f} MiB"),
        ("blocks in use, at most", lambda run: f"{run.peak_blocks:,}"),
        ("blocks after the last purge", lambda run: f"{run.after_blocks:,}"),
        ("watched after the last purge", lambda run: f"{run.left:,}"),
        ("until the last ended, s", lambda run: f"{run.wall_s:.1f}"),
    ]
    for name, figure in lines:
        print(f"{name:>32}" + "".join(f"{figure(run):>14}" for run in rows.values()))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--num", type=int, default=100_000, metavar="N", help="requests")
    parser.add_argument("--rate", type=float, default=10_000, metavar="N", help="requests a second")
    parser.add_argument(
        "--keys", type=int, default=3, metavar="N", help="forced: number of keys that all requests watch"
    )
    parser.add_argument("--timeout", type=int, default=3_000, metavar="MS", help="after which a request expires")
    parser.add_argument("--pct50", type=float, default=500, metavar="MS", help="median of the latencies")
    parser.add_argument("--pct75", type=float, default=1_000, metavar="MS", help="their 75th percentile")
    parser.add_argument("--purge-interval", type=int, default=1_000, metavar="N")
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write the figures to this file")
    parser.add_argument("--one", choices=WAYS, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if not 0 < options.pct50 <= options.pct75:
        parser.error("--pct50 has to be above 0, and --pct75 not below it")
    load = Load(
        options.num,
        options.rate,
        options.keys,
        options.timeout,
        options.pct50,
        options.pct75,
        options.purge_interval,
    )
    if options.one:
        gc.disable()
        print(json.dumps(asdict(run(options.one, load))))
        return
    rows = {way: in_fresh_process(way, sys.argv[1:]) for way in WAYS}
    print(
        f"{core()}: {load.num:,} requests at {load.rate:,.0f}/s, timeout {load.timeout:,} ms,"
        f" latency p50 {load.pct50:,.0f} ms, p75 {load.pct75:,.0f} ms"
    )
    print_table(rows)
    if options.json:
        result = {"load": asdict(load), **{way: asdict(figures) for way, figures in rows.items()}}
        options.json.write_text(json.dumps(result, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
