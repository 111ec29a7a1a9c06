"""The two contenders as processes, and their CPU time and memory as the kernel reports them.

A contender is started for the topics of one measurement, and ends with it. CPU times are user and system time of all
threads of the process, so they include librdkafka's threads, but not the broker.
"""

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, Final, Literal

from benches.support_core import pythons
from benches.support_kafka import PARTITIONS, Topics, create_topics
from tests.support.processes import Serve, ServeConfig

Service = Literal["service", "compiled", "other"]
"""The service on the core of this process, on the compiled core, and in an environment that the command line names."""

Contender = Literal["relay"] | Service
"""The bare relay and the services."""

_TICKS: Final = os.sysconf("SC_CLK_TCK")
WINDOW: Final = "10m"  # messages due within it are held in memory


@dataclass(frozen=True, slots=True)
class Shape:
    """The longest delay that the service accepts, and the shape of its overflow wheel.

    Args:
        max_delay: the longest delay, such as "10m".
        overflow: settings of `[overflow]`, by name.
    """

    max_delay: str
    overflow: Mapping[str, object]


ALL_HOT: Final = Shape(WINDOW, {"from": WINDOW})
"""No overflow wheel: memory holds all."""


@dataclass(frozen=True, slots=True)
class Running:
    """A running contender.

    Args:
        name: its name.
        pid: its process id.
        output: the relay's stdout, lines of JSON.
        serve: the service, and its log.
    """

    name: Contender
    pid: int
    output: Any = None
    serve: Serve | None = None

    def cpu_s(self) -> float:
        """Processor time used so far, in seconds."""
        return cpu_s(self.pid)

    def peak_rss_bytes(self) -> int:
        """The largest resident set so far."""
        return memory_bytes(self.pid, "VmHWM")

    def first_batch_ms(self) -> int:
        """Wait for the relay's first batch; return when it had read the batch."""
        return int(json.loads(self.output.readline())["at_ms"])

    def taken_over_ms(self) -> int:
        """When the service had taken over its partitions and began to read them, by its log."""
        if self.serve is None:
            raise TypeError("only the service takes over")
        first = self.serve.events("taken_over")[0]
        return round(datetime.fromisoformat(first["timestamp"]).timestamp() * 1_000)

    def newest(self) -> "Running":
        """The service's current worker, after the supervisor has started a new one."""
        if self.serve is None:
            raise TypeError("nothing starts the relay anew")
        return Running(self.name, _worker(self.serve), serve=self.serve)

    def wait_idle(self, deadline_s: float, below: float = 0.1) -> bool:
        """Wait until it uses less than a share of one core for a second; return whether it did in time."""
        ends = time.monotonic() + deadline_s
        before = self.cpu_s()
        while time.monotonic() < ends:
            time.sleep(1.0)
            now = self.cpu_s()
            if now - before < below:
                return True
            before = now
        return False


def cpu_s(pid: int) -> float:
    """Processor time that a process has used so far, in seconds."""
    fields = Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS


def memory_bytes(pid: int, field: str = "VmRSS") -> int:
    """A field of a process's memory in `/proc`: VmRSS, the resident set now, or VmHWM, the largest so far."""
    for line in Path(f"/proc/{pid}/status").read_text(encoding="ascii").splitlines():
        if line.startswith(f"{field}:"):
            return int(line.split()[1]) * 1024
    raise SystemExit(f"process {pid} has ended")


@contextlib.contextmanager
def running(
    name: Contender, bootstrap: str, topics: Topics, directory: Path, shape: Shape = ALL_HOT, *, other: str = ""
) -> Iterator[Running]:
    """Start a contender, and end it at the end of the context.

    Args:
        name: its name.
        bootstrap: the broker, HOST:PORT.
        topics: of this measurement; the target must exist, and the relay's own topics too.
        directory: for configuration and logs.
        shape: of the service's overflow wheel.
        other: the Python of the contender "other".
    """
    if name == "relay":
        with _relay(bootstrap, topics) as relay:
            yield relay
    else:
        with _service(name, bootstrap, topics, directory, shape, _python(name, other)) as service:
            yield service


def _python(name: Service, other: str) -> str:
    if name == "other":
        return other
    return pythons()["compiled"] if name == "compiled" else sys.executable


def prepare(name: Contender, bootstrap: str, topics: Topics) -> None:
    """Create the topics that a contender does not create itself."""
    own = [] if name != "relay" else [topics.intake, topics.results]
    create_topics(bootstrap, [topics.target, *own])


@contextlib.contextmanager
def _relay(bootstrap: str, topics: Topics) -> Iterator[Running]:
    process = subprocess.Popen(
        [
            *(sys.executable, "-m", "benches.relay", "--bootstrap", bootstrap, "--group", topics.name),
            *("--intake", topics.intake, "--target", topics.target, "--results", topics.results),
        ],
        stdout=subprocess.PIPE,
    )
    try:
        if process.stdout is None or b"assigned" not in process.stdout.readline():
            raise SystemExit("the relay got no partitions")
        yield Running("relay", process.pid, output=process.stdout)
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(30)


@contextlib.contextmanager
def _service(
    name: Contender, bootstrap: str, topics: Topics, directory: Path, shape: Shape, python: str
) -> Iterator[Running]:
    config = ServeConfig(
        bootstrap=bootstrap,
        intake=topics.intake,
        partitions=PARTITIONS,
        group=topics.name,
        instance="bench",
        service={"memory_budget": "4GiB"},
        intake_settings={"max_delay": shape.max_delay},
        overflow=shape.overflow,
    )
    serve = Serve(config, directory, topics.name, python=python)
    try:
        serve.start().wait_serving(deadline_s=300)
        yield Running(name, _worker(serve), serve=serve)
        if code := serve.stop(within_s=60):
            raise SystemExit(f"the service ended with {code}\n{serve.tail()}")
    finally:
        serve.close()


def _worker(serve: Serve) -> int:
    """The process id of the worker, which the supervisor has started."""
    return int(serve.events("process_started")[-1]["pid"])


def now_ms() -> int:
    """Wall time, epoch milliseconds."""
    return time.time_ns() // 1_000_000
