"""The check of `tarry check` for partitions of an intake that the service could not serve.

Such a partition has a log without a leader, or a log that does not exist; or the service would refuse to take it over,
because of its journal, or because its checkpoint belongs to other logs than those that exist now.
"""

from collections.abc import Iterable, Iterator
from contextlib import closing

from confluent_kafka.admin import AdminClient

from tarry.clock import SystemClock
from tarry.config import Config, Intake
from tarry.kafka.own_logs import OwnLogs
from tarry.kafka.settings import Cluster
from tarry.kafka.standing import Standings
from tarry.kafka.types import Place
from tarry.service.app import geometry_of


def unserved(settings: Config, cluster: Cluster, admin: AdminClient, intake: Intake, partitions: int) -> Iterator[str]:
    """Find the partitions that the service could not serve.

    Args:
        settings: the configuration.
        cluster: the cluster.
        admin: an admin client.
        intake: an intake whose topic exists.
        partitions: the number of partitions of the intake.

    Returns:
        One line for each such partition.

    Raises:
        TarryError: the check is not possible: a broker does not answer, or a right to read is missing.
    """
    clock = SystemClock()
    places = [(intake.topic, partition) for partition in range(partitions)]
    seen = OwnLogs(admin, {intake.topic: geometry_of(settings, intake)}, clock).look(places)
    aside = {**seen.unreadable, **seen.away, **seen.missing}
    for place, why in sorted(aside.items()):
        yield f"{place[0]}/{place[1]} is not served: {why}"
    yield from refused(settings, cluster, intake, sorted({*places}.difference(aside)))


def refused(settings: Config, cluster: Cluster, intake: Intake, places: Iterable[Place]) -> Iterator[str]:
    """Return one line for each partition of an intake that the service would refuse to take over.

    Raises:
        TarryError: the check is not possible: a broker does not answer, or a right to read is missing.
    """
    with closing(Standings(cluster, settings.service.group, SystemClock())) as standings:
        partitions = [partition for _, partition in places]
        for standing in standings.of(intake.topic, partitions, geometry_of(settings, intake)):
            if standing.refusal is not None:
                yield f"{intake.topic}/{standing.place[1]} can't be taken over: {standing.refusal}"
