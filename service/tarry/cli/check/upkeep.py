"""What would not keep the service from starting, and an operator should know, for `tarry check`.

- An intake that the group has served and that is configured no more: what waits in it, nobody delivers.
- Topics of an intake with fewer copies than are configured: that setting is for topics that are made.
- With KIP-848 the brokers say how soon a member hears of another that has left, and how long one that died is waited
  for: by Kafka's defaults 5 s and 45 s.
"""

from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing

from tarry.cli.pending_rows import at_most
from tarry.clock import SystemClock
from tarry.config import Intake
from tarry.errors import TarryError
from tarry.headers import owner_of_internal_topic
from tarry.kafka.inspector import Inspector
from tarry.kafka.settings import Cluster
from tarry.kafka.topics import DEAD, JOURNAL, RESULTS

HEARTBEAT, LONGEST_HEARTBEAT_MS = "group.consumer.heartbeat.interval.ms", 1_000
SESSION, LONGEST_SESSION_MS = "group.consumer.session.timeout.ms", 10_000


def left_behind(cluster: Cluster, group: str, configured: Iterable[str], there: Mapping[str, int]) -> Iterator[str]:
    """Intakes that the group has served, and that are configured no more; one line each.

    Args:
        cluster: where.
        group: the service's.
        configured: the intakes.
        there: all topics of the cluster that this user may see, and how many partitions each has.
    """
    others = [
        topic
        for topic in sorted(set(there).difference(configured))
        if all(topic + beside in there for beside in (RESULTS, JOURNAL, DEAD))
    ]
    if not others:
        return
    try:
        with closing(Inspector(cluster, group, SystemClock())) as looking:
            for topic in looking.served((one, partition) for one in others for partition in range(there[one])):
                waiting = sum(row.size for row in at_most(looking.survey(topic)))
                how_many = (
                    f"at most {waiting} wait in it, and nobody delivers them" if waiting else "nothing waits in it"
                )
                yield f"intake {topic}: served by group {group} once, and not configured; {how_many}"
    except TarryError as error:
        yield f"intakes that are not configured: what waits in them could not be asked for: {error}"


def short_of_copies(intake: Intake, copies: Mapping[str, int]) -> Iterator[str]:
    """Topics of an intake with fewer copies than are configured; one line for all.

    Args:
        intake: as configured.
        copies: of each topic that is there, those of the partition that has the fewest.
    """
    own = sorted(topic for topic in copies if intake.topic in {topic, owner_of_internal_topic(topic)})
    short = [f"{topic} ({copies[topic]})" for topic in own if copies[topic] < intake.replication]
    if short:
        yield (
            f"intake {intake.topic}: replication = {intake.replication}, and there are fewer copies of "
            f"{', '.join(short)}; kafka-reassign-partitions makes more"
        )


def slow_to_notice(broker: int, has: Mapping[str, str]) -> Iterator[str]:
    """What a broker sets for members of a KIP-848 group, and makes partitions wait; one line each.

    Args:
        broker: its id.
        has: its settings.
    """
    for name, most_ms, what in (
        (HEARTBEAT, LONGEST_HEARTBEAT_MS, "partitions of a service that ends wait"),
        (SESSION, LONGEST_SESSION_MS, "partitions of a process that dies wait"),
    ):
        if name in has and int(has[name]) > most_ms:
            yield f"broker {broker}: {name}={has[name]}: so long {what} for others; {most_ms} is well"
