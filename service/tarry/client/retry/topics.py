"""The topics of a consumer: made where they are missing, checked where they are not."""

from confluent_kafka.admin import AdminClient

from tarry.client.retry.core.names import Names
from tarry.errors import RetriableError, UsageError
from tarry.headers import is_legal_topic
from tarry.kafka.intake_topics import HEADROOM_BYTES
from tarry.kafka.topics import Topic, TopicAdmin


def make_or_check(admin: AdminClient, names: Names, replication: int) -> int:
    """Make what is missing beside the topic, with as many partitions as that has.

    Args:
        admin: an admin client.
        names: of the topics.
        replication: copies of each that is made.

    Returns:
        How many partitions they have.

    Raises:
        UsageError: the topic or the intake does not exist, or one of the others is not as it must be.
        RetriableError: the brokers do not answer, or do not know yet what was made.
    """
    for name in (names.retry, names.state, names.dead):
        if not is_legal_topic(name):
            raise UsageError(f"{name} is no legal name for a topic: choose a shorter group")
    topics = TopicAdmin(admin)
    found = topics.find([names.topic, names.intake, names.retry, names.state, names.dead])
    for name in (names.topic, names.intake):
        if name not in found:
            raise UsageError(f"there is no topic {name}")
    partitions = found[names.topic].partitions
    room = {"max.message.bytes": str(int(found[names.topic].config["max.message.bytes"]) + HEADROOM_BYTES)}
    wanted = [
        # What is unread there stands nowhere else.
        Topic(names.retry, partitions, replication, {"cleanup.policy": "delete"}, {"retention.ms": "-1", **room}),
        Topic(names.state, partitions, replication, {"cleanup.policy": "compact"}),
        Topic(names.dead, partitions, replication, {"cleanup.policy": "delete"}, {"retention.ms": "-1", **room}),
    ]
    for topic in wanted:
        there = found.get(topic.name)
        if there is None:
            continue
        if there.partitions != partitions:
            raise UsageError(f"{topic.name} has {there.partitions} partitions, and {names.topic} has {partitions}")
        if there.config.get("cleanup.policy") != topic.config["cleanup.policy"]:
            raise UsageError(f"{topic.name} must have cleanup.policy={topic.config['cleanup.policy']}")
    made = topics.make(topic for topic in wanted if topic.name not in found)
    # A broker may be asked that has not heard of them yet; a group that is joined then leaves them out.
    if hidden := set(made).difference(topics.find(made)):
        raise RetriableError(f"topic {min(hidden)} was made, and is not to be seen yet")
    return partitions
