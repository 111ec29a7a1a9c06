"""`tarry serve --adopt`: go on with a partition whose checkpoint does not belong to its logs.

A partition that no process can take over begins again at the first record that its intake holds. All its records are
delivered, even those that were delivered before. Messages in buckets stay there and come down in their time, if the
topics of the levels are still those that they were filed to:

    a checkpoint of this cluster   the new checkpoint keeps which buckets are closed, and how far the logs of unchanged
                                   levels are done
    no checkpoint of this cluster  all buckets begin again, as in a new intake
    in any case                    the journal's records so far do not count any more: the pointers move to its end
    the parked log                 all that it holds waits again, and a new record of the journal says so
    pauses                         the next owner must know them before anything fires, if there may be any

So no message is lost that a log still holds, and a message that is delivered again has the same id.
"""

from collections.abc import Callable
from dataclasses import replace

from confluent_kafka import ConsumerGroupTopicPartitions, KafkaException, TopicPartition

from tarry.clock import Clock
from tarry.core.progress.checkpoint import Checkpoint, Geometry, Obeyed
from tarry.core.progress.journal import ParkedRow
from tarry.core.progress.recovery import Kept
from tarry.core.wheel.levels import first_closed_ms
from tarry.errors import UsageError
from tarry.kafka.control_log import first_obeyed
from tarry.kafka.copies import write_copies, write_parked
from tarry.kafka.errors import error_of
from tarry.kafka.offsets import Offsets
from tarry.kafka.patience import patiently
from tarry.kafka.refusals import SURE_AFTER_MS
from tarry.kafka.settings import Cluster
from tarry.kafka.standing import Standing, Standings
from tarry.kafka.types import Place

PATIENCE_S = 30.0
"""How long errors that pass are retried."""

ANSWER_WITHIN_S = 10.0
"""How long setting the group's offsets may take."""


class Adoption:
    """Adopts partitions.

    Args:
        cluster: the Kafka cluster.
        group: the consumer group.
        clock: wall time, and monotonic time for time-outs.
    """

    def __init__(self, cluster: Cluster, group: str, clock: Clock) -> None:
        self._cluster = cluster
        self._admin = cluster.clients.admin(cluster.admin())
        self._group = group
        self._clock = clock
        self._offsets = Offsets(self._admin, group, cluster)
        self._standings = Standings(cluster, group, clock)

    def close(self) -> None:
        """Close the clients."""
        self._offsets.close()
        self._standings.close()

    def adopt(
        self, intake: str, partitions: int, geometry: Geometry, on_event: Callable[..., None] = lambda *_, **__: None
    ) -> None:
        """Write a new checkpoint for each partition that cannot be taken over; do not touch the others.

        Args:
            intake: its name; it exists, and so does its journal.
            partitions: how many it has.
            geometry: the shape of its overflow wheel.
            on_event: takes an event's name and fields, for the log.

        Raises:
            RetriableError: brokers do not answer.
            UsageError: the group's offsets or the journal cannot be written.
        """
        refused = self._refused(intake, partitions, geometry)
        if not refused:
            return
        first = first_obeyed(self._admin, self._offsets, intake, self._clock)
        parked = {one.place: self._parked(one) for one in refused}
        adopted = {
            one.place: (one.start, self._adopted(one, geometry, first, has_parked=bool(parked[one.place])))
            for one in refused
        }
        # First of all, because the pointers of the new checkpoints are before it: without it, nothing would be parked.
        write_parked(self._cluster, parked)
        # The group's offset next: a take-over ignores a copy while the committed checkpoint can be read.
        self._commit({one.place: adopted[one.place] for one in refused if one.is_committed})
        write_copies(self._cluster, adopted)
        for one in refused:
            on_event("adopted", topic=intake, partition=one.place[1], low=one.start, reason=one.refusal)

    def _refused(self, intake: str, partitions: int, geometry: Geometry) -> list[Standing]:
        """Return the partitions that no process can take over; if the cause may pass, only once it has lasted."""

        def look() -> list[Standing]:
            return patiently(lambda: self._standings.of(intake, range(partitions), geometry), self._clock, PATIENCE_S)

        found = look()
        if in_doubt := {one.place for one in found if one.may_pass}:
            self._clock.sleep(SURE_AFTER_MS / 1000)
            found = look()
        return [one for one in found if one.refusal is not None and (not one.may_pass or one.place in in_doubt)]

    def _parked(self, standing: Standing) -> list[ParkedRow]:
        """Return what the parked log of a partition holds, done or not, for each target."""
        rows: dict[str, ParkedRow] = {}
        for offset, target in self._standings.parked(standing.place):
            row = rows.get(target) or ParkedRow(len(rows) + 1, offset, 0, target)
            rows[target] = row._replace(messages=row.messages + 1)
        return list(rows.values())

    def _adopted(self, standing: Standing, geometry: Geometry, first: Obeyed | None, *, has_parked: bool) -> Checkpoint:
        last, end = standing.last, standing.journal_end
        parked = end if has_parked else None
        if last is None:
            closed_ms = first_closed_ms(geometry, self._clock.now_ms())
            return Checkpoint(
                (),
                True,
                geometry,
                closed_ms,
                wheel_pointer=end,
                pointer=end,
                parked_pointer=parked,
                names_complete_from=standing.start,
                origin=standing.origin,
                obeyed=first,
            )
        return replace(
            last,  # the take-over fences its writer, and judges the shape of its overflow wheel
            low=tuple(min(low, _end(standing, level)) for level, low in enumerate(last.low, 1)),
            wheel_pointer=end,
            pointer=end,
            parked_pointer=parked,
            index_pointer=None,
            names_pointer=None,
            names_complete_from=standing.start,
            due_below_ms=None,
            origin=standing.origin,
            obeyed=last.obeyed or first,
        )

    def _commit(self, kept: dict[Place, Kept]) -> None:
        if not kept:
            return
        wanted = [TopicPartition(*place, low, found.encode()) for place, (low, found) in kept.items()]
        request = [ConsumerGroupTopicPartitions(self._group, wanted)]
        asked = self._admin.alter_consumer_group_offsets(request, request_timeout=ANSWER_WITHIN_S)
        try:
            answer = asked[self._group].result()
        except KafkaException as exception:
            raise UsageError(
                f"could not set the offsets of group {self._group} ({error_of(exception).str()}): end all its services "
                "first, and wait until its members' sessions are over"
            ) from exception
        for one in answer.topic_partitions:
            if one.error is not None:
                raise UsageError(f"could not set the offset of {one.topic}/{one.partition}: {one.error.str()}")


def _end(standing: Standing, level: int) -> int:
    """Return the end of the log of a level; 0 if the log is not the same any more."""
    if standing.last is None or not standing.last.origin.has_level(level, standing.origin):
        return 0
    return standing.spans.get(level, (0, 0))[1]
