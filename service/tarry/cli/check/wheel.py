"""The check of `tarry check` that the configured overflow wheel has the shape in which messages wait.

The topics do not show the shape. The checkpoint of each partition holds it. The service
refuses to take over a partition if the two shapes differ and a bucket holds messages.
"""

from collections.abc import Iterator
from contextlib import closing

from tarry.clock import SystemClock
from tarry.config import Config, Intake
from tarry.kafka.inspector import Inspector
from tarry.kafka.settings import Cluster
from tarry.kafka.takeover import another_shape
from tarry.service.app import geometry_of


def refusals(settings: Config, cluster: Cluster, intake: Intake) -> Iterator[str]:
    """Return one line for each partition of an intake whose take-over the service would refuse.

    Args:
        settings: the configuration.
        cluster: the cluster.
        intake: an intake whose topic exists.

    Raises:
        TarryError: the check is not possible: a broker does not answer, or a right to read is missing.
    """
    wanted = geometry_of(settings, intake)
    with closing(Inspector(cluster, settings.service.group, SystemClock())) as inspector:
        for backlog in inspector.survey(intake.topic):
            checkpoint = backlog.checkpoint
            if checkpoint is None or checkpoint.geometry == wanted or not checkpoint.geometry.levels:
                continue
            if any(True for _ in inspector.in_levels(*inspector.look(*backlog.place))):
                yield another_shape(backlog.place, checkpoint.geometry)
