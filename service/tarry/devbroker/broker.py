"""A real single-node Kafka broker on this machine, for demos, development and tests.

A start has these steps:

1. Find Java, and get the jars.
2. Format the data directory, unless an earlier start has done it.
3. Run Kafka under a watchdog.
4. Ask the broker for its cluster id until it answers with the one in the data directory. Then the broker is ready, and
   it is certainly this one and not another process on the same port.
"""

import base64
import os
import re
import shutil
import signal
import tempfile
import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType, TracebackType
from typing import Final, Self

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from tarry.clock import Clock, SystemClock
from tarry.devbroker import class_archive, diagnosis
from tarry.devbroker.ownership import owned
from tarry.devbroker.ports import HOST, free_port, is_free
from tarry.devbroker.process import LeashedProcess
from tarry.devbroker.properties import LOG4J, properties_text, server_properties
from tarry.errors import UsageError
from tarry.jars import Artefact, Jars, Java, Progress, find_java
from tarry.jars.cache import locked
from tarry.progress_output import tell

KAFKA_VERSION: Final = "4.1.2"


def kafka_jars(version: str) -> Jars:
    """Return the jars of a version of Kafka, 3.9 or newer."""
    return Jars(
        f"kafka-{version}",
        f"Kafka {version} (43 MB, once)",
        (
            Artefact("org.apache.kafka", "kafka_2.13", version),
            # Kafka's artefact brings log4j, but nothing that connects its logger to it; this artefact does.
            Artefact("org.apache.logging.log4j", "log4j-slf4j-impl", "2.24.3"),
        ),
    )


KAFKA: Final = kafka_jars(KAFKA_VERSION)

DEFAULT_JVM_OPTIONS: Final = (
    "-Xmx512m",
    "-XX:+ExitOnOutOfMemoryError",
    # A broker for a test or a demo runs for a short time: without the optimizing compiler the start uses 40 % less CPU.
    "-XX:TieredStopAtLevel=1",
    "-XX:+UseSerialGC",
)
_STOP_GRACE_S: Final = 15.0
_FORMAT_WITHIN_S: Final = 60.0
_ARCHIVE_WITHIN_S: Final = 120.0
_ASK_EVERY_S: Final = 0.05
_ANSWER_WITHIN_S: Final = 0.5
_DRAWS_OF_PORTS: Final = 3
_TERMINATED: Final = 128 + signal.SIGTERM


class EmbeddedBroker:
    """One Kafka broker, which ends when this process ends.

    A context manager: it starts the broker on entry and stops it on exit. If the broker ended by itself, an error that
    leaves the block gets a note with the last lines of the broker's logs. Not thread-safe.

    Args:
        port: the port for clients, on the loopback address only. 0: the first start chooses a free port, and later
            starts use the same one.
        data: the directory for topics, configuration and logs; created if it does not exist. A later start with the
            same directory finds the topics again. None: a temporary directory, which `stop` deletes.
        properties: Kafka properties to set or override. Listeners are added to the plaintext listener, see
            `server_properties`.
        jvm_options: options of the Java process that runs the broker.
        version: the version of Kafka, 3.9 or newer; its jars are downloaded at the first start.
        start_within_s: the seconds that Kafka may take until it answers; the download of the jars is not included.
        on_progress: called with one line of text before a step that takes a while.
        clock: for the deadline of a start.
    """

    def __init__(
        self,
        *,
        port: int = 0,
        data: Path | None = None,
        properties: Mapping[str, str] = MappingProxyType({}),
        jvm_options: Sequence[str] = DEFAULT_JVM_OPTIONS,
        version: str = KAFKA_VERSION,
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
        self._kafka = kafka_jars(version)
        self._start_within_s = start_within_s
        self._on_progress = on_progress
        self._clock = clock or SystemClock()
        self._process: LeashedProcess | None = None

    @property
    def bootstrap_servers(self) -> str:
        """`HOST:PORT` of the plain listener; stays the same over `kill` and `restart`."""
        if not self._port:
            raise UsageError("the broker has no port yet: start it first")
        return f"{HOST}:{self._port}"

    @property
    def pid(self) -> int:
        """The process id of the broker's Java process."""
        return self._running_process().pid

    @property
    def running(self) -> bool:
        """Whether the broker's process runs."""
        return self._process is not None and self._process.running

    @property
    def data(self) -> Path:
        """The directory that holds topics, configuration and logs."""
        if self._data is None:
            raise UsageError("the broker has no data directory: it is not started, or it was stopped")
        return self._data

    def start(self) -> None:
        """Start the broker, and return when it answers. After `kill`, or with existing `data`, it keeps its topics.

        Raises:
            UsageError: the broker cannot start; one line says what to do, and a note has the last lines of its log.
        """
        if self.running:
            raise UsageError("the broker is already running")
        java = find_java()
        jars = self._kafka.get(java, self._on_progress)
        data = self._data or self._make_data()
        with owned(data) as lock:
            self._data = data
            try:
                self._start(java, jars, lock)
            except BaseException:
                self.stop()
                raise

    def stop(self) -> None:
        """Stop the broker gracefully, or kill it if that takes too long; delete its data directory if temporary."""
        if self._process is not None:
            self._process.stop()
            self._process = None
        if self._data is not None and self._asked_data is None:
            shutil.rmtree(self._data, ignore_errors=True)
        self._data = None

    def kill(self) -> None:
        """Kill the broker (SIGKILL), as a crash would. Port and data stay for `restart`."""
        self._running_process().kill()
        self._process = None

    def restart(self) -> None:
        """Stop the broker gracefully if it runs, and start it again on the same port and data."""
        if self._process is not None:
            self._process.stop()
            self._process = None
        self.start()

    def wait(self, timeout_s: float | None = None) -> int | None:
        """Wait until the broker's process ends by itself.

        Args:
            timeout_s: the longest time to wait, in seconds; None: no limit.

        Returns:
            Its exit code, or 128 + n for signal n; None after the timeout.
        """
        return self._running_process().wait(timeout_s)

    @classmethod
    def archive_classes(cls, on_progress: Progress = tell, *, version: str = KAFKA_VERSION) -> None:
        """Let all later brokers on this machine start with a third less processor time.

        This starts a broker and ends it, unless that was done before, so it pays for a suite that starts several.
        Safe between processes: a second process waits for the first one. If the archive cannot be written, the brokers
        start as before.

        Args:
            on_progress: called with one line of text before a step that takes a while.
            version: the version of Kafka.

        Raises:
            UsageError: the broker cannot start, as with `start`.
        """
        java = find_java()
        archive = class_archive.archive_of(java, kafka_jars(version).get(java, on_progress))
        classes = f"the classes of Kafka {version} (50 MB, once)"
        if archive.exists():
            return
        try:
            with locked(archive, on_progress, classes):
                if not archive.exists():  # another process may have made it meanwhile
                    on_progress(f"writing {classes} to {archive}")
                    cls._archive(archive, on_progress, version)
        except OSError as error:
            on_progress(f"cannot write {classes} to {archive}: {error.strerror}")

    @classmethod
    def _archive(cls, archive: Path, on_progress: Progress, version: str) -> None:
        # Complete under its name, or absent: Java would read what a dump that was killed has left.
        with tempfile.TemporaryDirectory(prefix=f".{archive.name}.", dir=archive.parent) as work:
            new = Path(work, archive.name)
            options = (*DEFAULT_JVM_OPTIONS, *class_archive.writing(new))
            with cls(jvm_options=options, version=version, on_progress=on_progress) as broker:
                os.kill(broker.pid, signal.SIGTERM)
                ended = broker.wait(_ARCHIVE_WITHIN_S)
            if not new.exists():
                new.touch()  # this Java cannot: no later call need try it
            if ended == _TERMINATED:
                new.rename(archive)

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is not None and self._process is not None and (code := self._process.wait(0)) is not None:
            # Whoever waited for this broker in vain learns why: `stop` may delete its logs.
            error.add_note(diagnosis.ended(self.data, code))
        self.stop()

    def _running_process(self) -> LeashedProcess:
        if self._process is None:
            raise UsageError("the broker is not running: start it first")
        return self._process

    def _make_data(self) -> Path:
        if self._asked_data is None:
            return Path(tempfile.mkdtemp(prefix="tarry-broker-"))
        try:
            self._asked_data.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise UsageError(f"the data directory {self._asked_data} cannot be created: {error.strerror}") from error
        return self._asked_data.resolve()

    def _start(self, java: Java, jars: Sequence[Path], lock: int) -> None:
        deadline_ms = self._clock.monotonic_ms() + int(self._start_within_s * 1000)
        keeps_port = self._port != 0
        for draw in range(1, _DRAWS_OF_PORTS + 1):
            if keeps_port and not is_free(self._port):
                raise UsageError(
                    f"port {self._port} of {HOST} is in use: stop the process that uses it, or choose another port"
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
            self._process.kill()  # another process has taken the port first: choose another one
            self._port = self._port if keeps_port else 0
            self._controller_port = 0
        raise diagnosis.failed_start(self.data, self._start_within_s, still_runs=self.running)

    def _configure(self) -> Path:
        """Write the configuration files of Kafka; return the path of its `server.properties`."""
        (self.data / "log4j2.properties").write_text(LOG4J.format(file=self.data / diagnosis.LOG), encoding="utf-8")
        for log in diagnosis.LOGS:  # the diagnosis of this start must not read the logs of an earlier one
            (self.data / log).unlink(missing_ok=True)
        configuration = self.data / "server.properties"
        # A second broker of the cluster, if any, looks for the controller on the old port after a restart: keep it.
        if not self._controller_port or not is_free(self._controller_port):
            self._controller_port = free_port(self._port, *self._other_ports())
        wanted = server_properties(self._port, self._controller_port, self.data / "topics", self._properties)
        configuration.write_text(properties_text(wanted), encoding="utf-8")
        return configuration

    def _other_ports(self) -> list[int]:
        """Return the ports of the listeners that the caller has added."""
        return [int(port) for port in re.findall(r":(\d+)", self._properties.get("listeners", ""))]

    def _format(self, java: Java, jars: Sequence[Path], configuration: Path, lock: int) -> str:
        """Format the data directory unless that was done before; return its cluster id."""
        formatted = self.data / "topics" / "meta.properties"
        if not formatted.exists():  # Kafka writes this file last, and atomically
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
        raise UsageError(f"{formatted} has no cluster.id: delete the data directory to start with an empty one")

    def _java_command(self, java: Java, jars: Sequence[Path], main: str, *arguments: str) -> list[str]:
        return [
            str(java.path),
            *class_archive.reading(class_archive.archive_of(java, jars)),
            *self._jvm_options,
            "-Djava.awt.headless=true",
            f"-Dlog4j2.configurationFile={self.data / 'log4j2.properties'}",
            *("-cp", os.pathsep.join(map(str, jars)), main, *arguments),
        ]

    def _answers(self, cluster_id: str, deadline_ms: int) -> bool:
        """Ask until the broker of this cluster answers.

        Returns:
            True if it answers; False if it has ended or the deadline has passed.
        """
        admin = AdminClient(
            {
                "bootstrap.servers": self.bootstrap_servers,
                "reconnect.backoff.max.ms": 100,
                "log_level": 0,  # librdkafka would print each refused connection
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
    """Return a random cluster id of 22 characters. It has no leading dash: Kafka's tools would read it as an option."""
    while True:
        name = base64.urlsafe_b64encode(uuid.uuid4().bytes).rstrip(b"=").decode()
        if not name.startswith("-"):
            return name
