"""A running `tarry serve` for one test, with its own intake on a real broker, and a reader for its deliveries."""

import time
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

from confluent_kafka import OFFSET_BEGINNING, Consumer, Message, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from tarry.client import DelayedProducer
from tarry.kafka.errors import group_errors, translate_group
from tarry.kafka.settings import Cluster
from tarry.testing.serve import Serve, ServeConfig, ServeError

_ANSWER_WITHIN_S: Final = 30.0
_LOOK_EVERY_S: Final = 0.02
_POLL_S: Final = 0.2


class LiveService:
    """A service with one worker process. A context manager, which waits until the service serves.

    Args:
        bootstrap_servers: the broker, HOST:PORT.
        directory: the directory for its configuration and its log.
        name: a name that is unique on that broker; the names of the intake, the group and the topics begin with it.
        partitions: the number of partitions of the intake.
        **settings: more settings of the intake, by name, such as `delay="5s", target="orders"`. `max_delay` is 60s
            unless you set it.
    """

    def __init__(
        self, bootstrap_servers: str, directory: Path, name: str, partitions: int = 1, **settings: object
    ) -> None:
        self.bootstrap_servers = bootstrap_servers
        # The client library's log goes through logging, like the service's.
        self._cluster = Cluster(bootstrap_servers)
        self.name = name
        self.intake = f"{name}.delayed"
        config = ServeConfig(bootstrap_servers, self.intake, partitions, f"{name}.group", intake_settings=settings)
        self.process = Serve(config, directory, "tarry-serve")
        """The process, which a test can kill and start again."""

    def __enter__(self) -> Self:
        self.process.start()
        try:
            self.process.wait_serving()
        except BaseException:
            self.process.close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.process.close()

    def producer(self) -> DelayedProducer:
        """Return a producer for the intake; it is a context manager."""
        return DelayedProducer(self.bootstrap_servers, self.intake)

    def make_topic(self, name: str, partitions: int = 1) -> str:
        """Create a topic to send to.

        Returns:
            The topic's name, which begins with the name of the service.
        """
        topic = f"{self.name}.{name}"
        admin = AdminClient(self._cluster.admin())
        with group_errors(f"make topic {topic}"):
            admin.create_topics([NewTopic(topic, partitions, 1)])[topic].result(_ANSWER_WITHIN_S)
            # The controller answers before the brokers know the topic. A message for an unknown topic would be dead.
            ends = time.monotonic() + _ANSWER_WITHIN_S
            while not _is_known(admin, topic, partitions):
                if time.monotonic() > ends:
                    raise ServeError(f"the broker does not know {topic} after {_ANSWER_WITHIN_S:g} s")
                time.sleep(_LOOK_EVERY_S)
        return topic

    def read(self, topic: str, count: int, within_s: float = 30.0) -> "list[Message[Any, Any]]":
        """Wait for the first records of a topic, and return them. The reader is `read_committed`.

        Args:
            topic: the topic, as `make_topic` returned it.
            count: the number of records.
            within_s: the longest time to wait, in seconds.

        Raises:
            ServeError: the topic has fewer records after that time.
        """
        consumer = Consumer(
            self._cluster.client(
                group_id=f"{self.name}.read", enable_auto_commit=False, isolation_level="read_committed"
            )
        )
        try:
            partitions = consumer.list_topics(topic, timeout=_ANSWER_WITHIN_S).topics[topic].partitions
            consumer.assign([TopicPartition(topic, partition, OFFSET_BEGINNING) for partition in partitions])
            found: list[Message[Any, Any]] = []
            ends = time.monotonic() + within_s
            while len(found) < count:
                if time.monotonic() > ends:
                    raise ServeError(f"{topic} has {len(found)} of {count} records after {within_s:g} s")
                for record in consumer.consume(count - len(found), _POLL_S):
                    if (problem := record.error()) is not None:
                        raise translate_group(problem, f"read {topic}")
                    found.append(record)
            return found
        finally:
            consumer.close()


def _is_known(admin: AdminClient, topic: str, partitions: int) -> bool:
    """Return whether a broker knows the topic and a leader for each of its partitions."""
    found = admin.list_topics(timeout=_ANSWER_WITHIN_S).topics.get(topic)
    if found is None or found.error is not None:
        return False
    return sum(partition.leader >= 0 for partition in found.partitions.values()) == partitions
