"""What a partition has in its overflow wheel, slot by slot.

Kafka holds the messages, `Levels` says where each belongs; this says how far each slot is done. A slot goes round:

    open      messages are filed to it (`OpenSlots`)
    closed    read from where it was done last to the end that it had when it was closed, each record placed anew
              (`ClosedSlot`)
    drained   level 1: all of it is in memory; above: all of it lies one level lower, committed, but for what stays
    done      each record has fired, is dead, or lies in another slot, committed (`DoneSlots`)
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
"""Slots that a checkpoint has room for; with more that are not done or not emptied, no more are closed."""

LEAST_OF_A_PASS = 10
"""Messages, where memory is full of others: it goes on, if slowly."""

SLACK = 2
"""How much larger than what is known of them the messages of a recovered slot may be, for one pass to take them all."""

_NOTHING = DoneSet((), 0)


class Overflow:
    """The overflow wheel of one partition.

    Args:
        checkpoint: of the take-over.
        buckets: what it found beside.
    """

    def __init__(self, checkpoint: Checkpoint, buckets: Buckets) -> None:
        self.done = DoneSlots(checkpoint.emptying)
        """The slots that are to be emptied."""
        self.in_buckets: dict[int, int] = {}
        """How many messages waited at each level when that was looked at last, at most."""
        self._geometry = checkpoint.geometry
        self._open = OpenSlots(buckets.spans, self.done.ends)
        self._closed: dict[Source, ClosedSlot] = {}
        self._found_done = buckets.done
        self._found_from = checkpoint.reads_from
        """Where the recovery began to read the journal."""
        self._journal_end = buckets.journal_end
        self.levels = Levels(checkpoint.geometry, checkpoint.closed_ms)
        recovered = list(self._recover(checkpoint.draining, buckets.spans))
        self.levels = Levels(checkpoint.geometry, checkpoint.closed_ms, recovered)
        # Open by a checkpoint that is older than what the journal says of them.
        self._found_open = {
            source
            for source, done in self._found_done.items()
            if source not in self._closed and done.end > self._open.begin_of(source)
        }
        self._recovering = {source for source in self._closed if source.level == 1}
        for source in list(self._closed):
            self._look_at(source)

    def _recover(self, entries: Iterable[DrainingSlot], spans: Mapping[Source, tuple[int, int]]) -> Iterator[Bucket]:
        """Take in what a checkpoint says is closed; the buckets of it."""
        for entry in entries:
            source = Source(entry.level, entry.slot)
            bucket = self.levels.last_turn(*source)
            # A copy of a checkpoint may be older than what has been emptied since.
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
        """Whether something of level 1 that a take-over found closed is not read yet: it may all be overdue."""
        return bool(self._recovering)

    @property
    def can_be_left(self) -> bool:
        """Whether reading of what is closed may stop here, and go on later: not in the middle of a pass."""
        return not any(slot.passes is not None and slot.passes.is_scanning for slot in self._closed.values())

    @property
    def slots(self) -> int:
        """How many slots each level has; 0 where there is no overflow wheel."""
        return self.levels.slots if self._geometry.levels else 0

    @property
    def sources(self) -> list[Source]:
        """All slots."""
        return [Source(level, slot) for level in range(1, self._geometry.levels + 1) for slot in range(self.slots)]

    def note_ends(self, ends: Mapping[Source, int]) -> None:
        """Note the high watermarks of slots, for `in_buckets`: markers of transactions are counted, too."""
        counts: dict[int, int] = {}
        for source, end in ends.items():
            slot = self._closed.get(source)
            begin = self._open.begin_of(source) if slot is None else slot.ledger.low
            counts[source.level] = counts.get(source.level, 0) + max(0, end - begin)
        self.in_buckets = counts

    # -- filing -----------------------------------------------------------------------------------------------------

    def slot_for(self, due_ms: int) -> Source:
        """The slot that a message goes to which is not hot."""
        bucket = self.levels.bucket_for(due_ms)
        if bucket is None:
            raise ValueError(f"what is due at {due_ms} is hot")
        return self._source_of(bucket)

    def fill(self, source: Source) -> None:
        """Take note that a slot is filed to: it is to be asked for its end when it is closed."""
        self._open.fill(source)

    def _source_of(self, bucket: Bucket) -> Source:
        return Source(bucket.level, self.levels.slot(bucket))

    # -- closing ----------------------------------------------------------------------------------------------------

    def to_ask(self, now_ms: int) -> list[Source]:
        """The slots whose ends are to be known before more can be closed; none where nothing is to be closed."""
        bucket = None if self._is_full else self.levels.next_to_close(now_ms)
        return self._open.filled if bucket is not None and self._open.holds_any(self._source_of(bucket)) else []

    @property
    def _is_full(self) -> bool:
        return len(self._closed) + len(self.done) >= MOST_ENTRIES

    @property
    def _coming(self) -> int:
        """How many messages closed slots of level 1 will still bring into memory."""
        hot = (slot for slot in self._closed.values() if slot.bucket.level == 1 and slot.passes is None)
        return sum(max(0, slot.unread) for slot in hot)

    @property
    def _is_behind_passes(self) -> bool:
        """Whether a slot is larger than memory: what is closed behind it would take the room of its passes."""
        return any(slot.passes is not None and slot.passes.is_oversized for slot in self._closed.values())

    @property
    def _drains_level_1(self) -> bool:
        return any(one.level == 1 for one in self.levels.draining)

    def close(self, ends: Mapping[Source, int], room: int, now_ms: int) -> bool:
        """Close the buckets whose time has come, as far as is known what lies in them; the others close later.

        Args:
            ends: the high watermarks of slots; nothing is being filed to them.
            room: how many messages of level 1 memory has room for; one bucket may hold more than that.
            now_ms: wall time.

        Returns:
            Whether any was closed: that is to be committed before anything is filed by it.
        """
        some = False
        room -= self._coming
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
        self._look_at(source)

    def _new_slot(
        self, source: Source, bucket: Bucket, begin: int, end: int, pointer: int, floor_ms: int
    ) -> ClosedSlot:
        # After a recovery from an old copy, a slot that it holds for open may have been drained in part.
        return ClosedSlot(bucket, begin, end, pointer, floor_ms, self._found_done.get(source, _NOTHING))

    # -- draining ---------------------------------------------------------------------------------------------------

    @property
    def gate(self) -> OrderKey:
        """What stands at it or behind it, by due time and offset in the intake, must not fire yet."""
        gate = (self.levels.hot_below_ms, -1)
        for slot in self._closed.values():
            if slot.bucket.level == 1 and not slot.is_read:
                gate = min(gate, slot.gate)
        return gate

    def closed(self, source: Source) -> ClosedSlot | None:
        """A slot that is closed and not done."""
        return self._closed.get(source)

    def unread(self, room_bytes: int, typical_bytes: int) -> Iterator[tuple[Source, int, int]]:
        """The slots that are to be read: where from, and to which end.

        Args:
            room_bytes: what memory has room for: a slot of level 1 that is to be expected to hold more is read in
                passes.
            typical_bytes: of a message.
        """
        room = room_bytes // typical_bytes
        for source, slot in self._closed.items():
            if slot.passes is not None:
                if slot.passes.is_scanning:
                    yield source, slot.ledger.low, slot.end
            elif not slot.is_read:
                room -= slot.unread if slot.is_begun and source.level == 1 else 0
                is_found = source in self._recovering
                # How large messages are, a recovery does not know: what it found may always take more than there is.
                if source.level == 1 and not slot.is_begun and (is_found or slot.unread > room):
                    # What a recovery found may be of an earlier turn too.
                    start_ms = slot.floor_ms if is_found else slot.bucket.start_ms
                    some = max(min(room, slot.unread * SLACK), LEAST_OF_A_PASS)
                    slot.passes = Passes(start_ms, some * typical_bytes)
                    room -= some
                slot.is_begun = True
                yield source, slot.ledger.position, slot.end

    @property
    def reserved_bytes(self) -> int:
        """What the passes that are going on may still take of the room there is."""
        return sum(slot.passes.room_bytes for slot in self._closed.values() if slot.passes is not None)

    def begin_pass(self, limit_bytes: int) -> None:
        """All that stands before the gate has fired, or is parked: begin the next pass over the slot that holds it."""
        unread = [slot for slot in self._closed.values() if slot.bucket.level == 1 and not slot.is_read]
        first = min(unread, key=lambda slot: slot.gate, default=None)
        if first is not None and first.passes is not None and not first.passes.is_scanning:
            first.begin_pass(limit_bytes)

    def window_ms(self, source: Source) -> tuple[int, int]:
        """The time that a closed slot covers."""
        bucket = self._closed[source].bucket
        return bucket.start_ms, self.levels.end_ms(bucket)

    def reach(self, source: Source, position: int) -> list[HeldMessage]:
        """Take note of the reader's position in a closed slot, and of the end when it is reached.

        Returns:
            What a pass that ends with it hands out.
        """
        slot = self._closed.get(source)
        if slot is None:
            return []
        messages = slot.reach(position)
        if position >= slot.end:
            self._recovering.discard(source)
        self._look_at(source)
        return messages

    # -- what is done -----------------------------------------------------------------------------------------------

    def mark(self, source: Source, offsets: Sequence[int]) -> None:
        """Count offsets as done, tentatively."""
        self._closed[source].ledger.mark(offsets)

    def unmark(self, source: Source, offsets: Sequence[int]) -> None:
        """Take marks back."""
        self._closed[source].ledger.unmark(offsets)

    def stay(self, source: Source, offset: int) -> None:
        """A record will not be moved down: it stays where it is until it is done, and those below need not wait."""
        slot = self._closed.get(source)
        if slot is not None and source.level > 1:
            slot.staying.add(offset)
            self._look_at(source)

    def trim(self) -> None:
        """The marks are committed: what is done is to be emptied."""
        for source in list(self._closed):
            self._closed[source].ledger.trim()
            self._look_at(source)

    def _look_at(self, source: Source) -> None:
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
        """Where a recovery of what is closed must begin to read the journal, and of what was once."""
        pointers = [slot.pointer for slot in self._closed.values()]
        return min([*pointers, self._found_from] if self._found_open else pointers, default=None)

    def note_journal_end(self, end: int) -> None:
        """Note an end of the journal that was asked for earlier: the pointer of what is closed from now on."""
        self._journal_end = max(self._journal_end, end)

    def done_ranges(self) -> dict[Source, Iterable[Range]]:
        """What is done of each slot of which a recovery would ask the journal, above its low watermark."""
        ranges: dict[Source, Iterable[Range]] = {
            source: self._found_done[source].ranges() for source in self._found_open
        }
        for source, slot in self._closed.items():
            ranges[source] = slot.done_ranges()
        return ranges

    def sum_up(self, journal_end: int) -> None:
        """That is said again, at or behind an end of the journal."""
        self._found_from = max(self._found_from, journal_end)
        for slot in self._closed.values():
            slot.pointer = max(slot.pointer, journal_end)

    def entries(self) -> tuple[tuple[DrainingSlot, ...], tuple[EmptyingSlot, ...]]:
        """What a checkpoint says of the slots."""
        draining = tuple(
            DrainingSlot(*source, slot.ledger.low, slot.end, slot.pointer, self._turns(source, slot))
            for source, slot in self._closed.items()
        )
        return draining, self.done.entries()

    def _turns(self, source: Source, slot: ClosedSlot) -> int:
        """How many turns before the last one for which a slot was closed it began, which may have been empty."""
        bucket = self.levels.last_turn(*source)
        return (bucket.start_ms - slot.floor_ms) // self._ring_ms(bucket)

    def _ring_ms(self, bucket: Bucket) -> int:
        return self.levels.slots * (self.levels.end_ms(bucket) - bucket.start_ms)
