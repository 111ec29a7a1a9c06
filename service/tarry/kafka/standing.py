"""How partitions stand, for who is no member: what would serve as their checkpoint, and why it may not.

It is what a take-over would find (`takeover`), without fencing anybody and without committing anything.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from tarry.clock import Clock
from tarry.core.progress.checkpoint import Checkpoint, CheckpointError, Geometry, decode
from tarry.core.progress.done_set import DoneSet, add_done
from tarry.core.progress.journal import Copy, Done
from tarry.core.progress.journal import decode as decode_record
from tarry.core.progress.origin import Origin
from tarry.core.progress.source import INTAKE, Source
from tarry.kafka.copies import Kept, is_later
from tarry.kafka.offsets import Offsets
from tarry.kafka.origins import Origins
from tarry.kafka.partition_logs import journal_of, read_to_ends, slot_of, sources_of
from tarry.kafka.refusals import another_origin, intake_cut, journal_cut, nothing_known, shortfall
from tarry.kafka.settings import Cluster
from tarry.kafka.trim_tolerant_reader import TrimTolerantReader
from tarry.kafka.types import Place


class Standing(NamedTuple):
    """How one partition stands.

    Attributes:
        place: the partition.
        refusal: why nobody can take it over, in one line; None where nothing is known against it.
        may_pass: whether it is refused by where its logs begin and end: an end may lag for a moment.
        last: the last checkpoint of this cluster that can be read, whether it serves or not; None where there is none.
        is_committed: whether the group's own offset serves, or would if it were not refused.
        origin: the ids of now.
        start: the first offset that the intake holds.
        journal_end: where the journal ends.
        spans: for each slot of `last` that there is, the first offset that its log holds, and its end.
    """

    place: Place
    refusal: str | None
    may_pass: bool
    last: Checkpoint | None
    is_committed: bool
    origin: Origin
    start: int
    journal_end: int
    spans: Mapping[Source, tuple[int, int]]


class _Logs(NamedTuple):
    """Where a partition's logs begin and end: the intake, and the journal."""

    intake: tuple[int, int]
    journal: tuple[int, int]


class Standings:
    """Looks at partitions.

    Args:
        cluster: where.
        group: the service's.
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
        """Look at partitions of an intake that exists.

        Args:
            intake: its name.
            partitions: which.
            geometry: of its overflow wheel, as configured.

        Raises:
            BrokerError: no answer.
        """
        places = [(intake, partition) for partition in partitions]
        if not places:
            return []
        origin = self._origins.of({intake: geometry})[intake]
        journals = [journal_of(place) for place in places]
        # Somebody may serve them meanwhile: what is asked first is the least.
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
            is_untouched = logs.intake[0] == logs.intake[1]  # nobody has served it yet, or sent to it
            if refusal is None and last is None and not is_untouched:
                refusal = nothing_known(place)
            if refusal is None and last is not None:
                refusal = another_origin(place, last[1].origin, origin)
        spans: dict[Source, tuple[int, int]] = {}
        may_pass = refusal is None
        if last is not None and last[1].origin.is_of_cluster(origin):
            spans = self._spans(place, last[1].geometry)
            refusal = refusal or self._fault_of_logs(place, last, logs, spans)
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

    def _last_copy(self, place: Place, logs: _Logs) -> tuple[Kept | None, str | None]:
        """The copy that would serve; or why none can be told."""
        found: Kept | None = None
        try:
            for record in self._records(place, *logs.journal):
                if isinstance(record, Copy):
                    copy = record.low, decode(record.checkpoint)
                    found = copy if is_later(copy, found) else found
        except ValueError as error:
            return None, f"{journal_of(place)[0]}/{place[1]}: {error}"
        return found, None

    def _fault_of_logs(
        self, place: Place, last: Kept, logs: _Logs, spans: Mapping[Source, tuple[int, int]]
    ) -> str | None:
        """Why the logs are not those that the checkpoint speaks of, though they have the same ids."""
        low, checkpoint = last
        begin = checkpoint.reads_from
        first, end = logs.journal
        if cut := intake_cut(place, logs.intake[0], low) or journal_cut(journal_of(place), first, end, begin):
            return cut
        done: dict[Source, DoneSet] = {INTAKE: DoneSet((), 0)}
        try:
            for record in self._records(place, begin, end):
                if isinstance(record, Done):
                    add_done(done, record.ranges)
        except ValueError as error:
            return f"{journal_of(place)[0]}/{place[1]}: {error}"
        return shortfall(place, low, checkpoint, done, logs.intake[1], spans)

    def _records(self, place: Place, begin: int, end: int) -> Iterator[Done | Copy]:
        """Read a partition's journal.

        Raises:
            ValueError: a record is none of ours, or a copy of a checkpoint that cannot be read.
        """
        journal = journal_of(place)
        if begin < end:
            for _, record in read_to_ends(self._reader, {journal: begin}, {journal: end}):
                yield decode_record(record.value())

    def _spans(self, place: Place, geometry: Geometry) -> dict[Source, tuple[int, int]]:
        slots = {slot_of(place, geometry, source): source for source in sources_of(geometry)}
        there = self._offsets.existing(slots)
        if not there:
            return {}
        starts, ends = self._offsets.starts(there), self._offsets.ends(there, committed=False)
        return {slots[slot]: (starts[slot], ends[slot]) for slot in there}


def _readable(committed: tuple[int, str] | None) -> Kept | None:
    if committed is None:
        return None
    try:
        return committed[0], decode(committed[1])
    except CheckpointError:
        return None
