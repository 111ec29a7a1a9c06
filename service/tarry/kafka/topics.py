"""Topics: the names of an intake's topics, and the admin that finds, describes and creates topics.

The required configuration of an intake's topics is in `intake_topics`.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace

from confluent_kafka import KafkaError, KafkaException, TopicCollection
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._acl import AclOperation
from confluent_kafka.admin._config import ConfigResource
from confluent_kafka.admin._resource import ResourceType
from confluent_kafka.admin._topic import TopicDescription
from confluent_kafka.cimpl import NewTopic

from tarry.errors import RetriableError, UsageError
from tarry.kafka.errors import error_of, group_errors, translate_group

RESULTS, JOURNAL, DEAD, STATUS, PARKED, CONTROL = ".results", ".journal", ".dead", ".status", ".parked", ".control"
OPERATIONS = ".operations"
WHEEL = ".wheel-"
"""The suffixes of the names of an intake's topics; a level's number follows the last one."""

NOT_ALLOWED = "writing to it is not allowed"
"""Why a topic cannot be written to, if the right is missing."""

REQUEST_TIMEOUT_S = 30.0

NO_TOPIC = frozenset({KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError.TOPIC_EXCEPTION})
"""The errors of a request about a topic that does not exist."""

NOT_SEEN = NO_TOPIC | {KafkaError.TOPIC_AUTHORIZATION_FAILED}
"""The same, and that about a topic that this user may not see: Kafka does not tell whether it exists."""

_OF_THE_TOPIC = frozenset(
    {KafkaError.TOPIC_AUTHORIZATION_FAILED, KafkaError.LEADER_NOT_AVAILABLE, KafkaError.REPLICA_NOT_AVAILABLE}
)
"""The errors of a request about several topics that concern only one of them."""


@dataclass(frozen=True, slots=True)
class Topic:
    """The required configuration of a topic.

    Attributes:
        name: of the topic.
        partitions: how many; checked.
        replication: the replication factor, if it is created here.
        config: settings that are checked.
        extra: settings that it is created with, and that an operator may change.
        least_max_bytes: the least allowed limit on a batch of messages; None: not checked.
        partitions_note: text added to the error about another number of partitions: its likely cause, and what to do.
    """

    name: str
    partitions: int
    replication: int
    config: Mapping[str, str] = field(default_factory=dict)
    extra: Mapping[str, str] = field(default_factory=dict)
    least_max_bytes: int | None = None
    partitions_note: str = ""


@dataclass(frozen=True, slots=True)
class Found:
    """The actual configuration of a topic."""

    partitions: int
    config: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Target:
    """A target topic, as the brokers describe it now.

    Attributes:
        partitions: how many; 0 if there is no topic of this name.
        obstacle: why it cannot be written to at present, in one line; empty if nothing is known against it.
        max_bytes: its limit on a batch of records; None if the brokers do not tell.
        compacted: whether it refuses records without a key.
    """

    partitions: int
    obstacle: str = ""
    max_bytes: int | None = None
    compacted: bool = False


def wheel_topic(intake: str, level: int) -> str:
    """Return the topic of a level of an intake's overflow wheel; the lowest level is 1."""
    return f"{intake}{WHEEL}{level}"


def count_partitions(admin: AdminClient, names: Iterable[str], timeout_s: float) -> dict[str, int]:
    """Return how many partitions those of the topics have that exist and that this user may see.

    The request is about these topics alone, however many others the cluster has, and it never creates one.

    Raises:
        KafkaException: the brokers do not answer.
    """
    wanted = sorted({name for name in names if name})  # the client library refuses an empty one
    if not wanted:
        return {}
    found: dict[str, int] = {}
    futures = admin.describe_topics(TopicCollection(wanted), request_timeout=timeout_s)
    for name, future in futures.items():
        try:
            found[name] = len(future.result().partitions)
        except KafkaException as exception:
            if error_of(exception).code() not in NOT_SEEN:
                raise
    return found


def partitions_of_intake(admin: AdminClient, intake: str, timeout_s: float, doing: str) -> int:
    """Return the number of an intake's partitions.

    Args:
        admin: an admin client.
        intake: the intake.
        timeout_s: how long to wait for the brokers.
        doing: what is done, for the error if the brokers do not answer.

    Raises:
        UsageError: there is no such topic, or this user may not see it.
        BrokerError: no answer.
    """
    with group_errors(doing):
        found = count_partitions(admin, [intake], timeout_s)
    if intake not in found:
        raise UsageError(no_intake(intake))
    return found[intake]


def no_intake(name: str) -> str:
    """Return what to say about an intake that does not exist."""
    return f"there is no topic {name}: check the name of the intake, or create its topics with `tarry topics`"


class TopicAdmin:
    """Finds, describes and creates topics.

    Args:
        admin: an admin client.
        on_made: called with the name of each topic as soon as it is created.
    """

    def __init__(self, admin: AdminClient, on_made: Callable[[str], None] = lambda _name: None) -> None:
        self._admin = admin
        self._on_made = on_made

    def brokers(self) -> int:
        """Return how many brokers are up."""
        with group_errors("ask for the cluster's brokers"):
            return len(self._admin.list_topics(timeout=REQUEST_TIMEOUT_S).brokers)

    def partitions(self, names: Iterable[str]) -> dict[str, int]:
        """Return how many partitions those of the topics have that exist. It needs no right but to see them."""
        with group_errors("ask for topics"):
            return count_partitions(self._admin, names, REQUEST_TIMEOUT_S)

    def find(self, names: Iterable[str]) -> dict[str, Found]:
        """Return those of the topics that exist, with their settings."""
        there = self.partitions(names)
        if not there:
            return {}
        resources = [ConfigResource(ResourceType.TOPIC, name) for name in there]
        with group_errors("ask for the topics' settings"):
            configs = {
                resource.name: {entry.name: entry.value for entry in future.result().values()}
                for resource, future in self._admin.describe_configs(resources).items()
            }
        return {name: Found(count, configs[name]) for name, count in there.items()}

    def targets(self, names: Iterable[str], timeout_s: float) -> dict[str, Target]:
        """Describe target topics, all of them with two requests.

        Raises:
            RetriableError: the brokers do not answer.
        """
        wanted = sorted(set(names))
        if not wanted:
            return {}
        futures = self._admin.describe_topics(
            TopicCollection(wanted), include_authorized_operations=True, request_timeout=timeout_s
        )
        targets = {}
        for name, future in futures.items():
            try:
                targets[name] = _target(future.result())
            except KafkaException as exception:
                error = error_of(exception)
                if error.code() in NO_TOPIC:
                    targets[name] = Target(0)
                elif isinstance(failure := translate_group(error, f"ask about {name}"), RetriableError) and (
                    error.code() not in _OF_THE_TOPIC
                ):
                    raise failure from exception
                else:
                    targets[name] = Target(1, obstacle=error.str())
        return {**targets, **self._limits(targets, timeout_s)}

    def _limits(self, targets: Mapping[str, Target], timeout_s: float) -> dict[str, Target]:
        """Return existing targets with the limits from their settings, except those whose settings we may not read."""
        there = [ConfigResource(ResourceType.TOPIC, name) for name, target in targets.items() if target.partitions]
        if not there:
            return {}
        known = {}
        for resource, future in self._admin.describe_configs(there, request_timeout=timeout_s).items():
            try:
                settings = future.result()
            except KafkaException:
                continue  # then the brokers decide about each record
            known[resource.name] = replace(
                targets[resource.name],
                max_bytes=int(settings["max.message.bytes"].value),
                compacted="compact" in settings["cleanup.policy"].value,
            )
        return known

    def make(self, topics: Iterable[Topic]) -> list[str]:
        """Create topics; it is no error if another process has just created one.

        Returns:
            The names of those that were created here.

        Raises:
            UsageError: the cluster refuses one, with the reason; the others are created.
        """
        wanted = [NewTopic(t.name, t.partitions, t.replication, config={**t.config, **t.extra}) for t in topics]
        if not wanted:
            return []
        made: list[str] = []
        refused: UsageError | None = None
        for name, future in self._admin.create_topics(wanted, request_timeout=REQUEST_TIMEOUT_S).items():
            try:
                future.result()
            except KafkaException as exception:
                refused = refused or _refusal(name, error_of(exception))
            else:
                made.append(name)
                self._on_made(name)
        if refused is not None:
            raise refused
        return made


def _refusal(name: str, error: KafkaError) -> UsageError | None:
    """Return why a topic was not created; None if another process has created it."""
    if error.code() == KafkaError.TOPIC_ALREADY_EXISTS:
        return None
    if error.code() == KafkaError.TOPIC_AUTHORIZATION_FAILED:
        return UsageError(
            f"this user may not create topic {name}, or may not see it if it exists: create it with `tarry topics` as "
            "a user that may, or grant the rights (docs/security.md)"
        )
    return UsageError(f"could not make topic {name}: {error.str()}")


def _target(seen: TopicDescription) -> Target:
    partitions = len(seen.partitions)
    allowed = seen.authorized_operations
    if allowed is not None and AclOperation.WRITE not in allowed:
        return Target(partitions, NOT_ALLOWED)
    if not all(partition.leader for partition in seen.partitions):
        return Target(partitions, "not all of its partitions have a leader")
    return Target(partitions)
