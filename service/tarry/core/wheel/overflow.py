"""The overflow wheel of one partition, slot by slot.

Kafka holds the messages, `Levels` decides where each belongs, and `OverflowWheel` tracks how far each slot is done. The
states of a slot, which repeat with each turn of the ring:

    open      messages are filed to it (`OpenSlots`)
    closed    it is read, from the offset below which it was done to the end at the time of closing, and each record is
              placed again (`ClosedSlot`)
    drained   level 1: all records are in memory; above: all are committed one level lower, except dead letters that
              were refused
    done      each record has fired, is a dead letter, or is in another slot, committed (`DoneSlots`)
    emptied   its records are deleted up to that end
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence

from tarry.core.message import HeldMessage, OrderKey
from tarry.core.progress.checkpoint import Checkpoint, DrainingSlot, EmptyingSlot
from tarry.core.progress.done_set import DoneSet
from tarry.core.progress.journal import Range
from tarry.core.progress.recovered import Buckets
from tarry.core.progress.source import Source
from tarry.core.wheel.closed_slot import ClosedSlot
from tarry.core.wheel.done_slots import DoneSlots
from tarry.core.wheel.levels import Bucket, Levels
from tarry.core.wheel.open_slots import OpenSlots
from tarry.core.wheel.passes import Passes

MOST_ENTRIES = 80
"""The most slots that a checkpoint has room for. With that many closed or not emptied, no more slots are closed."""

LEAST_OF_A_PASS = 10
"""The least number of typical messages that a pass has room for, so that it progresses even if memory is full."""

SLACK = 2
"""A slot's first pass gets up to this many times the memory that its messages are estimated to take.

A recovery does not know how large the messages are. With this reserve, one pass is usually enough.
"""

_NOTHING = DoneSet((), 0)


class OverflowWheel:
    """The overflow wheel of one partition.

    Args:
        checkpoint: the checkpoint of the take-over.
        buckets: what the take-over found in slots and journal.
    """

    def __init__(self, checkpoint: Checkpoint, buckets: Buckets) -> None:
        self.done = DoneSlots(checkpoint.emptying)
        """The slots that are done and to be emptied."""
        self.in_buckets: dict[int, int] = {}
        """How many messages waited at each level at the last count, at most: markers are counted too."""
        self._geometry = checkpoint.geometry
        self._open = OpenSlots(buckets.spans, self.done.ends)
        self._closed: dict[Source, ClosedSlot] = {}
        self._found_done = buckets.done
        self._found_from = checkpoint.reads_from
        """The journal offset from which the recovery read."""
        self._journal_end = buckets.journal_end
        self.levels = Levels(checkpoint.geometry, checkpoint.closed_ms)
        recovered = list(self._recover(checkpoint.draining, buckets.spans))
        self.levels = Levels(checkpoint.geometry, checkpoint.closed_ms, recovered)
        # Slots that the checkpoint lists as open, although the journal, which is newer, says that records are done.
        self._found_open = {
            source
            for source, done in self._found_done.items()
            if source not in self._closed and done.end > self._open.begin_of(source)
        }
        self._recovering = {source for source in self._closed if source.level == 1}
        for source in list(self._closed):
            self._advance(source)

    def _recover(self, entries: Iterable[DrainingSlot], spans: Mapping[Source, tuple[int, int]]) -> Iterator[Bucket]:
        """Restore the slots that a checkpoint lists as closed; yield their buckets."""
        for entry in entries:
            source = Source(entry.level, entry.slot)
            bucket = self.levels.last_turn(*source)
            # A copy of a checkpoint may be old: the slot may have been emptied since.
            begin = max(entry.done_below, self._open.begin_of(source))
            if begin > entry.end:
                continue
            floor_ms = bucket.start_ms - entry.turns * self._ring_ms(bucket)
            self._closed[source] = self._new_slot(source, bucket, begin, entry.end, entry.pointer, floor_ms)
            if spans.get(source, (0, 0))[1] <= entry.end:
                self._open.close(source)
            yield bucket

    @property
    def is_recovering(self) -> bool:
        """Whether a slot of level 1 that a take-over found closed is not read yet: its messages may be overdue."""
        return bool(self._recovering)

    @property
    def can_be_left(self) -> bool:
        """Whether the reading of closed slots may be interrupted here and continued later: not within a pass."""
        return not any(slot.passes is not None and slot.passes.is_scanning for slot in self._closed.values())

    @property
    def slots(self) -> int:
        """The number of slots of each level; 0 if there is no overflow wheel."""
        return self.levels.slots if self._geometry.levels else 0

    @property
    def sources(self) -> list[Source]:
        """All slots."""
        return [Source(level, slot) for level in range(1, self._geometry.levels + 1) for slot in range(self.slots)]

    def note_ends(self, ends: Mapping[Source, int]) -> None:
        """Compute `in_buckets` from the high watermarks of slots; transaction markers are counted, too."""
        counts: dict[int, int] = {}
        for source, end in ends.items():
            slot = self._closed.get(source)
            begin = self._open.begin_of(source) if slot is None else slot.ledger.low
            counts[source.level] = counts.get(source.level, 0) + max(0, end - begin)
        self.in_buckets = counts

    # -- filing -----------------------------------------------------------------------------------------------------

    def slot_for(self, due_ms: int) -> Source:
        """Return the slot that a message goes to.

        Raises:
            ValueError: the message is hot.
        """
        bucket = self.levels.bucket_for(due_ms)
        if bucket is None:
            raise ValueError(f"a message due at {due_ms} is hot and has no slot")
        return self._source_of(bucket)

    def fill(self, source: Source) -> None:
        """Note that messages are filed to a slot: its end must be known to close it."""
        self._open.fill(source)

    def _source_of(self, bucket: Bucket) -> Source:
        return Source(bucket.level, self.levels.slot(bucket))

    # -- closing ----------------------------------------------------------------------------------------------------

    def to_ask(self, now_ms: int) -> list[Source]:
        """Return the slots whose ends are needed to close the next bucket; empty if none is needed."""
        bucket = None if self._is_full else self.levels.next_to_close(now_ms)
        return self._open.filled if bucket is not None and self._open.holds_any(self._source_of(bucket)) else []

    @property
    def _is_full(self) -> bool:
        return len(self._closed) + len(self.done) >= MOST_ENTRIES

    @property
    def _incoming(self) -> int:
        """The number of messages that closed slots of level 1 will still bring into memory."""
        hot = [slot for slot in self._closed.values() if slot.bucket.level == 1 and slot.passes is None]
        return sum(max(0, slot.unread) for slot in hot)

    @property
    def _is_behind_passes(self) -> bool:
        """Whether a slot is larger than memory: closing another one would take the room of its passes."""
        return any(slot.passes is not None and slot.passes.is_oversized for slot in self._closed.values())

    @property
    def _drains_level_1(self) -> bool:
        return any(one.level == 1 for one in self.levels.draining)

    def close(self, ends: Mapping[Source, int], room: int, now_ms: int) -> bool:
        """Close the buckets whose time has come and whose ends are known; the others are closed later.

        Args:
            ends: the high watermarks of slots; no message is being filed to them.
            room: the number of messages of level 1 that memory has room for; one bucket may hold more.
            now_ms: wall time.

        Returns:
            Whether a bucket was closed. The checkpoint must then be committed before messages are filed by the new
            bounds.
        """
        some = False
        room -= self._incoming
        while not self._is_full and (bucket := self.levels.next_to_close(now_ms)) is not None:
            source = self._source_of(bucket)
            if not self._open.holds_any(source):
                self.levels.close(bucket)
                self.levels.drained(bucket)
            elif source in ends:
                room -= self._unread_below(source, ends[source]) if source.level == 1 else 0
                if source.level == 1 and (self._is_behind_passes or (room < 0 and self._drains_level_1)):
                    break
                self._close(source, bucket, ends[source])
            else:
                break
            some = True
        return some

    def _unread_below(self, source: Source, end: int) -> int:
        slot = self._closed.get(source)
        return end - (self._open.begin_of(source) if slot is None else slot.ledger.position)

    def _close(self, source: Source, bucket: Bucket, end: int) -> None:
        self._open.close(source)
        self.levels.close(bucket)
        slot = self._closed.get(source)
        if slot is None:
            begin = self._open.begin_of(source)
            pointer = self._found_from if source in self._found_open else self._journal_end
            self._found_open.discard(source)
            self._closed[source] = self._new_slot(source, bucket, begin, end, pointer, bucket.start_ms)
        else:
            slot.close_again(bucket, end)
        self._advance(source)

    def _new_slot(
        self, source: Source, bucket: Bucket, begin: int, end: int, pointer: int, floor_ms: int
    ) -> ClosedSlot:
        # After a recovery from an old copy, a slot that the copy lists as open may have been drained in part.
        return ClosedSlot(bucket, begin, end, pointer, floor_ms, self._found_done.get(source, _NOTHING))

    # -- draining ---------------------------------------------------------------------------------------------------

    @property
    def gate(self) -> OrderKey:
        """The key, by due time and offset in the intake, from which on no message may fire yet."""
        gate = (self.levels.hot_below_ms, -1)
        for slot in self._closed.values():
            if slot.bucket.level == 1 and not slot.is_read:
                gate = min(gate, slot.gate)
        return gate

    def closed(self, source: Source) -> ClosedSlot | None:
        """Return a slot that is closed and not done; None for any other slot."""
        return self._closed.get(source)

    def unread(self, room_bytes: int, typical_bytes: int) -> Iterator[tuple[Source, int, int]]:
        """Yield the slots to read, each with its first offset and its end.

        Args:
            room_bytes: free memory. A slot of level 1 that probably holds more is read in passes.
            typical_bytes: the average size of a message.
        """
        room = room_bytes // typical_bytes
        for source, slot in self._closed.items():
            if slot.passes is not None:
                if slot.passes.is_scanning:
                    yield source, slot.ledger.low, slot.end
            elif not slot.is_read:
                room -= slot.unread if slot.is_begun and source.level == 1 else 0
                is_found = source in self._recovering
                # A recovery does not know how large messages are: any slot that it found may exceed the memory.
                if source.level == 1 and not slot.is_begun and (is_found or slot.unread > room):
                    # A slot that a recovery found may hold messages of an earlier turn, too.
                    start_ms = slot.floor_ms if is_found else slot.bucket.start_ms
                    some = max(min(room, slot.unread * SLACK), LEAST_OF_A_PASS)
                    slot.passes = Passes(start_ms, some * typical_bytes)
                    room -= some
                slot.is_begun = True
                yield source, slot.ledger.position, slot.end

    @property
    def reserved_bytes(self) -> int:
        """The memory that the current passes may still take."""
        return sum(slot.passes.room_bytes for slot in self._closed.values() if slot.passes is not None)

    def begin_pass(self, limit_bytes: int) -> None:
        """Begin the next pass over the slot at the gate. Call this when all before the gate has fired or is parked."""
        unread = [slot for slot in self._closed.values() if slot.bucket.level == 1 and not slot.is_read]
        first = min(unread, key=lambda slot: slot.gate, default=None)
        if first is not None and first.passes is not None and not first.passes.is_scanning:
            first.begin_pass(limit_bytes)

    def window_ms(self, source: Source) -> tuple[int, int]:
        """Return the time range of a closed slot: start and end."""
        bucket = self._closed[source].bucket
        return bucket.start_ms, self.levels.end_ms(bucket)

    def reach(self, source: Source, position: int) -> list[HeldMessage]:
        """Note the reader's position in a closed slot, and whether its end is reached.

        Returns:
            The messages of a pass, if it ends at this position.
        """
        slot = self._closed.get(source)
        if slot is None:
            return []
        messages = slot.reach(position)
        if position >= slot.end:
            self._recovering.discard(source)
        self._advance(source)
        return messages

    # -- done offsets -----------------------------------------------------------------------------------------------

    def mark(self, source: Source, offsets: Sequence[int]) -> None:
        """Mark offsets as done, tentatively."""
        self._closed[source].ledger.mark(offsets)

    def unmark(self, source: Source, offsets: Sequence[int]) -> None:
        """Remove marks: their transaction aborted."""
        self._closed[source].ledger.unmark(offsets)

    def stay(self, source: Source, offset: int) -> None:
        """Note that a record is not moved down: it stays until it is done, and closing below does not wait for it."""
        slot = self._closed.get(source)
        if slot is not None and source.level > 1:
            slot.staying.add(offset)
            self._advance(source)

    def trim(self) -> None:
        """Make the marks final, because they are committed; slots that are done are to be emptied."""
        for source in list(self._closed):
            self._closed[source].trim()
            self._advance(source)

    def _advance(self, source: Source) -> None:
        slot = self._closed[source]
        if slot.is_read:
            self._recovering.discard(source)
        if slot.bucket in self.levels.draining and (slot.is_moved if source.level > 1 else slot.is_read):
            self.levels.drained(slot.bucket)
        if slot.is_done:
            del self._closed[source]
            self._open.done(source, slot.end)
            self.done.add(source, slot.end)

    # -- the checkpoint ---------------------------------------------------------------------------------------------

    @property
    def pointer(self) -> int | None:
        """The journal offset from which a recovery of the slots must read; None if it needs nothing of the journal."""
        pointers = [slot.pointer for slot in self._closed.values()]
        return min([*pointers, self._found_from] if self._found_open else pointers, default=None)

    def note_journal_end(self, end: int) -> None:
        """Note an end of the journal that was requested earlier, for the pointers of slots closed now or later."""
        self._journal_end = max(self._journal_end, end)
        for slot in self._closed.values():
            slot.note_journal_end(self._journal_end)

    def done_ranges(self) -> dict[Source, Iterable[Range]]:
        """Return the offsets done above the low watermark, for each slot of which a recovery reads the journal."""
        ranges: dict[Source, Iterable[Range]] = {
            source: self._found_done[source].ranges() for source in self._found_open
        }
        for source, slot in self._closed.items():
            ranges[source] = slot.done_ranges()
        return ranges

    def sum_up(self, journal_end: int) -> None:
        """Advance the pointers: `done_ranges` was written again, at or after this end of the journal."""
        self._found_from = max(self._found_from, journal_end)
        for slot in self._closed.values():
            slot.sum_up(journal_end)

    def entries(self) -> tuple[tuple[DrainingSlot, ...], tuple[EmptyingSlot, ...]]:
        """Return the entries for a checkpoint."""
        draining = tuple(
            DrainingSlot(*source, slot.ledger.low, slot.end, slot.pointer, self._turns(source, slot))
            for source, slot in self._closed.items()
        )
        return draining, self.done.entries()

    def _turns(self, source: Source, slot: ClosedSlot) -> int:
        """Return how many turns ago the slot's range began, counted from the turn for which it was closed last.

        Turns between the two may have been empty.
        """
        bucket = self.levels.last_turn(*source)
        return (bucket.start_ms - slot.floor_ms) // self._ring_ms(bucket)

    def _ring_ms(self, bucket: Bucket) -> int:
        return self.levels.slots * (self.levels.end_ms(bucket) - bucket.start_ms)
