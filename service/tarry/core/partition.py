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

from collections import deque
from collections.abc import Callable, Container
from dataclasses import dataclass, field, replace
from operator import attrgetter
from typing import cast

from tarry.core.checkpoint import Checkpoint
from tarry.core.done_set import DoneSet
from tarry.core.journal import INTAKE, encode_copy, encode_done
from tarry.core.ledger import Ledger
from tarry.core.message import DeadMessage, Headers, HeldMessage
from tarry.core.parked import Parked, Wanted
from tarry.core.pointer import JournalPointer
from tarry.core.request import Rejection, RequestReader
from tarry.timer import TimingWheel

_BY_DUE = attrgetter("due_ms", "sequence")


@dataclass(slots=True)
class Batch:
    """What one transaction does for one partition."""

    due: list[HeldMessage] = field(default_factory=list)
    dead: list[DeadMessage] = field(default_factory=list)
    retired: list[HeldMessage] = field(default_factory=list)
    """Messages of `dead` that were due: they were found undeliverable when they fired."""

    def __len__(self) -> int:
        return len(self.due) + len(self.dead)

    def offsets(self) -> list[int]:
        """The offsets in the intake that the transaction completes."""
        return [m.sequence for m in self.due] + [m.offset for m in self.dead]


@dataclass(frozen=True, slots=True)
class Settlement:
    """What is committed with a batch: the group's offset, its metadata, and the journal's record."""

    low: int
    metadata: str
    journal: bytes


@dataclass(frozen=True, slots=True)
class Recovered:
    """What a take-over read before the first record of the intake.

    Attributes:
        low: the committed offset, which is the low watermark.
        checkpoint: committed with it, and already in the name of this process.
        done: what the journal says is done above `low`.
        replay_end: the intake's end when the take-over began.
    """

    low: int
    checkpoint: Checkpoint
    done: DoneSet
    replay_end: int


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
        self._reader = reader
        self._new_wheel = new_wheel
        self._wheel = new_wheel(now_ms)
        self._now_ms = now_ms
        self._ledger = Ledger(recovered.low)
        self._pointer = JournalPointer(recovered.low, recovered.checkpoint.pointer, recovered.done.end)
        self._base = recovered.checkpoint
        self._done: DoneSet | None = recovered.done if len(recovered.done) else None
        # An end asked of a new leader may lag behind what was read, and delivered, before.
        self._replay_end: int | None = max(recovered.replay_end, recovered.done.end)
        self._late: list[HeldMessage] = []
        self._ready: deque[HeldMessage] = deque()
        self._parked = Parked()
        self._dead: list[DeadMessage] = []
        self._keeps_order = keeps_order
        self._last_due_ms = recovered.checkpoint.due_below_ms or 0
        self._due_below_ms = recovered.checkpoint.due_below_ms
        self.reach(recovered.low)

    # -- reading ----------------------------------------------------------------------------------------------------

    @property
    def position(self) -> int:
        """The next offset of the intake to be read."""
        return self._ledger.position

    @property
    def replaying(self) -> bool:
        """Whether the gate is closed: the replay has not reached its end."""
        return self._replay_end is not None

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
        if known_done and not self._keeps_order:
            ledger.reach(offset + 1)
            return
        request = self._reader.read(self.partition, offset, timestamp_ms, headers, now_ms)
        if type(request) is Rejection:
            if known_done:
                ledger.reach(offset + 1)
                return
            ledger.read(offset)
            self._reject(offset, key, value, headers, request)
            return
        due_ms, target, target_partition, message_id, carries = request
        if self._keeps_order:
            # Log-append time can step back when a partition's leader moves; the order of the log may not.
            due_ms = self._last_due_ms = max(due_ms, self._last_due_ms)
            if known_done:
                self._due_below_ms = due_ms
                ledger.reach(offset + 1)
                return
        ledger.read(offset)
        message = HeldMessage(due_ms, offset, key, value, headers, carries, target, target_partition, message_id)
        size = message.size_bytes
        self.held_bytes += size
        if size > self.largest_bytes:  # noqa: PLR1730 - max() costs a call a message
            self.largest_bytes = size
        if not self._wheel.add(message):
            if due_ms > now_ms:
                self._turn_back(now_ms)
                self._wheel.add(message)
            else:
                self._late.append(message)

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

    def _reject(
        self, offset: int, key: bytes | None, value: bytes | None, headers: Headers | None, why: Rejection
    ) -> None:
        dead = DeadMessage(offset, key, value, headers or [], why.code, why.detail, why.id, why.due_ms, why.target)
        self._dead.append(dead)

    # -- time -------------------------------------------------------------------------------------------------------

    @property
    def held(self) -> int:
        """How many messages are held, ready ones included."""
        return len(self._wheel) + len(self._late) + len(self._ready) + len(self._dead) + self.parked

    def next_due_ms(self) -> int | None:
        """When `collect` has something to do next: 0 for now, None for never while nothing is read."""
        if self._replay_end is not None:
            return None
        if self._ready or self._late or self._dead:
            return 0
        return self._wheel.next_due_ms

    def collect(self, now_ms: int) -> bool:
        """Make ready what is due by now; nothing while the gate is closed.

        Returns:
            Whether anything is ready.
        """
        if self._replay_end is not None:
            self.reach(self._ledger.position)
            if self._replay_end is not None:
                return False
        if now_ms < self._now_ms:
            self._turn_back(now_ms)
        self._now_ms = now_ms
        due = cast("list[HeldMessage]", self._wheel.advance(now_ms))
        if self._late:
            due = sorted(due + self._late, key=_BY_DUE)
            self._late = []
        if due:
            self._ready.extend(due)
        return bool(self._ready or self._dead)

    def _turn_back(self, now_ms: int) -> None:
        """The clock was set back: hold again what is not due by the new time, in its order."""
        self._now_ms = now_ms
        waiting = cast("list[HeldMessage]", self._wheel.advance(_NEVER_MS))
        messages = [*self._ready, *self._late, *waiting]
        messages.sort(key=_BY_DUE)
        self._ready.clear()
        self._wheel.close()
        self._wheel = self._new_wheel(now_ms)
        self._late = [message for message in messages if not self._wheel.add(message)]

    # -- firing -----------------------------------------------------------------------------------------------------

    def take(self, limit: int, now_ms: int, away: Container[str] = ()) -> Batch:
        """Take up to `limit` of what is ready, in order.

        Args:
            limit: messages.
            now_ms: wall time; nothing whose time the clock has gone back from is taken.
            away: targets whose messages are parked instead, behind those that are parked already.
        """
        dead, self._dead = self._dead[:limit], self._dead[limit:]
        batch = Batch(dead=dead)
        ready, due = self._ready, batch.due
        room = limit - len(dead)
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
        self._ledger.mark(offsets)
        low = self._ledger.low
        checkpoint = self._checkpoint(low, self._due_below(batch))
        return Settlement(low, checkpoint.encode(), encode_done({INTAKE: offsets}))

    def confirm(self, batch: Batch) -> None:
        """The batch's transaction committed."""
        self._due_below_ms = self._due_below(batch)
        self._ledger.trim()
        self._pointer.trim(self._ledger.low)
        self.held_bytes -= sum(m.size_bytes for m in batch.due) + sum(m.size_bytes for m in batch.retired)

    def put_back(self, batch: Batch, apart: Container[str] = ()) -> None:
        """The batch's transaction aborted: all of it is ready again, in front of the rest.

        Args:
            batch: what was taken.
            apart: targets that are set apart since: their messages are parked, so that it shows that some wait.
        """
        self._ledger.unmark(batch.offsets())
        retired = {message.sequence for message in batch.retired}
        self._dead[:0] = [dead for dead in batch.dead if dead.offset not in retired]
        batch.due = sorted([*batch.due, *batch.retired], key=_BY_DUE)
        self.park(batch, apart)
        self._ready.extendleft(reversed(batch.due))

    def close(self) -> None:
        """Let go of what is held: the wheel's rings refer to themselves, and full collections are switched off."""
        self._wheel.close()

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
        return encode_done({INTAKE: batch.offsets()})

    def park_again(self, topic: str, batch: Batch) -> None:
        """The batch's transaction aborted: park it again, in front of what is parked for its target."""
        self.held_bytes -= self._parked.park_in_front(topic, sorted([*batch.due, *batch.retired], key=_BY_DUE))

    def confirm_parked(self, batch: Batch) -> None:
        """The batch's transaction committed. Only now it counts as done: other transactions went on meanwhile."""
        self._ledger.mark(batch.offsets())
        self.confirm(batch)

    def shed_parked(self, limit_bytes: int) -> None:
        """Keep no more parked messages whole than fit into so many bytes; of the others only their places."""
        self.held_bytes -= self._parked.shed(limit_bytes)

    def wanted(self, topic: str, limit_bytes: int) -> Wanted | None:
        """What is to be read again from the intake for a target, as much as fits; None for nothing at present."""
        return self._parked.wanted(topic, limit_bytes)

    def read_again(
        self,
        wanted: Wanted,
        offset: int,
        timestamp_ms: int,
        key: bytes | None,
        value: bytes | None,
        headers: Headers | None,
    ) -> None:
        """Take in a record of the intake once more, if it is wanted."""
        due_ms = wanted.due_ms(offset)
        if due_ms is not None:
            # Its due time is the one that it had: a fixed delay may have put it off, and the horizon is behind it.
            request = self._reader.read(self.partition, offset, timestamp_ms, headers, due_ms)
            if type(request) is Rejection:
                raise ValueError(f"offset {offset} was accepted once, and is refused now: {request.detail}")
            _, target, target_partition, message_id, carries = request
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
        """Where a recovery from the low watermark would begin to read the journal."""
        return self._pointer.at(self._ledger.low)

    def rest(self, *, released: bool = False) -> Settlement:
        """What is committed where nothing fires: to renew the checkpoint, or to release the partition.

        The journal's record is a copy of the checkpoint.
        """
        low = self._ledger.low
        text = replace(self._checkpoint(low, self._due_below_ms), released=released).encode()
        return Settlement(low, text, encode_copy(low, text))

    def _checkpoint(self, low: int, due_below_ms: int | None) -> Checkpoint:
        return replace(self._base, pointer=self._pointer.at(low), due_below_ms=due_below_ms)

    def _due_below(self, batch: Batch) -> int | None:
        """With a fixed delay messages fire in the order of the log: the last one is the one below the watermark."""
        fired = [*batch.due, *batch.retired] if self._keeps_order else []
        return max((message.due_ms for message in fired), default=self._due_below_ms)


_NEVER_MS = 1 << 62


def _as_dead(message: HeldMessage, code: str, detail: str) -> DeadMessage:
    return DeadMessage(
        message.sequence,
        message.key,
        message.value,
        message.original_headers,
        code,
        detail,
        message.id,
        message.due_ms,
        message.target,
    )
