"""The service next to a bare relay, in one run, interleaved, on the same messages and the same broker.

    python -m benches.bench_relay [--quick] [--rounds 3] [--only relay] [--json FILE]

A ratio of two figures from one run means more than either: both contenders meet the same machine at about the
same minute. Messages have 256 B values, a key, and three headers; one intake with four partitions. A message has
arrived when a read_committed reader could read it.

- Herd: N messages, held in memory, all due at one instant; from the instant until the last has arrived. The relay's
  is a backlog: the same N waiting in its intake; from its first batch until the last has arrived.
- Whole way: N overdue messages in the intake, and the service started: all of reading, holding and firing, from when
  it had its partitions. The relay's is the same as above.
- Steady: the highest rung of a ladder of offered rates, with a delay of 1 s, at which what goes out keeps up with
  what comes in. The relay forwards at once. The producer shares the two cores with both.
- Lateness: at 10,000 msg/s with delays of 0.5 to 3 s, at a read_committed reader in a process of its own. The
  relay's messages are due at once: its figure is what the hop alone takes.
- CPU: the process's own user and system time for a message: over the herd, reading included, and at 10,000 msg/s.
- Memory: peak resident set with a million messages held.
"""

import argparse
import json
import os
import statistics
import tempfile
import time
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from rich.console import Console
from rich.table import Table

from benches.support_kafka import large_broker, preload
from benches.support_process import Contender, now_ms, running
from benches.support_run import Run, say_circumstances

BOTH: Final[tuple[Contender, ...]] = ("relay", "service")
STEADY_DELAY_MS: Final = 1_000
KEEPS_UP_MS: Final = 500
KEEPS_UP_SHARE: Final = 0.98
LATENESS_RATE: Final = 10_000
LATENESS_DELAYS_MS: Final = (500, 3_000)


@dataclass(frozen=True, slots=True)
class Plan:
    """How much of everything.

    Args:
        herd: messages due at one instant.
        held: messages held for the memory figure.
        rates: the ladder of the steady rate, msg/s.
        steady_s: seconds on each rung.
        lateness_s: seconds of the lateness figure.
        rounds: how often herd and whole way are measured; the median counts.
    """

    herd: int = 200_000
    held: int = 1_000_000
    rates: tuple[int, ...] = (20_000, 30_000, 40_000, 50_000, 60_000, 72_000, 86_000, 104_000, 125_000)
    steady_s: float = 10.0
    lateness_s: float = 30.0
    rounds: int = 3


QUICK: Final = Plan(herd=50_000, held=100_000, rates=(20_000, 40_000, 60_000), steady_s=4.0, lateness_s=8.0, rounds=1)


@dataclass(slots=True)
class Figures:
    """What was measured of one contender; a list has one value a round."""

    herd_per_s: list[float] = field(default_factory=list)
    whole_way_per_s: list[float] = field(default_factory=list)
    cpu_us: list[float] = field(default_factory=list)
    steady_per_s: float = 0.0
    saturated_per_s: float = 0.0
    cpu_us_at_rate: float = 0.0
    lateness: dict[str, int | None] = field(default_factory=dict)
    idle_rss_mib: float = 0.0
    peak_rss_mib: float = 0.0

    def medians(self) -> dict[str, float]:
        """One number for every figure that has one."""
        named: dict[str, float | None] = {
            "herd msg/s": _median(self.herd_per_s),
            "whole way msg/s": _median(self.whole_way_per_s),
            "steady msg/s": self.steady_per_s,
            "saturated msg/s": self.saturated_per_s,
            "CPU us/msg": _median(self.cpu_us),
            f"CPU us/msg at {LATENESS_RATE:,}/s": self.cpu_us_at_rate,
            "late p50 ms": self.lateness.get("p50_ms"),
            "late p99 ms": self.lateness.get("p99_ms"),
            "late max ms": self.lateness.get("max_ms"),
            "early": self.lateness.get("early"),
            "RSS idle MiB": self.idle_rss_mib,
            "RSS peak MiB": self.peak_rss_mib,
        }
        return {name: value for name, value in named.items() if value is not None}


def _median(values: Sequence[float]) -> float:
    return statistics.median(values) if values else 0.0


class Bench:
    """One run on one broker."""

    def __init__(
        self, bootstrap: str, plan: Plan, contenders: Sequence[Contender], directory: Path, console: Console
    ) -> None:
        self._run = Run(bootstrap, directory, console)
        self._bootstrap = bootstrap
        self._plan = plan
        self._contenders = contenders
        self._directory = directory
        self.figures: dict[Contender, Figures] = {name: Figures() for name in contenders}

    def run(self) -> None:
        """Measure everything, the contenders taking turns."""
        with self._run:
            self._measure()

    def _measure(self) -> None:
        self._relay_backlog(is_warm_up=True)
        for _ in range(self._plan.rounds):
            for name in self._contenders:
                if name == "relay":
                    self._relay_backlog()
                else:
                    self._service_herd()
                    self._service_whole_way()
        self._steady()
        for name in self._contenders:
            self._lateness(name)
        if "service" in self._contenders:
            self._memory()

    def _relay_backlog(self, *, is_warm_up: bool = False) -> None:
        herd = self._plan.herd
        found = self._run.relay_backlog(herd)
        if not is_warm_up:
            figures = self.figures["relay"]
            figures.herd_per_s.append(found.per_s)
            figures.whole_way_per_s.append(found.per_s)
            figures.cpu_us.append(found.cpu_us)
        what = "warm-up" if is_warm_up else f"backlog of {herd:,}"
        self._run.say(f"relay, {what}: {found.per_s:,.0f} msg/s, {found.cpu_us:.1f} us/msg")

    def _service_herd(self) -> None:
        """N messages are held, and due at one instant. CPU is taken in two parts: the wait between costs none."""
        herd = self._plan.herd
        with self._run.topics("service") as (topics, progress):
            with running("service", self._bootstrap, topics, self._directory) as service:
                cpu_s = service.cpu_s()
                # Long enough to be produced, read and held before it; checked below.
                due_ms = now_ms() + 5_000 + herd // 20
                preload(self._bootstrap, topics, (due_ms for _ in range(herd)))
                held = service.wait_idle((due_ms - now_ms()) / 1_000 - 0.5)
                cpu_s = service.cpu_s() - cpu_s
                while now_ms() < due_ms - 200:
                    time.sleep(0.05)
                cpu_s -= service.cpu_s()
                done_ms = progress.settled(1.5, 120)[-1][0]
                cpu_s += service.cpu_s()
            self._run.all_arrived(topics, herd)
            rate = herd / max(1, done_ms - due_ms) * 1_000
            self.figures["service"].herd_per_s.append(rate)
            self.figures["service"].cpu_us.append(cpu_s / herd * 1e6)
            warning = "" if held else " (not idle before the instant: part of it was still being read)"
            self._run.say(f"service, herd of {herd:,}: {rate:,.0f} msg/s, {cpu_s / herd * 1e6:.1f} us/msg{warning}")

    def _service_whole_way(self) -> None:
        """N overdue messages wait; the service is started, and read from when it has its partitions."""
        herd = self._plan.herd
        with self._run.topics("service") as (topics, progress):
            with running("service", self._bootstrap, topics, self._directory):
                pass  # it has made its topics
            preload(self._bootstrap, topics, (now_ms() for _ in range(herd)))
            with running("service", self._bootstrap, topics, self._directory) as service:
                done_ms = progress.settled(1.5, 120)[-1][0]
                way_ms = done_ms - service.taken_over_ms()
            self._run.all_arrived(topics, herd)
            rate = herd / way_ms * 1_000
            self.figures["service"].whole_way_per_s.append(rate)
            self._run.say(f"service, whole way of {herd:,}: {rate:,.0f} msg/s")

    def _steady(self) -> None:
        """Climb the ladder, the contenders in turns, each until it no longer keeps up."""
        climbing = list(self._contenders)
        for rate in self._plan.rates:
            for name in list(climbing):
                out, offered, late_ms = self._rung(name, rate)
                figures = self.figures[name]
                keeps_up = late_ms <= KEEPS_UP_MS and out >= KEEPS_UP_SHARE * offered
                figures.saturated_per_s = max(figures.saturated_per_s, out)
                if keeps_up:
                    figures.steady_per_s = max(figures.steady_per_s, offered)
                else:
                    climbing.remove(name)
                self._run.say(
                    f"{name}, offered {offered:,.0f} msg/s: {out:,.0f} msg/s out, the last {late_ms} ms late, "
                    f"{'keeps up' if keeps_up else 'falls behind'}"
                )

    def _rung(self, name: Contender, rate: int) -> tuple[float, float, int]:
        """Offer a rate; return the rate that came out meanwhile, the rate really offered, and the last's lateness."""
        delay_ms = STEADY_DELAY_MS if name == "service" else 0
        with self._run.topics(name) as (topics, progress):
            with running(name, self._bootstrap, topics, self._directory):
                load = self._run.load(topics, rate, self._plan.steady_s, (delay_ms, delay_ms))
                moves = progress.settled(2.0, self._plan.steady_s + 120, every_s=0.02)
                sent = self._run.told(load)
            arrived = self._run.all_arrived(topics, sent["sent"])
            offered = sent["sent"] / (sent["last_ms"] - sent["first_ms"]) * 1_000
            # What came out while it was offered, without the first second: nothing is warm then.
            from_ms, to_ms = sent["first_ms"] + delay_ms + 1_000, sent["last_ms"] + delay_ms
            out = (bisect_left(arrived, to_ms) - bisect_left(arrived, from_ms)) / (to_ms - from_ms) * 1_000
            return out, offered, moves[-1][0] - to_ms

    def _lateness(self, name: Contender) -> None:
        delays_ms = LATENESS_DELAYS_MS if name == "service" else (0, 0)
        with self._run.topics(name) as (topics, progress):
            with running(name, self._bootstrap, topics, self._directory) as contender:
                reader = self._run.read_lateness(topics)
                cpu_s = contender.cpu_s()
                load = self._run.load(topics, LATENESS_RATE, self._plan.lateness_s, delays_ms)
                progress.settled(2.0, self._plan.lateness_s + 120, every_s=0.1)
                cpu_s = contender.cpu_s() - cpu_s
                sent = self._run.told(load)["sent"]
                figures = self.figures[name]
                figures.lateness = self._run.ask_lateness(reader)
                figures.cpu_us_at_rate = cpu_s / sent * 1e6
            self._run.all_arrived(topics, sent)
            self._run.say(f"{name}, at {LATENESS_RATE:,} msg/s: {figures.lateness}")

    def _memory(self) -> None:
        held = self._plan.held
        with self._run.topics("service") as (topics, _):
            with running("service", self._bootstrap, topics, self._directory) as service:
                figures = self.figures["service"]
                figures.idle_rss_mib = service.peak_rss_bytes() / 2**20
                due_ms = now_ms() + 9 * 60_000
                preload(self._bootstrap, topics, (due_ms + number % 30_000 for number in range(held)))
                if not service.wait_idle(120):
                    raise SystemExit("the service is busy with messages that are not due")
                figures.peak_rss_mib = service.peak_rss_bytes() / 2**20
            self._run.say(
                f"service, {held:,} held: peak {figures.peak_rss_mib:,.0f} MiB, {figures.idle_rss_mib:,.0f} before"
            )


def ratios(figures: dict[Contender, Figures]) -> dict[str, float]:
    """The service's share of the relay's figure, where both have one."""
    if len(figures) < 2:
        return {}
    service, relay = figures["service"].medians(), figures["relay"].medians()
    return {name: value / relay[name] for name, value in service.items() if relay.get(name)}


def table(figures: dict[Contender, Figures]) -> Table:
    """All figures side by side."""
    made = Table("figure", *figures, "service / relay")
    shares = ratios(figures)
    for name in next(iter(figures.values())).medians():
        cells = [f"{each.medians().get(name, 0):,.1f}" for each in figures.values()]
        made.add_row(name, *cells, f"{shares[name]:.2f}" if name in shares else "")
    for column in made.columns[1:]:
        column.justify = "right"
    return made


def main() -> None:
    parser = argparse.ArgumentParser(description="the service next to a bare relay")
    parser.add_argument(
        "--quick", action="store_true", help="a small run, to see that it works; too short for its figures to mean much"
    )
    parser.add_argument("--rounds", type=int, help="how often herd and whole way are measured")
    parser.add_argument("--only", choices=BOTH, help="measure one contender")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures there as well")
    arguments = parser.parse_args()
    plan = QUICK if arguments.quick else Plan()
    if arguments.rounds:
        plan = Plan(**{name: getattr(plan, name) for name in Plan.__slots__} | {"rounds": arguments.rounds})
    contenders: tuple[Contender, ...] = (arguments.only,) if arguments.only else BOTH
    console = Console()
    with (
        tempfile.TemporaryDirectory(prefix="tarry-bench-") as directory,
        large_broker() as broker,
    ):
        bench = Bench(broker.bootstrap_servers, plan, contenders, Path(directory), console)
        bench.run()
    console.print(table(bench.figures))
    load = say_circumstances(console, quick=arguments.quick)
    if arguments.json:
        document = {
            "cores": os.cpu_count(),
            "load_5_minutes": load,
            "quick": arguments.quick,
            "figures": {name: each.medians() for name, each in bench.figures.items()},
            "rounds": {
                name: {
                    "herd_per_s": each.herd_per_s,
                    "whole_way_per_s": each.whole_way_per_s,
                    "cpu_us": each.cpu_us,
                }
                for name, each in bench.figures.items()
            },
            "ratios": ratios(bench.figures),
        }
        arguments.json.write_text(json.dumps(document, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
