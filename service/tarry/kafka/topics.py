"""The topics of an intake: made where they are missing, checked where they are not.

`I` takes what is sent; `I.results`, `I.journal` and `I.dead` stand beside it with as many partitions, so that all that
belongs to partition p stands in partitions p. A record of the intake with the headers of a dead letter must fit, so
the limits on a message's size are the intake's and 64 KiB.
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

RESULTS, JOURNAL, DEAD = ".results", ".journal", ".dead"

HEADROOM_BYTES = 64 * 1024
DEFAULT_MAX_MESSAGE_BYTES = 1_048_588
REQUEST_TIMEOUT_S = 30.0

_NO_TOPIC = frozenset({KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError.TOPIC_EXCEPTION})
_OF_THE_TOPIC = frozenset(
    {KafkaError.TOPIC_AUTHORIZATION_FAILED, KafkaError.LEADER_NOT_AVAILABLE, KafkaError.REPLICA_NOT_AVAILABLE}
)
"""What a request about several topics says of one of them."""

_FOREVER = {"retention.ms": "-1", "retention.bytes": "-1"}
_MUST_BE = ("cleanup.policy", "retention.ms", "retention.bytes", "message.timestamp.type")
RESULTS_RETENTION_MS = 7 * 24 * 3600 * 1000


@dataclass(frozen=True, slots=True)
class Topic:
    """A topic as it should be.

    Attributes:
        name: of the topic.
        partitions: how many; checked.
        replication: how many copies, where it is made here.
        config: properties that are checked.
        extra: properties that it is made with, and that an operator may change.
    """

    name: str
    partitions: int
    replication: int
    config: Mapping[str, str] = field(default_factory=dict)
    extra: Mapping[str, str] = field(default_factory=dict)


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


def topics_of(intake: str, partitions: int, replication: int, *, fixed_delay: bool, max_bytes: int) -> list[Topic]:
    """The topics that an intake needs, the intake itself last.

    Args:
        intake: its name.
        partitions: of the intake, and of those beside it.
        replication: copies of each.
        fixed_delay: its records' timestamps must be the log's own.
        max_bytes: the intake's limit on a batch of messages.
    """
    room = {"max.message.bytes": str(max_bytes + HEADROOM_BYTES)}
    kept = {"cleanup.policy": "delete", **_FOREVER}
    stamp = {"message.timestamp.type": "LogAppendTime"} if fixed_delay else {}
    results = {"retention.ms": str(RESULTS_RETENTION_MS)}
    return [
        Topic(intake + RESULTS, partitions, replication, {"cleanup.policy": "delete"}, results),
        Topic(intake + JOURNAL, partitions, replication, kept, room),
        Topic(intake + DEAD, partitions, replication, kept, room),
        # Said, not left to the brokers' default: the others are made to hold what this one takes.
        Topic(intake, partitions, replication, {**kept, **stamp}, {"max.message.bytes": str(max_bytes)}),
    ]


class TopicAdmin:
    """Makes and checks topics.

    Args:
        admin: an admin client.
    """

    def __init__(self, admin: AdminClient) -> None:
        self._admin = admin

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
                if error.code() in _NO_TOPIC:
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
            UsageError: the cluster refuses, with the reason.
        """
        wanted = [NewTopic(t.name, t.partitions, t.replication, config={**t.config, **t.extra}) for t in topics]
        if not wanted:
            return []
        made = []
        for name, future in self._admin.create_topics(wanted, request_timeout=REQUEST_TIMEOUT_S).items():
            try:
                future.result()
                made.append(name)
            except KafkaException as exception:
                error = error_of(exception)
                if error.code() != KafkaError.TOPIC_ALREADY_EXISTS:
                    raise UsageError(f"could not make topic {name}: {error.str()}") from exception
        return made


def _target(seen: TopicDescription) -> Target:
    partitions = len(seen.partitions)
    allowed = seen.authorized_operations
    if allowed is not None and AclOperation.WRITE not in allowed:
        return Target(partitions, "writing to it is not allowed")
    if not all(partition.leader for partition in seen.partitions):
        return Target(partitions, "not all of its partitions have a leader")
    return Target(partitions)


def faults(topic: Topic, found: Found, *, min_max_bytes: int | None = None) -> list[str]:
    """What is wrong with a topic that exists, one line each.

    Args:
        topic: as it should be.
        found: as it is.
        min_max_bytes: the least limit on a message's size that it needs.
    """
    lines = []
    if found.partitions != topic.partitions:
        lines.append(f"{topic.name} has {found.partitions} partitions, and {topic.partitions} are configured")
    lines += [
        f"{topic.name} has {name}={found.config.get(name)}; it must be {topic.config[name]} "
        f"(kafka-configs --alter --topic {topic.name} --add-config {name}={topic.config[name]})"
        for name in _MUST_BE
        if name in topic.config and found.config.get(name) != topic.config[name]
    ]
    if min_max_bytes is not None and int(found.config.get("max.message.bytes", "0")) < min_max_bytes:
        lines.append(
            f"{topic.name} has max.message.bytes={found.config.get('max.message.bytes')}; "
            f"it must be at least {min_max_bytes}"
        )
    return lines


def max_bytes_of(found: Found | None) -> int:
    """A topic's limit on a message's size; Kafka's default where it does not exist."""
    return int(found.config["max.message.bytes"]) if found else DEFAULT_MAX_MESSAGE_BYTES


def make_or_check(
    admin: TopicAdmin,
    intake: str,
    partitions: int,
    replication: int,
    *,
    fixed_delay: bool,
    before_intake: Callable[[], None],
) -> list[str]:
    """Make the topics of an intake that are missing, the intake last; check those that are there.

    Args:
        admin: makes and finds topics.
        intake: its name.
        partitions: of it, and of those beside it.
        replication: copies of each, where they are made here.
        fixed_delay: its records' timestamps must be the log's own.
        before_intake: called when all others stand and before the intake is made.

    Returns:
        Those that were made.

    Raises:
        UsageError: one is not as it must be, or cannot be made.
    """
    wrong, missing = check(admin, intake, partitions, replication, fixed_delay=fixed_delay)
    if wrong:
        raise UsageError(wrong[0])
    made = admin.make(topic for topic in missing if topic.name != intake)
    before_intake()
    return made + admin.make(topic for topic in missing if topic.name == intake)


def check(
    admin: TopicAdmin, intake: str, partitions: int, replication: int, *, fixed_delay: bool
) -> tuple[list[str], list[Topic]]:
    """Hold the topics of an intake against what they must be.

    Returns:
        What is wrong, one line each, and the topics that do not exist.
    """
    found = admin.find([intake, *(intake + suffix for suffix in (RESULTS, JOURNAL, DEAD))])
    max_bytes = max_bytes_of(found.get(intake))
    wanted = topics_of(intake, partitions, replication, fixed_delay=fixed_delay, max_bytes=max_bytes)
    wrong: list[str] = []
    for topic in wanted:
        if topic.name in found:
            roomy = topic.name.removeprefix(intake) in (JOURNAL, DEAD)
            least = max_bytes + HEADROOM_BYTES if roomy else None
            wrong += faults(topic, found[topic.name], min_max_bytes=least)
    return wrong, [topic for topic in wanted if topic.name not in found]
