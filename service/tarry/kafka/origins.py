"""Asking the brokers for origins: the ids of the cluster and topics that the offsets of a checkpoint belong to."""

from collections.abc import Mapping
from typing import TYPE_CHECKING

from confluent_kafka import KafkaException, TopicCollection, Uuid
from confluent_kafka.admin import AdminClient

from tarry.core.progress.checkpoint import Geometry
from tarry.core.progress.origin import Origin, identified_topics
from tarry.errors import LogError, RetriableError
from tarry.kafka.errors import error_of, group_errors, translate_group
from tarry.kafka.refusals import another_origin
from tarry.kafka.topics import NO_TOPIC
from tarry.kafka.types import Place

if TYPE_CHECKING:
    from concurrent.futures import Future

    from confluent_kafka.admin._cluster import DescribeClusterResult
    from confluent_kafka.admin._topic import TopicDescription

REQUEST_TIMEOUT_S = 5.0

_URL_SAFE = str.maketrans("+/", "-_")
_NONE = "A" * 22


class Origins:
    """Asks for ids.

    Args:
        admin: an admin client.
    """

    def __init__(self, admin: AdminClient) -> None:
        self._admin = admin

    def of(self, geometries: Mapping[str, Geometry]) -> dict[str, Origin]:
        """Return the ids of the cluster and of the intakes' topics, with two requests.

        A missing topic has no id. Brokers older than Kafka 2.8 have no topic ids at all.

        Args:
            geometries: the shapes of their overflow wheels, by intake.

        Raises:
            RetriableError: no answer.
        """
        return self.ask(geometries).answers()

    def ask(self, geometries: Mapping[str, Geometry]) -> "AskedOrigins":
        """Ask as `of` does, without waiting for the answers."""
        names = {intake: identified_topics(intake, geometry.levels) for intake, geometry in geometries.items()}
        cluster = self._admin.describe_cluster(request_timeout=REQUEST_TIMEOUT_S)
        topics: dict[str, Future[TopicDescription]] = {}
        if asked := [name for some in names.values() for name in some]:
            topics = self._admin.describe_topics(TopicCollection(asked), request_timeout=REQUEST_TIMEOUT_S)
        return AskedOrigins(names, cluster, topics)


class AskedOrigins:
    """Answers under way, which the loop takes later.

    Args:
        names: for each intake its topics, in the order of a checkpoint.
        cluster: the answer about the cluster.
        topics: the answers about the topics, by name.
    """

    def __init__(
        self,
        names: Mapping[str, list[str]],
        cluster: "Future[DescribeClusterResult]",
        topics: "Mapping[str, Future[TopicDescription]]",
    ) -> None:
        self._names = names
        self._cluster = cluster
        self._topics = topics

    @property
    def done(self) -> bool:
        """Whether all answers have come or failed."""
        return self._cluster.done() and all(future.done() for future in self._topics.values())

    def answers(self) -> dict[str, Origin]:
        """Wait for the answers; return the present ids, by intake.

        Raises:
            RetriableError: no answer.
        """
        with group_errors("ask for the cluster's id"):
            cluster = self._cluster.result().cluster_id or ""
        ids = {name: _id_of(name, future) for name, future in self._topics.items()}
        return {intake: Origin.of([cluster, *(ids[name] for name in some)]) for intake, some in self._names.items()}

    def partitions(self) -> dict[str, int]:
        """Return how many partitions each intake has, once `answers` has returned; 0 if there is no such intake."""
        asked = {intake: self._topics[intake] for intake in self._names}
        return {
            intake: 0 if future.exception() is not None else len(future.result().partitions)
            for intake, future in asked.items()
        }


def verify(held: Mapping[Place, Origin], now: Mapping[str, Origin]) -> None:
    """Check that the cluster and the topics of our partitions are still those that were taken over.

    Args:
        held: the origin in each partition's checkpoint.
        now: the present ids, by intake.

    Raises:
        LogError: the cluster or a topic is another one; one line says which.
    """
    for place, origin in held.items():
        if refusal := another_origin(place, origin, now[place[0]]):
            raise LogError(refusal, place)


def topic_id_of(admin: AdminClient, topic: str) -> str:
    """Return the id of a topic; empty if there is no such topic, or the brokers have no ids.

    Raises:
        RetriableError: no answer.
    """
    asked = admin.describe_topics(TopicCollection([topic]), request_timeout=REQUEST_TIMEOUT_S)
    return _id_of(topic, asked[topic])


def _id_of(name: str, future: "Future[TopicDescription]") -> str:
    """Return the id of a topic; empty if there is no such topic."""
    try:
        return text_of(future.result().topic_id)
    except KafkaException as exception:
        error = error_of(exception)
        if error.code() not in NO_TOPIC:
            failure = translate_group(error, f"ask for the id of {name}")
            raise RetriableError(str(failure), failure.code) from exception
        return ""


def text_of(topic_id: Uuid) -> str:
    """Return an id as Kafka's own tools show it; empty if there is none."""
    text = str(topic_id).rstrip("=").translate(_URL_SAFE)
    return "" if text == _NONE else text
