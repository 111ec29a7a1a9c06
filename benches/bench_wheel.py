"""The timing wheel compared with `heapq` on the same work: a million tasks over a minute, a third of them cancelled.

Both hold the same tasks and cancel the same ones. For every millisecond of the minute, both return the due tasks by due
time and sequence; the benchmark checks that tasks and order are the same. `heapq` holds `(due_ms, sequence, task)`, and
marks cancelled tasks instead of removing them, because removing a task from a heap needs a search. Each run is a
separate process, with the garbage collector off, as in the service. Memory is the growth of the peak resident set since
just before the first add. The time of an add includes creating the task.

    python -m benches.bench_wheel              the comparison
    python -m benches.bench_wheel --sizes      the wheel alone, in several sizes; the default size was chosen by this
"""

from __future__ import annotations

import argparse
import gc
import json
import random
import resource
import statistics
import subprocess
import sys
from array import array
from heapq import heappop, heappush
from pathlib import Path
from time import process_time
from typing import TYPE_CHECKING, Final, NamedTuple

from tarry.native import core
from tarry.timer.task_list import TimerTaskEntry
from tarry.timer.wheel import DEFAULT_SIZE, TimingWheel

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

START_MS: Final = 1_700_000_000_000
SPAN_MS: Final = 60_000
SIZES: Final = (20, 32, 64, 128, 256, 512, 1_024)
JVM_ADDS_PER_S: Final = 3_800_000
JVM_EXPIRIES_PER_S: Final = 540_000
"""Figures of Kafka's own SystemTimer on the JVM, on two cores of the same kind."""

_PEAK_UNIT_BYTES: Final = 1 if sys.platform == "darwin" else 1_024


class Figures(NamedTuple):
    """The figures of one run, in CPU seconds and bytes."""

    add_s: float
    cancel_s: float
    expire_s: float
    peak_bytes: int
    fired: int
    order: int

    @property
    def cpu_s(self) -> float:
        """CPU seconds of the whole run."""
        return self.add_s + self.cancel_s + self.expire_s


class HeldEntry(TimerTaskEntry):
    """A task in the wheel; it is the wheel's entry itself."""

    __slots__ = ("value",)

    def __init__(self, due_ms: int, sequence: int) -> None:
        self.due_ms = due_ms
        self.sequence = sequence
        self.bucket = None
        self.value = None


class HeldTask:
    """A task in the heap, with the same payload, and a mark that says whether it is cancelled."""

    __slots__ = ("cancelled", "sequence", "value")

    def __init__(self, sequence: int) -> None:
        self.sequence = sequence
        self.cancelled = False
        self.value = None


def delays_ms(tasks: int) -> array[int]:
    rng = random.Random(tasks)
    return array("l", (1 + int(rng.random() * SPAN_MS) for _ in range(tasks)))


def mixed(order: int, sequences: Iterable[int]) -> int:
    """Mix a fired task into a checksum of the fired tasks and their order."""
    for sequence in sequences:
        order = (order * 31 + sequence) % 0xFFFFFFFB
    return order


def peak_bytes() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * _PEAK_UNIT_BYTES


def run_wheel(tasks: int, size: int) -> Figures:
    delays = delays_ms(tasks)
    wheel = TimingWheel(1, size, START_MS)
    doomed: list[HeldEntry] = []
    before_bytes = peak_bytes()

    began_s = process_time()
    add = wheel.add
    for sequence, delay_ms in enumerate(delays):
        entry = HeldEntry(START_MS + delay_ms, sequence)
        add(entry)
        if sequence % 3 == 0:
            doomed.append(entry)
    add_s = process_time() - began_s

    began_s = process_time()
    while doomed:
        wheel.cancel(doomed.pop())
    cancel_s = process_time() - began_s

    expire_s, fired, order = 0.0, 0, 0
    for second_ms in range(START_MS, START_MS + SPAN_MS, 1_000):
        began_s = process_time()
        batches = [wheel.advance(now_ms) for now_ms in range(second_ms + 1, second_ms + 1_001)]
        expire_s += process_time() - began_s
        for batch in batches:
            fired += len(batch)
            order = mixed(order, (entry.sequence for entry in batch))
    return Figures(add_s, cancel_s, expire_s, peak_bytes() - before_bytes, fired, order)


def run_heap(tasks: int, _size: int) -> Figures:
    delays = delays_ms(tasks)
    heap: list[tuple[int, int, HeldTask]] = []
    doomed: list[HeldTask] = []
    before_bytes = peak_bytes()

    began_s = process_time()
    for sequence, delay_ms in enumerate(delays):
        task = HeldTask(sequence)
        heappush(heap, (START_MS + delay_ms, sequence, task))
        if sequence % 3 == 0:
            doomed.append(task)
    add_s = process_time() - began_s

    began_s = process_time()
    while doomed:
        doomed.pop().cancelled = True
    cancel_s = process_time() - began_s

    def advance(now_ms: int) -> list[HeldTask]:
        due = []
        while heap and heap[0][0] <= now_ms:
            task = heappop(heap)[2]
            if not task.cancelled:
                due.append(task)
        return due

    expire_s, fired, order = 0.0, 0, 0
    for second_ms in range(START_MS, START_MS + SPAN_MS, 1_000):
        began_s = process_time()
        batches = [advance(now_ms) for now_ms in range(second_ms + 1, second_ms + 1_001)]
        expire_s += process_time() - began_s
        for batch in batches:
            fired += len(batch)
            order = mixed(order, (task.sequence for task in batch))
    return Figures(add_s, cancel_s, expire_s, peak_bytes() - before_bytes, fired, order)


CONTENDERS: Final[dict[str, Callable[[int, int], Figures]]] = {"wheel": run_wheel, "heapq": run_heap}


def in_fresh_process(contender: str, tasks: int, size: int) -> Figures:
    command = [sys.executable, "-m", "benches.bench_wheel", "--tasks", str(tasks)]
    run = subprocess.run(
        [*command, "--size", str(size), "--one", contender],
        stdout=subprocess.PIPE,
        text=True,
        check=True,
        cwd=Path(__file__).resolve().parent.parent,
    )
    return Figures(*json.loads(run.stdout))


def median(runs: list[Figures]) -> Figures:
    """The median of each figure; every run must have fired the same tasks in the same order."""
    if len({(run.fired, run.order) for run in runs}) != 1:
        raise SystemExit("the runs did not fire the same tasks in the same order")
    return Figures(
        statistics.median(run.add_s for run in runs),
        statistics.median(run.cancel_s for run in runs),
        statistics.median(run.expire_s for run in runs),
        int(statistics.median(run.peak_bytes for run in runs)),
        runs[0].fired,
        runs[0].order,
    )


def as_json(figures: Figures, tasks: int) -> dict[str, float]:
    return {
        "add_s": round(figures.add_s, 4),
        "cancel_s": round(figures.cancel_s, 4),
        "expire_s": round(figures.expire_s, 4),
        "cpu_s": round(figures.cpu_s, 4),
        "peak_mib": round(figures.peak_bytes / 2**20, 1),
        "peak_bytes_a_task": round(figures.peak_bytes / tasks, 1),
        "adds_per_s": round(tasks / figures.add_s),
        "expiries_per_s": round(figures.fired / figures.expire_s),
    }


def print_table(title: str, rows: dict[str, Figures], tasks: int) -> None:
    cancelled = (tasks + 2) // 3
    print(title)
    print(f"{'':>8}  {'add':>12}  {'cancel':>12}  {'expire':>12}  {'CPU':>8}  {'peak':>10}  {'a task':>8}")
    for name, run in rows.items():
        print(
            f"{name:>8}  {run.add_s / tasks * 1e6:>9.3f} us  {run.cancel_s / cancelled * 1e6:>9.3f} us"
            f"  {run.expire_s / run.fired * 1e6:>9.3f} us  {run.cpu_s:>6.2f} s"
            f"  {run.peak_bytes / 2**20:>6.1f} MiB  {run.peak_bytes / tasks:>6.0f} B"
        )


def compare(tasks: int, size: int, repeat: int) -> dict[str, object]:
    runs: dict[str, list[Figures]] = {name: [] for name in CONTENDERS}
    for _ in range(repeat):  # by turns, so that a slow moment of the machine affects both
        for name, figures in runs.items():
            figures.append(in_fresh_process(name, tasks, size))
    if len({(run.fired, run.order) for figures in runs.values() for run in figures}) != 1:
        raise SystemExit("wheel and heap did not fire the same tasks in the same order")
    rows = {name: median(figures) for name, figures in runs.items()}
    wheel, heap = rows["wheel"], rows["heapq"]
    print_table(
        f"{tasks:,} tasks over a minute, a third cancelled, {wheel.fired:,} fired; median of {repeat}",
        rows,
        tasks,
    )
    cpu_ratio = wheel.cpu_s / heap.cpu_s
    peak_ratio = wheel.peak_bytes / heap.peak_bytes
    adds_per_s, expiries_per_s = tasks / wheel.add_s, wheel.fired / wheel.expire_s
    print(f"wheel / heapq: CPU {cpu_ratio:.2f}, peak memory {peak_ratio:.2f}")
    print(
        f"wheel: {adds_per_s / 1e6:.2f} M adds/s, {expiries_per_s / 1e6:.2f} M expiries/s;"
        f" Kafka's SystemTimer on the JVM: {JVM_ADDS_PER_S / 1e6:.2f} M, {JVM_EXPIRIES_PER_S / 1e6:.2f} M;"
        f" ratios {adds_per_s / JVM_ADDS_PER_S:.2f}, {expiries_per_s / JVM_EXPIRIES_PER_S:.2f}"
    )
    return {
        "core": core(),
        "tasks": tasks,
        "size": size,
        "repeat": repeat,
        **{name: as_json(figures, tasks) for name, figures in rows.items()},
        "cpu_ratio": round(cpu_ratio, 3),
        "peak_ratio": round(peak_ratio, 3),
        "adds_to_jvm": round(adds_per_s / JVM_ADDS_PER_S, 3),
        "expiries_to_jvm": round(expiries_per_s / JVM_EXPIRIES_PER_S, 3),
    }


def compare_sizes(tasks: int, repeat: int) -> dict[str, object]:
    runs: dict[int, list[Figures]] = {size: [] for size in SIZES}
    for _ in range(repeat):
        for size, figures in runs.items():
            figures.append(in_fresh_process("wheel", tasks, size))
    rows = {str(size): median(figures) for size, figures in runs.items()}
    print_table(f"sizes of a wheel, {tasks:,} tasks over a minute; median of {repeat}", rows, tasks)
    return {
        "tasks": tasks,
        "repeat": repeat,
        "sizes": {name: as_json(run, tasks) for name, run in rows.items()},
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tasks", type=int, default=1_000_000, metavar="N")
    parser.add_argument("--size", type=int, default=DEFAULT_SIZE, metavar="N", help="buckets a wheel")
    parser.add_argument("--repeat", type=int, default=3, metavar="N", help="runs of each, of which the median is shown")
    parser.add_argument("--sizes", action="store_true", help="compare wheels of several sizes instead")
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write the figures to this file")
    parser.add_argument("--one", choices=CONTENDERS, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        gc.disable()
        print(json.dumps(CONTENDERS[options.one](options.tasks, options.size)))
        return
    print(core())
    if options.sizes:
        result = compare_sizes(options.tasks, options.repeat)
    else:
        result = compare(options.tasks, options.size, options.repeat)
    if options.json:
        options.json.write_text(json.dumps(result, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
