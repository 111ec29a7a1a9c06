"""The state of a job between its runs: its base time, and whether a run is alive.

The state is two files on any file system that Hadoop supports. The first run creates `NAME.json` before it sends any
message. `NAME.running` exists while a run is alive. After `kill -9` of a driver, its Java process ends a moment later
and may send until then; the next run waits for its end.
"""

import json
import os
import re
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from pyspark.sql import SparkSession

from tarry.clock import Clock
from tarry.errors import UsageError
from tarry.pipelines.files import Files

_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")
_WAIT_S: Final = 30.0
_LOOK_EVERY_S: Final = 0.1
_LOOKS_AT_A_TORN_CLAIM: Final = 20


class JobState:
    """The state of one job.

    Args:
        spark: the session.
        directory: the directory for the files of all jobs; created if missing.
        job: the job's name.

    Raises:
        UsageError: the name is not usable as a file name.
    """

    def __init__(self, spark: SparkSession, directory: str, job: str) -> None:
        if not _NAME.fullmatch(job):
            raise UsageError(
                f"--job: use at most 128 letters, digits and . _ -, and begin with a letter or digit: {job!r}"
            )
        self._job = job
        self._files = Files(spark)
        self._path = f"{directory.rstrip('/')}/{job}.json"
        self._claim = f"{directory.rstrip('/')}/{job}.running"

    def base_ms(self, intake: str, base_ms: int) -> int:
        """The job's base time, as its first run stored it.

        Args:
            intake: the intake to which the job sends.
            base_ms: the base time if this is the first run.

        Raises:
            UsageError: the job sends to another intake, or the file is incomplete.
        """
        state = {"v": 1, "job": self._job, "intake": intake, "base_ms": base_ms}
        if self._files.create(self._path, json.dumps(state)):
            return base_ms
        try:
            found = json.loads(self._files.read(self._path))
            known_intake, known_ms = str(found["intake"]), int(found["base_ms"])
        except (ValueError, KeyError, TypeError) as error:
            raise UsageError(
                f"{self._path} is incomplete: the first run ended while it wrote the file, before it sent any message;"
                " remove the file"
            ) from error
        if known_intake != intake:
            raise UsageError(f"the job {self._job} sends to {known_intake} (see {self._path}): name another job")
        return known_ms

    @contextmanager
    def claimed(self, clock: Clock) -> Iterator[None]:
        """Lock the job against other runs. The lock of a dead run is taken over.

        Raises:
            UsageError: another run is alive, or may be alive on another machine.
        """
        mine = json.dumps({"host": socket.gethostname(), **_life(self._files.java_pid)})
        if not self._files.create(self._claim, mine):
            self._wait_for_the_dead(clock)
            self._files.remove(self._claim)
            if not self._files.create(self._claim, mine):
                raise UsageError(f"the job {self._job} was started twice at the same time")
        try:
            yield
        finally:
            self._files.remove(self._claim)

    def _wait_for_the_dead(self, clock: Clock) -> None:
        other = self._other(clock)
        if other is None:
            return
        host, pid = str(other["host"]), int(other["pid"])
        if host != socket.gethostname():
            raise UsageError(
                f"the job {self._job} runs on {host} (see {self._claim}); if that run has ended, remove the file"
            )
        ends_ms = clock.monotonic_ms() + round(_WAIT_S * 1_000)
        while _life(pid) == {"pid": pid, "began": other["began"]}:
            if clock.monotonic_ms() > ends_ms:
                raise UsageError(f"the job {self._job} is running already, as process {pid}")
            clock.sleep(_LOOK_EVERY_S)

    def _other(self, clock: Clock) -> dict[str, Any] | None:
        """The content of the lock file; None: its run ended while it wrote the file, before it sent any message."""
        for _ in range(_LOOKS_AT_A_TORN_CLAIM):
            try:
                other = json.loads(self._files.read(self._claim))
            except ValueError:
                clock.sleep(_LOOK_EVERY_S)  # the other run may still be writing it
                continue
            if isinstance(other, dict) and {"host", "pid", "began"} <= other.keys():
                return other
            break
        return None


def _life(pid: int) -> dict[str, Any]:
    """The identity of a process, distinct from a later process with the same pid; `began` is None if it is dead."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
    except OSError:
        return {"pid": pid, "began": "alive" if not Path("/proc").is_dir() and _answers(pid) else None}
    return {"pid": pid, "began": None if fields[0] in "ZX" else fields[19]}


def _answers(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
