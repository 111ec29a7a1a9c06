"""One run of a benchmark on one broker: topics for each measurement, helper processes, and the bare relay.

A figure means little without a second one from the same run, so every benchmark compares its figures with the relay's
backlog.
"""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self, TypeVar

from rich.console import Console

from benches.support_kafka import Progress, Topics, delete_topics, preload, stamps
from benches.support_process import Contender, now_ms, prepare, running
from tarry.native import core

Name = TypeVar("Name")


def turns(contenders: Sequence[Name], number: int) -> list[Name]:
    """The order of the contenders in a round.

    Each round begins with another one: the broker is compiled while it runs, so a later turn is a better one.

    Args:
        contenders: all of them.
        number: of the round, from 0 on.
    """
    first = number % len(contenders)
    return [*contenders[first:], *contenders[:first]]


@dataclass(frozen=True, slots=True)
class Backlog:
    """The figures of a contender that has processed a backlog in its intake.

    Attributes:
        per_s: messages per second, from the first batch until the last message can be read.
        cpu_us: CPU time per message, in microseconds.
    """

    per_s: float
    cpu_us: float


class Run:
    """Measurements on one broker, one after the other; a context manager, which ends all processes that it started.

    Args:
        bootstrap: the broker, HOST:PORT.
        directory: for configuration and logs.
        console: prints progress.
    """

    def __init__(self, bootstrap: str, directory: Path, console: Console) -> None:
        self.bootstrap = bootstrap
        self.directory = directory
        self._console = console
        self._number = 0
        self._until_the_end = ExitStack()

    def __enter__(self) -> Self:
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # a service that nobody ends would run forever
        return self

    def __exit__(self, *_: object) -> None:
        self._until_the_end.close()

    def say(self, line: str) -> None:
        """Print one line of progress."""
        self._console.print(line, highlight=False, soft_wrap=True)

    @contextmanager
    def topics(self, name: Contender) -> Iterator[tuple[Topics, Progress]]:
        """Topics for one measurement; they are deleted after it, so that it does not slow down the next one."""
        self._number += 1
        topics = Topics(f"bench-{self._number}-{name}")
        prepare(name, self.bootstrap, topics)
        progress = Progress(self.bootstrap, topics.target)
        yield topics, progress
        progress.check_settled()
        delete_topics(self.bootstrap, topics.name)

    def all_arrived(self, topics: Topics, messages: int) -> list[int]:
        """Check that no message is lost or doubled; return when each was produced to the target."""
        arrived = stamps(self.bootstrap, topics.target)
        if len(arrived) != messages:
            raise SystemExit(f"{topics.name}: {messages:,} were sent, {len(arrived):,} arrived")
        return arrived

    def load(
        self, topics: Topics, rate: int, seconds: float, delays_ms: tuple[int, int], *arguments: str
    ) -> subprocess.Popen[str]:
        """Send messages at a steady rate from a separate process; further arguments are those of `support_load`."""
        numbers = ("--rate", str(rate), "--seconds", str(seconds), "--delays", *map(str, delays_ms))
        return self.child("support_load", topics.name, *numbers, *arguments)

    def read_lateness(self, topics: Topics) -> subprocess.Popen[str]:
        """Start a separate process that reads the target and measures lateness; `ask_lateness` ends it."""
        return self.child("support_reader", topics.target, "--skip-ms", "3000")

    def ask_lateness(self, reader: subprocess.Popen[str]) -> dict[str, Any]:
        """End a reader, and return its figures."""
        reader.send_signal(signal.SIGTERM)
        return self.told(reader)

    def child(self, module: str, *arguments: str) -> subprocess.Popen[str]:
        """Start a module as a process, which ends at the latest with the run."""
        command = [sys.executable, "-m", f"benches.{module}", self.bootstrap, *arguments]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        self._until_the_end.callback(process.kill)  # which does nothing to one that has ended
        return process

    @staticmethod
    def told(process: subprocess.Popen[str]) -> dict[str, Any]:
        """Wait until a child process ends, and return its output."""
        told, _ = process.communicate(timeout=120)
        if process.returncode:
            raise SystemExit(f"a process of the bench ended with {process.returncode}: {process.args!r}")
        figures: dict[str, Any] = json.loads(told)
        return figures

    def relay_backlog(self, messages: int) -> Backlog:
        """Start the relay with a backlog of N messages. Its first run is not counted: it warms up the broker's JVM."""
        with self.topics("relay") as (topics, progress):
            preload(self.bootstrap, topics, (now_ms() for _ in range(messages)))
            before = progress.stable()
            with running("relay", self.bootstrap, topics, self.directory) as relay:
                first_ms, cpu_s = relay.first_batch_ms(), relay.cpu_s()
                done_ms = progress.settled(1.5, 120, since=before)[-1][0]
                cpu_us = (relay.cpu_s() - cpu_s) / messages * 1e6
            self.all_arrived(topics, messages)
            return Backlog(messages / max(1, done_ms - first_ms) * 1_000, cpu_us)


def say_circumstances(console: Console, *, quick: bool, measured: str = "") -> float:
    """Print below a table what was measured, and the circumstances that limit its precision.

    Args:
        console: where to print.
        quick: whether the run was too short.
        measured: which core was measured, the compiled or the pure one; empty: the core of this process.

    Returns:
        The machine's load over the last 5 minutes.
    """
    load = os.getloadavg()[1]
    console.print(
        f"{measured or core()}; {os.cpu_count()} processors; load over the last 5 minutes {load:.1f}", highlight=False
    )
    if quick:
        console.print("A quick run: too short for its figures to mean much.")
    return load
