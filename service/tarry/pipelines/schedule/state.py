"""What a job remembers between its runs: the time from which delays count, and whether a run of it is alive.

Two files of any file system that Hadoop knows. `NAME.json` is made once, by the first run, before that sends anything.
`NAME.running` stands while a run is alive: after kill -9 of a driver its Java ends a moment later, and may send until
then; the next run waits for that.
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
        directory: for the files of all jobs; made where it is missing.
        job: the job's name.

    Raises:
        UsageError: the name can't be a file's.
    """

    def __init__(self, spark: SparkSession, directory: str, job: str) -> None:
        if not _NAME.fullmatch(job):
            raise UsageError(f"--job: letters, digits and . _ - are wanted, at most 128: {job!r}")
        self._job = job
        self._files = Files(spark)
        self._path = f"{directory.rstrip('/')}/{job}.json"
        self._claim = f"{directory.rstrip('/')}/{job}.running"

    def base_ms(self, intake: str, base_ms: int) -> int:
        """The job's base time: what its first run was given.

        Args:
            intake: what the job sends to.
            base_ms: the base time if this is the first run.

        Raises:
            UsageError: the job sends to another intake, or the file is torn.
        """
        state = {"v": 1, "job": self._job, "intake": intake, "base_ms": base_ms}
        if self._files.create(self._path, json.dumps(state)):
            return base_ms
        try:
            found = json.loads(self._files.read(self._path))
            known_intake, known_ms = str(found["intake"]), int(found["base_ms"])
        except (ValueError, KeyError, TypeError) as error:
            raise UsageError(
                f"{self._path} is torn: the first run ended while it made it, and had sent nothing; remove it"
            ) from error
        if known_intake != intake:
            raise UsageError(f"the job {self._job} sends to {known_intake}, as {self._path} says: name another job")
        return known_ms

    @contextmanager
    def claimed(self, clock: Clock) -> Iterator[None]:
        """Keep other runs of this job away. What a dead run has left is taken over.

        Raises:
            UsageError: another run is alive, or may be on another machine.
        """
        mine = json.dumps({"host": socket.gethostname(), **_life(self._files.java_pid)})
        if not self._files.create(self._claim, mine):
            self._wait_for_the_dead(clock)
            self._files.remove(self._claim)
            if not self._files.create(self._claim, mine):
                raise UsageError(f"the job {self._job} was started twice at once")
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
                f"the job {self._job} runs on {host}, as {self._claim} says; if that run is gone, remove the file"
            )
        ends_ms = clock.monotonic_ms() + round(_WAIT_S * 1_000)
        while _life(pid) == {"pid": pid, "began": other["began"]}:
            if clock.monotonic_ms() > ends_ms:
                raise UsageError(f"the job {self._job} runs already, as process {pid}")
            clock.sleep(_LOOK_EVERY_S)

    def _other(self, clock: Clock) -> dict[str, Any] | None:
        """Whose claim it is; None: of one that ended while it wrote it, before it sent anything."""
        for _ in range(_LOOKS_AT_A_TORN_CLAIM):
            try:
                other = json.loads(self._files.read(self._claim))
            except ValueError:
                clock.sleep(_LOOK_EVERY_S)  # it may be being written
                continue
            if isinstance(other, dict) and {"host", "pid", "began"} <= other.keys():
                return other
            break
        return None


def _life(pid: int) -> dict[str, Any]:
    """A process as it can be told from a later one of the same number; `began` is null of one that is dead."""
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
