"""The checks of `tarry check` for problems that do not stop the service but that an operator should know.

- An intake that the group has served before and that is no longer configured: its messages are not delivered.
- Topics of an intake with fewer replicas than are configured: the setting applies only when a topic is created.
- Topics that may lose acknowledged messages when a broker fails, by their settings.
- With KIP-848, the brokers set the heartbeat interval and the session timeout of the group's members. The heartbeat
  interval bounds how soon a member learns that another one has left; the session timeout bounds how long the partitions
  of a dead member wait. Kafka's defaults are 5 s and 45 s.
"""

from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing

from tarry.cli.pending_rows import at_most
from tarry.clock import SystemClock
from tarry.config import Intake
from tarry.errors import TarryError
from tarry.headers import owner_of_internal_topic
from tarry.kafka.inspector import Inspector
from tarry.kafka.intake_topics import IN_SYNC, UNCLEAN
from tarry.kafka.settings import Cluster
from tarry.kafka.topics import DEAD, JOURNAL, RESULTS

HEARTBEAT, LONGEST_HEARTBEAT_MS = "group.consumer.heartbeat.interval.ms", 1_000
SESSION, LONGEST_SESSION_MS = "group.consumer.session.timeout.ms", 10_000


def left_behind(cluster: Cluster, group: str, configured: Iterable[str], there: Mapping[str, int]) -> Iterator[str]:
    """Return one line for each intake that the group has served before and that is no longer configured.

    Args:
        cluster: the cluster.
        group: the service's consumer group.
        configured: the configured intakes.
        there: all topics that this user can see, and the number of partitions of each.
    """
    others = [
        topic
        for topic in sorted(set(there).difference(configured))
        if all(topic + beside in there for beside in (RESULTS, JOURNAL, DEAD))
    ]
    if not others:
        return
    try:
        with closing(Inspector(cluster, group, SystemClock())) as inspector:
            for topic in inspector.served((one, partition) for one in others for partition in range(there[one])):
                waiting = sum(row.size for row in at_most(*inspector.look(topic)))
                how_many = f"at most {waiting}, which are not delivered" if waiting else "none"
                yield (
                    f"intake {topic}: group {group} has served it before, but it is not configured; "
                    f"waiting messages: {how_many}"
                )
    except TarryError as error:
        yield f"intakes that are not configured: their waiting messages could not be counted: {error}"


def short_of_copies(intake: Intake, copies: Mapping[str, int]) -> Iterator[str]:
    """Return a line that names the topics of an intake with fewer replicas than are configured.

    Args:
        intake: the intake.
        copies: for each topic that exists, the replicas of its partition with the fewest replicas.
    """
    own = topics_among(intake, copies)
    short = [f"{topic} ({copies[topic]})" for topic in own if copies[topic] < intake.replication]
    if short:
        yield (
            f"intake {intake.topic}: replication = {intake.replication}, but these topics have fewer replicas: "
            f"{', '.join(short)}; add replicas with kafka-reassign-partitions"
        )


def topics_among(intake: Intake, names: Iterable[str]) -> list[str]:
    """Return the intake's own topics among others, sorted."""
    return sorted(topic for topic in names if intake.topic in {topic, owner_of_internal_topic(topic)})


def unprotected(configs: Mapping[str, Mapping[str, str]], copies: Mapping[str, int]) -> Iterator[str]:
    """Return one line for each setting of a topic with which a failing broker can lose acknowledged messages.

    Args:
        configs: the settings of an intake's topics.
        copies: for each topic, the replicas of its partition with the fewest replicas.
    """
    for topic, config in sorted(configs.items()):
        alter = f"kafka-configs --alter --topic {topic} --add-config"
        if config.get(UNCLEAN) == "true":
            yield f"topic {topic}: {UNCLEAN}=true: a lagging leader may lose messages ({alter} {UNCLEAN}=false)"
        if copies[topic] > 2 and config.get(IN_SYNC) == "1":
            yield f"topic {topic}: {IN_SYNC}=1: one broker alone may acknowledge messages ({alter} {IN_SYNC}=2)"


def slow_to_notice(broker: int, has: Mapping[str, str]) -> Iterator[str]:
    """Return one line for each setting of a broker that makes partitions of a KIP-848 group wait for long.

    Args:
        broker: the broker's id.
        has: the broker's settings.
    """
    for name, most_ms, when in (
        (HEARTBEAT, LONGEST_HEARTBEAT_MS, "after a service ends"),
        (SESSION, LONGEST_SESSION_MS, "after a process dies"),
    ):
        if name in has and int(has[name]) > most_ms:
            yield (
                f"broker {broker}: {name}={has[name]}: {when}, its partitions wait up to this long (ms) for a new "
                f"owner; set {most_ms} or less"
            )
