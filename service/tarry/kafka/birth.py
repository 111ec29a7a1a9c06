"""The first checkpoint of a partition, in its journal before its intake takes a record.

A partition without a committed offset and without a copy of a checkpoint, but with records, is refused: what was
delivered of them is not known. So that this never hits a new intake, whose first records may arrive before its first
owner, each partition is born with a copy in its journal: begin here, nothing is done above.
"""

from confluent_kafka import KafkaError
from confluent_kafka.admin import AdminClient

from tarry.clock import Clock
from tarry.core.checkpoint import Checkpoint, Geometry, is_checkpoint
from tarry.core.journal import encode_copy
from tarry.core.levels import first_closed_ms
from tarry.errors import UsageError
from tarry.kafka.offsets import Offsets
from tarry.kafka.patience import patiently
from tarry.kafka.place import Place
from tarry.kafka.settings import Cluster
from tarry.kafka.topics import JOURNAL, TopicAdmin

FLUSH_TIMEOUT_S = 30.0
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
        self._offsets = Offsets(admin, group, cluster)

    def give(self, intake: str, partitions: int, geometry: Geometry, *, adopt: bool) -> None:
        """Write a copy for each partition that has none, no offset, and no records either.

        Args:
            intake: its name; the topic may not exist yet, its journal does.
            partitions: how many it has, or will have.
            geometry: of its overflow wheel.
            adopt: also for partitions that hold records: they begin at the first of these.

        Raises:
            RetriableError: brokers do not answer for longer than somebody at a start would wait.
            UsageError: the journal can't be written.
        """
        places = [(intake, partition) for partition in range(partitions)]
        lows = patiently(lambda: self._lows(intake, places, adopt=adopt), self._clock, PATIENCE_S)
        self._write(lows, geometry)

    def _lows(self, intake: str, places: list[Place], *, adopt: bool) -> dict[Place, int]:
        """Where those begin that are to be given a checkpoint."""
        begin = self._beginnings(places, adopt=adopt) if self._topics.find([intake]) else dict.fromkeys(places, 0)
        unborn = self._unborn(places, adopt=adopt)
        return {place: low for place, low in begin.items() if place in unborn}

    def _beginnings(self, places: list[Place], *, adopt: bool) -> dict[Place, int]:
        starts = self._offsets.starts(places)
        ends = self._offsets.ends(places, committed=False)
        return {place: starts[place] for place in places if adopt or starts[place] == ends[place]}

    def _unborn(self, places: list[Place], *, adopt: bool) -> set[Place]:
        committed = self._offsets.committed(places)
        if adopt:  # an offset that somebody else committed for the group says nothing about deliveries
            committed = {place: one for place, one in committed.items() if is_checkpoint(one[1])}
        journals = self._offsets.ends([(topic + JOURNAL, p) for topic, p in places], committed=False)
        return {p for p in places if p not in committed and journals[p[0] + JOURNAL, p[1]] == 0}

    def _write(self, lows: dict[Place, int], geometry: Geometry) -> None:
        if not lows:
            return
        failures: list[str] = []

        def report(error: KafkaError | None, _record: object) -> None:
            if error is not None:
                failures.append(error.str())

        producer = self._cluster.clients.producer(self._cluster.client(enable_idempotence=True, acks="all"))
        for (intake, partition), low in lows.items():
            closed_ms = first_closed_ms(geometry, self._clock.now_ms())
            checkpoint = Checkpoint(writer=(), released=True, geometry=geometry, closed_ms=closed_ms).encode()
            copy = encode_copy(low, checkpoint)
            producer.produce(intake + JOURNAL, value=copy, partition=partition, on_delivery=report)
        left = producer.flush(FLUSH_TIMEOUT_S)
        producer.close()
        if failures or left:
            reason = failures[0] if failures else "no answer"
            raise UsageError(f"could not write the first checkpoints of {next(iter(lows))[0]}: {reason}")
