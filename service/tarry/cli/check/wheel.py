"""Whether the overflow wheel that is configured is the one that messages wait in, for `tarry check`.

The topics do not tell: their partitions depend on `overflow.size` alone. What shape the wheel has is in the checkpoint
of each partition, and a start is refused where that is another and a bucket of it holds something.
"""

from collections.abc import Iterator
from contextlib import closing

from tarry.clock import SystemClock
from tarry.config import Config, Intake
from tarry.kafka.backlog import Backlog
from tarry.kafka.inspector import Inspector
from tarry.kafka.settings import Cluster
from tarry.kafka.takeover import another_shape
from tarry.service.app import geometry_of


def refusals(settings: Config, cluster: Cluster, intake: Intake) -> Iterator[str]:
    """Why the service would refuse to take partitions of an intake over; one line each.

    Args:
        settings: the configuration.
        cluster: where.
        intake: one whose topic is there.

    Raises:
        TarryError: it cannot be told: no answer, or a right to read is missing.
    """
    wanted = geometry_of(settings, intake)
    with closing(Inspector(cluster, settings.service.group, SystemClock())) as looking:
        for backlog in looking.survey(intake.topic):
            checkpoint = backlog.checkpoint
            if checkpoint is None or checkpoint.geometry == wanted or not checkpoint.geometry.levels:
                continue
            if checkpoint.draining or _holds_any(looking, backlog):
                yield another_shape(backlog.place, checkpoint.geometry)


def _holds_any(looking: Inspector, backlog: Backlog) -> bool:
    return any(True for _ in looking.in_slots([backlog], looking.done([backlog])))
