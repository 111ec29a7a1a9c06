"""`tarry serve` as a process: started, killed, started again, ended in order, and always gone at the end.

A process has a session of its own, so that a signal to the tests does not reach it, and so that whatever it
started can be ended with it. Its stderr goes to a file, one for each start: JSON lines, among them
`"event": "serving"` when all assigned partitions are recovered.
"""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from tests.support.workload import Outage

SERVING: Final = "serving"
READY_S: Final = 60.0
HAND_OVER_S: Final = 10.0


@dataclass(frozen=True, slots=True)
class ServeConfig:
    """What a test's `tarry.toml` says.

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
            "max_delay": "60s",
            **self.intake_settings,
        }
        tables: list[tuple[str, Mapping[str, object]]] = [
            ("[kafka]", {"bootstrap_servers": self.bootstrap}),
            ("[service]", service),
            ("[overflow]", self.overflow),
            ("[[intake]]", intake),
            ("[http]", {"port": 0}),
        ]
        lines = []
        for name, table in tables:
            if table:
                # Scalars and lists of strings are written the same way in JSON and in TOML.
                lines += [name, *(f"{key} = {json.dumps(value)}" for key, value in table.items()), ""]
        return "\n".join(lines)


class Serve:
    """One `tarry serve`, through all its lives.

    Args:
        config: its configuration.
        directory: where its `tarry.toml` and its logs go.
        name: tells several of them apart.
    """

    def __init__(self, config: ServeConfig, directory: Path, name: str = "serve") -> None:
        self._path = directory / f"{name}.toml"
        self._path.write_text(config.toml(), encoding="utf-8")
        self._directory = directory
        self._name = name
        self._lives = 0
        self._process: subprocess.Popen[bytes] | None = None
        self._log = directory / f"{name}.0.log"
        self._down_since_ms: int | None = None
        self._outages: list[Outage] = []

    @property
    def pid(self) -> int:
        """The process's id."""
        return self._running().pid

    def start(self) -> "Serve":
        """Start it, and do not wait for it."""
        if self._process is not None:
            raise AssertionError(f"{self._name} runs already")
        self._lives += 1
        self._log = self._directory / f"{self._name}.{self._lives}.log"
        if self._down_since_ms is None:
            self._down_since_ms = _now_ms()
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tarry", "serve", "--config", str(self._path)],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
                env={**os.environ, "PYTHONFAULTHANDLER": "1"},  # a crash in C says where it was called from
            )
        return self

    def events(self, name: str | None = None) -> list[dict[str, Any]]:
        """The events of this life's log, all or those of one name, in order."""
        found = []
        for line in self._log.read_text(encoding="utf-8").splitlines():
            with suppress(ValueError):  # the last line may be half written; librdkafka writes lines of its own
                event = json.loads(line)
                if isinstance(event, dict) and name in (None, event.get("event")):
                    found.append(event)
        return found

    def wait_serving(self, times: int = 1, deadline_s: float = READY_S) -> None:
        """Wait until this life has said so many times that it serves.

        Raises:
            AssertionError: the deadline passed, or the process ended; with the end of its log.
        """
        ends = time.monotonic() + deadline_s
        while len(self.events(SERVING)) < times:
            if self._running().poll() is not None:
                raise AssertionError(f"{self._name} ended with {self._running().returncode}\n{self.tail()}")
            if time.monotonic() > ends:
                raise AssertionError(f"{self._name} does not serve after {deadline_s:g} s\n{self.tail()}")
            time.sleep(0.02)
        self._up()

    def kill(self) -> None:
        """kill -9."""
        process = self._running()
        if process.poll() is not None:
            raise AssertionError(f"{self._name} ended by itself with {process.returncode}\n{self.tail()}")
        if self.events(SERVING):
            self._up()
        if self._down_since_ms is None:
            self._down_since_ms = _now_ms()
        process.kill()
        process.wait()
        self._process = None

    def stop(self, within_s: float = HAND_OVER_S) -> int:
        """SIGTERM, and wait for the end; return the exit code.

        Raises:
            AssertionError: it took longer.
        """
        process = self._running()
        process.send_signal(signal.SIGTERM)
        try:
            code = process.wait(within_s)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"{self._name} still runs {within_s:g} s after SIGTERM\n{self.tail()}") from None
        self._process = None
        return code

    def outages(self) -> list[Outage]:
        """When this process could not be sure to have read what was sent, its first start included."""
        if self._down_since_ms is None:
            return list(self._outages)
        return [*self._outages, Outage(self._down_since_ms, _now_ms())]

    def tail(self, lines: int = 30) -> str:
        """The end of this life's log."""
        return "\n".join(self._log.read_text(encoding="utf-8").splitlines()[-lines:])

    def close(self) -> None:
        """Make sure that it is gone, and all that it started."""
        if self._process is not None:
            with suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()
            self._process = None

    def _up(self) -> None:
        if self._down_since_ms is not None:
            self._outages.append(Outage(self._down_since_ms, _now_ms()))
            self._down_since_ms = None

    def _running(self) -> subprocess.Popen[bytes]:
        if self._process is None:
            raise AssertionError(f"{self._name} does not run")
        return self._process


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
