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

PASSES_MS, LOOK_S = 10_000, 0.5
"""How long a refusal that follows from the ends of logs may last before it counts, and how often to look again."""


def unserved(
    settings: Config, cluster: Cluster, admin: AdminClient, intake: Intake, partitions: int
) -> Iterator[tuple[Place, str]]:
    """Find the partitions that the service could not serve.

    Args:
        settings: the configuration.
        cluster: the cluster.
        admin: an admin client.
        intake: an intake whose topic exists.
        partitions: the number of partitions of the intake.

    Returns:
        Each such partition, with a line.

    Raises:
        TarryError: the check is not possible: a broker does not answer, or a right to read is missing.
    """
    clock = SystemClock()
    places = [(intake.topic, partition) for partition in range(partitions)]
    seen = OwnLogs(admin, {intake.topic: geometry_of(settings, intake)}, clock).look(places)
    aside = {**seen.unreadable, **seen.away, **seen.missing}
    for place, why in sorted(aside.items()):
        yield place, f"{place[0]}/{place[1]} is not served: {why}"
    yield from refused(settings, cluster, intake, sorted({*places}.difference(aside)))


def refused(settings: Config, cluster: Cluster, intake: Intake, places: Iterable[Place]) -> Iterator[tuple[Place, str]]:
    """Return the partitions of an intake that the service would refuse to take over, each with a line.

    Raises:
        TarryError: the check is not possible: a broker does not answer, or a right to read is missing.
    """
    clock = SystemClock()
    ends_ms = clock.monotonic_ms() + PASSES_MS
    left = [partition for _, partition in places]
    with closing(Standings(cluster, settings.service.group, clock)) as standings:
        while left:
            found = standings.of(intake.topic, left, geometry_of(settings, intake))
            is_over = clock.monotonic_ms() > ends_ms
            left = [one.place[1] for one in found if one.may_pass and not is_over]
            for standing in found:
                if standing.refusal is not None and standing.place[1] not in left:
                    yield standing.place, f"{intake.topic}/{standing.place[1]} can't be taken over: {standing.refusal}"
            if left:
                clock.sleep(LOOK_S)
