"""Which partitions of an intake nobody could serve as they are, for `tarry check`: the service sets them aside.

A log of theirs has no leader or does not exist, or a take-over would be refused: by what is in the journal, or because
the checkpoint is of other logs than there are.
"""

from collections.abc import Iterator
from contextlib import closing

from confluent_kafka.admin import AdminClient

from tarry.clock import SystemClock
from tarry.config import Config, Intake
from tarry.kafka.own_logs import OwnLogs
from tarry.kafka.settings import Cluster
from tarry.kafka.standing import Standings
from tarry.service.app import geometry_of


def unserved(settings: Config, cluster: Cluster, admin: AdminClient, intake: Intake, partitions: int) -> Iterator[str]:
    """Partitions that can't be served, one line each.

    Args:
        settings: the configuration.
        cluster: where.
        admin: an admin client.
        intake: one whose topic is there.
        partitions: how many it has.

    Returns:
        The lines.

    Raises:
        TarryError: it cannot be told: no answer, or a right to read is missing.
    """
    clock = SystemClock()
    places = [(intake.topic, partition) for partition in range(partitions)]
    seen = OwnLogs(admin, {intake.topic: geometry_of(settings, intake)}, clock).look(places)
    aside = {**seen.unreadable, **seen.away, **seen.missing}
    for place, why in sorted(aside.items()):
        yield f"{place[0]}/{place[1]} is not served: {why}"
    with closing(Standings(cluster, settings.service.group, clock)) as standings:
        left = [partition for _, partition in sorted({*places}.difference(aside))]
        for standing in standings.of(intake.topic, left, geometry_of(settings, intake)):
            if standing.refusal is not None:
                yield f"{intake.topic}/{standing.place[1]} can't be taken over: {standing.refusal}"
