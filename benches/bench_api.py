"""Sends by HTTP compared with a bare handler: in one run, by turns, at the same rate and with the same broker.

    python -m benches.bench_api [--quick] [--rounds 3] [--rate 1000] [--streams 200] [--profile FILE] [--json FILE]

A real `tarry serve` runs on a real broker, and `tarry api` with tokens, rights, limits and its access log beside it.
Each round sends for some seconds to `POST /v1/messages` of `tarry api`, then as long to a FastAPI handler that does
nothing but produce the same record and wait for its acknowledgement. All messages have values of 256 B, a key, and a
delay of 1 s. In both halves of a round, as many streams of events as there are targets are open at `tarry api`, each
filtered to a target of its own, and each message's result comes to one of them. So the difference between the halves
is the way of a request alone.

- Accepted: from when a request was due to be sent (an open loop, at random times) until its answer was there. An answer
  is 202: all replicas have the message.
- CPU: user and system time of the process that answers, for each request. The streams take theirs in `tarry api` in
  both halves: what they take while the bare handler answers is their part.
- Events: from when the service fired a message until a stream had its result.
- The load: how late it was itself, and what it took of a core.

Each round ends when all results have come to the streams, each once.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any, Final

import httpx
from rich.console import Console
from rich.table import Table

from benches.support_kafka import PARTITIONS, Topics, create_topics, large_broker
from benches.support_process import Shape, cpu_s, running
from benches.support_run import Run, say_circumstances
from tarry.devbroker.ports import free_port
from tests.support.api import Api, ApiConfig, make_token

SHAPE: Final = Shape("10m", {})
RATE: Final = 1_000_000
"""The limit of the principal: far above what is sent."""

WARM_UP_S: Final = 20.0
WARM_UP_SHARE: Final = 2
"""Before the first round, one of so many requests is sent: the broker's JVM is cold."""

STARTS_WITHIN_S: Final = 30.0


@dataclass(frozen=True, slots=True)
class Plan:
    """The sizes.

    Args:
        rate: requests a second.
        streams: how many targets there are, with a stream for each.
        seconds: how long each half of a round sends.
        rounds: how many rounds; the median counts.
    """

    rate: int = 1_000
    streams: int = 200
    seconds: float = 20.0
    rounds: int = 3


@dataclass(slots=True)
class Figures:
    """The figures of one contender, one for each round: those of the load, and CPU for a request."""

    loads: list[dict[str, Any]] = field(default_factory=list)
    cpu_us: list[float] = field(default_factory=list)
    streams_us: list[float] = field(default_factory=list)

    def medians(self) -> dict[str, float]:
        """Return one number for each figure."""
        found = {
            "accepted p50 ms": self._of("p50_ms"),
            "accepted p99 ms": self._of("p99_ms"),
            "accepted worst ms": self._of("max_ms"),
            "CPU us/request": median(self.cpu_us),
            "of it, streams us": median(self.streams_us or [0.0]),
            "events p50 ms": self._of("event_p50_ms"),
            "events p99 ms": self._of("event_p99_ms"),
            "requests/s": self._of("rate"),
            "refused, of all rounds": float(sum(one["sent"] - one["accepted"] for one in self.loads)),
            "service: share of a core": self._of("service"),
            "broker: share of a core": self._of("broker"),
            "load: its lag p99 ms": self._of("lag_p99_ms"),
            "load: its worst lag ms": self._of("lag_max_ms"),
            "load: share of a core": self._of("load_cpu"),
            "load: connections": self._of("opened"),
        }
        return {name: value for name, value in found.items() if value is not None}

    def _of(self, name: str) -> float | None:
        values = [one[name] for one in self.loads if one[name] is not None]
        return median(values) if values else None


class Bench:
    """The measurements on one broker."""

    def __init__(self, run: Run, broker_pid: int, plan: Plan, profile: Path | None) -> None:
        self._run = run
        self._others = {"broker": broker_pid}
        self._plan = plan
        self._profile = profile
        self.figures = {"tarry": Figures(), "bare": Figures()}

    def run(self) -> None:
        """Measure, the two by turns."""
        with self._run.topics("service") as (topics, _):
            targets = f"{topics.name}.to."
            create_topics(self._run.bootstrap, [f"{targets}{number:03}" for number in range(self._plan.streams)], 1)
            with running("service", self._run.bootstrap, topics, self._run.directory, SHAPE) as service:
                self._others["service"] = service.pid
                tokens = self._run.directory / "tokens.json"
                token = make_token(tokens, "bench", f"send:{topics.name}.*", f"look:{topics.name}.*")
                with Api(self._config(topics, tokens), self._run.directory) as api, self._bare(topics) as (pid, port):
                    self._measure(api, token, targets, pid, port)

    def _config(self, topics: Topics, tokens: Path) -> ApiConfig:
        api = {"tokens": str(tokens), "rate": RATE, "streams": self._plan.streams, "port": free_port()}
        policy = {"max_delay": SHAPE.max_delay}
        return ApiConfig(self._run.bootstrap, topics.intake, PARTITIONS, topics.name, intake_settings=policy, api=api)

    @contextmanager
    def _bare(self, topics: Topics) -> Iterator[tuple[int, int]]:
        port = free_port()
        process = subprocess.Popen(
            [sys.executable, "-m", "benches.api_bare", self._run.bootstrap, topics.intake, str(port)]
        )
        try:
            ends = time.monotonic() + STARTS_WITHIN_S
            while True:
                try:
                    httpx.get(f"http://127.0.0.1:{port}/openapi.json", trust_env=False)
                except httpx.TransportError:
                    if time.monotonic() > ends:
                        raise
                    time.sleep(0.1)
                else:
                    break
            yield process.pid, port
        finally:
            process.terminate()
            process.wait(30)

    def _measure(self, api: Api, token: str, targets: str, bare_pid: int, bare_port: int) -> None:
        events = int(api.url.rpartition(":")[2])
        of = {"tarry": (api.process.pid, events, token), "bare": (bare_pid, bare_port, "")}
        for number in range(self._plan.rounds + 1):
            for name, (pid, port, shown) in sorted(of.items(), reverse=number % 2 == 1):
                seconds = self._plan.seconds if number else WARM_UP_S
                rate = self._plan.rate if number else self._plan.rate // WARM_UP_SHARE
                before, streams_before = cpu_s(pid), cpu_s(api.process.pid)
                others = {other: cpu_s(of_other) for other, of_other in self._others.items()}
                load = self._run.child(
                    "api_load", str(port), targets, "--token", shown, "--rate", str(rate),
                    "--seconds", str(seconds), "--streams", str(self._plan.streams),
                    "--events", str(events), "--listens", token, "--seed", str(number),
                )  # fmt: skip
                if self._profile and number == 1 and name == "tarry":
                    profile(api.process.pid, seconds, self._profile)
                told = self._run.told(load)
                cpu_us = (cpu_s(pid) - before) / told["sent"] * 1e6
                streams_us = (cpu_s(api.process.pid) - streams_before) / told["sent"] * 1e6
                told |= {other: (cpu_s(self._others[other]) - cpu) / told["seconds"] for other, cpu in others.items()}
                if told["events"] != told["accepted"]:
                    raise SystemExit(f"{name}: not each message has one event: {told}")
                self._run.say(f"{name}{'' if number else ', warm-up'}: {cpu_us:.0f} us/request, {told}")
                if number:
                    self.figures[name].loads.append(told)
                    self.figures[name].cpu_us.append(cpu_us)
                    if name == "bare":
                        self.figures["tarry"].streams_us.append(streams_us)


def profile(pid: int, seconds: float, path: Path) -> None:
    """Sample the stacks of a process with py-spy, which must be on the PATH; the file is for speedscope.app."""
    subprocess.Popen(
        ["py-spy", "record", "--pid", str(pid), "--duration", str(round(seconds)), "--rate", "100", "--gil",
         "--format", "raw", "--nonblocking", "--output", str(path)]
    )  # fmt: skip


def ratios(figures: dict[str, Figures]) -> dict[str, float]:
    """Return the API's figures divided by the bare handler's, where both exist."""
    tarry, bare = figures["tarry"].medians(), figures["bare"].medians()
    return {name: value / bare[name] for name, value in tarry.items() if bare.get(name)}


def table(figures: dict[str, Figures]) -> Table:
    """Return all figures, side by side."""
    made, shares = Table("figure", *figures, "ratio"), ratios(figures)
    for name, value in figures["tarry"].medians().items():
        share = f"{shares[name]:.2f}" if name in shares and ":" not in name else ""
        made.add_row(name, f"{value:,.2f}", f"{figures['bare'].medians().get(name, 0):,.2f}", share)
    for column in made.columns[1:]:
        column.justify = "right"
    return made


def main(asked: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description="compare sends by HTTP with a bare handler")
    parser.add_argument("--quick", action="store_true", help="a small run that only shows that the benchmark works")
    parser.add_argument("--rounds", type=int, default=3, help="the median of them counts (3)")
    parser.add_argument("--rate", type=int, default=1_000, help="requests a second (1,000)")
    parser.add_argument("--streams", type=int, default=200, help="streams of events, and targets (200)")
    parser.add_argument("--seconds", type=float, default=20.0, help="of each half of a round (20)")
    parser.add_argument("--profile", type=Path, metavar="FILE", help="write the stacks of `tarry api` by py-spy")
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write the figures to this file")
    arguments = parser.parse_args(asked)
    plan = Plan(arguments.rate, arguments.streams, arguments.seconds, arguments.rounds)
    if arguments.quick:
        plan = Plan(200, 20, 4.0, 1)
    console = Console()
    with (
        tempfile.TemporaryDirectory(prefix="tarry-bench-") as directory,
        large_broker() as broker,
        Run(broker.bootstrap_servers, Path(directory), Console(stderr=True)) as run,
    ):
        bench = Bench(run, broker.pid, plan, arguments.profile)
        bench.run()
    console.print(table(bench.figures))
    load = say_circumstances(console, quick=arguments.quick)
    if arguments.json:
        document = {
            "cores": os.cpu_count(),
            "load_5_minutes": load,
            "quick": arguments.quick,
            "figures": {name: each.medians() for name, each in bench.figures.items()},
            "rounds": {name: {"loads": each.loads, "cpu_us": each.cpu_us} for name, each in bench.figures.items()},
            "ratios": ratios(bench.figures),
        }
        arguments.json.write_text(json.dumps(document, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
