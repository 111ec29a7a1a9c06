"""The demo's service: `tarry serve` in its own process, as a user would run it.

A watchdog ends the service when the demo ends, even if the demo is killed. The watchdog sends SIGTERM first.
"""

import json
import os
import sys
from contextlib import suppress
from pathlib import Path
from typing import Final, Self

from tarry.clock import Clock
from tarry.devbroker.process import LeashedProcess
from tarry.errors import UsageError

HAND_OVER_S: Final = 10.0
_SERVING_WITHIN_MS: Final = 60_000
_LOOK_EVERY_S: Final = 0.05
_LAST_LINES: Final = 5

_CONFIG: Final = """\
[kafka]
bootstrap_servers = "{servers}"

[service]
group = "tarry-demo"

[[intake]]
topic = "tarry.delayed"
partitions = 4
max_delay = "60s"

[http]
port = 0
"""


class DemoService:
    """A running `tarry serve`; a context manager.

    Args:
        bootstrap_servers: the cluster.
        directory: the directory for its configuration and its log.
        clock: for the timeout of the start.
    """

    def __init__(self, bootstrap_servers: str, directory: Path, clock: Clock) -> None:
        self._clock = clock
        self._log = directory / "serve.log"
        config = directory / "tarry.toml"
        config.write_text(_CONFIG.format(servers=bootstrap_servers), encoding="utf-8")
        # Unset the user's TARRY_ variables: they would override the file.
        unset = [word for name in os.environ if name.startswith("TARRY_") for word in ("-u", name)]
        command = ["env", *unset, sys.executable, "-P", "-m", "tarry", "serve", "--config", str(config)]
        self._process = LeashedProcess(command, self._log, HAND_OVER_S, remove=None)

    @property
    def running(self) -> bool:
        """Whether the process still runs."""
        return self._process.running

    def wait_serving(self) -> None:
        """Wait until the service has taken over all partitions of its intake.

        Raises:
            UsageError: the service ended, or took too long; the text has the last lines of its log.
        """
        deadline_ms = self._clock.monotonic_ms() + _SERVING_WITHIN_MS
        while not any(event.get("event") == "serving" for event in self._events()):
            if not self.running:
                raise self.failure("ended during its start")
            if self._clock.monotonic_ms() > deadline_ms:
                raise self.failure(f"was not ready after {_SERVING_WITHIN_MS // 1_000} s")
            self._clock.sleep(_LOOK_EVERY_S)

    def failure(self, what: str) -> UsageError:
        """Return an error that says what is wrong with the service, with the last lines of its log."""
        code = self._process.wait(0)
        if code is not None:
            what = f"{what}, with code {code}"
        said = self._log.read_text(encoding="utf-8", errors="replace").splitlines()[-_LAST_LINES:]
        return UsageError("\n".join([f"the service {what}; the last lines of its log:", *said]))

    def stop(self) -> None:
        """Send SIGTERM: the service releases its partitions and ends. A second call does nothing."""
        self._process.stop()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        self.stop()

    def _events(self) -> list[dict[str, object]]:
        """Return the events of its log so far. An incomplete last line is left out."""
        events = []
        for line in self._log.read_text(encoding="utf-8", errors="replace").splitlines():
            with suppress(ValueError):
                event = json.loads(line)
                if isinstance(event, dict):
                    events.append(event)
        return events
