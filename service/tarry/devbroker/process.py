"""A child process under a watchdog: it ends when it is told to, and when this process ends, even by kill -9."""

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from tarry.errors import UsageError

_WATCHDOG = Path(__file__).with_name("watchdog.py")


class LeashedProcess:
    """One running command under a watchdog (see `watchdog.py`), in a session of its own. Not thread-safe.

    Args:
        command: the program and its arguments.
        output: the file for the command's output; an existing file is replaced.
        grace_s: the seconds between SIGTERM and SIGKILL in a stop.
        remove: a directory that the watchdog deletes if this process ends before the command.
        inherit: a file descriptor that the command inherits and keeps open while it runs.
        cwd: its working directory; None: that of this process.
        env: its environment; None: that of this process.

    Raises:
        UsageError: the command could not be started.
    """

    def __init__(
        self,
        command: list[str],
        output: Path,
        grace_s: float,
        remove: Path | None = None,
        inherit: int | None = None,
        cwd: Path | None = None,
        env: Mapping[str, str] | None = None,
    ) -> None:
        self._grace_s = grace_s
        leash = [str(os.getpid()), str(grace_s), str(remove or ""), *command]
        with output.open("wb") as log:
            self._watchdog = subprocess.Popen(  # noqa: S603 (our own script)
                # -I and -S ignore the user's environment and site-packages, so that it starts in milliseconds.
                [sys.executable, "-I", "-S", str(_WATCHDOG), *leash],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                bufsize=0,
                cwd=cwd,
                env=env,
                pass_fds=() if inherit is None else (inherit,),
                start_new_session=True,  # Ctrl-C must reach only this process, which then stops the command gracefully
            )
        if self._watchdog.stdin is None or self._watchdog.stdout is None:
            raise RuntimeError("both were asked for as pipes")
        self._leash = self._watchdog.stdin
        with self._watchdog.stdout as said:
            pid = said.readline().strip()
        if not pid:
            self._finish()
            raise UsageError(f"{command[0]} could not be started: see {output}")
        self.pid = int(pid)

    @property
    def running(self) -> bool:
        """Whether the command still runs."""
        return self._watchdog.poll() is None

    def wait(self, timeout_s: float | None = None) -> int | None:
        """Wait until the command ends by itself.

        Args:
            timeout_s: the longest time to wait, in seconds; None: no limit.

        Returns:
            Its exit code, or 128 + n for signal n; None after the timeout.
        """
        try:
            code = self._watchdog.wait(timeout_s)
        except subprocess.TimeoutExpired:
            return None
        self._leash.close()
        return code

    def signal(self, number: signal.Signals) -> None:
        """Send a signal to the command, if it still runs."""
        if self.running:
            with contextlib.suppress(ProcessLookupError):  # its watchdog has not ended yet
                os.kill(self.pid, number)

    def stop(self) -> None:
        """Send SIGTERM, and SIGKILL after the grace time; return when the process has ended."""
        self._order(b"S")

    def kill(self) -> None:
        """Send SIGKILL; return when the process has ended."""
        self._order(b"K")

    def _order(self, order: bytes) -> None:
        if not self._leash.closed:
            with contextlib.suppress(BrokenPipeError):  # it ended by itself
                self._leash.write(order)
            self._finish()

    def _finish(self) -> None:
        try:
            self._watchdog.wait(self._grace_s + 5.0)
        except subprocess.TimeoutExpired:
            self._watchdog.kill()  # on Linux, this also kills the command
            self._watchdog.wait()
        self._leash.close()
