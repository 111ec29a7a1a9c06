"""Taking partitions over: prove, fence, name, read.

The order is what makes it exactly once, so each step is numbered as in `docs/architecture.md`:

0. Prove membership by a plain commit. Only a proven member may fence: a zombie that wakes would fence the healthy
   owner.
1. Read the checkpoint, under an open transaction too. Whoever wrote it and has not released the partition is fenced,
   by registering its transactional ids: what it left open is aborted. Then read the offset again, stable.
2. Commit the same offset and checkpoint in the name of this process. Only then may a transaction touch the partition.
3. Capture the journal's end, read_uncommitted, and read committed records up to it: markers reach the journal and the
   offsets independently, so its last stable offset may lag behind a commit that is already visible.
4. Capture the intake's last stable offset: the replay's end; and where the logs of the overflow wheel begin and end.

A refusal (`RetriableError`) anywhere means: poll on, and begin at 0 again.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from confluent_kafka import Message

from tarry.clock import Clock
from tarry.core.checkpoint import Checkpoint, CheckpointError, Geometry, decode
from tarry.core.done_set import DoneSet
from tarry.core.journal import Copy, Done, Range
from tarry.core.journal import decode as decode_record
from tarry.core.levels import first_closed_ms
from tarry.core.recovered import Buckets, Recovered
from tarry.core.source import INTAKE, Source
from tarry.errors import UsageError
from tarry.kafka.membership import Membership
from tarry.kafka.offsets import Offsets
from tarry.kafka.partition_logs import journal_of, place_of, proof_of, read_to_ends, slot_of, sources_of, spans_of
from tarry.kafka.place import OffsetMetadata, Place
from tarry.kafka.reader import Reader
from tarry.kafka.topics import JOURNAL


@dataclass(frozen=True, slots=True)
class Identity:
    """Who takes over.

    Attributes:
        writer: the transactional ids of this process.
        geometry: of the overflow wheel, by intake.
    """

    writer: tuple[str, ...]
    geometry: Mapping[str, Geometry]


def another_shape(place: Place, had: Geometry) -> str:
    """The line that refuses a partition whose messages lie in buckets of another shape than is configured."""
    return (
        f"{place[0]}/{place[1]} has messages in an overflow wheel of another shape (width {had.width_ms} ms, "
        f"size {had.size}, {had.levels} levels): set [overflow] and max_delay back to it until they have fired"
    )


class TakeOver:
    """Takes partitions over.

    Args:
        membership: this process in the group.
        offsets: questions to the brokers.
        journal: a reader that is free for this.
        identity: who takes over.
        fence: shuts out the processes behind transactional ids.
        clock: wall time.
        on_event: takes an event's name and fields, for the log.
    """

    def __init__(
        self,
        membership: Membership,
        offsets: Offsets,
        journal: Reader,
        identity: Identity,
        fence: Callable[[Sequence[str]], None],
        clock: Clock,
        on_event: Callable[..., None],
    ) -> None:
        self._membership = membership
        self._offsets = offsets
        self._journal = journal
        self._identity = identity
        self._fence = fence
        self._clock = clock
        self._on_event = on_event

    def prove(self, places: Sequence[Place]) -> None:
        """Step 0: commit an offset of each partition's journal, which nobody reads."""
        self._membership.commit(proof_of(places))

    def run(self, places: Sequence[Place]) -> dict[Place, Recovered]:
        """Steps 1 to 4, for partitions that membership was proved of.

        Raises:
            RetriableError: refused for now; begin at 0 again.
            UsageError: the partition cannot be taken over by anybody; one line says why.
        """
        committed = self._offsets.committed(places)
        found = {place: self._checkpoint(place, committed.get(place)) for place in places}
        self._fence_writers(self._last_writers(found))
        committed = self._membership.committed(places)
        found = {place: self._checkpoint(place, committed.get(place)) for place in places}
        copies = self._last_copies([place for place, (_, checkpoint) in found.items() if checkpoint is None])
        lows: dict[Place, int] = {}
        checkpoints: dict[Place, Checkpoint] = {}
        for place, (low, checkpoint) in found.items():
            lows[place], base = (low, checkpoint) if checkpoint else copies[place]
            checkpoints[place] = replace(self._shaped(place, base), writer=self._identity.writer, released=False)
        self._membership.commit({place: (lows[place], checkpoints[place].encode()) for place in places})
        done, journal_ends = self._read_journals(checkpoints, lows)
        ends = self._offsets.ends(places, committed=True)
        spans = spans_of(self._offsets, {place: self._identity.geometry[place[0]] for place in places})
        return {
            place: Recovered(
                lows[place],
                checkpoints[place],
                done[place].pop(INTAKE),
                ends[place],
                Buckets(spans[place], done[place], journal_ends[journal_of(place)]),
            )
            for place in places
        }

    def _checkpoint(self, place: Place, committed: OffsetMetadata | None) -> tuple[int, Checkpoint | None]:
        if committed is None:
            return 0, None
        low, metadata = committed
        try:
            return low, decode(metadata)
        except CheckpointError as error:
            self._on_event("checkpoint_unreadable", topic=place[0], partition=place[1], reason=str(error))
            return low, None

    def _fence_writers(self, checkpoints: Sequence[Checkpoint]) -> None:
        """Fence every writer that has not released, but for this process: its own producer is registered anew."""
        names = {name for c in checkpoints if not c.released for name in c.writer}
        others = sorted(names.difference(self._identity.writer))
        if others:
            self._on_event("fencing", transactional_ids=others)
        self._fence(others)

    def _shaped(self, place: Place, checkpoint: Checkpoint) -> Checkpoint:
        """The checkpoint with the overflow wheel that is configured: a new one, where it has another shape so far."""
        wanted, had = self._identity.geometry[place[0]], checkpoint.geometry
        if had == wanted and len(checkpoint.closed_ms) == wanted.levels:
            return checkpoint
        if had.levels and (checkpoint.draining or self._holds_any(place, had)):
            raise UsageError(another_shape(place, had))
        closed_ms = first_closed_ms(wanted, self._clock.now_ms())
        return replace(checkpoint, geometry=wanted, closed_ms=closed_ms, draining=(), emptying=())

    def _holds_any(self, place: Place, geometry: Geometry) -> bool:
        """Whether any bucket holds a message; what is left in a log of markers alone does not count."""
        slots = self._offsets.existing(slot_of(place, geometry, source) for source in sources_of(geometry))
        if not slots:
            return False
        starts, ends = self._offsets.starts(slots), self._offsets.ends(slots, committed=True)
        filled = {slot: starts[slot] for slot in slots if starts[slot] < ends[slot]}
        return any(True for _ in self._read(filled, committed=True))

    def _last_writers(self, found: Mapping[Place, tuple[int, Checkpoint | None]]) -> list[Checkpoint]:
        """What the last writers have written: the group's offset, or where that is lost a copy in the journal.

        What a dead writer left open hides the end of the journal and the offset that comes next: so for now a copy
        has to do that can be read in spite of it.
        """
        lost = [place for place, (_, checkpoint) in found.items() if checkpoint is None]
        copies = self._copies(lost, committed=True) if lost else {}
        kept = [checkpoint for _, checkpoint in found.values() if checkpoint]
        return [*kept, *(checkpoint for _, checkpoint in copies.values())]

    def _last_copies(self, places: Sequence[Place]) -> dict[Place, tuple[int, Checkpoint]]:
        """Where the group's offsets are lost, the journal's copies serve: the one with the highest watermark.

        By now its writers are fenced, and it is read to its end.
        """
        if not places:
            return {}
        copies = self._copies(places, committed=False)
        for place in places:
            if place not in copies:
                raise UsageError(
                    f"{place[0]}/{place[1]} holds records, and neither the group's offsets nor the journal say which "
                    "of them are done: to deliver everything in it, run `tarry serve --adopt` once"
                )
            self._on_event("checkpoint_from_copy", topic=place[0], partition=place[1], low=copies[place][0])
        return copies

    def _copies(self, places: Sequence[Place], *, committed: bool) -> dict[Place, tuple[int, Checkpoint]]:
        starts = self._offsets.starts([journal_of(place) for place in places])
        found: dict[Place, Copy] = {}
        for place, record in self._records({p: starts[journal_of(p)] for p in places}, committed=committed):
            if isinstance(record, Copy) and (place not in found or record.low >= found[place].low):
                found[place] = record
        try:
            return {place: (copy.low, decode(copy.checkpoint)) for place, copy in found.items()}
        except CheckpointError as error:
            raise UsageError(f"a copy of a checkpoint in {places[0][0]}{JOURNAL}: {error}") from error

    def _read_journals(
        self, checkpoints: Mapping[Place, Checkpoint], lows: Mapping[Place, int]
    ) -> tuple[dict[Place, dict[Source, DoneSet]], dict[Place, int]]:
        """What is done of each log that a recovery reads, and the ends of the journals."""
        journal_ends = self._offsets.ends([journal_of(place) for place in checkpoints], committed=False)
        ranges: dict[Place, dict[Source, list[Range]]] = {place: {INTAKE: []} for place in checkpoints}
        begin = {
            place: min([checkpoint.pointer, *(one.pointer for one in checkpoint.draining)])
            for place, checkpoint in checkpoints.items()
        }
        for place, record in self._records(begin, committed=False):
            if not isinstance(record, Copy):
                for source, found in record.ranges.items():
                    ranges[place].setdefault(source, []).extend(found)
        done = {
            place: {source: DoneSet(found, lows[place] if source == INTAKE else 0) for source, found in logs.items()}
            for place, logs in ranges.items()
        }
        return done, journal_ends

    def _records(self, starts: Mapping[Place, int], *, committed: bool) -> Iterator[tuple[Place, Done | Copy]]:
        """Read journals, each from an offset to the end that it has now: its last stable one, or all."""
        begin = {journal_of(place): at for place, at in starts.items()}
        for journal, record in self._read(self._readable(begin, committed=committed), committed=committed):
            yield place_of(journal), self._decoded(journal, record.offset() or 0, record.value())

    def _read(self, starts: Mapping[Place, int], *, committed: bool) -> Iterator[tuple[Place, Message]]:
        """Read logs, each from an offset to the end that it has now: its last stable one, or all."""
        ends = self._offsets.ends(starts, committed=committed) if starts else {}
        return read_to_ends(self._journal, starts, ends)

    def _readable(self, begin: Mapping[Place, int], *, committed: bool) -> dict[Place, int]:
        """The journals that hold anything from where a recovery begins."""
        ends = self._offsets.ends(begin, committed=committed)
        firsts = self._offsets.starts(begin)
        for journal, at in begin.items():
            if not firsts[journal] <= at <= ends[journal]:
                raise UsageError(
                    f"{journal[0]}/{journal[1]} holds offsets {firsts[journal]} to {ends[journal]}, and {at} is where "
                    "a recovery begins: records of the journal were deleted, and what was delivered is not known"
                )
        return {journal: at for journal, at in begin.items() if at < ends[journal]}

    def _decoded(self, journal: Place, offset: int, value: bytes | None) -> Done | Copy:
        try:
            return decode_record(value)
        except ValueError as error:
            raise UsageError(f"{journal[0]}/{journal[1]} at offset {offset}: {error}") from error
