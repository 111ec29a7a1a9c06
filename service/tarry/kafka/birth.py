"""The first checkpoint of a partition, in its journal before its intake takes a record.

A partition without a committed offset and without a copy of a checkpoint, but with records, is refused: what was
delivered of them is not known. So that this never hits a new intake, whose first records may arrive before its first
owner, each partition is born with a copy in its journal: begin here, nothing is done above.
"""

from confluent_kafka.admin import AdminClient

from tarry.clock import Clock
from tarry.core.progress.checkpoint import Checkpoint, CheckpointError, Geometry, decode
from tarry.core.progress.origin import Origin
from tarry.core.wheel.levels import first_closed_ms
from tarry.kafka.copies import Kept, write_copies
from tarry.kafka.offsets import Offsets
from tarry.kafka.origins import Origins
from tarry.kafka.partition_logs import journal_of
from tarry.kafka.patience import patiently
from tarry.kafka.settings import Cluster
from tarry.kafka.topics import TopicAdmin
from tarry.kafka.types import Place

PATIENCE_S = 30.0


class Birth:
    """Writes first checkpoints.

    Args:
        cluster: where.
        admin: an admin client.
        group: the consumer group.
        clock: for the bound on waiting until topics just made answer.
    """

    def __init__(self, cluster: Cluster, admin: AdminClient, group: str, clock: Clock) -> None:
        self._clock = clock
        self._cluster = cluster
        self._topics = TopicAdmin(admin)
        self._origins = Origins(admin)
        self._offsets = Offsets(admin, group, cluster)

    def give(self, intake: str, partitions: int, geometry: Geometry) -> None:
        """Write a copy for each partition that has none, no offset, and no records either.

        Args:
            intake: its name; the topic may not exist yet, its journal does.
            partitions: how many it has, or will have.
            geometry: of its overflow wheel.

        Raises:
            RetriableError: brokers do not answer for longer than somebody at a start would wait.
            UsageError: the journal can't be written.
        """
        first = patiently(lambda: self._first(intake, partitions, geometry), self._clock, PATIENCE_S)
        write_copies(self._cluster, first)

    def _first(self, intake: str, partitions: int, geometry: Geometry) -> dict[Place, Kept]:
        """The first checkpoints of those partitions that are new."""
        origin = self._origins.of({intake: geometry})[intake]
        lows = self._lows(intake, [(intake, partition) for partition in range(partitions)])
        known = self._known(list(lows), origin)
        closed_ms = first_closed_ms(geometry, self._clock.now_ms())
        first = Checkpoint(writer=(), released=True, geometry=geometry, closed_ms=closed_ms, origin=origin)
        return {place: (low, first) for place, low in lows.items() if place not in known}

    def _lows(self, intake: str, places: list[Place]) -> dict[Place, int]:
        """Where those begin that hold no record, and whose journals hold none."""
        if self._topics.find([intake]):
            starts, ends = self._offsets.starts(places), self._offsets.ends(places, committed=False)
            lows = {place: starts[place] for place in places if starts[place] == ends[place]}
        else:
            lows = dict.fromkeys(places, 0)
        journals = self._offsets.ends([journal_of(place) for place in lows], committed=False) if lows else {}
        return {place: low for place, low in lows.items() if journals[journal_of(place)] == 0}

    def _known(self, places: list[Place], origin: Origin) -> set[Place]:
        """Those of which the group has committed an offset, unless it is of an intake and a journal that are gone."""
        committed = self._offsets.committed(places) if places else {}
        return {place for place, (_, metadata) in committed.items() if not _is_of_what_is_gone(metadata, origin)}


def _is_of_what_is_gone(metadata: str, now: Origin) -> bool:
    try:
        had = decode(metadata).origin
    except CheckpointError:
        return False
    return all(one and one != other for one, other in ((had.intake, now.intake), (had.journal, now.journal)))
