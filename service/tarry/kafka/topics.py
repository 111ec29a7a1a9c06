"""Topics: what those beside an intake are called, and the admin that finds topics, looks at them and makes them.

What the topics of an intake must be like is in `intake_topics`.
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

RESULTS, JOURNAL, DEAD, STATUS, WHEEL = ".results", ".journal", ".dead", ".status", ".wheel-"
"""What the names of topics beside an intake end with; a level's number stands behind the last."""

REQUEST_TIMEOUT_S = 30.0

NO_TOPIC = frozenset({KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError.TOPIC_EXCEPTION})
"""What a request about a topic says where there is none of that name."""

_OF_THE_TOPIC = frozenset(
    {KafkaError.TOPIC_AUTHORIZATION_FAILED, KafkaError.LEADER_NOT_AVAILABLE, KafkaError.REPLICA_NOT_AVAILABLE}
)
"""What a request about several topics says of one of them."""


@dataclass(frozen=True, slots=True)
class Topic:
    """A topic as it should be.

    Attributes:
        name: of the topic.
        partitions: how many; checked.
        replication: how many copies, where it is made here.
        config: properties that are checked.
        extra: properties that it is made with, and that an operator may change.
        least_max_bytes: its limit on a batch of messages must be so much; None where nobody needs to know.
        partitions_note: what another number of partitions tells, to be said with it.
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
    """A topic as it is."""

    partitions: int
    config: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Target:
    """A topic that messages are for, as the brokers see it now.

    Attributes:
        partitions: how many; 0 where there is no topic of this name.
        obstacle: why nothing can be written to it at present, in one line; empty where nothing is known against it.
        max_bytes: its limit on a batch of records; None where the brokers do not tell.
        compacted: whether it takes no record without a key.
    """

    partitions: int
    obstacle: str = ""
    max_bytes: int | None = None
    compacted: bool = False


def wheel_topic(intake: str, level: int) -> str:
    """The topic of a level of an intake's overflow wheel; the lowest is 1."""
    return f"{intake}{WHEEL}{level}"


class TopicAdmin:
    """Makes and checks topics.

    Args:
        admin: an admin client.
        on_made: called with the name of each topic as soon as it is made.
    """

    def __init__(self, admin: AdminClient, on_made: Callable[[str], None] = lambda _name: None) -> None:
        self._admin = admin
        self._on_made = on_made

    def find(self, names: Iterable[str]) -> dict[str, Found]:
        """Those of the topics that exist."""
        wanted = set(names)
        with group_errors("ask for the cluster's topics"):
            known = self._admin.list_topics(timeout=REQUEST_TIMEOUT_S).topics
        there = [name for name in known if name in wanted]
        if not there:
            return {}
        resources = [ConfigResource(ResourceType.TOPIC, name) for name in there]
        with group_errors("ask for the topics' settings"):
            configs = {
                resource.name: {entry.name: entry.value for entry in future.result().values()}
                for resource, future in self._admin.describe_configs(resources).items()
            }
        return {name: Found(len(known[name].partitions), configs[name]) for name in there}

    def targets(self, names: Iterable[str], timeout_s: float) -> dict[str, Target]:
        """Look at topics that messages are for, all in two requests.

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
        """What the settings of those that exist forbid; those that may not be asked for are left out."""
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
        """Make topics; one that another process has just made is fine.

        Returns:
            Those that were made here.

        Raises:
            UsageError: the cluster refuses one, with the reason; the others are made.
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
    """Why a topic was not made; None: another process has made it."""
    if error.code() == KafkaError.TOPIC_ALREADY_EXISTS:
        return None
    if error.code() == KafkaError.TOPIC_AUTHORIZATION_FAILED:
        return UsageError(
            f"topic {name} is not there, and the right to CREATE it is missing (`tarry topics` makes it); "
            "or it is there, and this user has no right to it (docs/security.md)"
        )
    return UsageError(f"could not make topic {name}: {error.str()}")


def _target(seen: TopicDescription) -> Target:
    partitions = len(seen.partitions)
    allowed = seen.authorized_operations
    if allowed is not None and AclOperation.WRITE not in allowed:
        return Target(partitions, "writing to it is not allowed")
    if not all(partition.leader for partition in seen.partitions):
        return Target(partitions, "not all of its partitions have a leader")
    return Target(partitions)
