"""What a named record does, and which copies of named messages count.

A named record is **decided** when it is read, in the order of the intake: it is scheduled (and replaces the message
that waits under its name), or it is done at once: a duplicate, skipped, or a cancel. The decision changes the index at
once. It is **admitted** by the firing transaction that commits its change, its results, and the records that it
completes. Only what is admitted is filed, or tried from parking. It may fire in the transaction that admits it.

    intake    5 x   6 y   7 x   8 cancel y
    index     x5    x5 y6    x7 y6    x7           5 is superseded by 7, and 6 is cancelled
    pending   5     5 6      5 6 7    5 6 7 8      what the next firing transaction commits

A message that is not the one in the index is **superseded**: whoever holds a copy drops it. Dropped copies are done
without a result of their own, because the decision wrote one.

When an occurrence of a schedule is delivered, its entry is not removed: the schedule **continues**. The next record
is in the intake behind it, and is taken only while the entry says that it follows that occurrence. So what replaces or
cancels the schedule before that record is read ends it.

    intake    5 x every 1h        9 x next, follows 5          12 cancel x
    index     x5                  x>5 x9                       x>9

A message whose delivery a side transaction tries is **in flight**. A record that would replace or cancel it cannot be
decided before that transaction is aborted. Records after it wait, because they are decided in order.
"""

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from itertools import islice

from tarry.core.batch import Answer, Batch, Decision, fitting
from tarry.core.message import DeadMessage, HeldMessage
from tarry.core.progress.journal import encode_names, encode_shard
from tarry.core.progress.name_index import CONTINUES, ENTRY_BYTES, NameEntry, NameIndex, Shard
from tarry.core.progress.name_records import (
    NameRecords,
    ShardEntry,
    continues,
    continues_in_side,
    gone,
    gone_in_side,
    joined,
    put,
)
from tarry.core.request.naming import Condition, hash_of
from tarry.core.window.memory import Memory
from tarry.headers import ErrorCode, Outcome, id_bytes, id_text

DECISION_BYTES = 540
"""The memory of a decision that waits to be committed, without the record that it completes. Measured."""

RECORD_BYTES = 256_000
"""The most bytes of changes in one record of the journal."""

REPEATED = 4
"""For each byte of changes, this many bytes of shards are written: a recovery reads at most a quarter more."""

LEAST_DEBT_BYTES = 4_096
"""No shard is written for less."""

RENEWED_AFTER, RENEWED_AFTER_SHARD = 100, 10
"""How many records of the journal, and how many more for each shard, a name that waits may keep from being trimmed."""

MOST_SHARDS = 4
"""The most shards in one transaction."""

_CODES = (ErrorCode.TOO_MANY_NAMES, *(code for code in ErrorCode if code is not ErrorCode.TOO_MANY_NAMES))
"""The reasons in the order of their numbers in hidden entries."""


class NameVerdict(Enum):
    """What becomes of a named record."""

    KEEP = "the message waits from now on"
    DONE = "the decision completes the record"
    REFUSE = "it becomes a dead letter"
    SUPERSEDED = "it was replaced or cancelled before it was read again"
    WAIT = "a side transaction tries to deliver the message that it would replace or cancel"


@dataclass(slots=True)
class _Settled:
    """What a firing transaction writes about names.

    Attributes:
        removed: names and offsets of the messages that it completes.
        continued: names of the schedules that continue, with their entries.
        written: the number of each shard that it writes, and its journal pointer.
        debt: what is owed afterwards, in bytes.
        clears: whether it writes that there are no names.
    """

    removed: list[tuple[bytes, int]]
    continued: list[tuple[bytes, NameEntry]]
    written: list[tuple[int, int]]
    debt: int
    clears: bool = False


class Names:
    """The names of one partition.

    Args:
        place: the intake and the partition's number.
        found: what the journal says.
        pointer: the journal offset from which that was read; None if it says nothing of names.
        complete_from: a message without an entry is superseded only if its offset is at least this.
        journal_end: an end of the journal from before the first change.
        memory: the partition's memory.

    Attributes:
        limit: the most names; a new one beyond is refused.
        decided_below: every named record below this offset is decided.
        admitted_below: every decision below this offset is committed.
    """

    __slots__ = (
        "_clear",
        "_debt",
        "_dropped",
        "_hidden",
        "_in_flight",
        "_index",
        "_journal_end",
        "_memory",
        "_pending",
        "_place",
        "_settled",
        "_wanted",
        "admitted_below",
        "complete_from",
        "decided_below",
        "limit",
    )

    def __init__(
        self,
        place: tuple[str, int],
        found: NameRecords,
        pointer: int | None,
        complete_from: int,
        journal_end: int,
        memory: Memory,
    ) -> None:
        self._place = place
        self._index: NameIndex = found.index
        self._memory = memory
        self._journal_end = journal_end
        self.complete_from = complete_from
        self.limit = 1 << 62
        self.decided_below = found.below
        self.admitted_below = max(found.below, complete_from)
        self._clear = pointer is None
        """Whether the journal need not be read for names."""
        self._index.point_all(pointer or 0)
        self._debt = 0
        self._pending: deque[Decision] = deque()
        self._dropped: list[HeldMessage | DeadMessage] = []
        self._in_flight: dict[int, int] = {}
        """The offsets of messages in flight, each with an end of the journal from before its transaction."""
        self._wanted: int | None = None
        """The offset of the message in flight for whose transaction a record waited last."""
        self._hidden: set[int] = set()
        """The offsets of records that wait for their dead letters under hidden names."""
        self._settled = _Settled([], [], [], 0)

    # -- deciding -----------------------------------------------------------------------------------------------------

    def decide(
        self, message: HeldMessage, condition: Condition, *, repeats: bool = False
    ) -> tuple[NameVerdict, NameEntry | None]:
        """Decide a named message that was read at or above `decided_below`.

        Args:
            message: the message; a refused one gets a hidden name, under which it waits for its dead letter.
            condition: whether a message of the name must wait, or must not.
            repeats: whether a message with its id and due time is known to be delivered. It would never be, so it must
                not replace the message that waits now.

        Returns:
            What becomes of it, and the message that it replaces, if that is held.
        """
        name = _name_of(message)
        entry = self._index.find(name)
        if entry is not None and self._is_in_flight(entry):
            return NameVerdict.WAIT, None
        answer = self._answer_at_once(message, condition, entry, repeats=repeats)
        if answer is not None:
            return self._complete(message, answer), None
        offset = message.sequence
        new = NameEntry(offset, message.due_ms, id_bytes(message.asker))
        if entry is None and self.count >= self.limit:
            return self.reject(message, ErrorCode.TOO_MANY_NAMES), None
        answers: tuple[Answer, ...] = ()
        if entry is not None:
            answers = (_of_entry(Outcome.REPLACED, entry, ("replaced_by", offset)),)
        if condition is not Condition.ALWAYS:
            replaced = None if entry is None else ("replaced", entry.place)
            answers = (*answers, self._answer(Outcome.SCHEDULED, message, replaced))
        self._put(name, new, answers)
        return NameVerdict.KEEP, None if entry is None or entry.continues else entry

    def _answer_at_once(
        self, message: HeldMessage, condition: Condition, entry: NameEntry | None, *, repeats: bool
    ) -> Answer | None:
        """Return the answer to a message that is done at once; None if it waits from now on."""
        waiting = None if entry is None else ("waiting", entry.place)
        if entry is not None and entry.id == id_bytes(message.asker) and entry.due_ms == message.due_ms:
            return self._answer(Outcome.DUPLICATE, message, waiting)
        if repeats:
            return self._answer(Outcome.DUPLICATE, message, reason="delivered")
        if entry is not None and condition is Condition.ABSENT:
            return self._answer(Outcome.SKIPPED, message, waiting, reason="waiting")
        if entry is None and condition is Condition.PRESENT:
            return self._answer(Outcome.SKIPPED, message, reason="not-waiting")
        return None

    def verdict_again(self, message: HeldMessage) -> NameVerdict:
        """Return what becomes of a named message that is read again, and was decided before."""
        if not self.is_superseded(message):
            return NameVerdict.KEEP
        hidden = self.rejected_name(message.sequence)
        if hidden is None:
            return NameVerdict.SUPERSEDED
        message.name = hidden
        return NameVerdict.REFUSE

    def reject(self, record: HeldMessage, code: ErrorCode) -> NameVerdict:
        """Decide a named record that can never be delivered; it gets a hidden name until its dead letter is written.

        Without the entry, a take-over would see a decided record that does not wait, and drop it. In place of a due
        time, the entry has the reason: when the record is read again, it may have no fault any more.
        """
        offset = record.sequence
        record.name = hidden_name(offset)
        self._hidden.add(offset)
        self._put(record.name, NameEntry(offset, _CODES.index(code), id_bytes(record.asker)), ())
        return NameVerdict.REFUSE

    def decide_next(self, message: HeldMessage, follows: int) -> NameVerdict:
        """Decide the next record of a schedule: it is taken where the schedule continues with it, else it is done.

        Args:
            message: the record.
            follows: the offset of the occurrence that it follows.
        """
        name, id_ = _name_of(message), id_bytes(message.asker)
        entry = self._index.find(name)
        if entry is None or entry.offset != CONTINUES | follows or entry.id != id_:
            self._decided(Decision(message.sequence, message, b"", ()))
            return NameVerdict.DONE
        self._put(name, NameEntry(message.sequence, message.due_ms, id_), ())
        return NameVerdict.KEEP

    def decide_cancel(self, cancel: HeldMessage) -> tuple[NameVerdict, NameEntry | None]:
        """Decide a cancel of the message that waits under a name.

        Returns:
            What becomes of it, and the message that it cancels, if that is held.
        """
        name = _name_of(cancel)
        entry = self._index.find(name)
        if entry is None:
            return self._complete(cancel, self._answer(Outcome.CANCEL_TOO_LATE, cancel)), None
        if self._is_in_flight(entry):
            return NameVerdict.WAIT, None
        self._index.remove(name, entry.offset)
        answers = (
            _of_entry(Outcome.CANCELLED, entry, ("cancel_source", cancel.sequence)),
            self._answer(Outcome.CANCELLED, cancel, ("cancelled", entry.place)),
        )
        self._decided(Decision(cancel.sequence, cancel, gone(name, entry.offset), answers))
        return NameVerdict.DONE, None if entry.continues else entry

    def _is_in_flight(self, entry: NameEntry) -> bool:
        if entry.offset not in self._in_flight:
            return False
        self._wanted = entry.offset
        return True

    @property
    def is_wanted_back(self) -> bool:
        """Whether a record waits for the end of a side transaction."""
        return self._wanted in self._in_flight

    def _put(self, name: bytes, entry: NameEntry, answers: tuple[Answer, ...]) -> None:
        self._index.put(name, entry)
        self._decided(Decision(entry.offset, None, put(name, entry), answers))

    def _complete(self, record: HeldMessage, answer: Answer) -> NameVerdict:
        self._decided(Decision(record.sequence, record, b"", (answer,)))
        return NameVerdict.DONE

    def _decided(self, decision: Decision) -> None:
        self.decided_below = decision.offset + 1
        self._wanted = None  # the record that waited, if one did, is this one
        self._pending.append(decision)

    @staticmethod
    def _answer(
        outcome: Outcome, message: HeldMessage, other: tuple[str, int] | None = None, *, reason: str = ""
    ) -> Answer:
        due_ms = message.due_ms if message.target else None
        return Answer(outcome, message.asker, message.sequence, due_ms, message.target or None, other, reason)

    # -- copies -------------------------------------------------------------------------------------------------------

    def is_superseded(self, message: HeldMessage | DeadMessage) -> bool:
        """Whether a message is not the one that waits under its name; False if it has none."""
        name = message.name
        if name is None:
            return False
        entry = self._index.find(name)
        if entry is None:
            return message.sequence >= self.complete_from
        return entry.offset != message.sequence

    def waits(self, message: HeldMessage) -> bool:
        """Whether a message is the one that waits under its name."""
        entry = None if message.name is None else self._index.find(message.name)
        return entry is not None and entry.offset == message.sequence

    def rejected_name(self, offset: int) -> bytes | None:
        """Return the hidden name of a record that is read again, if its dead letter is not written yet; else None."""
        hidden = hidden_name(offset)
        if self._index.find(hidden) is None:
            return None
        self._hidden.add(offset)
        return hidden

    def code_of(self, hidden: bytes) -> ErrorCode:
        """Return why the record that waits under a hidden name was refused when it was read first."""
        entry = self._index.find(hidden)
        assert entry is not None, "the name was found before"  # noqa: S101
        return _CODES[entry.due_ms] if entry.due_ms < len(_CODES) else ErrorCode.TOO_MANY_NAMES

    def is_admitted(self, message: HeldMessage) -> bool:
        """Whether the decision on a message is committed; True if it has no name."""
        return message.name is None or message.sequence < self.admitted_below

    def drop(self, message: HeldMessage | DeadMessage) -> None:
        """Take a superseded copy that was held, and is counted in memory: a firing transaction completes it."""
        if isinstance(message, HeldMessage):
            self._memory.held_bytes -= message.drop_content()
        self._dropped.append(message)

    def drop_first_if_superseded(self, messages: deque[HeldMessage]) -> bool:
        """Drop the first message of a queue if it is superseded; return whether it was."""
        if not self.is_superseded(messages[0]):
            return False
        self.drop(messages.popleft())
        return True

    @property
    def size_bytes(self) -> int:
        """The memory of the index, and of the decisions that wait to be committed."""
        return self._index.size_bytes + DECISION_BYTES * len(self._pending)

    @property
    def count(self) -> int:
        """The number of names, without hidden ones."""
        return self._index.count - len(self._hidden)

    @property
    def held(self) -> int:
        """The number of records that wait to be completed."""
        return len(self._dropped) + sum(decision.record is not None for decision in self._pending)

    @property
    def has_pending(self) -> bool:
        """Whether decisions wait to be committed."""
        return bool(self._pending)

    def __bool__(self) -> bool:
        """Whether a firing transaction has something to write or complete."""
        return bool(self._pending or self._dropped)

    # -- the firing transaction ---------------------------------------------------------------------------------------

    def take(self, batch: Batch, limit: int, limit_bytes: int) -> int:
        """Add decisions to a batch, and when all are in it, dropped copies.

        Returns:
            The offset below which named messages may be in the batch; 0 if some decisions are left: a message must not
            leave before a decision that says it waits.
        """
        sizes = [decision.size_bytes for decision in islice(self._pending, limit)]
        batch.decisions = [self._pending.popleft() for _ in range(fitting(sizes, limit_bytes))]
        if not self._pending:
            room = max(0, limit - len(batch.decisions))
            batch.dropped, self._dropped = self._dropped[:room], self._dropped[room:]
        if self._pending:
            return 0
        return batch.decisions[-1].offset + 1 if batch.decisions else self.admitted_below

    def put_back(self, batch: Batch) -> None:
        """Take back what `take` has added: the transaction aborted."""
        self._pending.extendleft(reversed(batch.decisions))
        self._dropped[:0] = batch.dropped
        batch.decisions, batch.dropped = [], []
        self.nothing_settled()

    def settle(self, batch: Batch) -> list[bytes]:
        """Return the journal's records of a firing transaction about names."""
        if self._clear and not batch.decisions:  # without names, a message costs nothing more
            self._settled = _Settled([], [], [], self._debt)
            return []
        continued = list(_continued(batch))
        removed = list(self._current(batch.named, batch))
        changes = [decision.change for decision in batch.decisions if decision.change]
        changes += [continues(name, entry) for name, entry in continued]
        changes += [gone(name, offset) for name, offset in removed]
        debt = self._debt + REPEATED * sum(map(len, changes))
        if changes and self._clear:
            self._index.point_all(self._journal_end)
            self._clear, debt = False, 0
        shards, written = list[bytes](), list[tuple[int, int]]()
        # When all names are written, nothing is owed.
        debt = min(debt, max(self._index.count * ENTRY_BYTES, LEAST_DEBT_BYTES))
        # A shard must not say what is not committed yet.
        if not self._pending and not self._clear:
            debt = self._write_shards(debt, shards, written)
        self._settled = _Settled(removed, continued, written, debt)
        return [*shards, *map(encode_names, joined(changes, RECORD_BYTES))]

    def _write_shards(self, debt: int, shards: list[bytes], written: list[tuple[int, int]]) -> int:
        """Add the oldest shards, as far as they are due; return what is owed afterwards."""
        if debt < LEAST_DEBT_BYTES:
            return debt
        pointer = min([self._journal_end, *self._in_flight.values()])
        for number in self._index.oldest(MOST_SHARDS):
            shard = self._index.shard(number)
            if debt < max(len(shard.entries), LEAST_DEBT_BYTES):
                break
            shards.append(encode_shard(ShardEntry(self.decided_below, shard)))
            written.append((number, pointer))
            debt -= max(len(shard.entries), LEAST_DEBT_BYTES)
        return debt

    def settle_checkpoint(self, low: int) -> list[bytes]:
        """Return what to write about names without a batch.

        Args:
            low: the low watermark of the intake.
        """
        is_over = not (self._index.count or self._pending or self._in_flight or self._clear)
        clears = is_over and low >= self.decided_below
        self._settled = _Settled([], [], [], self._debt, clears)
        if not clears:
            return self._renewed()
        # From now on a recovery may begin to read behind the last names, and find an old shard: this replaces it.
        return [encode_shard(ShardEntry(self.decided_below, Shard(b"", b"", b"")))]

    def _renewed(self) -> list[bytes]:
        """Return the oldest shards if the journal has grown far behind them, although few names change."""
        behind = self._journal_end - self._index.pointer
        if self._pending or self._clear or behind < RENEWED_AFTER + RENEWED_AFTER_SHARD * self._index.shards:
            return []
        shards, written = list[bytes](), list[tuple[int, int]]()
        self._write_shards(1 << 62, shards, written)
        self._settled = _Settled([], [], written, self._debt)
        return shards

    def nothing_settled(self) -> None:
        """Note that the next commit has no record of names: what was settled before was aborted."""
        self._settled = _Settled([], [], [], self._debt)

    def confirm(self, batch: Batch | None = None) -> None:
        """Note that the transaction of the last `settle` or `rest` committed."""
        settled, self._settled = self._settled, _Settled([], [], [], self._debt)
        for number, pointer in settled.written:  # before shards are joined
            self._index.point(number, pointer)
        for name, offset in settled.removed:
            self._remove(name, offset)
        for name, entry in settled.continued:
            self._index.put(name, entry)
        self._debt = settled.debt
        self._clear = self._clear or settled.clears
        if batch is not None and batch.decisions:
            self.admitted_below = batch.decisions[-1].offset + 1

    def _remove(self, name: bytes, offset: int) -> None:
        self._index.remove(name, offset)
        self._hidden.discard(offset)

    def _current(
        self, records: Iterable[HeldMessage | DeadMessage], batch: Batch | None = None
    ) -> Iterator[tuple[bytes, int]]:
        """Yield name and offset of each message that waits under its name, and does not continue in a batch."""
        continued = {message.sequence for message, _ in batch.followers} if batch is not None else ()
        for record in records:
            entry = None if record.name is None else self._index.find(record.name)
            if record.name is None or entry is None or entry.offset != record.sequence:
                continue
            if record.sequence not in continued:
                yield record.name, entry.offset

    # -- side transactions --------------------------------------------------------------------------------------------

    def begin_side(self, records: Iterable[HeldMessage | DeadMessage]) -> None:
        """Note that a side transaction tries to complete messages."""
        for record in records:
            if record.name is not None:
                self._in_flight[record.sequence] = self._journal_end

    def journal_of_side(self, records: Iterable[HeldMessage | DeadMessage], batch: Batch | None = None) -> list[bytes]:
        """Return the journal's records of a side transaction about names.

        Args:
            records: the messages that it completes.
            batch: what it delivers; None for letters.
        """
        changes = [gone_in_side(name, offset) for name, offset in self._current(records, batch)]
        if batch is not None:
            changes += [continues_in_side(name, entry) for name, entry in _continued(batch)]
        return [encode_names(part) for part in joined(changes, RECORD_BYTES)]

    def end_side(
        self, records: Sequence[HeldMessage | DeadMessage], *, committed: bool, batch: Batch | None = None
    ) -> None:
        """Note that the side transaction is over.

        Args:
            records: the messages that it completes.
            committed: whether it committed.
            batch: what it delivers; None for letters.
        """
        named = [record for record in records if record.name is not None]
        if committed:
            for name, offset in list(self._current(named, batch)):
                self._remove(name, offset)
                self._debt += REPEATED * ENTRY_BYTES // 2
            for name, entry in () if batch is None else _continued(batch):
                self._index.put(name, entry)
                self._debt += REPEATED * ENTRY_BYTES
        for record in named:
            self._in_flight.pop(record.sequence, None)

    # -- the checkpoint -----------------------------------------------------------------------------------------------

    @property
    def pointer(self) -> int | None:
        """The journal offset from which a recovery must read for names; None if it need not."""
        return None if self._clear else self._index.pointer

    def note_journal_end(self, end: int) -> None:
        """Note an end of the journal that was requested earlier."""
        self._journal_end = max(self._journal_end, end)


def hidden_name(offset: int) -> bytes:
    """Return a hash that is no name's: under it, a record that is rejected waits for its dead letter."""
    return hash_of(b"", b"\xff%d" % offset)


def _name_of(message: HeldMessage) -> bytes:
    assert message.name is not None, "only named records are decided"  # noqa: S101
    return message.name


def _of_entry(outcome: Outcome, entry: NameEntry, other: tuple[str, int]) -> Answer:
    return Answer(outcome, id_text(entry.id), entry.place, entry.due_ms, None, other)


def _continued(batch: Batch) -> Iterator[tuple[bytes, NameEntry]]:
    """Yield the names of the schedules that continue behind a batch, with their entries."""
    for message, follower in batch.followers:
        name = _name_of(message)
        yield name, NameEntry(CONTINUES | message.sequence, follower.due_ms, id_bytes(message.schedule))
