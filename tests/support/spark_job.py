"""`tarry spark JOB …` as a process, to be killed in the middle."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Self

from tests.support.brokers import wait_until
from tests.support.spark import OPTIONS


class SparkJob:
    """One run of a job, whose output goes to files; a context manager that ends it.

    Args:
        directory: its working directory, also for its output.
        *arguments: the arguments of `tarry spark`.
        settings: options for Spark.
    """

    def __init__(self, directory: Path, *arguments: str, settings: Sequence[str] = OPTIONS) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self._directory = directory
        # TARRY_ variables of the environment would override the file.
        inherited = {name: value for name, value in os.environ.items() if not name.startswith("TARRY_")}
        with (directory / "stdout").open("wb") as out, (directory / "stderr").open("wb") as errors:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tarry", "spark", *arguments, *settings],
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=errors,
                cwd=directory,
                env=inherited,
                start_new_session=True,
            )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def output(self) -> str:
        return (self._directory / "stdout").read_text(encoding="utf-8")

    @property
    def errors(self) -> str:
        return (self._directory / "stderr").read_text(encoding="utf-8")

    def kill_when(self, condition: Callable[[], bool], what: str, within_s: float = 180.0) -> None:
        """Kill the job and its Java process with kill -9 as soon as a condition holds."""
        ends = time.monotonic() + within_s
        while not condition():
            assert self._process.poll() is None, f"ended with {self._process.returncode}, before {what}: {self.errors}"
            assert time.monotonic() < ends, f"not within {within_s:g} s: {what}: {self.errors}"
            time.sleep(0.001)
        os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()

    def interrupt(self) -> int:
        """Send SIGINT to Python and its Java process, as a terminal does for Ctrl-C; return the exit code."""
        os.killpg(self._process.pid, signal.SIGINT)
        return self.ended(60)

    def terminate(self) -> int:
        """Send SIGTERM; return the exit code."""
        self._process.send_signal(signal.SIGTERM)
        return self.ended(60)

    def wait_until(self, condition: Callable[[], bool], what: str, within_s: float = 180.0) -> None:
        """Wait until a condition holds while the job runs."""

        def holds() -> bool:
            assert self._process.poll() is None, f"ended with {self._process.returncode}, before {what}: {self.errors}"
            return condition()

        wait_until(holds, what, within_s)

    def ended(self, within_s: float = 180.0) -> int:
        """Wait for its end; return the exit code."""
        try:
            return self._process.wait(within_s)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"still runs after {within_s:g} s: {self.errors}") from None

    def finished(self, within_s: float = 180.0) -> str:
        """Wait for its end without an error; return its output."""
        assert self.ended(within_s) == 0, self.errors
        return self.output

    def close(self) -> None:
        """End the process if it still runs."""
        if self._process.poll() is None:
            os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()
