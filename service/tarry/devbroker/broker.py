"""A real Kafka of one node on this machine, for demos, development and tests.

A start: find Java, get the jars, format the data directory unless that was done before, run Kafka under a
watchdog, and ask it for its cluster id until it gives the one in our data directory. Only then is it ready,
and surely ours.
"""

import base64
import os
import re
import shutil
import tempfile
import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType, TracebackType
from typing import Final, Self

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from tarry.clock import Clock, SystemClock
from tarry.devbroker import diagnosis
from tarry.devbroker.ownership import owned
from tarry.devbroker.ports import HOST, free_port, is_free
from tarry.devbroker.process import LeashedProcess
from tarry.devbroker.properties import LOG4J, render, server_properties
from tarry.errors import UsageError
from tarry.jars import Artefact, Jars, Java, Progress, find_java
from tarry.progress_output import tell

KAFKA_VERSION: Final = "4.1.0"

KAFKA: Final = Jars(
    f"kafka-{KAFKA_VERSION}",
    f"Kafka {KAFKA_VERSION} (43 MB, once)",
    (
        Artefact("org.apache.kafka", "kafka_2.13", KAFKA_VERSION),
        # Kafka's own artefact leaves its logger out; this binds it to the log4j that comes along.
        Artefact("org.apache.logging.log4j", "log4j-slf4j-impl", "2.24.3"),
    ),
)

DEFAULT_JVM_OPTIONS: Final = (
    "-Xmx512m",
    "-XX:+ExitOnOutOfMemoryError",
    # A broker for a test or a demo runs for a short time: without the optimizing compiler it is up with 40 % less CPU.
    "-XX:TieredStopAtLevel=1",
    "-XX:+UseSerialGC",
)
_STOP_GRACE_S: Final = 15.0
_FORMAT_WITHIN_S: Final = 60.0
_ASK_EVERY_S: Final = 0.05
_ANSWER_WITHIN_S: Final = 0.5
_DRAWS_OF_PORTS: Final = 3


class EmbeddedBroker:
    """One Kafka broker, which ends when this process does.

    A context manager: starts on entry, stops on exit. Not safe between threads.

    Args:
        port: where clients connect, on the loopback address alone; 0 draws a free one at the first start and
            keeps it for later ones.
        data: the directory that keeps topics, configuration and logs, made if absent. A later start on it
            goes on with what it holds. None: a temporary one, removed by `stop`.
        properties: Kafka's properties to set or override; listeners are added to the plain one, see
            `server_properties`.
        jvm_options: options of the Java that runs the broker.
        start_within_s: seconds that Kafka may take until it answers (fetching the jars is not counted).
        on_progress: told, in one line, of steps that take a while.
        clock: for the deadline of a start.
    """

    def __init__(
        self,
        *,
        port: int = 0,
        data: Path | None = None,
        properties: Mapping[str, str] = MappingProxyType({}),
        jvm_options: Sequence[str] = DEFAULT_JVM_OPTIONS,
        start_within_s: float = 90.0,
        on_progress: Progress = tell,
        clock: Clock | None = None,
    ) -> None:
        self._port = port
        self._controller_port = 0
        self._asked_data = data
        self._data: Path | None = None
        self._properties = dict(properties)
        self._jvm_options = tuple(jvm_options)
        self._start_within_s = start_within_s
        self._on_progress = on_progress
        self._clock = clock or SystemClock()
        self._process: LeashedProcess | None = None

    @property
    def bootstrap_servers(self) -> str:
        """`HOST:PORT` of the plain listener; stays the same over `kill` and `restart`."""
        if not self._port:
            raise UsageError("the broker has no port before its first start")
        return f"{HOST}:{self._port}"

    @property
    def pid(self) -> int:
        """The process id of the Java that runs the broker."""
        return self._running_process().pid

    @property
    def running(self) -> bool:
        """Whether the broker's process runs."""
        return self._process is not None and self._process.running

    @property
    def data(self) -> Path:
        """The directory that holds topics, configuration and logs."""
        if self._data is None:
            raise UsageError("the broker has no data directory before its start and after its stop")
        return self._data

    def start(self) -> None:
        """Start, and return when the broker answers; after `kill`, or with `data` of old, on what it had.

        Raises:
            UsageError: it cannot start; one line that says what to do, with the log's last lines as a note.
        """
        if self.running:
            raise UsageError("the broker runs already")
        java = find_java()
        jars = KAFKA.get(java, self._on_progress)
        data = self._data or self._make_data()
        with owned(data) as lock:
            self._data = data
            try:
                self._start(java, jars, lock)
            except BaseException:
                self.stop()
                raise

    def stop(self) -> None:
        """Shut down in order (a kill if that takes too long), and remove the data if it was temporary."""
        if self._process is not None:
            self._process.stop()
            self._process = None
        if self._data is not None and self._asked_data is None:
            shutil.rmtree(self._data, ignore_errors=True)
        self._data = None

    def kill(self) -> None:
        """End it as a crash does (SIGKILL); port and data stay for `restart`."""
        self._running_process().kill()
        self._process = None

    def restart(self) -> None:
        """Stop in order if it runs, and start again on the same port and data."""
        if self._process is not None:
            self._process.stop()
            self._process = None
        self.start()

    def wait(self, timeout_s: float | None = None) -> int | None:
        """Wait until the broker's process ends by itself.

        Returns:
            Its exit code, 128 + n for signal n; None if `timeout_s` seconds passed first.
        """
        return self._running_process().wait(timeout_s)

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def _running_process(self) -> LeashedProcess:
        if self._process is None:
            raise UsageError("the broker is not started")
        return self._process

    def _make_data(self) -> Path:
        if self._asked_data is None:
            return Path(tempfile.mkdtemp(prefix="tarry-broker-"))
        try:
            self._asked_data.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise UsageError(f"the data directory {self._asked_data} cannot be made: {error.strerror}") from error
        return self._asked_data.resolve()

    def _start(self, java: Java, jars: Sequence[Path], lock: int) -> None:
        deadline_ms = self._clock.monotonic_ms() + int(self._start_within_s * 1000)
        keeps_port = self._port != 0
        for draw in range(1, _DRAWS_OF_PORTS + 1):
            if keeps_port and not is_free(self._port):
                raise UsageError(
                    f"port {self._port} of {HOST} is taken: stop what listens there, or choose another port"
                )
            self._port = self._port or free_port(*self._other_ports())
            configuration = self._configure()
            cluster_id = self._format(java, jars, configuration, lock)
            self._process = LeashedProcess(
                self._java_command(java, jars, "kafka.Kafka", str(configuration)),
                output=self.data / diagnosis.CONSOLE,
                grace_s=_STOP_GRACE_S,
                remove=self.data if self._asked_data is None else None,
                inherit=lock,
            )
            if self._answers(cluster_id, deadline_ms):
                return
            lost_port = diagnosis.lost_a_port(self.data)
            if not lost_port or draw == _DRAWS_OF_PORTS:
                break
            self._process.kill()  # another process was quicker: draw again
            self._port = self._port if keeps_port else 0
            self._controller_port = 0
        raise diagnosis.failed_start(self.data, self._start_within_s, still_runs=self.running)

    def _configure(self) -> Path:
        """Write what Kafka reads at its start; returns the file to give it."""
        (self.data / "log4j2.properties").write_text(LOG4J.format(file=self.data / diagnosis.LOG), encoding="utf-8")
        for log in diagnosis.LOGS:  # what an earlier start said would be taken for this one's
            (self.data / log).unlink(missing_ok=True)
        configuration = self.data / "server.properties"
        # Where a further broker found its controller, it looks for it after a restart.
        if not self._controller_port or not is_free(self._controller_port):
            self._controller_port = free_port(self._port, *self._other_ports())
        wanted = server_properties(self._port, self._controller_port, self.data / "topics", self._properties)
        configuration.write_text(render(wanted), encoding="utf-8")
        return configuration

    def _other_ports(self) -> list[int]:
        """Those of the listeners that were added."""
        return [int(port) for port in re.findall(r":(\d+)", self._properties.get("listeners", ""))]

    def _format(self, java: Java, jars: Sequence[Path], configuration: Path, lock: int) -> str:
        """Give the data directory a cluster id unless it has one; returns it."""
        formatted = self.data / "topics" / "meta.properties"
        if not formatted.exists():  # Kafka writes this file last, and at once
            tool = self._java_command(java, jars, "kafka.tools.StorageTool", "format")
            process = LeashedProcess(
                [*tool, "-t", _new_cluster_id(), "-c", str(configuration)],
                output=self.data / diagnosis.CONSOLE,
                grace_s=0.0,
                inherit=lock,
            )
            self._process = process
            code = process.wait(_FORMAT_WITHIN_S)
            process.kill()
            if code != 0:
                raise diagnosis.failed_start(self.data, _FORMAT_WITHIN_S, still_runs=code is None)
        for line in formatted.read_text(encoding="utf-8").splitlines():
            name, _, value = line.partition("=")
            if name == "cluster.id":
                return value
        raise UsageError(f"{formatted} names no cluster: remove the data directory to begin anew")

    def _java_command(self, java: Java, jars: Sequence[Path], main: str, *arguments: str) -> list[str]:
        return [
            str(java.path),
            *self._jvm_options,
            "-Djava.awt.headless=true",
            f"-Dlog4j2.configurationFile={self.data / 'log4j2.properties'}",
            *("-cp", os.pathsep.join(map(str, jars)), main, *arguments),
        ]

    def _answers(self, cluster_id: str, deadline_ms: int) -> bool:
        """Ask until the broker of this cluster answers; False if it ended or the deadline has come."""
        admin = AdminClient(
            {
                "bootstrap.servers": self.bootstrap_servers,
                "reconnect.backoff.max.ms": 100,
                "log_level": 0,  # it would print each refused connection
            }
        )
        while self.running and self._clock.monotonic_ms() < deadline_ms:
            try:
                metadata = admin.list_topics(timeout=_ANSWER_WITHIN_S)
            except KafkaException:
                continue
            if str(metadata.cluster_id) == cluster_id and metadata.brokers:
                return True
            self._clock.sleep(_ASK_EVERY_S)
        return False


def _new_cluster_id() -> str:
    """A random id in Kafka's form: 22 signs; not a dash first, or its tools would take it for an option."""
    while True:
        name = base64.urlsafe_b64encode(uuid.uuid4().bytes).rstrip(b"=").decode()
        if not name.startswith("-"):
            return name
