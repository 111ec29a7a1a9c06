"""The topics of a consumer: creates the missing ones, and checks the others."""

from confluent_kafka.admin import AdminClient

from tarry.client.retry.core.names import Names
from tarry.errors import RetriableError, UsageError
from tarry.headers import is_legal_topic
from tarry.kafka.intake_topics import HEADROOM_BYTES
from tarry.kafka.topics import Topic, TopicAdmin


def make_or_check(admin: AdminClient, names: Names, replication: int) -> int:
    """Create the missing retry, state and dead-letter topics, with the topic's number of partitions; check the others.

    Args:
        admin: an admin client.
        names: the names of the topics.
        replication: the replication factor of the topics that it creates.

    Returns:
        The number of partitions.

    Raises:
        UsageError: the topic or the intake does not exist, a name is too long, or an existing topic has another number
            of partitions or another cleanup policy than it must have.
        RetriableError: the brokers do not answer, or do not know the created topics yet.
    """
    for name in (names.retry, names.state, names.dead):
        if not is_legal_topic(name):
            raise UsageError(f"{name} is not a legal topic name: choose a shorter group")
    topics = TopicAdmin(admin)
    found = topics.find([names.topic, names.intake, names.retry, names.state, names.dead])
    for name in (names.topic, names.intake):
        if name not in found:
            raise UsageError(f"there is no topic {name}: check its name, or create it")
    partitions = found[names.topic].partitions
    room = {"max.message.bytes": str(int(found[names.topic].config["max.message.bytes"]) + HEADROOM_BYTES)}
    wanted = [
        # Unlimited retention: an unread record of the retry topic exists nowhere else.
        Topic(names.retry, partitions, replication, {"cleanup.policy": "delete"}, {"retention.ms": "-1", **room}),
        Topic(names.state, partitions, replication, {"cleanup.policy": "compact"}),
        Topic(names.dead, partitions, replication, {"cleanup.policy": "delete"}, {"retention.ms": "-1", **room}),
    ]
    for topic in wanted:
        there = found.get(topic.name)
        if there is None:
            continue
        if there.partitions != partitions:
            raise UsageError(
                f"{topic.name} has {there.partitions} partitions, but {names.topic} has {partitions}: they must be "
                "equal; use another group, which gets topics of its own"
            )
        if there.config.get("cleanup.policy") != topic.config["cleanup.policy"]:
            raise UsageError(f"{topic.name} must have cleanup.policy={topic.config['cleanup.policy']}")
    made = topics.make(topic for topic in wanted if topic.name not in found)
    # A broker may not know the new topics yet; a group that is joined now would leave them out of the assignment.
    if hidden := set(made).difference(topics.partitions(made)):
        raise RetriableError(f"topic {min(hidden)} was created, but a broker does not know it yet")
    return partitions
