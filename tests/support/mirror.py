"""Kafka's own MirrorMaker 2 between two brokers: it keeps the names of topics, and copies a group's offsets."""

from collections.abc import Sequence
from pathlib import Path
from typing import Final, Self

from tarry.devbroker.broker import KAFKA_VERSION
from tarry.devbroker.process import LeashedProcess
from tarry.devbroker.properties import LOG4J
from tarry.jars import Artefact, Jars, find_java
from tarry.progress_output import tell

MIRROR: Final = Jars(
    f"kafka-mirror-{KAFKA_VERSION}",
    f"MirrorMaker {KAFKA_VERSION} (37 MB, once)",
    (
        Artefact("org.apache.kafka", "connect-mirror", KAFKA_VERSION),
        Artefact("org.apache.logging.log4j", "log4j-slf4j-impl", "2.24.3"),
        Artefact("org.apache.logging.log4j", "log4j-core", "2.24.3"),
    ),
)

_GRACE_S: Final = 15.0
_EVERY: Final = (
    "refresh.topics.interval.seconds",
    "refresh.groups.interval.seconds",
    "sync.group.offsets.interval.seconds",
    "emit.checkpoints.interval.seconds",
)
_FACTORS: Final = (
    "replication.factor",
    "checkpoints.topic.replication.factor",
    "heartbeats.topic.replication.factor",
    "offset-syncs.topic.replication.factor",
    "offset.storage.replication.factor",
    "status.storage.replication.factor",
    "config.storage.replication.factor",
)


class Mirror:
    """MirrorMaker 2 from one cluster to another, until it is stopped.

    Args:
        source: HOST:PORT.
        target: HOST:PORT.
        topics: the topics to mirror.
        group: the group whose committed offsets are mirrored, with their metadata.
        directory: for its configuration and its logs.
    """

    def __init__(self, source: str, target: str, topics: Sequence[str], group: str, directory: Path) -> None:
        java = find_java()
        jars = MIRROR.get(java, tell)
        self.log = directory / "mirror.log"
        (directory / "mirror-log4j2.properties").write_text(LOG4J.format(file=self.log), encoding="utf-8")
        properties = {
            "clusters": "here, there",
            "here.bootstrap.servers": source,
            "there.bootstrap.servers": target,
            "here->there.enabled": "true",
            "there->here.enabled": "false",
            "here->there.topics": ",".join(topics),
            "here->there.groups": group,
            "replication.policy.class": "org.apache.kafka.connect.mirror.IdentityReplicationPolicy",
            "here.consumer.isolation.level": "read_committed",
            "sync.group.offsets.enabled": "true",
            "offset.lag.max": "0",
            "emit.heartbeats.enabled": "false",
            **dict.fromkeys(_EVERY, "1"),
            **dict.fromkeys(_FACTORS, "1"),
        }
        configuration = directory / "mirror.properties"
        configuration.write_text("".join(f"{name} = {value}\n" for name, value in properties.items()), encoding="utf-8")
        command = [
            str(java.path),
            "-Xmx384m",
            f"-Dlog4j2.configurationFile={directory / 'mirror-log4j2.properties'}",
            *("-cp", ":".join(map(str, jars)), "org.apache.kafka.connect.mirror.MirrorMaker", str(configuration)),
        ]
        self._process = LeashedProcess(command, output=directory / "mirror.console", grace_s=_GRACE_S)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def stop(self) -> None:
        """SIGTERM, and wait for its end."""
        self._process.stop()
