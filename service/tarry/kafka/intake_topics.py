"""The topics of an intake: missing ones are created, existing ones are checked.

`I` takes the messages that producers send. `I.results`, `I.journal`, `I.dead` and `I.parked`, and the levels of its
overflow wheel, `I.wheel-1` to `I.wheel-n`, have the same number of partitions, so that all records of partition p are
in partitions p.

`I.status`, `I.control` and `I.operations` are one compacted topic each for all partitions. In `I.status` clients read
what the intake accepts; no delivery depends on it. In `I.control` people pause targets; without it the service
delivers, and no target can be paused. In `I.operations` is what people do by `tarry api`; the service never uses it.

A record of the intake must fit into the other topics with the headers of a dead letter. So their limit on a message's
size is the intake's plus 64 KiB, and at least the largest batch that the service sends.
"""

from collections.abc import Callable
from dataclasses import dataclass

from tarry.core.progress.checkpoint import Geometry
from tarry.errors import UsageError
from tarry.kafka.settings import BATCH_BYTES
from tarry.kafka.topics import (
    CONTROL,
    DEAD,
    JOURNAL,
    OPERATIONS,
    PARKED,
    RESULTS,
    STATUS,
    Found,
    Topic,
    TopicAdmin,
    wheel_topic,
)

HEADROOM_BYTES = 64 * 1024
DEFAULT_MAX_MESSAGE_BYTES = 1_048_588
RESULTS_RETENTION_MS = 7 * 24 * 3600 * 1000
OPERATIONS_RETENTION_MS = 90 * 24 * 3600 * 1000
SEGMENT_BYTES = 256 << 20
"""Of the topics that the service trims all the time: Kafka frees whole segments only, and never the last one."""

_KEPT = {"cleanup.policy": "delete", "retention.ms": "-1", "retention.bytes": "-1"}
UNCLEAN, IN_SYNC = "unclean.leader.election.enable", "min.insync.replicas"
"""The settings that keep what is acknowledged when brokers fail."""

_SMALL = {"segment.bytes": str(1 << 20), "segment.ms": "3600000", "min.cleanable.dirty.ratio": "0.1"}
"""The settings of a compacted topic that is written to for ever, and read from its start: the last segment, which is
not compacted, stays small."""

_CHECKED_SETTINGS = ("cleanup.policy", "retention.ms", "retention.bytes", "message.timestamp.type")


@dataclass(frozen=True, slots=True)
class Checked:
    """A topic of an intake, compared with its required configuration.

    Attributes:
        topic: the required configuration.
        exists: whether it exists.
        faults: the differences, one line each.
    """

    topic: Topic
    exists: bool
    faults: list[str]


def topics_of(
    intake: str, partitions: int, replication: int, geometry: Geometry, *, fixed_delay: bool, max_bytes: int
) -> list[Topic]:
    """Return the topics that an intake needs, the intake itself last.

    Args:
        intake: its name.
        partitions: of the intake, and of all others.
        replication: the replication factor.
        geometry: the shape of its overflow wheel.
        fixed_delay: whether the brokers must stamp its records (LogAppendTime).
        max_bytes: the intake's limit on a batch of messages.
    """
    least = max(max_bytes + HEADROOM_BYTES, BATCH_BYTES)
    room = {"max.message.bytes": str(least), **protection(replication)}
    stamp = {"message.timestamp.type": "LogAppendTime"} if fixed_delay else {}
    results = {"retention.ms": str(RESULTS_RETENTION_MS), **room}
    # A delay counts from the timestamp of the intake's record, so that timestamp stays with the message.
    filed = (
        {**_KEPT, "message.timestamp.type": "CreateTime"},
        {**room, "compression.type": "producer", "segment.bytes": str(SEGMENT_BYTES)},
    )
    levels = [
        Topic(
            wheel_topic(intake, level),
            partitions,
            replication,
            *filed,
            least,
            f": it was made by an earlier version of tarry, or for another number of partitions of {intake}: "
            "set `partitions` back to that number, or use an intake with another name",
        )
        for level in range(1, geometry.levels + 1)
    ]
    return [
        Topic(intake + RESULTS, partitions, replication, {"cleanup.policy": "delete"}, results, BATCH_BYTES),
        Topic(intake + JOURNAL, partitions, replication, _KEPT, room, least),
        Topic(intake + DEAD, partitions, replication, _KEPT, room, least),
        Topic(intake + PARKED, partitions, replication, *filed, least),
        *levels,
        # Set explicitly, not left to the brokers' default: the other topics must hold all messages that this one takes.
        Topic(
            intake,
            partitions,
            replication,
            {**_KEPT, **stamp},
            {"max.message.bytes": str(max_bytes), **protection(replication)},
        ),
    ]


def protection(replication: int) -> dict[str, str]:
    """Return the settings with which a topic keeps what is acknowledged, given its replication factor.

    With three replicas, each record is in two before it is acknowledged, and one broker may be away.
    """
    return {UNCLEAN: "false", IN_SYNC: "2" if replication > 2 else "1"}


_OTHER_NUMBER = ": give the intake that number of partitions, or delete the topic if it is empty"


def faults(topic: Topic, found: Found) -> list[str]:
    """Return the differences between an existing topic and its required configuration, one line each.

    Args:
        topic: the required configuration.
        found: the actual one.
    """
    lines = []
    if found.partitions != topic.partitions:
        lines.append(
            f"{topic.name} has {found.partitions} partitions, and {topic.partitions} are configured"
            f"{topic.partitions_note or _OTHER_NUMBER}"
        )
    lines += [
        f"{topic.name} has {name}={found.config.get(name)}; it must be {topic.config[name]} "
        f"(kafka-configs --alter --topic {topic.name} --add-config {name}={topic.config[name]})"
        for name in _CHECKED_SETTINGS
        if name in topic.config and found.config.get(name) != topic.config[name]
    ]
    least = topic.least_max_bytes
    if least is not None and int(found.config.get("max.message.bytes", "0")) < least:
        lines.append(
            f"{topic.name} has max.message.bytes={found.config.get('max.message.bytes')}; it must be at least {least}"
        )
    return lines


def max_bytes_of(found: Found | None) -> int:
    """Return a topic's limit on a message's size, in bytes; Kafka's default if it does not exist."""
    return int(found.config["max.message.bytes"]) if found else DEFAULT_MAX_MESSAGE_BYTES


def make_or_check(
    admin: TopicAdmin,
    intake: str,
    partitions: int,
    replication: int,
    geometry: Geometry,
    *,
    fixed_delay: bool,
    before_intake: Callable[[], None],
) -> list[str]:
    """Create the missing topics of an intake, the intake last; check the existing ones.

    Args:
        admin: creates and finds topics.
        intake: its name.
        partitions: of the intake, and of its results, journal and dead letters.
        replication: the replication factor of the topics that are created.
        geometry: the shape of its overflow wheel.
        fixed_delay: whether the brokers must stamp its records (LogAppendTime).
        before_intake: called when all other topics exist, before the intake is created.

    Returns:
        The names of the topics that were created.

    Raises:
        UsageError: a topic differs from its required configuration, or cannot be created.
    """
    checked = compare_topics(admin, intake, partitions, replication, geometry, fixed_delay=fixed_delay)
    for one in checked:
        if one.faults:
            raise UsageError(one.faults[0])
    missing = [one.topic for one in checked if not one.exists]
    made = admin.make(topic for topic in missing if topic.name != intake)
    before_intake()
    return made + admin.make(topic for topic in missing if topic.name == intake)


def status_topic(intake: str, replication: int) -> Topic:
    """Return the topic in which owners publish what the intake accepts; clients read it, and the service does not.

    The brokers stamp its records, so that a process that writes to it learns their time (`tarry.kafka.broker_time`).
    """
    config = {"cleanup.policy": "compact", "message.timestamp.type": "LogAppendTime"}
    return Topic(intake + STATUS, 1, replication, config, {**protection(replication), **_SMALL})


def control_topic(intake: str, replication: int) -> Topic:
    """Return the topic in which people pause targets; the service reads it, and does not write to it."""
    return Topic(intake + CONTROL, 1, replication, {"cleanup.policy": "compact"}, protection(replication))


def operations_topic(intake: str, replication: int) -> Topic:
    """Return the topic of operations and acts, which `tarry api` writes (ADR 36).

    An operation is the last records of its keys, so it is compacted; an act has a key of its own, so it is also deleted
    in time.
    """
    kept = {"retention.ms": str(OPERATIONS_RETENTION_MS), **protection(replication), **_SMALL}
    return Topic(intake + OPERATIONS, 1, replication, {"cleanup.policy": "compact,delete"}, kept)


def make_or_check_topic(admin: TopicAdmin, topic: Topic) -> list[str]:
    """Create a topic that stands beside an intake if it is missing; else check it.

    Args:
        admin: creates it.
        topic: from `status_topic`, `control_topic` or `operations_topic`.

    Returns:
        Its name, if it was created.

    Raises:
        UsageError: it differs from its required configuration, or cannot be created.
        BrokerError: the brokers do not let us describe it, or do not answer.
    """
    checked = compare_topic(admin, topic)
    if checked.faults:
        raise UsageError(checked.faults[0])
    return [] if checked.exists else admin.make([checked.topic])


def compare_topic(admin: TopicAdmin, topic: Topic) -> Checked:
    """Compare such a topic with its required configuration."""
    found = admin.find([topic.name]).get(topic.name)
    return Checked(topic, found is not None, faults(topic, found) if found else [])


def _wheel_topics(intake: str, geometry: Geometry) -> list[str]:
    return [wheel_topic(intake, level) for level in range(1, geometry.levels + 1)]


def compare_topics(
    admin: TopicAdmin, intake: str, partitions: int, replication: int, geometry: Geometry, *, fixed_delay: bool
) -> list[Checked]:
    """Compare the topics of an intake with their required configuration, the intake last."""
    beside = (intake + suffix for suffix in (RESULTS, JOURNAL, DEAD, PARKED))
    found = admin.find([intake, *beside, *_wheel_topics(intake, geometry)])
    wanted = topics_of(
        intake,
        partitions,
        replication,
        geometry,
        fixed_delay=fixed_delay,
        max_bytes=max_bytes_of(found.get(intake)),
    )
    return [
        Checked(topic, topic.name in found, faults(topic, found[topic.name]) if topic.name in found else [])
        for topic in wanted
    ]
