"""Runs `tarry serve` as a process that a test can start, kill, restart and stop.

The process has its own session, so that a signal to the tests does not reach it, and so that a test can kill it
together with all processes that it has started. A watchdog ends it if the tests end first, even by kill -9. Each start
writes stderr to a new file of JSON lines. The line with `"event": "serving"` means that the process has recovered all
of its assigned partitions.
"""

import http.client
import json
import os
import signal
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any, Final

from tarry.devbroker.process import LeashedProcess
from tarry.errors import TarryError

SERVING: Final = "serving"
SERVE: Final = ("tarry", "serve", "--config")
READY_S: Final = 60.0
HAND_OVER_S: Final = 10.0
_LOOK_EVERY_S: Final = 0.02


class ServeError(TarryError, AssertionError):
    """The service, or the broker, has not done in time what the caller waits for."""


@dataclass(frozen=True, slots=True)
class ServeConfig:
    """The content of a test's `tarry.toml`.

    Other settings have the service's defaults, except `max_delay` (60s) and `http.port` (0: a free port).

    Args:
        bootstrap: the broker, HOST:PORT.
        intake: the topic of the intake.
        others: the topics of further intakes with the same settings.
        partitions: the number of partitions of each intake.
        group: the service's consumer group.
        group_protocol: `classic` or `consumer`.
        instance: the name for static membership; empty: dynamic membership.
        service: more settings of `[service]`, by name.
        intake_settings: more settings of each intake, by name.
        overflow: settings of `[overflow]`, by name.
        options: librdkafka properties, by name.
    """

    bootstrap: str
    intake: str
    partitions: int = 4
    group: str = "tarry"
    group_protocol: str = "classic"
    instance: str = ""
    service: Mapping[str, object] = field(default_factory=dict)
    intake_settings: Mapping[str, object] = field(default_factory=dict)
    overflow: Mapping[str, object] = field(default_factory=dict)
    options: Mapping[str, object] = field(default_factory=dict)
    others: Sequence[str] = ()

    def toml(self) -> str:
        """Return the text of the file."""
        service = {
            "group": self.group,
            "group_protocol": self.group_protocol,
            "instance": self.instance,
            **self.service,
        }
        intake = {
            "partitions": self.partitions,
            **({} if "delay" in self.intake_settings else {"max_delay": "60s"}),
            **self.intake_settings,
        }
        tables: list[tuple[str, Mapping[str, object]]] = [
            ("[kafka]", {"bootstrap_servers": self.bootstrap}),
            ("[kafka.options]", self.options),
            ("[service]", service),
            ("[overflow]", self.overflow),
            *(("[[intake]]", {"topic": topic, **intake}) for topic in (self.intake, *self.others)),
            ("[http]", {"port": 0}),
        ]
        lines = []
        for name, table in tables:
            if table:
                # Names, scalars and lists of strings have the same syntax in JSON and in TOML.
                lines += [name, *(f"{json.dumps(key)} = {json.dumps(value)}" for key, value in table.items()), ""]
        return "\n".join(lines)


class Serve:
    """One `tarry serve`, over all of its starts. Below, a *life* is the time from one start to the end of that process.

    Args:
        config: the configuration.
        directory: the directory for its `tarry.toml` and its logs.
        name: a name that distinguishes several of them.
        command: the module and its arguments; the path of the configuration is appended.
        cwd: the working directory, in which Python also finds the module; None: `directory`.
        python: the interpreter; that of another environment runs another version of the service.
    """

    def __init__(
        self,
        config: ServeConfig,
        directory: Path,
        name: str = "serve",
        command: Sequence[str] = SERVE,
        cwd: Path | None = None,
        python: str = sys.executable,
    ) -> None:
        self.name = name
        self._path = directory / f"{name}.toml"
        self._path.write_text(config.toml(), encoding="utf-8")
        self._directory = directory
        self._cwd = cwd or directory
        self._command = [python, "-m", *command, str(self._path)]
        self._logs: list[_Log] = []
        self._process: LeashedProcess | None = None

    @property
    def pid(self) -> int:
        """The process id."""
        return self._started().pid

    @property
    def workers(self) -> dict[int, int]:
        """The process ids of the worker processes, by index; of each worker the one that was started last."""
        return {started["process"]: started["pid"] for started in self.events("process_started")}

    def start(self) -> "Serve":
        """Start the process, and do not wait until it serves."""
        if self._process is not None:
            raise ServeError(f"{self.name} is already running")
        self._logs.append(_Log(self._directory / f"{self.name}.{len(self._logs) + 1}.log"))
        # TARRY_ variables in the environment of the tests would override the file.
        inherited = {name: value for name, value in os.environ.items() if not name.startswith("TARRY_")}
        self._process = LeashedProcess(
            self._command,
            self._logs[-1].path,
            HAND_OVER_S,
            cwd=self._cwd,
            env={**inherited, "PYTHONFAULTHANDLER": "1"},  # after a crash in C code, print the Python stack
        )
        return self

    def events(self, name: str | None = None) -> list[dict[str, Any]]:
        """Return the events of the current life in order: all, or those of one name."""
        return [event for event in self._logs[-1].events() if name in {None, event["event"]}] if self._logs else []

    def history(self) -> list[tuple[int, dict[str, Any]]]:
        """Return the events of all lives, each with its time in milliseconds since the epoch."""
        return [(_at_ms(event), event) for log in self._logs for event in log.events()]

    def wait_serving(self, times: int = 1, deadline_s: float = READY_S) -> None:
        """Wait until the current life has logged `serving` at least `times` times.

        Raises:
            ServeError: the deadline passed, or the process ended; the text has the end of its log.
        """
        self.wait_said(SERVING, times, deadline_s)

    def wait_listening(self, deadline_s: float = READY_S) -> "Serve":
        """Wait until the process answers HTTP. Before that it creates its topics, and a signal ends it at once.

        Raises:
            ServeError: the deadline passed, or the process ended; the text has the end of its log.
        """
        self.wait_said("http_listening", 1, deadline_s)
        return self

    def get(self, path: str) -> tuple[int, str]:
        """Wait until the process listens on its HTTP port, and send a GET request.

        Returns:
            The status and the body of the response.
        """
        port = self.wait_listening().events("http_listening")[-1]["port"]
        with closing(http.client.HTTPConnection("127.0.0.1", port, timeout=10)) as connection:
            connection.request("GET", path)
            answer = connection.getresponse()
            return answer.status, answer.read().decode()

    def metric(self, name: str, **labels: str) -> float:
        """Return the sum of the samples of a metric that have these labels."""
        wanted = [f'{label}="{value}"' for label, value in labels.items()]
        lines = [line.rpartition(" ") for line in self.get("/metrics")[1].splitlines() if not line.startswith("#")]
        return sum(
            float(value)
            for labelled, _, value in lines
            if labelled.partition("{")[0] == name and all(label in labelled for label in wanted)
        )

    def signal(self, number: signal.Signals) -> None:
        """Send a signal to the process."""
        self._started().signal(number)

    def kill(self) -> None:
        """Kill the process with SIGKILL.

        Raises:
            ServeError: the process had already ended by itself.
        """
        self.check_running()
        self._started().kill()
        self._process = None

    def stop(self, within_s: float = HAND_OVER_S) -> int:
        """Send SIGTERM, and wait until the process ends; return its exit code.

        Raises:
            ServeError: the process still runs after `within_s` seconds.
        """
        self.signal(signal.SIGTERM)
        return self.wait_ended(within_s)

    def wait_ended(self, within_s: float = HAND_OVER_S) -> int:
        """Wait until the process ends; return its exit code, or 128 + n for signal n.

        Raises:
            ServeError: the process still runs after `within_s` seconds.
        """
        code = self._started().wait(within_s)
        if code is None:
            raise ServeError(f"{self.name} still runs after {within_s:g} s\n{self.tail()}")
        self._process = None
        return code

    def check_running(self) -> None:
        """Do nothing if the process runs.

        Raises:
            ServeError: it has ended by itself; the text has the end of its log.
        """
        if (code := self._started().wait(0)) is not None:
            raise ServeError(f"{self.name} ended by itself with {code}\n{self.tail()}")

    def tail(self, lines: int = 30) -> str:
        """Return the last lines of the current life's log."""
        return "\n".join(self._logs[-1].path.read_text(encoding="utf-8").splitlines()[-lines:])

    def close(self) -> None:
        """Kill the process and all processes that it has started, if they still run."""
        if self._process is not None:
            if self._process.running:
                with suppress(ProcessLookupError):  # it has just ended by itself
                    os.killpg(self._process.pid, signal.SIGKILL)
            self._process.kill()
            self._process = None

    def wait_said(self, event: str, times: int, deadline_s: float) -> None:
        """Wait until the current life has logged an event so many times.

        Raises:
            ServeError: it has not after that time, or has ended.
        """
        ends = time.monotonic() + deadline_s
        while len(self.events(event)) < times:
            self.check_running()
            if time.monotonic() > ends:
                raise ServeError(f"{self.name} has not logged {event} after {deadline_s:g} s\n{self.tail()}")
            time.sleep(_LOOK_EVERY_S)

    def _started(self) -> LeashedProcess:
        if self._process is None:
            raise ServeError(f"{self.name} is not running")
        return self._process


class _Log:
    """The log of one life. A test that waits looks at it again and again: each line is read once."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._read = 0
        self._events: list[dict[str, Any]] = []

    def events(self) -> list[dict[str, Any]]:
        """Return all events so far, in order."""
        with self.path.open("rb") as file:
            file.seek(self._read)
            whole, end, _ = file.read().rpartition(b"\n")  # the last line may be incomplete
        self._read += len(whole + end)
        for line in whole.splitlines():
            with suppress(ValueError):  # a crash in C code writes other lines
                event = json.loads(line)
                if isinstance(event, dict) and "event" in event:
                    self._events.append(event)
        return self._events


def _at_ms(event: Mapping[str, Any]) -> int:
    return round(datetime.fromisoformat(event["timestamp"]).timestamp() * 1_000)
