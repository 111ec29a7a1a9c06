"""The topics of an intake: made where they are missing, checked where they are not.

`I` takes what is sent; `I.results`, `I.journal` and `I.dead` stand beside it with as many partitions, so that all that
belongs to partition p stands in partitions p. `I.wheel-1` to `I.wheel-n` are the levels of its overflow wheel, and each
partition of them is a bucket: with s slots, those of partition p are the s partitions from p * s on.

`I.status` is one for all partitions, compacted, and of no account for what is delivered: clients read there what the
intake accepts.

A record of the intake with the headers of a dead letter must fit, so the limits on a message's size are the intake's
and 64 KiB, and not less than what the service sends as one batch.
"""

from collections.abc import Callable
from dataclasses import dataclass

from tarry.core.progress.checkpoint import Geometry
from tarry.core.wheel.levels import slots_of
from tarry.errors import UsageError
from tarry.kafka.settings import BATCH_BYTES
from tarry.kafka.topics import DEAD, JOURNAL, RESULTS, STATUS, Found, Topic, TopicAdmin, wheel_topic

HEADROOM_BYTES = 64 * 1024
DEFAULT_MAX_MESSAGE_BYTES = 1_048_588
RESULTS_RETENTION_MS = 7 * 24 * 3600 * 1000

_KEPT = {"cleanup.policy": "delete", "retention.ms": "-1", "retention.bytes": "-1"}
_MUST_BE = ("cleanup.policy", "retention.ms", "retention.bytes", "message.timestamp.type")


@dataclass(frozen=True, slots=True)
class Checked:
    """A topic of an intake, held against what it must be.

    Attributes:
        topic: as it should be.
        exists: whether it is there.
        faults: what is wrong with it, one line each.
    """

    topic: Topic
    exists: bool
    faults: list[str]


def topics_of(
    intake: str, partitions: int, replication: int, geometry: Geometry, *, fixed_delay: bool, max_bytes: int
) -> list[Topic]:
    """The topics that an intake needs, the intake itself last.

    Args:
        intake: its name.
        partitions: of the intake, and of those beside it; a level of the overflow wheel has a multiple.
        replication: copies of each.
        geometry: of its overflow wheel.
        fixed_delay: its records' timestamps must be the log's own.
        max_bytes: the intake's limit on a batch of messages.
    """
    least = max(max_bytes + HEADROOM_BYTES, BATCH_BYTES)
    room = {"max.message.bytes": str(least)}
    stamp = {"message.timestamp.type": "LogAppendTime"} if fixed_delay else {}
    results = {"retention.ms": str(RESULTS_RETENTION_MS), **room}
    levels = [
        Topic(
            wheel_topic(intake, level),
            partitions * slots_of(geometry),
            replication,
            # A delay counts from the timestamp that the producer gave: it stays with the message.
            {**_KEPT, "message.timestamp.type": "CreateTime"},
            {**room, "compression.type": "producer"},
            least,
            f": it was made for another overflow.size, or for another number of partitions of {intake}: "
            "set them back, or take an intake of another name",
        )
        for level in range(1, geometry.levels + 1)
    ]
    return [
        Topic(intake + RESULTS, partitions, replication, {"cleanup.policy": "delete"}, results, BATCH_BYTES),
        Topic(intake + JOURNAL, partitions, replication, _KEPT, room, least),
        Topic(intake + DEAD, partitions, replication, _KEPT, room, least),
        *levels,
        # Said, not left to the brokers' default: the others are made to hold what this one takes.
        Topic(intake, partitions, replication, {**_KEPT, **stamp}, {"max.message.bytes": str(max_bytes)}),
    ]


def faults(topic: Topic, found: Found) -> list[str]:
    """What is wrong with a topic that exists, one line each.

    Args:
        topic: as it should be.
        found: as it is.
    """
    lines = []
    if found.partitions != topic.partitions:
        lines.append(
            f"{topic.name} has {found.partitions} partitions, and {topic.partitions} are configured"
            f"{topic.partitions_note}"
        )
    lines += [
        f"{topic.name} has {name}={found.config.get(name)}; it must be {topic.config[name]} "
        f"(kafka-configs --alter --topic {topic.name} --add-config {name}={topic.config[name]})"
        for name in _MUST_BE
        if name in topic.config and found.config.get(name) != topic.config[name]
    ]
    least = topic.least_max_bytes
    if least is not None and int(found.config.get("max.message.bytes", "0")) < least:
        lines.append(
            f"{topic.name} has max.message.bytes={found.config.get('max.message.bytes')}; it must be at least {least}"
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
    geometry: Geometry,
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
        geometry: of its overflow wheel.
        fixed_delay: its records' timestamps must be the log's own.
        before_intake: called when all others stand and before the intake is made.

    Returns:
        Those that were made.

    Raises:
        UsageError: one is not as it must be, or cannot be made.
    """
    checked = check(admin, intake, partitions, replication, geometry, fixed_delay=fixed_delay)
    for one in checked:
        if one.faults:
            raise UsageError(one.faults[0])
    missing = [one.topic for one in checked if not one.exists]
    made = admin.make(topic for topic in missing if topic.name != intake)
    before_intake()
    return made + admin.make(topic for topic in missing if topic.name == intake)


def status_topic(intake: str, replication: int) -> Topic:
    """The topic in which owners say what the intake accepts; clients ask it, and the service does without.

    Its stamps are the brokers', so that whoever writes to it learns their time (`tarry.kafka.broker_time`).
    """
    return Topic(
        intake + STATUS, 1, replication, {"cleanup.policy": "compact", "message.timestamp.type": "LogAppendTime"}
    )


def make_or_check_status(admin: TopicAdmin, intake: str, replication: int) -> list[str]:
    """Make the topic of an intake's status where it is missing, or check it.

    Returns:
        It, if it was made.

    Raises:
        UsageError: it is not as it must be, or cannot be made.
        BrokerError: it may not be looked at, or the brokers do not answer.
    """
    checked = check_status(admin, intake, replication)
    if checked.faults:
        raise UsageError(checked.faults[0])
    return [] if checked.exists else admin.make([checked.topic])


def check_status(admin: TopicAdmin, intake: str, replication: int) -> Checked:
    """Hold the topic of an intake's status against what it must be."""
    topic = status_topic(intake, replication)
    found = admin.find([topic.name]).get(topic.name)
    return Checked(topic, found is not None, faults(topic, found) if found else [])


def _wheel_topics(intake: str, geometry: Geometry) -> list[str]:
    return [wheel_topic(intake, level) for level in range(1, geometry.levels + 1)]


def check(
    admin: TopicAdmin, intake: str, partitions: int, replication: int, geometry: Geometry, *, fixed_delay: bool
) -> list[Checked]:
    """Hold the topics of an intake against what they must be, the intake last."""
    beside = (intake + suffix for suffix in (RESULTS, JOURNAL, DEAD))
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
