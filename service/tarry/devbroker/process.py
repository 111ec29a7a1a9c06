"""A Java process on a leash: it ends when it is told to, and when we end, however that happens."""

import contextlib
import os
import subprocess
import sys
from pathlib import Path

from tarry.errors import UsageError

_WATCHDOG = Path(__file__).with_name("watchdog.py")


class LeashedProcess:
    """One running command under a watchdog (see `watchdog.py`).

    Not safe between threads.

    Args:
        command: the program and its arguments.
        output: the file that takes what it says; replaced.
        grace_s: seconds that a stop may take before it becomes a kill.
        remove: a directory to remove if this process is gone first.
        inherit: a file descriptor that the command keeps open as long as it lives.

    Raises:
        UsageError: the command could not be started.
    """

    def __init__(
        self, command: list[str], output: Path, grace_s: float, remove: Path | None = None, inherit: int | None = None
    ) -> None:
        self._grace_s = grace_s
        leash = [str(os.getpid()), str(grace_s), str(remove or ""), *command]
        with output.open("wb") as log:
            self._watchdog = subprocess.Popen(  # noqa: S603 (our own script)
                # -I and -S: nothing of the user's environment or site-packages, so it starts in milliseconds.
                [sys.executable, "-I", "-S", str(_WATCHDOG), *leash],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                bufsize=0,
                pass_fds=() if inherit is None else (inherit,),
                start_new_session=True,  # Ctrl-C in a terminal is for us; we stop the command in order
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

        Returns:
            Its exit code, 128 + n for signal n; None if `timeout_s` seconds passed first.
        """
        try:
            return self._watchdog.wait(timeout_s)
        except subprocess.TimeoutExpired:
            return None

    def stop(self) -> None:
        """SIGTERM, after the grace SIGKILL; returns when the process is gone."""
        self._order(b"S")

    def kill(self) -> None:
        """SIGKILL; returns when the process is gone."""
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
            self._watchdog.kill()  # takes the command with it where the kernel can do that
            self._watchdog.wait()
        self._leash.close()
