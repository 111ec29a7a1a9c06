"""Further brokers in an embedded broker's cluster. While one is stopped, its partitions have no leader."""

import os
from collections.abc import Collection
from pathlib import Path

from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from tarry.config import Config
from tarry.devbroker import EmbeddedBroker, class_archive
from tarry.devbroker.broker import DEFAULT_JVM_OPTIONS, KAFKA
from tarry.devbroker.ports import HOST, free_port
from tarry.devbroker.process import LeashedProcess
from tarry.devbroker.properties import LOG4J, properties_text, server_properties
from tarry.jars import find_java
from tarry.kafka.intake_topics import DEFAULT_MAX_MESSAGE_BYTES, topics_of
from tarry.service.app import geometry_of
from tests.support.brokers import wait_until

NODE = 2
GRACE_S = 15.0
WITHIN_S = 90.0

Place = tuple[str, int]


class FurtherBroker:
    """A second broker, or a third one, without a controller.

    Args:
        first: the running broker whose cluster it joins.
        directory: for its data; it is created.
        listener: the name of a further listener, for clients that connect to the first broker by the listener of this
            name.
        node: its number.
    """

    def __init__(self, first: EmbeddedBroker, directory: Path, listener: str = "", node: int = NODE) -> None:
        self._node = node
        self._servers = first.bootstrap_servers
        self._directory = directory
        self._process: LeashedProcess | None = None
        (directory / "topics").mkdir(parents=True)
        said = dict(
            line.split("=", 1)
            for line in (first.data / "topics" / "meta.properties").read_text(encoding="utf-8").splitlines()
            if not line.startswith("#")
        )
        meta = {"version": "1", "cluster.id": said["cluster.id"], "node.id": str(node)}
        (directory / "topics" / "meta.properties").write_text(properties_text(meta), encoding="utf-8")
        (directory / "log4j2.properties").write_text(LOG4J.format(file=directory / "kafka.log"), encoding="utf-8")
        voters = (first.data / "server.properties").read_text(encoding="utf-8")
        port = free_port()
        more = free_port(port)
        properties = server_properties(port, 0, directory / "topics", {}) | {
            "process.roles": "broker",
            "node.id": str(node),
            "listeners": f"PLAINTEXT://{HOST}:{port}",
            "advertised.listeners": f"PLAINTEXT://{HOST}:{port}",
            "controller.quorum.voters": voters.partition("controller.quorum.voters=")[2].splitlines()[0],
        }
        if listener:
            for name in ("listeners", "advertised.listeners"):
                properties[name] += f",{listener}://{HOST}:{more}"
            properties["listener.security.protocol.map"] += f",{listener}:PLAINTEXT"
        (directory / "server.properties").write_text(properties_text(properties), encoding="utf-8")

    def start(self) -> None:
        """Start it, and wait until the cluster lists it."""
        java = find_java()
        jars = KAFKA.get(java, lambda _line: None)
        self._process = LeashedProcess(
            [
                str(java.path),
                *class_archive.reading(class_archive.archive_of(java, jars)),
                *DEFAULT_JVM_OPTIONS,
                f"-Dlog4j2.configurationFile={self._directory / 'log4j2.properties'}",
                *("-cp", os.pathsep.join(map(str, jars)), "kafka.Kafka", str(self._directory / "server.properties")),
            ],
            output=self._directory / "console.log",
            grace_s=GRACE_S,
        )
        wait_until(lambda: self._node in self._brokers(), "the broker is one of the cluster", WITHIN_S)

    def stop(self) -> None:
        """Stop it with SIGTERM."""
        if self._process is not None:
            self._process.stop()
            self._process = None

    def kill(self) -> None:
        """Kill it with kill -9."""
        if self._process is not None:
            self._process.kill()
            self._process = None

    def _brokers(self) -> Collection[int]:
        try:
            return AdminClient({"bootstrap.servers": self._servers, "log_level": 0}).list_topics(timeout=2).brokers
        except KafkaException:
            return ()


def make_internal_topics(servers: str, topic: str) -> None:
    """Make Kafka create its topics for transactions and offsets while the first broker is the only one.

    Args:
        servers: the first broker.
        topic: an existing topic.
    """
    Producer({"bootstrap.servers": servers, "transactional.id": "first"}).init_transactions(30)

    def commits() -> bool:
        consumer = Consumer({"bootstrap.servers": servers, "group.id": "first"})
        try:
            consumer.commit(offsets=[TopicPartition(topic, 0, 0)], asynchronous=False)
        except KafkaException:
            return False
        finally:
            consumer.close()
        return True

    wait_until(commits, "the offsets' topic", WITHIN_S)


def make_intake(servers: str, settings: Config, apart: Place) -> None:
    """Create the topics of an intake as the service does, but with one partition only on the second broker.

    Args:
        servers: the first broker.
        settings: the service's settings; their first intake is used.
        apart: that partition: the suffix of its topic after the intake's name, and its number.
    """
    intake = settings.intakes[0]
    made = topics_of(
        intake.topic,
        intake.partitions,
        1,
        geometry_of(settings, intake),
        fixed_delay=intake.is_fixed,
        max_bytes=DEFAULT_MAX_MESSAGE_BYTES,
    )
    wanted = [
        NewTopic(
            topic.name,
            topic.partitions,
            replica_assignment=[
                [NODE if (topic.name, number) == (intake.topic + apart[0], apart[1]) else 1]
                for number in range(topic.partitions)
            ],
            config={**topic.config, **topic.extra},
        )
        for topic in made
    ]
    admin = AdminClient({"bootstrap.servers": servers})
    for future in admin.create_topics(wanted).values():
        future.result(timeout=30)


def make_apart(servers: str, topic: str, partitions: int) -> None:
    """Create a topic whose only replicas are on the second broker.

    Args:
        servers: the first broker.
        topic: its name.
        partitions: how many.
    """
    admin = AdminClient({"bootstrap.servers": servers})
    wanted = NewTopic(topic, partitions, replica_assignment=[[NODE]] * partitions)
    admin.create_topics([wanted])[topic].result(timeout=30)
