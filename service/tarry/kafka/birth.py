"""The first checkpoint of a partition, written into its journal before its intake takes a record.

A take-over refuses a partition that has records, but neither a committed offset nor a copy of a checkpoint: it is not
known which records were delivered. The first records of a new intake may arrive before its first owner. So each new
partition gets a copy in its journal, which says: begin here, no record above is done. If targets of the intake may be
paused, it also says that the first owner must know which, before anything fires.
"""

from confluent_kafka.admin import AdminClient

from tarry.clock import Clock
from tarry.core.progress.checkpoint import Checkpoint, CheckpointError, Geometry, decode_checkpoint
from tarry.core.progress.origin import Origin
from tarry.core.progress.recovery import Kept
from tarry.core.wheel.levels import first_closed_ms
from tarry.kafka.control_log import control_log_of, first_obeyed
from tarry.kafka.copies import write_copies
from tarry.kafka.offsets import Offsets
from tarry.kafka.origins import Origins
from tarry.kafka.partition_logs import journal_of
from tarry.kafka.patience import patiently
from tarry.kafka.settings import Cluster
from tarry.kafka.topics import TopicAdmin
from tarry.kafka.types import Place

PATIENCE_S = 30.0
"""How long errors that pass are retried, for example of a topic that was just created."""


class Birth:
    """Writes first checkpoints.

    Args:
        cluster: the Kafka cluster.
        admin: an admin client.
        group: the consumer group.
        clock: wall time, and monotonic time for time-outs.
    """

    def __init__(self, cluster: Cluster, admin: AdminClient, group: str, clock: Clock) -> None:
        self._clock = clock
        self._cluster = cluster
        self._admin = admin
        self._topics = TopicAdmin(admin)
        self._origins = Origins(admin)
        self._offsets = Offsets(admin, group, cluster)

    def give(self, intake: str, partitions: int, geometry: Geometry) -> None:
        """Write a copy for each new partition: one without records, journal records, and committed offset.

        Args:
            intake: its name; its journal exists already, and its log of pauses if it is to have one; the intake itself
                may not.
            partitions: how many it has, or will have.
            geometry: the shape of its overflow wheel.

        Raises:
            RetriableError: brokers do not answer within `PATIENCE_S`.
            UsageError: the journal cannot be written.
        """
        first = patiently(lambda: self._first(intake, partitions, geometry), self._clock, PATIENCE_S)
        write_copies(self._cluster, first)

    def _first(self, intake: str, partitions: int, geometry: Geometry) -> dict[Place, Kept]:
        """Return the first checkpoints of the partitions that are new."""
        origin = self._origins.of({intake: geometry})[intake]
        control, _ = control_log_of(intake)
        there = self._topics.partitions([intake, control])
        places = [(intake, partition) for partition in range(partitions)]
        lows = self._lows(places, is_there=intake in there)
        known = self._known(list(lows), origin)
        new = {place: low for place, low in lows.items() if place not in known}
        if not new:
            return {}
        obeyed = first_obeyed(self._admin, self._offsets, intake, self._clock) if control in there else None
        closed_ms = first_closed_ms(geometry, self._clock.now_ms())
        first = Checkpoint((), True, geometry, closed_ms, origin=origin, obeyed=obeyed)
        return {place: (low, first) for place, low in new.items()}

    def _lows(self, places: list[Place], *, is_there: bool) -> dict[Place, int]:
        """Return the first offset of each partition that holds no record, and whose journal never held one."""
        if is_there:
            starts, ends = self._offsets.starts(places), self._offsets.ends(places, committed=False)
            lows = {place: starts[place] for place in places if starts[place] == ends[place]}
        else:
            lows = dict.fromkeys(places, 0)
        journals = self._offsets.ends([journal_of(place) for place in lows], committed=False) if lows else {}
        return {place: low for place, low in lows.items() if journals[journal_of(place)] == 0}

    def _known(self, places: list[Place], origin: Origin) -> set[Place]:
        """Return the partitions with a committed offset, except offsets of an intake and journal that were deleted."""
        committed = self._offsets.committed(places) if places else {}
        return {place for place, (_, metadata) in committed.items() if not _is_of_deleted_topics(metadata, origin)}


def _is_of_deleted_topics(metadata: str, now: Origin) -> bool:
    try:
        had = decode_checkpoint(metadata).origin
    except CheckpointError:
        return False
    return all(one and one != other for one, other in ((had.intake, now.intake), (had.journal, now.journal)))
