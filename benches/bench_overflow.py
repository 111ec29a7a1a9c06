"""The overflow wheel: its throughput, the lateness of other messages beside it, and the cost of waiting messages.

    python -m benches.bench_overflow [--quick] [--only levels spread lateness burst backlog] [--json FILE]
    python -m benches.bench_overflow --compiled --rounds 5
    python -m benches.bench_overflow --only levels --messages 1000000 --rounds 3
    python -m benches.bench_overflow --only backlog --waiting 2000000
    python -m benches.bench_overflow --only backlog --growth

Five measurements on the embedded broker; each module describes its own:

- `overflow_levels`: throughput through one level and through three levels, compared with the bare relay.
- `overflow_spread`: filing of messages that are due at any time of 30 days, compared with the bare relay.
- `overflow_lateness`: short delays at 10,000 msg/s, with and without other messages in buckets.
- `overflow_burst`: messages that are due soon, within a burst of messages for next month.
- `overflow_backlog`: memory, disk, and the time from kill -9 to firing again, with and without messages in buckets.

Each figure is printed beside a second one from the same run. Compare their ratio or difference between machines, not
the figures themselves. With `--compiled`, the service on the compiled core (`make compiled`) takes turns with that on
the pure core in each round.
"""

import argparse
import json
import os
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final, Protocol

from rich.console import Console
from rich.table import Table

from benches import overflow_backlog, overflow_burst, overflow_lateness, overflow_levels, overflow_spread
from benches.support_core import pythons
from benches.support_kafka import large_broker
from benches.support_process import Service
from benches.support_run import Run, say_circumstances, turns
from tarry.native import core

PARTS: Final = ("levels", "spread", "lateness", "burst", "backlog")
GROWTH: Final = (10_000, 100_000, 1_000_000, 10_000_000)


class Figures(Protocol):
    """The figures of one measurement of one service."""

    def rows(self) -> list[tuple[str, str, str, str]]:
        """For the table."""

    def document(self) -> dict[str, object]:
        """For JSON."""


class Rounds(Figures, Protocol):
    """Figures that are measured in rounds."""

    def measure(self, run: Run, name: Service) -> None:
        """Measure one round."""


@dataclass(frozen=True, slots=True)
class Plan:
    """The sizes of all measurements.

    Args:
        messages: how many messages go through the levels, and how many are filed for 30 days.
        rounds: how often all but the waiting messages are measured; the medians count.
        lateness_s: how long the load lasts without messages in buckets, in seconds; with them it lasts 40 s longer.
        burst: how many messages are in the burst.
        waiting: how many messages wait in buckets at each stage, ascending.
        kills: how many times a worker is killed at each stage.
    """

    messages: int = 200_000
    rounds: int = 1
    lateness_s: float = 20.0
    burst: int = 1_000_000
    waiting: Sequence[int] = (200_000,)
    kills: int = 3


QUICK: Final = Plan(messages=20_000, lateness_s=5.0, burst=50_000, waiting=(5_000,), kills=1)


def main() -> None:
    lines = (__doc__ or "").split("\n\n")
    parser = argparse.ArgumentParser(
        description=lines[0], epilog="examples:\n" + lines[1], formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="a small run that only shows that the benchmark works")
    parser.add_argument("--only", nargs="+", choices=PARTS, default=PARTS, help="measure these")
    parser.add_argument("--messages", type=int, help="through the levels (200,000)")
    parser.add_argument("--rounds", type=int, help="how often all but the backlog is measured; the medians count (1)")
    parser.add_argument("--seconds", type=float, help="of the lateness figure's load, by itself (20)")
    parser.add_argument("--burst", type=int, help="messages of the burst (1,000,000)")
    waiting = parser.add_mutually_exclusive_group()
    waiting.add_argument("--waiting", type=int, help="how many wait in buckets (200,000)")
    waiting.add_argument("--growth", action="store_true", help="10,000, then ten times as many, up to 10,000,000")
    parser.add_argument("--kills", type=int, help="of a worker, with each number waiting (3)")
    parser.add_argument("--compiled", action="store_true", help="also measure the service on the compiled core")
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write the figures to this file")
    arguments = parser.parse_args()
    plan = _plan(arguments)
    progress, result = Console(stderr=True), Console()
    services: tuple[Service, ...] = ("service",)
    if arguments.compiled:
        pythons()  # before anything is measured: both are there
        services = ("service", "compiled")
    found = measure(plan, arguments.only, services, progress)
    for name, figures in found.items():
        result.print(table(figures, "compiled core" if name == "compiled" else core()))
    both = f"{core()}, beside the compiled core" if arguments.compiled else ""
    load = say_circumstances(result, quick=arguments.quick, measured=both)
    if arguments.json:
        measured = {name: {part: each.document() for part, each in figures.items()} for name, figures in found.items()}
        circumstances = {"cores": os.cpu_count(), "load_5_minutes": load, "quick": arguments.quick}
        document = {**circumstances, "services": measured}
        arguments.json.write_text(json.dumps(document, indent=2) + "\n", encoding="utf-8")


def _plan(arguments: argparse.Namespace) -> Plan:
    plan = QUICK if arguments.quick else Plan()
    asked = {
        "waiting": GROWTH if arguments.growth else arguments.waiting and (arguments.waiting,),
        "messages": arguments.messages,
        "rounds": arguments.rounds,
        "lateness_s": arguments.seconds,
        "kills": arguments.kills,
        "burst": arguments.burst,
    }
    return replace(plan, **{name: value for name, value in asked.items() if value is not None})


def measure(
    plan: Plan, parts: Sequence[str], services: Sequence[Service], console: Console
) -> dict[Service, dict[str, Figures]]:
    """Run the selected measurements of all services on one broker. In each round, the services take turns."""
    rounds: dict[Service, dict[str, Rounds]] = {name: _rounds(plan, parts) for name in services}
    backlogs: dict[Service, Figures] = {}
    with (
        tempfile.TemporaryDirectory(prefix="tarry-bench-") as directory,
        large_broker() as broker,
        Run(broker.bootstrap_servers, Path(directory), console) as run,
    ):
        in_rounds = plan.rounds if set(parts) - {"backlog"} else 0
        if in_rounds:
            run.relay_backlog(plan.messages)  # warm up the broker's JVM
        for number in range(in_rounds):
            run.say(f"round {number + 1} of {plan.rounds}")
            for part in parts:
                for name in turns(services, number):
                    if part in rounds[name]:
                        rounds[name][part].measure(run, name)
        if "backlog" in parts:
            for name in services:
                backlogs[name] = overflow_backlog.measure(run, name, broker.data, plan.waiting, plan.kills)
    return {name: {**rounds[name], **({"backlog": backlogs[name]} if name in backlogs else {})} for name in services}


def _rounds(plan: Plan, parts: Sequence[str]) -> dict[str, Rounds]:
    made: dict[str, Rounds] = {
        "levels": overflow_levels.Figures(plan.messages),
        "spread": overflow_spread.Figures(plan.messages),
        "lateness": overflow_lateness.Figures(plan.lateness_s),
        "burst": overflow_burst.Figures(plan.burst),
    }
    return {part: figures for part, figures in made.items() if part in parts}


def table(found: Mapping[str, Figures], title: str) -> Table:
    """All figures of one service."""
    made = Table("figure", "value", "beside it", "ratio or difference", title=title)
    for figures in found.values():
        for row in figures.rows():
            made.add_row(*row)
        made.add_section()
    for column in made.columns[1:]:
        column.justify = "right"
    return made


if __name__ == "__main__":
    main()
