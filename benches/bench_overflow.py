"""The overflow wheel: its throughput, the lateness of other messages beside it, and the cost of waiting messages.

    python -m benches.bench_overflow [--quick] [--only levels spread lateness burst backlog] [--json FILE]
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
the figures themselves.
"""

import argparse
import json
import os
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final, Protocol

from rich.console import Console
from rich.table import Table

from benches import overflow_backlog, overflow_burst, overflow_lateness, overflow_levels, overflow_spread
from benches.support_kafka import large_broker
from benches.support_run import Run, say_circumstances

PARTS: Final = ("levels", "spread", "lateness", "burst", "backlog")
GROWTH: Final = (10_000, 100_000, 1_000_000)


class Figures(Protocol):
    """The figures of one measurement."""

    def rows(self) -> list[tuple[str, str, str, str]]:
        """For the table."""

    def document(self) -> dict[str, object]:
        """For JSON."""


@dataclass(frozen=True, slots=True)
class Plan:
    """The sizes of all measurements.

    Args:
        messages: how many messages go through the levels, and how many are filed for 30 days.
        rounds: how often throughput and burst are measured; the median counts.
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
    parser.add_argument(
        "--rounds", type=int, help="how often levels, spread and burst are measured; the median counts (1)"
    )
    parser.add_argument("--seconds", type=float, help="of the lateness figure's load, by itself (20)")
    parser.add_argument("--burst", type=int, help="messages of the burst (1,000,000)")
    waiting = parser.add_mutually_exclusive_group()
    waiting.add_argument("--waiting", type=int, help="how many wait in buckets (200,000)")
    waiting.add_argument(
        "--growth", action="store_true", help="10,000, 100,000 and 1,000,000 of them, one after another"
    )
    parser.add_argument("--kills", type=int, help="of a worker, with each number waiting (3)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write the figures to this file")
    arguments = parser.parse_args()
    plan = _plan(arguments)
    progress, result = Console(stderr=True), Console()
    found = measure(plan, arguments.only, progress)
    result.print(table(found))
    load = say_circumstances(result, quick=arguments.quick)
    if arguments.json:
        document = {
            "cores": os.cpu_count(),
            "load_5_minutes": load,
            "quick": arguments.quick,
            **{name: figures.document() for name, figures in found.items()},
        }
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


def measure(plan: Plan, parts: Sequence[str], console: Console) -> dict[str, Figures]:
    """Run the selected measurements on one broker."""
    found: dict[str, Figures] = {}
    with (
        tempfile.TemporaryDirectory(prefix="tarry-bench-") as directory,
        large_broker() as broker,
        Run(broker.bootstrap_servers, Path(directory), console) as run,
    ):
        if "levels" in parts:
            found["levels"] = overflow_levels.measure(run, plan.messages, plan.rounds)
        if "spread" in parts:
            found["spread"] = overflow_spread.measure(run, plan.messages, plan.rounds)
        if "lateness" in parts:
            found["lateness"] = overflow_lateness.measure(run, plan.lateness_s)
        if "burst" in parts:
            found["burst"] = overflow_burst.measure(run, plan.burst, plan.rounds)
        if "backlog" in parts:
            found["backlog"] = overflow_backlog.measure(run, broker.data, plan.waiting, plan.kills)
    return found


def table(found: dict[str, Figures]) -> Table:
    """All figures."""
    made = Table("figure", "value", "beside it", "ratio or difference")
    for figures in found.values():
        for row in figures.rows():
            made.add_row(*row)
        made.add_section()
    for column in made.columns[1:]:
        column.justify = "right"
    return made


if __name__ == "__main__":
    main()
