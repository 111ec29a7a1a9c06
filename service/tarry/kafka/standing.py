"""The standing of partitions, seen from outside the group: which checkpoint a take-over would use, or why it refuses.

It is what a take-over would find (`takeover`), but without fencing any process or committing anything.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from tarry.clock import Clock
from tarry.core.progress.checkpoint import Checkpoint, CheckpointError, Geometry, decode_checkpoint
from tarry.core.progress.journal import Copy, Entry, decode_entry
from tarry.core.progress.origin import Origin
from tarry.core.progress.recovery import Kept, Recovery, is_later, replaces
from tarry.core.progress.source import PARKED
from tarry.kafka.offsets import Offsets
from tarry.kafka.origins import Origins
from tarry.kafka.parked_record import parked_target
from tarry.kafka.partition_logs import journal_of, level_log_of, levels_of, read_to_ends
from tarry.kafka.refusals import another_origin, end_lost, intake_cut, journal_cut, level_gone, nothing_known, shortfall
from tarry.kafka.settings import Cluster
from tarry.kafka.trim_tolerant_reader import TrimTolerantReader
from tarry.kafka.types import Place


class Standing(NamedTuple):
    """The standing of one partition.

    Attributes:
        place: the partition.
        refusal: why no process can take it over, in one line; None if nothing is known against it.
        may_pass: whether the refusal may pass, because it follows from where logs begin or end: an end may lag for a
            moment.
        last: the last readable checkpoint of this cluster, whether a take-over would use it or not; None if there is
            none.
        is_committed: whether the take-over would use the committed offset, not a copy, even if it is then refused.
        origin: the present ids.
        start: the first offset that the intake holds.
        journal_end: the end of the journal.
        spans: for each existing level of `last`, the first offset that its log holds, and its end; `PARKED` is the
            parked log.
    """

    place: Place
    refusal: str | None
    may_pass: bool
    last: Checkpoint | None
    is_committed: bool
    origin: Origin
    start: int
    journal_end: int
    spans: Mapping[int, tuple[int, int]]


class _Logs(NamedTuple):
    """The first offsets and the ends of a partition's intake and journal."""

    intake: tuple[int, int]
    journal: tuple[int, int]


class Standings:
    """Finds the standing of partitions.

    Args:
        cluster: the Kafka cluster.
        group: the service's consumer group.
        clock: for waiting.
    """

    def __init__(self, cluster: Cluster, group: str, clock: Clock) -> None:
        admin = cluster.clients.admin(cluster.admin())
        self._offsets = Offsets(admin, group, cluster)
        self._origins = Origins(admin)
        self._reader = TrimTolerantReader(cluster, clock)

    def close(self) -> None:
        """Close the clients."""
        self._reader.close()
        self._offsets.close()

    def of(self, intake: str, partitions: Iterable[int], geometry: Geometry) -> list[Standing]:
        """Return the standing of partitions of an intake that exists.

        Args:
            intake: its name.
            partitions: their numbers.
            geometry: the configured shape of its overflow wheel.

        Raises:
            BrokerError: no answer.
        """
        places = [(intake, partition) for partition in partitions]
        if not places:
            return []
        origin = self._origins.of({intake: geometry})[intake]
        journals = [journal_of(place) for place in places]
        # Owners may serve the partitions meanwhile, and offsets grow: those that must be smallest are asked for first.
        starts = self._offsets.starts([*places, *journals])
        committed = self._offsets.committed(places)
        ends = self._offsets.ends(journals, committed=False)
        ends |= self._offsets.ends(places, committed=False)
        return [
            self._look(
                place,
                committed.get(place),
                _Logs((starts[place], ends[place]), (starts[journal], ends[journal])),
                origin,
            )
            for place, journal in zip(places, journals, strict=True)
        ]

    def _look(self, place: Place, committed: tuple[int, str] | None, logs: _Logs, origin: Origin) -> Standing:
        own = _readable(committed)
        is_committed = own is not None and another_origin(place, own[1].origin, origin) is None
        last, refusal = own, None
        if not is_committed:
            copy, refusal = self._last_copy(place, logs)
            last = copy or own
            is_untouched = logs.intake[0] == logs.intake[1]  # no process has served it or sent to it yet
            if refusal is None and last is None and not is_untouched:
                refusal = nothing_known(place)
            if refusal is None and last is not None:
                refusal = another_origin(place, last[1].origin, origin)
        spans: dict[int, tuple[int, int]] = {}
        may_pass = refusal is None
        if last is not None and last[1].origin.is_of_cluster(origin):
            spans = self._spans(place, last[1].geometry)
            refusal = (
                refusal
                or self._level_gone(place, last[1], origin)
                or self._fault_of_logs(place, last, logs, spans, origin)
            )
        else:
            last = None
        return Standing(
            place,
            refusal,
            may_pass and refusal is not None,
            last and last[1],
            is_committed,
            origin,
            logs.intake[0],
            logs.journal[1],
            spans,
        )

    def _level_gone(self, place: Place, checkpoint: Checkpoint, origin: Origin) -> str | None:
        """Return why a level, configured or not, may have lost messages; None if none has."""
        if checkpoint.geometry.levels > len(origin.levels):
            origin = self._origins.of({place[0]: checkpoint.geometry})[place[0]]
        return level_gone(place, checkpoint.origin, origin)

    def _last_copy(self, place: Place, logs: _Logs) -> tuple[Kept | None, str | None]:
        """Return the copy that a take-over would use, if there is one; or why the copies cannot be read."""
        found: Kept | None = None
        try:
            for record in self._records(place, *logs.journal):
                if isinstance(record, Copy):
                    copy = record.low, decode_checkpoint(record.checkpoint)
                    found = copy if is_later(copy, found) else found
        except ValueError as error:
            return None, f"{journal_of(place)[0]}/{place[1]}: {error}"
        return found, None

    def _fault_of_logs(
        self, place: Place, last: Kept, logs: _Logs, spans: Mapping[int, tuple[int, int]], origin: Origin
    ) -> str | None:
        """Return why the logs do not fit the checkpoint although they have the same ids; None if they fit."""
        low, checkpoint = last
        recovery = Recovery(low, checkpoint, checkpoint.writer)
        begin = checkpoint.reads_from
        first, end = logs.journal
        if cut := intake_cut(place, logs.intake[0], low) or journal_cut(journal_of(place), first, end, begin):
            # As a take-over: a coordinator that is not whole knows only an older checkpoint than the last copy.
            copy, _ = self._last_copy(place, logs)
            if copy is None or not replaces(copy, last) or another_origin(place, copy[1].origin, origin) is not None:
                return cut
            return self._fault_of_logs(place, copy, logs, spans, origin)
        try:
            for record in self._records(place, begin, end):
                recovery.journal.take(record)
        except ValueError as error:
            return f"{journal_of(place)[0]}/{place[1]}: {error}"
        if (lost := recovery.journal.lost_end) is not None:
            return end_lost(place, lost)
        return shortfall(place, recovery, logs.intake[1], spans)

    def _records(self, place: Place, begin: int, end: int) -> Iterator[Entry]:
        """Read a partition's journal.

        Raises:
            ValueError: a record is not the service's, or is a copy that cannot be read.
        """
        journal = journal_of(place)
        if begin < end:
            for _, record in read_to_ends(self._reader, {journal: begin}, {journal: end}):
                yield decode_entry(record.value())

    def parked(self, place: Place) -> Iterator[tuple[int, str]]:
        """Read the parked log of a partition; yield the offset and the target of each message."""
        log = level_log_of(place, PARKED)
        if not self._offsets.existing([log]):
            return
        starts, ends = self._offsets.starts([log]), self._offsets.ends([log], committed=False)
        if starts[log] < ends[log]:
            for _, record in read_to_ends(self._reader, starts, ends):
                offset, target = record.offset() or 0, parked_target(record)
                if target is not None and offset < ends[log]:
                    yield offset, target

    def _spans(self, place: Place, geometry: Geometry) -> dict[int, tuple[int, int]]:
        logs = {level_log_of(place, level): level for level in (*levels_of(geometry), PARKED)}
        there = self._offsets.existing(logs)
        if not there:
            return {}
        starts, ends = self._offsets.starts(there), self._offsets.ends(there, committed=False)
        return {logs[log]: (starts[log], ends[log]) for log in there}


def _readable(committed: tuple[int, str] | None) -> Kept | None:
    if committed is None:
        return None
    try:
        return committed[0], decode_checkpoint(committed[1])
    except CheckpointError:
        return None
