"""The service compared with a bare relay: in one run, by turns, with the same messages and the same broker.

    python -m benches.bench_relay [--quick] [--rounds 3] [--only relay] [--compiled] [--other PYTHON] [--json FILE]

The ratio of two figures from one run means more than either figure, because both contenders use the same machine at
about the same time. Messages have values of 256 B, a key, and three headers. The intake has four partitions. A message
has arrived when a read_committed reader can read it.

With `--compiled`, the service on the compiled core (`make compiled`) is a third contender. With `--other`, the service
of another environment is one more: an older version, by its `.venv/bin/python`.

- Herd: the service holds N messages in memory that are all due at one instant. Time from that instant until the last
  message has arrived. For the relay: N messages wait in its intake; time from its first batch until the last arrival.
- Whole way: N overdue messages wait in the intake, and the service starts. Time for reading, holding and firing, from
  when the service has taken over its partitions. The relay has the same figure as above.
- Steady: the highest of a series of offered rates at which deliveries keep up with the load, with a delay of 1 s. The
  relay forwards at once. The producer shares the two cores with the contender.
- Lateness: at 10,000 msg/s with delays of 0.5 to 3 s, as seen by a read_committed reader in a separate process. The
  relay's messages are due at once, so its figure is the time of the hop alone.
- CPU: the process's user and system time per message: in the herd, reading included, and at 10,000 msg/s.
- Memory: the peak resident set with a million messages held.
"""

import argparse
import json
import os
import statistics
import tempfile
import time
from bisect import bisect_left
from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from rich.console import Console
from rich.table import Table

from benches.support_core import pythons
from benches.support_kafka import Topics, large_broker, preload
from benches.support_process import Contender, Running, now_ms, running
from benches.support_run import Run, say_circumstances, turns
from tarry.native import core

BOTH: Final[tuple[Contender, ...]] = ("relay", "service")
STEADY_DELAY_MS: Final = 1_000
KEEPS_UP_MS: Final = 500
KEEPS_UP_SHARE: Final = 0.98
LATENESS_RATE: Final = 10_000
LATENESS_DELAYS_MS: Final = (500, 3_000)


@dataclass(frozen=True, slots=True)
class Plan:
    """The sizes of all measurements.

    Args:
        herd: the number of messages that are due at one instant.
        held: the number of messages held for the memory figure.
        rates: the rates that are offered for the steady rate, in msg/s, ascending.
        steady_s: how long each rate is offered, in seconds.
        lateness_s: how long lateness is measured, in seconds.
        rounds: how often all but memory is measured; the medians count.
    """

    herd: int = 200_000
    held: int = 1_000_000
    rates: tuple[int, ...] = (30_000, 40_000, 50_000, 60_000, 72_000, 86_000, 104_000, 125_000)
    steady_s: float = 8.0
    lateness_s: float = 20.0
    rounds: int = 3


QUICK: Final = Plan(herd=50_000, held=100_000, rates=(20_000, 40_000, 60_000), steady_s=4.0, lateness_s=8.0, rounds=1)


@dataclass(slots=True)
class Figures:
    """The figures of one contender; a list has one value for each round."""

    herd_per_s: list[float] = field(default_factory=list)
    whole_way_per_s: list[float] = field(default_factory=list)
    cpu_us: list[float] = field(default_factory=list)
    steady_per_s: list[float] = field(default_factory=list)
    saturated_per_s: list[float] = field(default_factory=list)
    cpu_us_at_rate: list[float] = field(default_factory=list)
    lateness: list[dict[str, int]] = field(default_factory=list)
    idle_rss_mib: float = 0.0
    peak_rss_mib: float = 0.0

    def medians(self) -> dict[str, float]:
        """One number for every figure that has one."""
        return {
            "herd msg/s": _median(self.herd_per_s),
            "whole way msg/s": _median(self.whole_way_per_s),
            "steady msg/s": _median(self.steady_per_s),
            "saturated msg/s": _median(self.saturated_per_s),
            "CPU us/msg": _median(self.cpu_us),
            f"CPU us/msg at {LATENESS_RATE:,}/s": _median(self.cpu_us_at_rate),
            "late p50 ms": _median([each["p50_ms"] for each in self.lateness]),
            "late p99 ms": _median([each["p99_ms"] for each in self.lateness]),
            "late max ms": _median([each["max_ms"] for each in self.lateness]),
            "early": sum(each["early"] for each in self.lateness),
            "RSS idle MiB": self.idle_rss_mib,
            "RSS peak MiB": self.peak_rss_mib,
        }

    def rounds(self) -> dict[str, object]:
        """The values of all rounds, for JSON."""
        return {
            "herd_per_s": self.herd_per_s,
            "whole_way_per_s": self.whole_way_per_s,
            "steady_per_s": self.steady_per_s,
            "saturated_per_s": self.saturated_per_s,
            "cpu_us": self.cpu_us,
            "cpu_us_at_rate": self.cpu_us_at_rate,
            "lateness": self.lateness,
        }


def _median(values: Sequence[float]) -> float:
    return statistics.median(values) if values else 0.0


class Bench:
    """One run on one broker."""

    def __init__(
        self,
        bootstrap: str,
        plan: Plan,
        contenders: Sequence[Contender],
        directory: Path,
        console: Console,
        *,
        other: str = "",
    ) -> None:
        self._run = Run(bootstrap, directory, console)
        self._other = other
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
        for number in range(self._plan.rounds):
            self._run.say(f"round {number + 1} of {self._plan.rounds}")
            order = turns(self._contenders, number)
            for name in order:
                if name == "relay":
                    self._relay_backlog()
                else:
                    self._service_herd(name)
                    self._service_whole_way(name)
            self._steady(order)
            for name in order:
                self._lateness(name)
        for name in self._contenders:
            if name != "relay":
                self._memory(name)

    def _running(self, name: Contender, topics: Topics) -> AbstractContextManager[Running]:
        return running(name, self._bootstrap, topics, self._directory, other=self._other)

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

    def _service_herd(self, name: Contender) -> None:
        """Fire N held messages that are due at one instant. CPU time is the sum of reading and of firing."""
        herd = self._plan.herd
        with self._run.topics(name) as (topics, progress):
            with self._running(name, topics) as service:
                cpu_s = service.cpu_s()
                # Late enough that all messages are produced, read and held before; checked below.
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
            self.figures[name].herd_per_s.append(rate)
            self.figures[name].cpu_us.append(cpu_s / herd * 1e6)
            warning = "" if held else " (not idle before the instant: part of it was still being read)"
            self._run.say(f"{name}, herd of {herd:,}: {rate:,.0f} msg/s, {cpu_s / herd * 1e6:.1f} us/msg{warning}")

    def _service_whole_way(self, name: Contender) -> None:
        """Start the service with N overdue messages; measure from when it has taken over its partitions."""
        herd = self._plan.herd
        with self._run.topics(name) as (topics, progress):
            with self._running(name, topics):
                pass  # it has made its topics
            preload(self._bootstrap, topics, (now_ms() for _ in range(herd)))
            with self._running(name, topics) as service:
                done_ms = progress.settled(1.5, 120)[-1][0]
                way_ms = done_ms - service.taken_over_ms()
            self._run.all_arrived(topics, herd)
            rate = herd / way_ms * 1_000
            self.figures[name].whole_way_per_s.append(rate)
            self._run.say(f"{name}, whole way of {herd:,}: {rate:,.0f} msg/s")

    def _steady(self, order: Sequence[Contender]) -> None:
        """Offer the rates, ascending and to the contenders by turns, until a contender no longer keeps up."""
        climbing = list(order)
        steady_per_s, saturated_per_s = dict.fromkeys(climbing, 0.0), dict.fromkeys(climbing, 0.0)
        for rate in self._plan.rates:
            for name in list(climbing):
                out, offered, late_ms = self._rung(name, rate)
                keeps_up = late_ms <= KEEPS_UP_MS and out >= KEEPS_UP_SHARE * offered
                saturated_per_s[name] = max(saturated_per_s[name], out)
                if keeps_up:
                    steady_per_s[name] = max(steady_per_s[name], offered)
                else:
                    climbing.remove(name)
                self._run.say(
                    f"{name}, offered {offered:,.0f} msg/s: {out:,.0f} msg/s out, the last {late_ms} ms late, "
                    f"{'keeps up' if keeps_up else 'falls behind'}"
                )
        for name, figures in self.figures.items():
            figures.steady_per_s.append(steady_per_s[name])
            figures.saturated_per_s.append(saturated_per_s[name])

    def _rung(self, name: Contender, rate: int) -> tuple[float, float, int]:
        """Offer a rate; return the rate of deliveries, the real rate of the load, and the last message's lateness."""
        delay_ms = 0 if name == "relay" else STEADY_DELAY_MS
        with self._run.topics(name) as (topics, progress):
            with self._running(name, topics):
                load = self._run.load(topics, rate, self._plan.steady_s, (delay_ms, delay_ms))
                moves = progress.settled(2.0, self._plan.steady_s + 120, every_s=0.02)
                sent = self._run.told(load)
            arrived = self._run.all_arrived(topics, sent["sent"])
            offered = sent["sent"] / (sent["last_ms"] - sent["first_ms"]) * 1_000
            # Deliveries during the load, without the first second, in which caches are cold.
            from_ms, to_ms = sent["first_ms"] + delay_ms + 1_000, sent["last_ms"] + delay_ms
            out = (bisect_left(arrived, to_ms) - bisect_left(arrived, from_ms)) / (to_ms - from_ms) * 1_000
            return out, offered, moves[-1][0] - to_ms

    def _lateness(self, name: Contender) -> None:
        delays_ms = (0, 0) if name == "relay" else LATENESS_DELAYS_MS
        with self._run.topics(name) as (topics, progress):
            with self._running(name, topics) as contender:
                reader = self._run.read_lateness(topics)
                cpu_s = contender.cpu_s()
                load = self._run.load(topics, LATENESS_RATE, self._plan.lateness_s, delays_ms)
                progress.settled(2.0, self._plan.lateness_s + 120, every_s=0.1)
                cpu_s = contender.cpu_s() - cpu_s
                sent = self._run.told(load)["sent"]
                lateness = self._run.ask_lateness(reader)
            self._run.all_arrived(topics, sent)
            self.figures[name].lateness.append(lateness)
            self.figures[name].cpu_us_at_rate.append(cpu_s / sent * 1e6)
            self._run.say(f"{name}, at {LATENESS_RATE:,} msg/s: {lateness}")

    def _memory(self, name: Contender) -> None:
        held = self._plan.held
        with self._run.topics(name) as (topics, _):
            with self._running(name, topics) as service:
                figures = self.figures[name]
                figures.idle_rss_mib = service.peak_rss_bytes() / 2**20
                due_ms = now_ms() + 9 * 60_000
                preload(self._bootstrap, topics, (due_ms + number % 30_000 for number in range(held)))
                if not service.wait_idle(120):
                    raise SystemExit("the service is busy with messages that are not due")
                figures.peak_rss_mib = service.peak_rss_bytes() / 2**20
            self._run.say(
                f"{name}, {held:,} held: peak {figures.peak_rss_mib:,.0f} MiB, {figures.idle_rss_mib:,.0f} before"
            )


def ratios(figures: dict[Contender, Figures], name: Contender) -> dict[str, float]:
    """A service's figures divided by the relay's, where both exist."""
    if name not in figures or "relay" not in figures:
        return {}
    service, relay = figures[name].medians(), figures["relay"].medians()
    return {figure: value / relay[figure] for figure, value in service.items() if relay.get(figure)}


def table(figures: dict[Contender, Figures]) -> Table:
    """All figures side by side."""
    services = [name for name in figures if name != "relay"]
    shares = {name: ratios(figures, name) for name in services}
    made = Table("figure", *figures, *[f"{name} / relay" for name in services])
    for figure in dict.fromkeys(figure for each in figures.values() for figure in each.medians()):
        cells = [f"{each.medians().get(figure, 0):,.1f}" for each in figures.values()]
        made.add_row(figure, *cells, *[f"{share[figure]:.2f}" if figure in share else "" for share in shares.values()])
    for column in made.columns[1:]:
        column.justify = "right"
    return made


def main() -> None:
    parser = argparse.ArgumentParser(description="compare the service with a bare relay")
    parser.add_argument("--quick", action="store_true", help="a small run that only shows that the benchmark works")
    parser.add_argument("--rounds", type=int, help="how often all but memory is measured; the medians count")
    parser.add_argument("--only", choices=BOTH, help="measure one contender")
    parser.add_argument("--compiled", action="store_true", help="also measure the service on the compiled core")
    parser.add_argument(
        "--other", metavar="PYTHON", default="", help="also measure the service of this Python's environment"
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write the figures to this file")
    arguments = parser.parse_args()
    plan = QUICK if arguments.quick else Plan()
    if arguments.rounds:
        plan = Plan(**{name: getattr(plan, name) for name in Plan.__slots__} | {"rounds": arguments.rounds})
    contenders: tuple[Contender, ...] = (arguments.only,) if arguments.only else BOTH
    if arguments.compiled:
        pythons()  # before anything is measured: both are there
        contenders = (*contenders, "compiled")
    if arguments.other:
        if not Path(arguments.other).exists():
            parser.error(f"--other: {arguments.other} is not there")
        contenders = (*contenders, "other")
    console = Console()
    with (
        tempfile.TemporaryDirectory(prefix="tarry-bench-") as directory,
        large_broker() as broker,
    ):
        bench = Bench(broker.bootstrap_servers, plan, contenders, Path(directory), console, other=arguments.other)
        bench.run()
    console.print(table(bench.figures))
    measured = f"service: {core()}" + (", beside the compiled core" if arguments.compiled else "")
    measured += f", and that of {arguments.other}" if arguments.other else ""
    load = say_circumstances(console, quick=arguments.quick, measured=measured)
    if arguments.json:
        document = {
            "cores": os.cpu_count(),
            "load_5_minutes": load,
            "quick": arguments.quick,
            "figures": {name: each.medians() for name, each in bench.figures.items()},
            "rounds": {name: each.rounds() for name, each in bench.figures.items()},
            "core": core(),
            "ratios": {name: ratios(bench.figures, name) for name in bench.figures if name != "relay"},
        }
        arguments.json.write_text(json.dumps(document, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
