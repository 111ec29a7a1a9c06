"""`tarry serve` as a process: started, killed, started again, ended in order, and always gone at the end.

A process has a session of its own, so that a signal to the tests does not reach it, and so that whatever it
started can be ended with it. Its stderr goes to a file, one for each start: JSON lines, among them
`"event": "serving"` when all assigned partitions are recovered.
"""

import http.client
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any, Final

SERVING: Final = "serving"
SERVE: Final = ("tarry", "serve", "--config")
READY_S: Final = 60.0
HAND_OVER_S: Final = 10.0
_LOOK_EVERY_S: Final = 0.02


@dataclass(frozen=True, slots=True)
class ServeConfig:
    """What a test's `tarry.toml` says; for all that is not said here, the service's defaults.

    Args:
        bootstrap: the broker, HOST:PORT.
        intake: the one intake's topic.
        partitions: how many it has.
        group: consumer group of the service.
        group_protocol: `classic` or `consumer`.
        instance: static membership under this name; empty for dynamic.
        service: more settings of `[service]`, by name.
        intake_settings: more settings of the intake, by name.
        overflow: settings of `[overflow]`, by name.
        options: librdkafka's properties, by name.
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

    def toml(self) -> str:
        """The file's text."""
        service = {
            "group": self.group,
            "group_protocol": self.group_protocol,
            "instance": self.instance,
            **self.service,
        }
        intake = {
            "topic": self.intake,
            "partitions": self.partitions,
            **({} if "delay" in self.intake_settings else {"max_delay": "60s"}),
            **self.intake_settings,
        }
        tables: list[tuple[str, Mapping[str, object]]] = [
            ("[kafka]", {"bootstrap_servers": self.bootstrap}),
            ("[kafka.options]", self.options),
            ("[service]", service),
            ("[overflow]", self.overflow),
            ("[[intake]]", intake),
            ("[http]", {"port": 0}),
        ]
        lines = []
        for name, table in tables:
            if table:
                # Names, scalars and lists of strings are written the same way in JSON and in TOML.
                lines += [name, *(f"{json.dumps(key)} = {json.dumps(value)}" for key, value in table.items()), ""]
        return "\n".join(lines)


class Serve:
    """One `tarry serve`, through all its lives.

    Args:
        config: its configuration.
        directory: where its `tarry.toml` and its logs go.
        name: tells several of them apart.
        command: the module and its arguments, to which the configuration's path is added.
        cwd: where it runs, and the module may be found; None: in `directory`.
        python: the interpreter; another environment's has another version of the service.
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
        self._logs: list[Path] = []
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int:
        """The process's id."""
        return self._running().pid

    @property
    def workers(self) -> dict[int, int]:
        """Process ids of the newest life of each process that it has started, by index."""
        return {started["process"]: started["pid"] for started in self.events("process_started")}

    def start(self) -> "Serve":
        """Start it, and do not wait for it."""
        if self._process is not None:
            raise AssertionError(f"{self.name} runs already")
        self._logs.append(self._directory / f"{self.name}.{len(self._logs) + 1}.log")
        # TARRY_ variables of whoever runs the tests would win over the file.
        inherited = {name: value for name, value in os.environ.items() if not name.startswith("TARRY_")}
        with self._logs[-1].open("wb") as log:
            self._process = subprocess.Popen(  # noqa: S603 (our own arguments)
                self._command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=self._cwd,
                start_new_session=True,
                env={**inherited, "PYTHONFAULTHANDLER": "1"},  # a crash in C says where it was called from
            )
        return self

    def events(self, name: str | None = None) -> list[dict[str, Any]]:
        """The events of this life's log, all or those of one name, in order."""
        return [event for event in _events(self._logs[-1]) if name in {None, event["event"]}] if self._logs else []

    def history(self) -> list[tuple[int, dict[str, Any]]]:
        """The events of all lives with their times in epoch milliseconds."""
        return [(_at_ms(event), event) for log in self._logs for event in _events(log)]

    def wait_serving(self, times: int = 1, deadline_s: float = READY_S) -> None:
        """Wait until this life has said so many times that it serves.

        Raises:
            AssertionError: the deadline passed, or the process ended; with the end of its log.
        """
        self._wait_said(SERVING, times, deadline_s)

    def wait_listening(self, deadline_s: float = READY_S) -> "Serve":
        """Wait until it answers HTTP. Before that it makes its topics, and a signal ends it at once.

        Raises:
            AssertionError: the deadline passed, or the process ended; with the end of its log.
        """
        self._wait_said("http_listening", 1, deadline_s)
        return self

    def get(self, path: str) -> tuple[int, str]:
        """Ask its HTTP port, once it listens."""
        port = self.wait_listening().events("http_listening")[-1]["port"]
        with closing(http.client.HTTPConnection("127.0.0.1", port, timeout=10)) as connection:
            connection.request("GET", path)
            answer = connection.getresponse()
            return answer.status, answer.read().decode()

    def metric(self, name: str, **labels: str) -> float:
        """The sum of a metric's samples of this name that have these labels."""
        wanted = [f'{label}="{value}"' for label, value in labels.items()]
        lines = [line.rpartition(" ") for line in self.get("/metrics")[1].splitlines() if not line.startswith("#")]
        return sum(
            float(value)
            for labelled, _, value in lines
            if labelled.partition("{")[0] == name and all(label in labelled for label in wanted)
        )

    def signal(self, number: signal.Signals) -> None:
        """Send it a signal."""
        self._running().send_signal(number)

    def kill(self) -> None:
        """End it with SIGKILL."""
        process = self._running()
        if process.poll() is not None:
            raise AssertionError(f"{self.name} ended by itself with {process.returncode}\n{self.tail()}")
        process.kill()
        process.wait()
        self._is_gone()

    def stop(self, within_s: float = HAND_OVER_S) -> int:
        """SIGTERM, and wait for the end; return the exit code.

        Raises:
            AssertionError: it took longer.
        """
        self.signal(signal.SIGTERM)
        return self.wait_ended(within_s)

    def wait_ended(self, within_s: float = HAND_OVER_S) -> int:
        """Wait until it ends; return the exit code, -n for signal n.

        Raises:
            AssertionError: it did not.
        """
        try:
            code = self._running().wait(within_s)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"{self.name} still runs after {within_s:g} s\n{self.tail()}") from None
        self._is_gone()
        return code

    def tail(self, lines: int = 30) -> str:
        """The end of this life's log."""
        return "\n".join(self._logs[-1].read_text(encoding="utf-8").splitlines()[-lines:])

    def close(self) -> None:
        """Make sure that it is gone, and all that it started."""
        if self._process is not None:
            with suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()
            self._process = None

    def _wait_said(self, event: str, times: int, deadline_s: float) -> None:
        ends = time.monotonic() + deadline_s
        while len(self.events(event)) < times:
            if self._running().poll() is not None:
                raise AssertionError(f"{self.name} ended with {self._running().returncode}\n{self.tail()}")
            if time.monotonic() > ends:
                raise AssertionError(f"{self.name} has not said {event} after {deadline_s:g} s\n{self.tail()}")
            time.sleep(_LOOK_EVERY_S)

    def _is_gone(self) -> None:
        self._process = None

    def _running(self) -> subprocess.Popen[bytes]:
        if self._process is None:
            raise AssertionError(f"{self.name} does not run")
        return self._process


def _events(log: Path) -> Iterator[dict[str, Any]]:
    for line in log.read_text(encoding="utf-8").splitlines():
        with suppress(ValueError):  # the last line may be half written; a crash in C writes lines of its own
            event = json.loads(line)
            if isinstance(event, dict) and "event" in event:
                yield event


def _at_ms(event: Mapping[str, Any]) -> int:
    return round(datetime.fromisoformat(event["timestamp"]).timestamp() * 1_000)
