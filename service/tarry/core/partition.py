"""The state of one intake partition, from being taken over to being given up.

Pure: records and `now_ms` go in, batches to deliver and checkpoints to commit come out. The worker's loop drives it:

    accept    a record of the intake is read: placed in the wheel, or found dead, or known to be done
    collect   time moves: what is due becomes ready, in the order of (due time, offset)
    take      a batch of what is ready, for the next transaction
    settle    what that transaction must commit with it: low watermark, checkpoint, journal record
    confirm   it committed: the batch is done
    put_back  it aborted: the batch is ready again, in front

Between `take` and `confirm` or `put_back` no other batch is taken. If a transaction's fate is unknown, the whole state
is dropped and the partition is taken over anew.

**Gate**: after a take-over nothing fires before the replay has reached the end that the intake had when it began. Then
what is overdue comes out in due order, as if there had been no crash.
"""

from collections.abc import Callable, Container, Iterable, Mapping
from dataclasses import dataclass, field, replace
from operator import attrgetter

from tarry.core.batch import Batch, Filing, Outcome, Settlement
from tarry.core.checkpoint import Checkpoint
from tarry.core.done_set import DoneSet
from tarry.core.filed import read_filed
from tarry.core.hot_window import BY_DUE, HotWindow
from tarry.core.journal import encode_copy, encode_done
from tarry.core.ledger import Ledger
from tarry.core.log_order import LogOrder
from tarry.core.matching import Matching
from tarry.core.message import OVERHEAD_BYTES, DeadMessage, FiledMessage, Headers, HeldCancel, HeldMessage
from tarry.core.overflow import Buckets, Overflow
from tarry.core.parked import Parked, Wanted
from tarry.core.pointer import JournalPointer
from tarry.core.request import CancelRequest, Rejection, Request
from tarry.core.request_reader import RequestReader
from tarry.core.source import INTAKE, Offsets, Source
from tarry.core.translated import TranslatedMessage
from tarry.headers import Outcome as Result
from tarry.timer import TimingWheel

_size_bytes = attrgetter("size_bytes")


@dataclass(frozen=True, slots=True)
class Recovered:
    """What a take-over read before the first record of the intake.

    Attributes:
        low: the committed offset, which is the low watermark.
        checkpoint: committed with it, and already in the name of this process.
        done: what the journal says is done above `low`.
        replay_end: the intake's end when the take-over began.
        buckets: what was found of its overflow wheel.
    """

    low: int
    checkpoint: Checkpoint
    done: DoneSet
    replay_end: int
    buckets: Buckets = field(default_factory=Buckets)


class PartitionState:
    """One intake partition.

    Args:
        intake: the topic.
        partition: its number.
        reader: decides what a record asks for.
        keeps_order: whether the intake has a fixed delay: no record is due before the one in front of it.
        new_wheel: makes an empty wheel that starts at a time.
        recovered: where to begin.
        now_ms: wall time.
    """

    def __init__(
        self,
        intake: str,
        partition: int,
        reader: RequestReader,
        keeps_order: bool,
        new_wheel: Callable[[int], TimingWheel],
        recovered: Recovered,
        now_ms: int,
    ) -> None:
        self.intake = intake
        self.partition = partition
        self.held_bytes = 0
        self.largest_bytes = 0
        """The most that a single message has taken so far."""
        self.in_buckets: dict[int, int] = {}
        """How many messages waited at each level of the overflow wheel when that was looked at last, at most."""
        self._counted = self._counted_bytes = 0
        self._reader = reader
        overflow = self._overflow = Overflow(recovered.checkpoint, recovered.buckets)
        self._levels = self._overflow.levels
        self._hot_below_ms = self._levels.hot_below_ms
        self._to_file: list[FiledMessage] = []
        self._hot = HotWindow(lambda: overflow.gate, new_wheel, now_ms)  # not a method of ours: that would be a cycle
        self._matching = Matching(recovered.checkpoint.geometry.width_ms)
        self._outcomes: list[Outcome] = []
        self._ledger = Ledger(recovered.low)
        self._pointer = JournalPointer(recovered.low, recovered.checkpoint.pointer, recovered.done.end)
        self._base = recovered.checkpoint
        self._done: DoneSet | None = recovered.done if len(recovered.done) else None
        # An end asked of a new leader may lag behind what was read, and delivered, before.
        self._replay_end: int | None = max(recovered.replay_end, recovered.done.end)
        self._parked = Parked()
        self._is_noted = self._overflow.noted()
        self._dead: list[DeadMessage] = []
        self._order = LogOrder(recovered.checkpoint.due_below_ms) if keeps_order else None
        self.reach(recovered.low)

    @property
    def place(self) -> tuple[str, int]:
        """The intake and the partition's number."""
        return self.intake, self.partition

    # -- reading ----------------------------------------------------------------------------------------------------

    @property
    def position(self) -> int:
        """The next offset of the intake to be read."""
        return self._ledger.position

    @property
    def replaying(self) -> bool:
        """Whether the gate is closed: the replay has not reached its end, in the intake and in level 1."""
        return self._replay_end is not None or self._overflow.is_recovering

    def accept(
        self,
        offset: int,
        timestamp_ms: int,
        key: bytes | None,
        value: bytes | None,
        headers: Headers | None,
        now_ms: int,
    ) -> None:
        """Take in a record of the intake; one below the position was read before and is passed over."""
        ledger = self._ledger
        if offset < ledger.position:
            return
        known_done = self._done is not None and offset in self._done
        if known_done and self._order is None:
            ledger.reach(offset + 1)
            return
        request = self._reader.read(self.partition, offset, timestamp_ms, headers, now_ms, is_null=value is None)
        if type(request) is Rejection:
            if known_done:
                ledger.reach(offset + 1)
                return
            ledger.read(offset)
            self._reject(offset, key, value, headers, request)
            return
        if type(request) is CancelRequest:
            ledger.read(offset)
            self._accept_cancel(request, offset, key, value, headers, now_ms)
            return
        due_ms, target, target_partition, message_id, carries, dialect = request
        if self._order is not None:
            due_ms = self._order.next(offset, due_ms)
            if known_done:
                ledger.reach(offset + 1)
                return
        ledger.read(offset)
        if due_ms < self._hot_below_ms and dialect is None:
            message = HeldMessage(due_ms, offset, key, value, headers, carries, target, target_partition, message_id)
            self._count(message)
            self._hold(message, now_ms)
        else:
            filed = (
                FiledMessage(due_ms, offset, key, value, headers, carries, target, target_partition, message_id)
                if dialect is None
                else TranslatedMessage(dialect, request, offset, key, value, headers, timestamp_ms, self.intake)
            )
            filed.source, filed.offset = INTAKE, offset
            self._count(filed)
            self._put(filed, now_ms)

    def _accept_cancel(
        self,
        request: CancelRequest,
        offset: int,
        key: bytes | None,
        value: bytes | None,
        headers: Headers | None,
        now_ms: int,
    ) -> None:
        cancel = HeldCancel(request.due_ms, offset, key, value, headers, False, "", -1, request.id)
        cancel.source, cancel.offset = INTAKE, offset
        self._count(cancel)
        self._put(cancel, now_ms)

    def _count(self, message: HeldMessage) -> None:
        size = message.size_bytes
        self.held_bytes += size
        self._counted += 1
        self._counted_bytes += size
        if size > self.largest_bytes:  # noqa: PLR1730 - max() costs a call a message
            self.largest_bytes = size

    def _put(self, message: FiledMessage, now_ms: int) -> None:
        """Hold what is due soon, and have filed what is not."""
        if message.due_ms < self._hot_below_ms:
            self._hold(message, now_ms)
        else:
            self._to_file.append(message)

    def _hold(self, message: HeldMessage, now_ms: int) -> None:
        """Take in what is due soon, unless it meets its cancel, or its message, or one like it is known."""
        matching = self._matching
        if type(message) is HeldCancel:
            cancelled = matching.message_of(message)
            if cancelled is not None and self._hot.cancel(cancelled):
                matching.forget(cancelled)
                self._outcomes.append(Outcome(Result.CANCELLED, cancelled, message))
                return
            matching.wait(message)
        else:
            cancel = matching.cancel_of(message)
            if cancel is not None and self._hot.cancel(cancel):
                self._outcomes.append(Outcome(Result.CANCELLED, message, cancel))
                return
            if not matching.remember(message):
                self._outcomes.append(Outcome(Result.DUPLICATE, message))
                return
        self._hot.hold(message, now_ms)

    def accept_unreadable(self, offset: int, key: bytes | None, value: bytes | None) -> None:
        """Take in a record whose headers the client library cannot read: dead, with what can be read of it."""
        if offset < self._ledger.position:
            return
        if self._done is not None and offset in self._done:
            self._ledger.reach(offset + 1)
            return
        self._ledger.read(offset)
        self._reject(offset, key, value, None, self._reader.unreadable(self.partition, offset))

    def reach(self, position: int) -> None:
        """Take note of the reader's position: what lies below it and was not handed in are markers."""
        self._ledger.reach(position)
        if self._replay_end is not None and self._ledger.position >= self._replay_end:
            self._replay_end = None
            self._done = None

    def note_journal_end(self, end: int) -> None:
        """Note an end of the journal that was asked for earlier, for the recovery pointer."""
        self._pointer.note(self._ledger.position, end)
        self._overflow.note_journal_end(end)

    def _reject(
        self, offset: int, key: bytes | None, value: bytes | None, headers: Headers | None, why: Rejection
    ) -> None:
        dead = DeadMessage(
            offset, key, value, headers or [], why.code, why.detail, why.id, why.due_ms, why.target, INTAKE, offset
        )
        self._dead.append(dead)

    # -- time -------------------------------------------------------------------------------------------------------

    @property
    def held(self) -> int:
        """How many messages are held, ready ones included."""
        waiting = len(self._hot) + len(self._to_file) + self.parked
        return waiting + len(self._dead) + sum(len(outcome.records) for outcome in self._outcomes)

    def next_due_ms(self) -> int | None:
        """When `collect` has something to do next: 0 for now, None for never while nothing is read."""
        if self.replaying:
            return None
        return 0 if self._dead or self._outcomes else self._hot.next_due_ms()

    def collect(self, now_ms: int) -> bool:
        """Make ready what is due by now; nothing while the gate is closed.

        Returns:
            Whether anything is ready.
        """
        if self._replay_end is not None:
            self.reach(self._ledger.position)
        if self.replaying:
            return False
        due = self._hot.collect(now_ms)
        if due:
            if any(type(message) is HeldCancel for message in due):
                due = [message for message in due if not self._is_too_late(message)]
            self._hot.ready.extend(due)
        self._matching.advance(min(now_ms, self._overflow.gate[0]))
        return bool(self._hot.ready or self._dead or self._outcomes)

    def _is_too_late(self, message: HeldMessage) -> bool:
        """A cancel that is due has found nothing."""
        if type(message) is not HeldCancel:
            return False
        self._matching.expire(message)
        self._outcomes.append(Outcome(Result.CANCEL_TOO_LATE, message))
        return True

    # -- firing -----------------------------------------------------------------------------------------------------

    def take(self, limit: int, now_ms: int, away: Container[str] = ()) -> Batch:
        """Take up to `limit` of what is ready, in order.

        Args:
            limit: messages.
            now_ms: wall time; nothing whose time the clock has gone back from is taken.
            away: targets whose messages are parked instead, behind those that are parked already.
        """
        dead, self._dead = self._dead[:limit], self._dead[limit:]
        room = limit - len(dead)
        outcomes, self._outcomes = self._outcomes[:room], self._outcomes[room:]
        batch = Batch(dead=dead, outcomes=outcomes)
        ready, due = self._hot.ready, batch.due
        room -= len(outcomes)
        while room > 0 and ready and ready[0].due_ms <= now_ms:
            message = ready.popleft()
            if away and message.target in away:
                self.held_bytes -= self._parked.park(message)
            else:
                due.append(message)
                room -= 1
        return batch

    def give_up(self, batch: Batch, messages: dict[int, tuple[str, str]]) -> None:
        """Turn messages of a batch that can never be delivered into dead letters of the same batch.

        Args:
            batch: taken, and not settled.
            messages: for the offset of each the error code and detail.
        """
        kept: list[HeldMessage] = []
        for message in batch.due:
            if message.sequence in messages:
                code, detail = messages[message.sequence]
                batch.retired.append(message)
                batch.dead.append(_as_dead(message, code, detail))
            else:
                kept.append(message)
        batch.due = kept

    def settle(self, batch: Batch) -> Settlement:
        """Mark the batch as done, tentatively, and say what its transaction commits."""
        offsets = batch.offsets()
        self._mark(offsets)
        low = self._ledger.low
        self._is_noted = self._overflow.noted()
        return Settlement(low, self._checkpoint(low).encode(), encode_done(offsets))

    def confirm(self, batch: Batch) -> None:
        """The batch's transaction committed."""
        self.confirm_rest()
        self._complete(batch)

    def put_back(self, batch: Batch, apart: Container[str] = ()) -> None:
        """The batch's transaction aborted: all of it is ready again, in front of the rest.

        Args:
            batch: what was taken.
            apart: targets that are set apart since: their messages are parked, so that it shows that some wait.
        """
        self._unmark(batch.offsets())
        retired = {message.sequence for message in batch.retired}
        self._dead[:0] = [dead for dead in batch.dead if dead.sequence not in retired]
        self._outcomes[:0] = batch.outcomes
        batch.due = sorted([*batch.due, *batch.retired], key=BY_DUE)
        self.park(batch, apart)
        self._hot.put_back(batch.due)

    def close(self) -> None:
        """Let go of what is held: the wheel's rings refer to themselves, and full collections are switched off."""
        self._hot.close()

    # -- the overflow wheel -----------------------------------------------------------------------------------------

    @property
    def slots(self) -> int:
        """How many slots each level of its overflow wheel has; 0 where there is none."""
        return self._levels.slots if self._base.geometry.levels else 0

    @property
    def sources(self) -> list[Source]:
        """All slots of its overflow wheel."""
        levels = range(1, self._base.geometry.levels + 1)
        return [Source(level, slot) for level in levels for slot in range(self.slots)]

    def note_ends(self, ends: Mapping[Source, int]) -> None:
        """Note the high watermarks of slots, for `in_buckets`."""
        self.in_buckets = self._overflow.waiting(ends)

    @property
    def to_file(self) -> int:
        """How many messages wait to be filed."""
        return len(self._to_file)

    def take_to_file(self, limit: int, now_ms: int) -> Filing:
        """Take up to `limit` messages to file, with the slot of each; what has become hot meanwhile is held."""
        taken, self._to_file = self._to_file[:limit], self._to_file[limit:]
        records: list[tuple[FiledMessage, Source]] = []
        # All that is due within a width of level 1 goes to one slot: the bounds of all levels are its multiples.
        width_ms, slots = self._base.geometry.width_ms, dict[int, Source]()
        for message in taken:
            if message.due_ms < self._hot_below_ms:
                self._hold(message, now_ms)
                continue
            source = slots.get(message.due_ms // width_ms)
            if source is None:
                source = slots[message.due_ms // width_ms] = self._overflow.slot_for(message.due_ms)
                self._overflow.fill(source)
            records.append((message, source))
        return Filing(records)

    def confirm_filed(self, filing: Filing) -> None:
        """The transaction that filed them committed."""
        self._mark(filing.offsets)
        self._trim()
        self.held_bytes -= sum(message.size_bytes for message, _ in filing.records)

    def put_back_filed(self, filing: Filing) -> None:
        """The transaction that filed them aborted."""
        self._to_file[:0] = [message for message, _ in filing.records]

    def to_ask(self, now_ms: int) -> list[Source]:
        """The slots whose high watermarks `close_buckets` needs next; none where nothing is to be closed."""
        return [] if self.replaying else self._overflow.to_ask(now_ms)

    def close_buckets(self, ends: Mapping[Source, int], room_bytes: int, now_ms: int) -> bool:
        """Close the buckets whose time has come, as far as it is known what lies in them.

        Args:
            ends: the high watermarks of slots, asked while nothing is being filed.
            room_bytes: of memory.
            now_ms: wall time.

        Returns:
            Whether there were any: that is to be committed before anything is filed by it.
        """
        if self.replaying or not self._overflow.close(ends, room_bytes // self._typical_bytes, now_ms):
            return False
        self._moved_on(now_ms)
        return True

    @property
    def _typical_bytes(self) -> int:
        return self._counted_bytes // self._counted if self._counted else OVERHEAD_BYTES

    def _moved_on(self, now_ms: int) -> None:
        """What waits to be filed may be hot by now, and must be held before the gate opens."""
        self._hot_below_ms = self._levels.hot_below_ms
        waiting, self._to_file = self._to_file, []
        for message in waiting:
            self._put(message, now_ms)

    def unread(self, room_bytes: int) -> Iterable[tuple[Source, int, int]]:
        """The closed slots that are to be read: where from, and to which end.

        Args:
            room_bytes: of memory, for one that is begun now.
        """
        typical_bytes = self._typical_bytes
        if self._hot.next_due_ms() is None:
            self._overflow.begin_passes(room_bytes // typical_bytes, typical_bytes)
        return self._overflow.unread(room_bytes // typical_bytes, typical_bytes)

    def window_ms(self, source: Source) -> tuple[int, int]:
        """The time that a closed slot covers."""
        return self._overflow.window_ms(source)

    def drain(
        self, source: Source, offset: int, key: bytes | None, value: bytes | None, headers: Headers | None, now_ms: int
    ) -> None:
        """Take in a record of a closed slot, to be held, or to be filed anew."""
        is_new = self._overflow.is_new(source, offset)
        if not self._overflow.read(source, offset):
            return
        try:
            message = read_filed(source, offset, key, value, headers)
        except ValueError as error:
            if is_new:
                self._dead.append(self._foreign(source, offset, key, value, headers, str(error)))
            return
        if self._overflow.is_of_an_earlier_turn(source, message.due_ms):
            self._overflow.mark(source, [offset])
            return
        passes = self._overflow.passes_of(source)
        if passes is not None and message.due_ms < self._hot_below_ms and type(message) is not HeldCancel:
            self.held_bytes += passes.offer(message)
            return
        if not is_new:
            return  # all cancels are held from the first pass on: their messages may come with any
        self._count(message)
        self._put(message, now_ms)

    def reach_in(self, source: Source, position: int, now_ms: int) -> None:
        """Take note of the reader's position in a closed slot, past markers and aborted records."""
        for message in self._overflow.reach(source, position):
            self._hold(message, now_ms)

    def _foreign(
        self, source: Source, offset: int, key: bytes | None, value: bytes | None, headers: Headers | None, why: str
    ) -> DeadMessage:
        place = f"slot {source.slot} of level {source.level} of {self.intake}/{self.partition}, offset {offset}"
        known = self._reader.unreadable(self.partition, offset)
        return DeadMessage(
            offset, key, value, headers or [], known.code, f"{place}: {why}", known.id, None, None, source, offset
        )

    @property
    def is_unnoted(self) -> bool:
        """Whether slots are done that the last committed checkpoint still needs."""
        return self._overflow.is_unnoted

    def to_empty(self) -> dict[Source, int]:
        """Slots to be emptied, and up to where."""
        return self._overflow.to_empty()

    def emptied(self, source: Source, end: int) -> None:
        """A slot was emptied up to an offset."""
        self._overflow.emptied(source, end)

    # -- parked messages --------------------------------------------------------------------------------------------

    @property
    def parked(self) -> int:
        """How many messages wait for targets that are away."""
        return len(self._parked)

    def parked_by_target(self) -> dict[str, int]:
        """How many of them wait for each target."""
        return self._parked.by_target()

    def has_parked(self, topic: str) -> bool:
        """Whether any message waits for a target."""
        return topic in self._parked

    def park(self, batch: Batch, topics: Container[str]) -> None:
        """Park messages of a batch after all, behind those that are parked for the same targets already."""
        due = []
        for message in batch.due:
            if message.target in topics:
                self.held_bytes -= self._parked.park(message)
            else:
                due.append(message)
        batch.due = due

    def take_parked(self, topic: str, limit: int, now_ms: int) -> Batch:
        """Take up to `limit` of what is parked for a target, in order; nothing is marked before `confirm_parked`.

        Where only places are left of it, nothing: `wanted` says what to read again.
        """
        return Batch(self._parked.take(topic, limit, now_ms))

    def journal_of(self, batch: Batch) -> bytes:
        """The journal's record of a batch whose transaction commits no offset of the intake."""
        return encode_done(batch.offsets())

    def park_again(self, topic: str, batch: Batch) -> None:
        """The batch's transaction aborted: park it again, in front of what is parked for its target."""
        self.held_bytes -= self._parked.park_in_front(topic, sorted([*batch.due, *batch.retired], key=BY_DUE))

    def confirm_parked(self, batch: Batch) -> None:
        """The batch's transaction committed. Only now it counts as done: other transactions went on meanwhile."""
        self._mark(batch.offsets())
        self._complete(batch)

    def shed_parked(self, limit_bytes: int) -> None:
        """Keep no more parked messages whole than fit into so many bytes; of the others only their places."""
        self.held_bytes -= self._parked.shed(limit_bytes)

    def wanted(self, topic: str, limit_bytes: int) -> Wanted | None:
        """What is to be read again from the intake for a target, as much as fits; None for nothing at present."""
        return self._parked.wanted(topic, limit_bytes)

    def read_again(
        self,
        wanted: Wanted,
        source: Source,
        offset: int,
        timestamp_ms: int,
        key: bytes | None,
        value: bytes | None,
        headers: Headers | None,
    ) -> None:
        """Take in a record of the intake, or of a bucket, once more, if it is wanted."""
        due_ms = wanted.due_ms(source, offset)
        if due_ms is None:
            return
        if source != INTAKE:
            wanted.put(read_filed(source, offset, key, value, headers))
            return
        # Its due time is the one that it had: a fixed delay may have put it off, and the horizon is behind it.
        request = self._reader.read(self.partition, offset, timestamp_ms, headers, due_ms, is_null=value is None)
        if type(request) is not Request:
            raise ValueError(f"offset {offset} was accepted once, and is refused now: {request}")
        _, target, target_partition, message_id, carries, dialect = request
        if dialect is not None:
            wanted.put(TranslatedMessage(dialect, request, offset, key, value, headers, timestamp_ms, self.intake))
            return
        wanted.put(HeldMessage(due_ms, offset, key, value, headers, carries, target, target_partition, message_id))

    def restore(self, wanted: Wanted) -> None:
        """All that was wanted has been read again: it can be taken."""
        self.held_bytes += self._parked.restore(wanted)

    # -- the checkpoint ---------------------------------------------------------------------------------------------

    @property
    def low(self) -> int:
        """The low watermark."""
        return self._ledger.low

    @property
    def pointer(self) -> int:
        """Where a recovery would begin to read the journal: of the intake, and of what is closed."""
        own, of_buckets = self._pointer.at(self._ledger.low), self._overflow.pointer
        return own if of_buckets is None else min(own, of_buckets)

    def rest(self, *, released: bool = False) -> Settlement:
        """What is committed where nothing fires: to renew the checkpoint, or to release the partition.

        The journal's record is a copy of the checkpoint.
        """
        low = self._ledger.low
        self._is_noted = self._overflow.noted()
        text = replace(self._checkpoint(low), released=released).encode()
        return Settlement(low, text, encode_copy(low, text))

    def confirm_rest(self) -> None:
        """The checkpoint of the last settlement is committed."""
        self._is_noted()

    def _checkpoint(self, low: int) -> Checkpoint:
        draining, emptying = self._overflow.entries()
        return replace(
            self._base,
            closed_ms=self._levels.closed_ms,
            draining=draining,
            emptying=emptying,
            pointer=self._pointer.at(low),
            due_below_ms=self._order.below(low) if self._order is not None else None,
        )

    def _mark(self, offsets: Offsets) -> None:
        for source, of in offsets.items():
            if source == INTAKE:
                self._ledger.mark(of)
            else:
                self._overflow.mark(source, of)

    def _unmark(self, offsets: Offsets) -> None:
        for source, of in offsets.items():
            if source == INTAKE:
                self._ledger.unmark(of)
            else:
                self._overflow.unmark(source, of)

    def _complete(self, batch: Batch) -> None:
        """All of a batch is done for good."""
        self._trim()
        self._matching.done(batch.due)
        self._matching.done(batch.retired)
        self.held_bytes -= sum(map(_size_bytes, batch.due)) + sum(map(_size_bytes, batch.retired))
        self.held_bytes -= sum(record.size_bytes for outcome in batch.outcomes for record in outcome.records)

    def _trim(self) -> None:
        self._ledger.trim()
        self._pointer.trim(self._ledger.low)
        if self._order is not None:
            self._order.trim(self._ledger.low)
        self._overflow.trim()


def _as_dead(message: HeldMessage, code: str, detail: str) -> DeadMessage:
    return DeadMessage(
        message.sequence,
        message.original_key,
        message.value,
        message.original_headers,
        code,
        detail,
        message.id,
        message.due_ms,
        message.target,
        message.source,
        message.offset,
    )
