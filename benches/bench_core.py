"""The speed of the core for one message, in plain Python and compiled by mypyc: `python -m benches.bench_core`.

No broker: the state of one partition is given records as the worker's loop gives them, and asked for what is due.
A record is typical: a key, 100 bytes, target, delay, id and one header of its own.

- accept: the request is read, and the message held in the wheel.
- collect: the wheel advances over a minute in steps of 20 ms, and hands out what is due.
- take to confirm: batches of up to 5,000 messages are taken, settled for their transaction, and confirmed.
- file: messages that are due later are accepted, and filed to a level in batches of 10,000.
- drain: the records of the level are read, and the messages held in the wheel.

Each run has a process of its own, with the garbage collector off as in the service. The cores take turns, so that a
slow minute of the machine hits both; the best of the rounds counts, which the machine disturbed least.

    make compiled && .venv/bin/python -m benches.bench_core [--messages 100000] [--rounds 5] [--json FILE]
"""

import argparse
import gc
import json
import subprocess
from pathlib import Path
from time import process_time
from typing import Final, cast

from rich.console import Console
from rich.table import Table

from benches.support_core import pythons
from benches.support_run import say_circumstances
from tarry.core.batch import UNBOUNDED, FiledRun
from tarry.core.message import Headers
from tarry.core.partition import PartitionState
from tarry.core.progress.checkpoint import Checkpoint, Geometry
from tarry.core.progress.done_set import DoneSet
from tarry.core.progress.recovered import Recovered
from tarry.core.request.intake_policy import IntakePolicy
from tarry.core.request.reader import RequestReader
from tarry.core.wheel.filed import filed_headers
from tarry.native import core
from tarry.timer import TimingWheel

START_MS: Final = 1_767_225_600_000
SPAN_MS: Final = 60_000
STEP_MS: Final = 20
TRANSACTION_MESSAGES: Final = 5_000
FILING_MESSAGES: Final = 10_000
VALUE: Final = b"x" * 100
EXPECTED: Final = {"pure": "pure Python core", "compiled": "compiled core"}

Figures = dict[str, float]
"""Microseconds of CPU for a message, by step."""


def record(number: int) -> Headers:
    """The headers of a record that is due within the minute."""
    delay_ms = 1 + number * 7_919 % (SPAN_MS - 1)
    return [
        ("tarry-target", b"orders"),
        ("tarry-delay-ms", b"%d" % delay_ms),
        ("tarry-id", b"8e8c5b0c-0f5d-4b3e-9a55-%012d" % number),
        ("trace", b"00-4bf9-01"),
    ]


def measure(messages: int) -> Figures:
    """Take messages through one partition; raises SystemExit if not all of them come out."""
    reader = RequestReader(IntakePolicy("tarry.delayed", max_delay_ms=3_600_000))
    born = Checkpoint(writer=("w",), released=False, geometry=Geometry(20_000, 10, 0))
    found = Recovered(0, born, DoneSet(), 0)
    state = PartitionState("tarry.delayed", 0, reader, False, lambda at: TimingWheel(1, 512, at), found, START_MS)
    records = [record(number) for number in range(messages)]

    began_s = process_time()
    accept = state.arrivals.accept
    for offset, headers in enumerate(records):
        accept(offset, START_MS, b"key", VALUE, headers, START_MS)
    accept_s = process_time() - began_s

    collect_s = fire_s = 0.0
    fired = 0
    for now_ms in range(START_MS, START_MS + SPAN_MS + STEP_MS, STEP_MS):
        began_s = process_time()
        state.collect(now_ms)
        collect_s += process_time() - began_s
    began_s = process_time()
    while batch := state.take(TRANSACTION_MESSAGES, START_MS + SPAN_MS + STEP_MS):
        state.settle(batch)
        state.confirm(batch)
        fired += len(batch.due)
    fire_s = process_time() - began_s
    if fired != messages or state.held:
        raise SystemExit(f"{messages:,} were accepted, {fired:,} fired, {state.held:,} are held")
    steps = {"accept": accept_s, "collect": collect_s, "take to confirm": fire_s}
    return {name: spent_s / messages * 1e6 for name, spent_s in steps.items()}


def measure_level(messages: int) -> Figures:
    """File messages to a level, and read them back; raises SystemExit if not all of them are held then."""
    reader = RequestReader(IntakePolicy("tarry.delayed", max_delay_ms=3_600_000))
    closed_ms = (START_MS,)
    born = Checkpoint(("w",), False, Geometry(SPAN_MS, 10, 1), closed_ms)
    state = PartitionState(
        "tarry.delayed", 0, reader, False, lambda at: TimingWheel(1, 512, at), Recovered(0, born, DoneSet(), 0), 0
    )
    records = [record(number) for number in range(messages)]
    log: list[Headers] = []

    began_s = process_time()
    accept = state.arrivals.accept
    for offset, headers in enumerate(records):
        accept(offset, START_MS, b"key", VALUE, headers, START_MS)
    while filing := state.take_to_file(FILING_MESSAGES, START_MS):
        first = len(log)
        log += [cast("Headers", filed_headers(message)) for message, _ in filing.records]
        filing.runs.append(FiledRun(filing.records[0][1], first, len(log), len(filing)))
        state.journal_of(filing)
        state.confirm_filed(filing)
    file_s = process_time() - began_s

    state.close_buckets(UNBOUNDED, START_MS)
    began_s = process_time()
    [to_read] = state.level_records.to_read(UNBOUNDED)
    drain = state.level_records.accept
    for offset, headers in enumerate(log):
        drain([to_read], offset, b"key", VALUE, headers, START_MS)
    state.level_records.reach_end(to_read, START_MS)
    drain_s = process_time() - began_s
    if state.held != messages or state.level_records.to_read(UNBOUNDED):
        raise SystemExit(f"{messages:,} were filed, and {state.held:,} are held after the level was read")
    return {"file": file_s / messages * 1e6, "drain": drain_s / messages * 1e6}


def in_fresh_process(name: str, python: str, messages: int) -> Figures:
    """One run of one core."""
    command = [python, "-m", "benches.bench_core", "--one", "--messages", str(messages)]
    ran = subprocess.run(
        command, stdout=subprocess.PIPE, text=True, check=True, cwd=Path(__file__).resolve().parent.parent
    )
    told = json.loads(ran.stdout)
    if told["core"] != EXPECTED[name]:
        raise SystemExit(f"{python} has a {told['core']}, and should have a {EXPECTED[name]}")
    figures: Figures = told["figures"]
    return figures


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--messages", type=int, default=100_000, metavar="N")
    parser.add_argument("--rounds", type=int, default=5, metavar="N")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures there, too")
    parser.add_argument("--one", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        gc.disable()
        print(json.dumps({"core": core(), "figures": measure(options.messages) | measure_level(options.messages)}))
        return
    rounds: dict[str, list[Figures]] = {name: [] for name in EXPECTED}
    for _ in range(options.rounds):
        for name, python in pythons().items():
            rounds[name].append(in_fresh_process(name, python, options.messages))
    best = {
        name: {step: min(each[step] for each in figures) for step in figures[0]} for name, figures in rounds.items()
    }
    table = Table("µs of CPU for a message", *best, "compiled / pure")
    for step, pure_us in best["pure"].items():
        compiled_us = best["compiled"][step]
        table.add_row(step, f"{pure_us:.2f}", f"{compiled_us:.2f}", f"{compiled_us / pure_us:.2f}")
    console = Console()
    console.print(table)
    load = say_circumstances(console, quick=options.rounds < 3, measured="both cores")
    if options.json:
        result = {"messages": options.messages, "load_5_minutes": load, "best": best, "rounds": rounds}
        options.json.write_text(json.dumps(result, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
