"""Taking partitions over: prove, fence, sign, read.

Exactly-once depends on the order of the steps, so they are numbered as in `docs/architecture.md`:

0. Prove membership by a plain commit. Only a proven member may fence: otherwise a zombie that wakes up would fence the
   healthy owner.
1. Read the checkpoint. This works even while a transaction is open. If the process that wrote the checkpoint has not
   released the partition, fence it by registering its transactional ids; this aborts its open transactions. Then read
   the offset again, stable this time. If the coordinator has missed the end of a transaction, it never gives a stable
   offset: then end another transaction of each id that the checkpoint names, and begin at 0 again.
2. Sign: commit the same offset and checkpoint, with the transactional ids of this process. Only then may a transaction
   touch the partition.
3. Capture the journal's high watermark (read_uncommitted), and read committed records up to it. Transaction markers
   reach the journal and the committed offsets independently, so the journal's last stable offset may lag behind a
   commit that is already visible. If there is a copy of a later checkpoint among them, the coordinator knows only an
   older one, and perhaps not the last owner: fence the writer of the copy, and go on from the copy at step 2.
4. Capture the intake's last stable offset, where the replay ends, and the beginnings and ends of the logs of the
   overflow wheel and of the parked log.

The offsets must belong to these logs. A checkpoint or copy that names another cluster or other topics does not
count, and a checkpoint that counts offsets as done that a log does not hold is refused (`refusals`).

A refusal (`RetriableError`) at any step means: poll the group, and begin at 0 again.

A journal may be long, and the group does not wait for a member that does not poll. So journals are read in parts, and
the caller serves the group between two parts. If the group revokes a partition meanwhile, its take-over is given up,
and begins at 0 when the group assigns the partition again.
"""

from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, TypeVar

from tarry.clock import Clock
from tarry.core.progress.checkpoint import Checkpoint, CheckpointError, Geometry, decode_checkpoint
from tarry.core.progress.journal import Copy, Entry, decode_entry
from tarry.core.progress.recovered import Recovered
from tarry.core.progress.recovery import Kept, Recovery, is_later, replaces
from tarry.core.wheel.levels import first_closed_ms
from tarry.errors import RetriableError, UsageError
from tarry.kafka.membership import Membership
from tarry.kafka.offsets import NOT_STABLE, Offsets
from tarry.kafka.origins import Origins
from tarry.kafka.partition_logs import (
    journal_of,
    level_log_of,
    levels_of,
    place_of,
    proof_of,
    read_in_parts,
    spans_of,
)
from tarry.kafka.reader import Reader
from tarry.kafka.refusals import Shortfalls, another_origin, end_lost, journal_cut, level_gone, nothing_known, shortfall
from tarry.kafka.topics import JOURNAL
from tarry.kafka.types import OffsetMetadata, Place

if TYPE_CHECKING:
    from tarry.core.progress.origin import Origin

PART_MOST = 5_000
PART_WAIT_S = 0.02
"""How long to wait for a part of a journal: meanwhile the group is not served, and our other partitions do not fire."""

Answer = TypeVar("Answer")

ByParts = Generator[None, None, Answer]
"""Reads one part at each `next`, and returns the answer at the end."""


@dataclass(frozen=True, slots=True)
class Identity:
    """The identity of the process that takes over.

    Attributes:
        writer: the transactional ids of this process.
        former: its earlier transactional ids, which no process uses any more.
        geometry: the shape of the overflow wheel, by intake.
    """

    writer: tuple[str, ...]
    former: frozenset[str]
    geometry: Mapping[str, Geometry]


def another_shape(place: Place, had: Geometry) -> str:
    """Return the error line for a partition whose buckets have another shape than the configuration."""
    return (
        f"{place[0]}/{place[1]} has messages in an overflow wheel of another shape (width {had.width_ms} ms, "
        f"size {had.size}, {had.levels} levels): set [overflow] and max_delay back to it until they have fired"
    )


class _JournalCutError(UsageError):
    """A journal does not hold the offset at which a recovery begins to read.

    Args:
        text: one line for the operator.
        journal: the journal.
    """

    def __init__(self, text: str, journal: Place) -> None:
        super().__init__(text)
        self.journal = journal


class TakeOver:
    """Takes partitions over.

    Args:
        membership: this process in the group.
        offsets: asks the brokers for offsets.
        origins: asks the brokers for cluster and topic ids.
        shortfalls: this process's, kept from one take-over to the next.
        journal: a reader that nothing else uses meanwhile.
        identity: of this process.
        fence: fences the processes that use these transactional ids.
        end_pending: makes the group's coordinator forget what it keeps as pending of some partitions, given those and
            their checkpoints, and returns the transactional ids of which it does.
        clock: wall time.
        on_event: takes an event's name and fields, for the log.
    """

    def __init__(
        self,
        membership: Membership,
        offsets: Offsets,
        origins: Origins,
        shortfalls: Shortfalls,
        journal: Reader,
        identity: Identity,
        fence: Callable[[Sequence[str]], None],
        end_pending: Callable[[Sequence[Place], Sequence[Checkpoint]], list[str]],
        clock: Clock,
        on_event: Callable[..., None],
    ) -> None:
        self._membership = membership
        self._offsets = offsets
        self._origins = origins
        self._shortfalls = shortfalls
        self._present_origins: Mapping[str, Origin] = {}
        self._refused: dict[Place, str] = {}
        self._journal = journal
        self._identity = identity
        self._fence = fence
        self._end_pending = end_pending
        self._clock = clock
        self._on_event = on_event
        self._signed: dict[Place, Kept] = {}

    def run(self, places: Sequence[Place]) -> ByParts[dict[Place, Recovered]]:
        """Run steps 1 to 4 for partitions for which step 0 has succeeded (`TakeOvers.prove`).

        The caller serves the group between two parts, and closes the generator if one of the partitions is given up.

        Raises:
            RetriableError: refused for now; begin at 0 again.
            UsageError: no process can take the partition over; one line says why.
        """
        asked = self._origins.ask({topic: self._identity.geometry[topic] for topic, _ in places})
        self._present_origins, partitions = asked.answers(), asked.partitions()
        committed = self._offsets.committed(places)
        found = {place: self._checkpoint(place, committed.get(place)) for place in places}
        last = [checkpoint for _, checkpoint in found.values() if checkpoint]
        if lost := [place for place, (_, checkpoint) in found.items() if checkpoint is None]:
            # A dead writer's open transaction hides the journal's end and the next committed offset. Until it is
            # aborted, use the last copy below the last stable offset to learn whom to fence.
            copies = yield from self._copies(lost, committed=True)
            last += [checkpoint for _, checkpoint in copies.values()]
            # Step 0 again: reading the copies took time, and the membership may have ended meanwhile.
            self._membership.commit(proof_of(places))
        self._fence_writers(last)
        committed = yield from self._stable_offsets(places, last)
        found = {place: self._checkpoint(place, committed.get(place)) for place in places}
        lost = [place for place, (_, checkpoint) in found.items() if checkpoint is None]
        copies = yield from self._last_copies(lost)
        known = {
            place: (low, checkpoint) if checkpoint else copies[place] for place, (low, checkpoint) in found.items()
        }
        while True:
            recoveries, later = yield from self._recoveries(known)
            if not later:
                self._sign(recoveries)
                journal_ends, later = yield from self._read_journals(recoveries, known)
            if not later:
                break
            # The coordinator knew only an older checkpoint. The last owner may be alive, and not fenced yet.
            self._membership.commit(proof_of(places))
            self._fence_writers([checkpoint for _, checkpoint in later.values()])
            for place, (low, _) in later.items():
                self._on_event("checkpoint_from_copy", topic=place[0], partition=place[1], low=low)
            known = {**known, **later}
        for place, one in recoveries.items():
            if (lost_end := one.journal.lost_end) is not None:
                raise UsageError(end_lost(place, lost_end))
        ends = self._offsets.ends(places, committed=True)
        spans = spans_of(self._offsets, {place: self._identity.geometry[place[0]] for place in places})
        self._shortfalls.check(
            {place: shortfall(place, one, ends[place], spans[place]) for place, one in recoveries.items()}
        )
        return {
            place: one.recovered(
                ends[place],
                spans[place],
                journal_ends[journal_of(place)],
                self._present_origins[place[0]],
                partitions[place[0]],
            )
            for place, one in recoveries.items()
        }

    def _recoveries(self, known: Mapping[Place, Kept]) -> ByParts[tuple[dict[Place, Recovery], dict[Place, Kept]]]:
        """Begin recoveries in the configured shape.

        Returns:
            The recoveries; and instead of those whose shape cannot be changed, the last copy if it is of a later
            checkpoint, which may have another shape.
        """
        recoveries: dict[Place, Recovery] = {}
        later: dict[Place, Kept] = {}
        for place, (low, checkpoint) in known.items():
            try:
                shaped = yield from self._in_configured_shape(place, checkpoint)
            except UsageError:
                later |= yield from self._later_copies({place: known[place]})
                if place not in later:
                    raise
            else:
                is_reshaped = shaped.geometry != checkpoint.geometry
                recoveries[place] = Recovery(low, shaped, self._identity.writer, is_reshaped=is_reshaped)
        return recoveries, later

    def _sign(self, recoveries: Mapping[Place, Recovery]) -> None:
        """Step 2: commit the offsets and checkpoints, with our transactional ids."""
        self._membership.commit({place: (one.low, one.checkpoint.encode()) for place, one in recoveries.items()})
        self._signed = {place: (one.low, one.checkpoint) for place, one in recoveries.items()}

    def release(self, places: Iterable[Place]) -> None:
        """Give up partitions in the middle of a take-over.

        If we have signed their checkpoints (step 2), commit them as released, so the next owner need not fence us. No
        transaction of ours has touched them, so a plain commit is enough.

        Raises:
            BrokerError: refused; the next owner fences us.
        """
        signed = {place: self._signed[place] for place in places if place in self._signed}
        if signed:
            self._membership.commit(
                {place: (low, replace(found, released=True).encode()) for place, (low, found) in signed.items()}
            )

    def _checkpoint(self, place: Place, committed: OffsetMetadata | None) -> tuple[int, Checkpoint | None]:
        if committed is None:
            return 0, None
        low, metadata = committed
        try:
            checkpoint = decode_checkpoint(metadata)
        except CheckpointError as error:
            reason = str(error)
        else:
            refusal = another_origin(place, checkpoint.origin, self._present_origins[place[0]])
            if refusal is None:
                return low, checkpoint
            reason = self._refused[place] = refusal
        self._on_event("checkpoint_unreadable", topic=place[0], partition=place[1], reason=reason)
        return low, None

    def _stable_offsets(
        self, places: Sequence[Place], checkpoints: Sequence[Checkpoint]
    ) -> ByParts[dict[Place, OffsetMetadata]]:
        """Read the offsets once no transaction holds one of them; all that could be open has been aborted.

        Raises:
            RetriableError: no answer. If offsets of a transaction that is over were pending, they are not any more.
        """
        try:
            return self._membership.committed(places)
        except RetriableError as error:
            if error.code != NOT_STABLE or not checkpoints:
                raise
            yield  # this question took long, and so may what follows
            self._membership.commit(proof_of(places))  # step 0 again, for the same reason
            self._offsets.committed(places)  # else the coordinator answers nothing, and nothing need be pending
            if ended := self._end_pending(places, checkpoints):
                self._on_event("pending_offsets_ended", transactional_ids=ended)
            raise

    def _fence_writers(self, checkpoints: Sequence[Checkpoint]) -> None:
        """Fence every writer that has not released, except this process: its own producers are registered again."""
        names = {name for c in checkpoints if not c.released for name in c.writer}
        others = sorted(names.difference(self._identity.writer, self._identity.former))
        if others:
            self._on_event("fencing", transactional_ids=others)
        self._fence(others)

    def _in_configured_shape(self, place: Place, checkpoint: Checkpoint) -> ByParts[Checkpoint]:
        """Return the checkpoint with the configured overflow wheel; if the shape differs, begin with an empty wheel.

        Raises:
            UsageError: the overflow wheel of the former shape holds messages, or one of its topics is gone.
        """
        wanted, had = self._identity.geometry[place[0]], checkpoint.geometry
        if had == wanted and len(checkpoint.closed_ms) == wanted.levels:
            return checkpoint
        if had.levels:
            if gone := level_gone(place, checkpoint.origin, self._origins.of({place[0]: had})[place[0]]):
                raise UsageError(gone)
            holds_any = yield from self._holds_any(place, checkpoint)
            if holds_any:
                raise UsageError(another_shape(place, had))
        closed_ms = first_closed_ms(wanted, self._clock.now_ms())
        # What is done and not deleted yet stays below the low watermarks.
        low = (*checkpoint.low, *[0] * wanted.levels)[: wanted.levels]
        return replace(
            checkpoint,
            geometry=wanted,
            closed_ms=closed_ms,
            done_ms=closed_ms,
            low=low,
            wheel_pointer=checkpoint.reads_from,  # without levels it is not kept, and the journal may be trimmed
            index_pointer=None,
        )

    def _holds_any(self, place: Place, checkpoint: Checkpoint) -> ByParts[bool]:
        """Return whether a level may hold a waiting message; a log with nothing but transaction markers does not."""
        logs = self._offsets.existing(level_log_of(place, level) for level in levels_of(checkpoint.geometry))
        if not logs:
            return False
        starts, ends = self._offsets.starts(logs), self._offsets.ends(logs, committed=True)
        low = {level_log_of(place, level): at for level, at in enumerate(checkpoint.low, 1)}
        filled = {log: begin for log in logs if (begin := max(starts[log], low[log])) < ends[log]}
        for part in read_in_parts(self._journal, filled, ends, PART_MOST, PART_WAIT_S):
            if part:
                return True
            yield
        return False

    def _last_copies(self, places: Sequence[Place]) -> ByParts[dict[Place, tuple[int, Checkpoint]]]:
        """Return the last copy in each journal, for partitions whose committed offset is missing or unusable.

        The journal's writers are fenced by now, so it is read to its end.
        """
        if not places:
            return {}
        copies = yield from self._copies(places, committed=False)
        for place in places:
            if place not in copies:
                raise UsageError(self._refused.get(place) or nothing_known(place))
            if refusal := another_origin(place, copies[place][1].origin, self._present_origins[place[0]]):
                raise UsageError(refusal)
            low, checkpoint = copies[place]
            if checkpoint.writer:  # else it is the first checkpoint: there was no owner who could have committed one
                self._on_event("checkpoint_from_copy", topic=place[0], partition=place[1], low=low)
        return copies

    def _copies(self, places: Sequence[Place], *, committed: bool) -> ByParts[dict[Place, tuple[int, Checkpoint]]]:
        starts = self._offsets.starts([journal_of(place) for place in places])
        found: dict[Place, Kept] = {}

        def take(place: Place, record: Entry) -> None:
            if isinstance(record, Copy):
                copy = record.low, self._copied(place, record)
                if is_later(copy, found.get(place)):
                    found[place] = copy

        yield from self._read({p: starts[journal_of(p)] for p in places}, take, committed=committed)
        return found

    def _copied(self, place: Place, copy: Copy) -> Checkpoint:
        try:
            return decode_checkpoint(copy.checkpoint)
        except CheckpointError as error:
            raise UsageError(f"a copy of a checkpoint in {place[0]}{JOURNAL}: {error}") from error

    def _read_journals(
        self, recoveries: Mapping[Place, Recovery], known: Mapping[Place, Kept]
    ) -> ByParts[tuple[dict[Place, int], dict[Place, Kept]]]:
        """Read the journals into the recoveries.

        Args:
            recoveries: the recoveries.
            known: the checkpoints from which they begin, as they were found.

        Returns:
            The journals' ends; and the last copy of each checkpoint that is older than that copy.
        """
        journal_ends = self._offsets.ends([journal_of(place) for place in recoveries], committed=False)
        begin = {place: one.checkpoint.reads_from for place, one in recoveries.items()}
        last: dict[Place, Kept] = {}

        def take(place: Place, record: Entry) -> None:
            recoveries[place].journal.take(record)
            if isinstance(record, Copy):
                self._keep_last(last, place, record)

        try:
            yield from self._read(begin, take, committed=False)
        except _JournalCutError as cut:
            # What the journal still holds may have a later copy, and then these recoveries are not used.
            place = place_of(cut.journal)
            later = yield from self._later_copies({place: known[place]})
            if not later:
                raise
            return journal_ends, later
        return journal_ends, {place: copy for place, copy in last.items() if replaces(copy, known[place])}

    def _later_copies(self, known: Mapping[Place, Kept]) -> ByParts[dict[Place, Kept]]:
        """Read all that journals hold, and return the last copies of those that are of a later checkpoint."""
        starts = self._offsets.starts([journal_of(place) for place in known])
        last: dict[Place, Kept] = {}

        def take(place: Place, record: Entry) -> None:
            if isinstance(record, Copy):
                self._keep_last(last, place, record)

        yield from self._read({place: starts[journal_of(place)] for place in known}, take, committed=False)
        return {place: copy for place, copy in last.items() if replaces(copy, known[place])}

    def _keep_last(self, last: dict[Place, Kept], place: Place, copy: Copy) -> None:
        """Keep the last copy that can be used: of this version, and of these topics."""
        try:
            found = copy.low, decode_checkpoint(copy.checkpoint)
        except CheckpointError:
            return
        is_ours = another_origin(place, found[1].origin, self._present_origins[place[0]]) is None
        if is_ours and is_later(found, last.get(place)):
            last[place] = found

    def _read(
        self, starts: Mapping[Place, int], take: Callable[[Place, Entry], None], *, committed: bool
    ) -> ByParts[None]:
        """Read journals, each from an offset to its present end: the last stable offset, or the high watermark."""
        begin = self._readable({journal_of(place): at for place, at in starts.items()}, committed=committed)
        ends = self._offsets.ends(begin, committed=committed) if begin else {}
        for part in read_in_parts(self._journal, begin, ends, PART_MOST, PART_WAIT_S):
            for journal, record in part:
                take(place_of(journal), self._decoded(journal, record.offset() or 0, record.value()))
            yield

    def _readable(self, begin: Mapping[Place, int], *, committed: bool) -> dict[Place, int]:
        """Return the journals that hold records at or after the offset where the recovery begins to read."""
        ends = self._offsets.ends(begin, committed=committed)
        firsts = self._offsets.starts(begin)
        too_short: dict[Place, str | None] = {}
        for journal, at in begin.items():
            if refusal := journal_cut(journal, firsts[journal], ends[journal], at):
                if at <= ends[journal]:
                    raise _JournalCutError(refusal, journal)
                too_short[place_of(journal)] = refusal
        self._shortfalls.check(too_short)
        return {journal: at for journal, at in begin.items() if at < ends[journal]}

    def _decoded(self, journal: Place, offset: int, value: bytes | None) -> Entry:
        try:
            return decode_entry(value)
        except ValueError as error:
            raise UsageError(f"{journal[0]}/{journal[1]} at offset {offset}: {error}") from error
