"""What a partition has in its overflow wheel: what is closed and not done, slot by slot.

Kafka holds the messages, `Levels` says where each belongs; this says how far each slot is done. A slot goes round:

    open      messages are filed to it
    closed    read from where it was done last to the end that it had when it was closed, each record placed anew
    drained   level 1: all of it is in memory; above: all of it lies one level lower, committed
    done      each record has fired, is dead, or lies in another slot, committed
    emptied   its records are deleted up to that end

A slot of level 1 is drained long before it is done, and may come round again meanwhile, where a target is away for
longer than the ring lasts: then the two turns are one stretch, with the first one's begin and the second one's end.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from tarry.core.checkpoint import Checkpoint, Draining, Emptying
from tarry.core.done_set import DoneSet
from tarry.core.ledger import Ledger
from tarry.core.levels import Bucket, Levels
from tarry.core.message import HeldMessage
from tarry.core.passes import Key, Passes
from tarry.core.source import Source

MOST_ENTRIES = 80
"""Slots that a checkpoint has room for; with more that are not done or not emptied, no more are closed."""

LEAST_OF_A_PASS = 10
"""Messages, where memory is full of others: it goes on, if slowly."""

_NOTHING = DoneSet((), 0)


@dataclass(frozen=True, slots=True)
class Buckets:
    """What a take-over found in a partition's slots.

    Attributes:
        spans: for each slot the first offset that its log holds, and its end.
        done: what the journal says is done of each.
        journal_end: the journal's end when the take-over began.
    """

    spans: Mapping[Source, tuple[int, int]] = field(default_factory=dict)
    done: Mapping[Source, DoneSet] = field(default_factory=dict)
    journal_end: int = 0


class _Slot:
    """A stretch of a slot that is closed and not done."""

    __slots__ = ("bucket", "done", "end", "floor_ms", "is_begun", "ledger", "passes", "pointer")

    def __init__(self, bucket: Bucket, begin: int, end: int, pointer: int, done: DoneSet) -> None:
        self.bucket = bucket
        self.end = end
        self.pointer = pointer
        self.done = done
        self.floor_ms = 0
        """Nothing that is due before it was filed to this turn."""
        self.ledger = Ledger(begin)
        self.is_begun = False
        self.passes: Passes | None = None

    @property
    def is_read(self) -> bool:
        return self.ledger.position >= self.end and self.passes is None

    @property
    def gate(self) -> Key:
        return (self.bucket.start_ms, -1) if self.passes is None else self.passes.gate

    @property
    def is_done(self) -> bool:
        return self.is_read and self.ledger.low >= self.end


class Overflow:
    """The overflow wheel of one partition.

    Args:
        checkpoint: of the take-over.
        buckets: what it found beside.
    """

    def __init__(self, checkpoint: Checkpoint, buckets: Buckets) -> None:
        self._slots: dict[Source, _Slot] = {}
        self._emptying = {Source(one.level, one.slot): one.end for one in checkpoint.emptying}
        self._noted = dict(self._emptying)
        self._journal_end = buckets.journal_end
        self._found_done = buckets.done
        self._begins: dict[Source, int] = {}
        self._filled: set[Source] = set()
        for source, (start, end) in buckets.spans.items():
            self._begins[source] = max(start, self._emptying.get(source, 0))
            if end > self._begins[source]:
                self._filled.add(source)
        self.levels = Levels(checkpoint.geometry, checkpoint.closed_ms)
        recovered = []
        for entry in checkpoint.draining:
            source = Source(entry.level, entry.slot)
            bucket = self.levels.last_turn(*source)
            # A copy of a checkpoint may be older than what has been emptied since.
            begin = max(entry.done_below, self._begins.get(source, 0))
            if begin > entry.end:
                continue
            slot = self._slots[source] = self._new_slot(source, bucket, begin, entry.end, entry.pointer)
            slot.floor_ms = bucket.start_ms - entry.turns * self._ring_ms(bucket)
            if buckets.spans.get(source, (0, 0))[1] <= entry.end:
                self._filled.discard(source)
            recovered.append(bucket)
        self.levels = Levels(checkpoint.geometry, checkpoint.closed_ms, recovered)
        self._recovering = {source for source in self._slots if source.level == 1}
        for source in list(self._slots):
            self._look_at(source)

    @property
    def is_recovering(self) -> bool:
        """Whether something of level 1 that a take-over found closed is not read yet: it may all be overdue."""
        return bool(self._recovering)

    @property
    def pointer(self) -> int | None:
        """Where a recovery of what is closed must begin to read the journal."""
        return min((slot.pointer for slot in self._slots.values()), default=None)

    def note_journal_end(self, end: int) -> None:
        """Note an end of the journal that was asked for earlier: the pointer of what is closed from now on."""
        self._journal_end = max(self._journal_end, end)

    def waiting(self, ends: Mapping[Source, int]) -> dict[int, int]:
        """How many messages wait at each level, at most: markers of transactions are among them.

        Args:
            ends: the high watermarks of slots.
        """
        counts: dict[int, int] = {}
        for source, end in ends.items():
            slot = self._slots.get(source)
            begin = self._begins.get(source, 0) if slot is None else slot.ledger.low
            counts[source.level] = counts.get(source.level, 0) + max(0, end - begin)
        return counts

    # -- filing -----------------------------------------------------------------------------------------------------

    def slot_for(self, due_ms: int) -> Source:
        """The slot that a message goes to which is not hot."""
        bucket = self.levels.place(due_ms)
        if bucket is None:
            raise ValueError(f"what is due at {due_ms} is hot")
        return self._source_of(bucket)

    def fill(self, source: Source) -> None:
        """Take note that a slot is filed to: it is to be asked for its end when it is closed."""
        self._filled.add(source)

    def _source_of(self, bucket: Bucket) -> Source:
        return Source(bucket.level, self.levels.slot(bucket))

    # -- closing ----------------------------------------------------------------------------------------------------

    def to_ask(self, now_ms: int) -> list[Source]:
        """The slots whose ends are to be known before more can be closed; none where nothing is to be closed."""
        bucket = None if self._is_full else self.levels.next_to_close(now_ms)
        return [] if bucket is None or self._source_of(bucket) not in self._filled else sorted(self._filled)

    @property
    def _is_full(self) -> bool:
        return len(self._slots) + len(self._emptying) >= MOST_ENTRIES

    @property
    def _coming(self) -> int:
        """How many messages closed slots of level 1 will still bring into memory."""
        hot = (slot for slot in self._slots.values() if slot.bucket.level == 1 and slot.passes is None)
        return sum(max(0, slot.end - slot.ledger.position) for slot in hot)

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
            if source not in self._filled:
                self.levels.close(bucket)
                self.levels.drained(bucket)
            elif source in ends:
                room -= self._unread_below(source, ends[source]) if source.level == 1 else 0
                if room < 0 and source.level == 1 and any(one.level == 1 for one in self.levels.draining):
                    break
                self._close(source, bucket, ends[source])
            else:
                break
            some = True
        return some

    def _unread_below(self, source: Source, end: int) -> int:
        slot = self._slots.get(source)
        return end - (self._begins.get(source, 0) if slot is None else slot.ledger.position)

    def _new_slot(self, source: Source, bucket: Bucket, begin: int, end: int, pointer: int) -> _Slot:
        # After a recovery from an old copy, a slot that it holds for open may have been drained in part.
        return _Slot(bucket, begin, end, pointer, self._found_done.get(source, _NOTHING))

    def _close(self, source: Source, bucket: Bucket, end: int) -> None:
        self._filled.discard(source)
        self.levels.close(bucket)
        slot = self._slots.get(source)
        if slot is None:
            slot = self._new_slot(source, bucket, self._begins.get(source, 0), end, self._journal_end)
            slot.floor_ms = bucket.start_ms
            self._slots[source] = slot
        else:
            slot.bucket, slot.end = bucket, max(slot.end, end)
            slot.is_begun = False
        self._look_at(source)

    # -- draining ---------------------------------------------------------------------------------------------------

    @property
    def gate(self) -> Key:
        """What stands at it or behind it, by due time and offset in the intake, must not fire yet."""
        gate = (self.levels.hot_below_ms, -1)
        for slot in self._slots.values():
            if slot.bucket.level == 1 and not slot.is_read:
                gate = min(gate, slot.gate)
        return gate

    def unread(self, room: int, typical_bytes: int) -> Iterator[tuple[Source, int, int]]:
        """The slots that are to be read: where from, and to which end.

        Args:
            room: how many messages memory has room for: a slot of level 1 that holds more is read in passes.
            typical_bytes: of a message.
        """
        for source, slot in self._slots.items():
            if slot.passes is not None:
                if slot.passes.is_scanning:
                    yield source, slot.ledger.low, slot.end
            elif not slot.is_read:
                room -= slot.end - slot.ledger.position if slot.is_begun and source.level == 1 else 0
                if source.level == 1 and not slot.is_begun and slot.end - slot.ledger.position > room:
                    # What a recovery found may be of an earlier turn too.
                    start_ms = 0 if source in self._recovering else slot.bucket.start_ms
                    slot.passes = Passes(start_ms, max(room, LEAST_OF_A_PASS) * typical_bytes)
                slot.is_begun = True
                yield source, slot.ledger.position, slot.end

    def begin_passes(self, room: int, typical_bytes: int) -> None:
        """All that passes have handed out has fired, or is parked: begin the next ones."""
        for slot in self._slots.values():
            if slot.passes is not None and not slot.passes.is_scanning:
                slot.passes.begin(max(room, LEAST_OF_A_PASS) * typical_bytes)

    def window_ms(self, source: Source) -> tuple[int, int]:
        """The time that a closed slot covers."""
        bucket = self._slots[source].bucket
        return bucket.start_ms, self.levels.end_ms(bucket)

    def read(self, source: Source, offset: int) -> bool:
        """Take note of a record that was read; whether it is new, within the stretch, and not done."""
        slot = self._slots.get(source)
        if slot is None or offset >= slot.end:
            return False
        if offset < slot.ledger.position:
            return slot.passes is not None and not slot.ledger.is_done(offset)
        if offset in slot.done:
            slot.ledger.reach(offset + 1)
            return False
        slot.ledger.read(offset)
        return True

    def passes_of(self, source: Source) -> Passes | None:
        """The passes over a slot that is too large for memory."""
        slot = self._slots.get(source)
        return slot.passes if slot else None

    def is_of_an_earlier_turn(self, source: Source, due_ms: int) -> bool:
        """Whether a message in a slot is due before its turn began: then it was done, and deleted.

        A broker notes the start of a log on disk once a minute: after kill -9 it has again what was deleted since.
        """
        return due_ms < self._slots[source].floor_ms

    def is_new(self, source: Source, offset: int) -> bool:
        """Whether a record of a slot has not been read before."""
        slot = self._slots.get(source)
        return slot is not None and slot.ledger.position <= offset

    def reach(self, source: Source, position: int) -> list[HeldMessage]:
        """Take note of the reader's position, and of the end when it is reached.

        Returns:
            What a pass that ends with it hands out.
        """
        slot = self._slots.get(source)
        if slot is None:
            return []
        slot.ledger.reach(min(position, slot.end))
        messages: list[HeldMessage] = []
        if slot.passes is not None and position >= slot.end:
            messages, is_last = slot.passes.end()
            self._recovering.discard(source)
            if is_last:
                slot.passes = None
        self._look_at(source)
        return messages

    # -- what is done -----------------------------------------------------------------------------------------------

    def mark(self, source: Source, offsets: Sequence[int]) -> None:
        """Count offsets as done, tentatively."""
        self._slots[source].ledger.mark(offsets)

    def unmark(self, source: Source, offsets: Sequence[int]) -> None:
        """Take marks back."""
        self._slots[source].ledger.unmark(offsets)

    def trim(self) -> None:
        """The marks are committed: what is done is to be emptied."""
        for source in list(self._slots):
            self._slots[source].ledger.trim()
            self._look_at(source)

    def _look_at(self, source: Source) -> None:
        slot = self._slots[source]
        if slot.is_read:
            self._recovering.discard(source)
        is_drained = slot.is_done if source.level > 1 else slot.is_read
        if is_drained and slot.bucket in self.levels.draining:
            self.levels.drained(slot.bucket)
        if slot.is_done:
            del self._slots[source]
            self._begins[source] = max(slot.end, self._begins.get(source, 0))
            self._emptying[source] = slot.end

    # -- emptying ---------------------------------------------------------------------------------------------------

    def noted(self) -> Callable[[], None]:
        """What is to be called once a checkpoint of now is committed."""
        emptying = dict(self._emptying)

        def confirm() -> None:
            self._noted = emptying

        return confirm

    @property
    def is_unnoted(self) -> bool:
        """Whether something is done, and may be emptied once a checkpoint says so."""
        return any(self._noted.get(source) != end for source, end in self._emptying.items())

    def to_empty(self) -> dict[Source, int]:
        """Slots to be emptied, and up to where: the last committed checkpoint does not need them any more."""
        return {source: end for source, end in self._emptying.items() if self._noted.get(source) == end}

    def emptied(self, source: Source, end: int) -> None:
        """A slot was emptied up to an offset."""
        if self._emptying.get(source) == end:
            del self._emptying[source]

    # -- the checkpoint ---------------------------------------------------------------------------------------------

    def entries(self) -> tuple[tuple[Draining, ...], tuple[Emptying, ...]]:
        """What a checkpoint says of the slots."""
        draining = tuple(
            Draining(*source, slot.ledger.low, slot.end, slot.pointer, self._turns(source, slot))
            for source, slot in self._slots.items()
        )
        return draining, tuple(Emptying(*source, end) for source, end in self._emptying.items())

    def _turns(self, source: Source, slot: _Slot) -> int:
        """How many turns before the last one for which a slot was closed it began, which may have been empty."""
        bucket = self.levels.last_turn(*source)
        return (bucket.start_ms - slot.floor_ms) // self._ring_ms(bucket)

    def _ring_ms(self, bucket: Bucket) -> int:
        return self.levels.slots * (self.levels.end_ms(bucket) - bucket.start_ms)
