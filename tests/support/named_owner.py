"""One partition whose senders name their messages, and its owners: few names, many records, and much that goes wrong.

Attempts to deliver what is parked, and to write large dead letters, stay open while others come and go. One that has
what a named record wants to replace or cancel is aborted.
"""

import uuid
from collections.abc import Callable, Iterable
from functools import partial
from random import Random
from typing import TYPE_CHECKING

from tarry.core.batch import Batch, Settlement
from tarry.core.message import Headers
from tarry.core.progress.checkpoint import Geometry
from tarry.core.progress.journal import Copy, DoneEntry, decode_entry
from tarry.core.progress.name_index import NameIndex
from tarry.core.progress.name_records import NameRecords
from tarry.core.progress.recovery import Recovery
from tarry.core.progress.source import PARKED
from tarry.core.request.naming import Condition
from tarry.core.wheel.closed_range import ClosedRange
from tarry.core.wheel.overflow import Upkeep
from tarry.core.window.letters import Bundle
from tarry.handle import Handle
from tarry.headers import CANCEL, CANCEL_NAME, DELIVER_AT, EVERY, ID, IF, NAME, PURGE, TARGET, ErrorCode, occurrence_id
from tests.support.durable import Filed, Store
from tests.support.names_oracle import KEY, Oracle, Record, is_doomed
from tests.support.owner import NAME as INTAKE_NAME
from tests.support.owner import CrashError, Owner, Plan
from tests.support.parked import read_parked

if TYPE_CHECKING:
    from tarry.core.progress.source import Source

SMALL = Geometry(2_000, 2, 3)
"""Buckets of 2, 4 and 8 seconds."""

TARGETS = ("orders", "bills")
START_MS = 1_700_000_000_000
BUDGET_BYTES = 12_000
MOST_TURNS = 4_000


class CheckedStore(Store):
    """A store that sees that each record of each log is done once, with small shards of names.

    The records of a transaction that stays open are in front of those that others write meanwhile.
    """

    most_names = 2
    """The most names in a shard."""

    def begin(self, writer: str) -> Recovery:
        """Return the checkpoint of a new owner."""
        recovery = super().begin(writer)
        recovery.journal.names = NameRecords(NameIndex(self.most_names))
        return recovery

    def commit_without_offset(self, *records: bytes) -> None:
        """Commit a transaction that was written at once."""
        self._look_at(records)
        super().commit_without_offset(*records)

    def write(self, records: list[bytes]) -> int:
        """Write the records of a transaction that stays open; return the offset of the first one."""
        first = self.journal_end
        self.journal_end += len(records)
        return first

    def commit_written(self, first: int, records: list[bytes]) -> None:
        """Commit such a transaction."""
        self._look_at(records)
        written = [(offset, record) for offset, record in enumerate(records, first) if offset >= self.journal_start]
        self.journal = sorted([*self.journal, *written])
        self.journal_end += 1

    def _look_at(self, records: Iterable[bytes]) -> None:
        self.done: set[tuple[int, int]] = getattr(self, "done", set())
        for record in records:
            entry = decode_entry(record)
            for source, ranges in entry.ranges.items() if isinstance(entry, DoneEntry) else ():
                places = {(source.level, offset) for run in ranges for offset in range(*run)}
                assert not places & self.done, f"done twice: {sorted(places & self.done)}"
                self.done |= places


class NamedOwner(Owner):
    """One run.

    Args:
        seed: the seed of all random choices.
        records: about how many records are sent.
        schedules: the share of schedules among named messages.
    """

    def __init__(self, seed: int, records: int, schedules: float = 0.0) -> None:
        choose = Random(seed)
        self.oracle = Oracle()
        self.records = self.oracle.records
        self.to_send = records
        self.schedules = schedules
        self.names = [b"n%d" % number for number in range(choose.choice((1, 2, 4, 40)))]
        self.longest_ms = choose.choice((1_500, 6_000, 30_000))
        self.least_ms = choose.choice((0, 0, 4_000))
        self.burst = choose.choice((5, 5, 40))
        self.budget_bytes = choose.choice((3_000, BUDGET_BYTES))
        self.away_rate = choose.choice((0.06, 0.3))
        self.hangs = choose.choice((0.4, 0.1))
        """How often an attempt that is open is ended."""
        self.faults = choose.choice((0.0, 0.02, 0.1, 0.25))
        self.steps_back = choose.random() < 0.2
        self.most_names = choose.choice((1, 2, 1 << 62, 1 << 62))
        self.pauses = choose.choice((0.1, 0.5))
        """How often a step is left out."""
        self.attempt: tuple[str, Batch, int, list[bytes], int] | None = None
        self.letters: tuple[Bundle, int, list[bytes]] | None = None
        super().__init__(choose, START_MS + choose.randrange(100_000), SMALL)
        self.upkeep = self.state.overflow.upkeep = Upkeep(
            choose.choice((6, 1_000)), choose.choice((1, 1_000)), choose.choice((2, 6))
        )

    # -- what is sent -------------------------------------------------------------------------------------------------

    def send_some(self) -> None:
        choose = self.choose
        for _ in range(min(choose.choice((1, 1, 2, self.burst)), self.to_send)):
            self.to_send -= 1
            what = choose.random()
            if what < 0.12:
                self._append_record([(CANCEL_NAME, self.name())], b"", None, "", is_by_name=True)
            elif what < 0.22 and self.messages():
                message = choose.choice(self.messages()[-8:])
                handle = Handle(INTAKE_NAME, 0, message.due_ms or 0, message.id.decode())
                self._append_record([(CANCEL, str(handle).encode())], message.id, message.due_ms, "", is_by_handle=True)
            elif what < 0.24:
                self._append_record([(PURGE, choose.choice(TARGETS).encode())], b"", None, "")
            elif what < 0.27:
                name = self.name()
                headers: Headers = [(TARGET, b"no topic"), (DELIVER_AT, b"%d" % self.now_ms), (NAME, name)]
                self._append_record(headers, b"", None, "", name=name, is_rejected=True)
            elif what < 0.39 and self.messages():
                again = choose.choice(self.messages()[-6:])
                assert again.due_ms is not None
                if again.schedule:
                    self.send_schedule(again.schedule)
                else:
                    self.send_message(again.id, again.due_ms)
            else:
                delay_ms = self.least_ms + choose.randint(0, choose.choice((200, 3_000, self.longest_ms)))
                id_ = str(uuid.UUID(int=choose.getrandbits(128), version=4)).encode()
                if self.schedules and choose.random() < self.schedules:
                    self.send_schedule(id_)
                else:
                    self.send_message(id_, self.now_ms + delay_ms)

    def messages(self) -> list[Record]:
        return [record for record in self.records.values() if record.target]

    def name(self) -> bytes:
        """Choose a name, rather one that an attempt has."""
        tried = [] if self.attempt is None else [self.records[one.sequence].name for one in self.attempt[1].due]
        names = [name for name in tried if name is not None]
        if names and self.choose.random() < 0.5:
            return self.choose.choice(names)
        return self.choose.choice(self.names)

    def send_schedule(self, id_: bytes) -> None:
        every_ms = self.choose.choice((1_000, 2_000, 7_000))
        due_ms = self.now_ms + every_ms - self.now_ms % every_ms
        target = self.choose.choice(TARGETS)
        headers: Headers = [(TARGET, target.encode()), (ID, id_), (EVERY, b"%dms" % every_ms), (NAME, self.name())]
        condition = self.choose.choice((Condition.ALWAYS, Condition.ALWAYS, Condition.ABSENT, Condition.PRESENT))
        if condition:
            headers.append((IF, condition.encode()))
        self._append_record(
            headers, occurrence_id(id_, due_ms), due_ms, target, name=headers[3][1], condition=condition
        )
        sent = self.records[max(self.records)]
        sent.schedule, sent.every_ms = id_, every_ms

    def append_next(self, batch: Batch, at_ms: int) -> None:
        """Append the next records of schedules, which a committed transaction wrote."""
        for message, follower in batch.followers:
            offset = self.intake_end
            self.records[offset] = self.oracle.followed(message, follower, offset, at_ms)
            self.intake_end += 1

    def cancel_all(self) -> None:
        """End all schedules."""
        for name in self.names:
            self._append_record([(CANCEL_NAME, name)], b"", None, "", is_by_name=True)

    def send_message(self, id_: bytes, due_ms: int) -> None:
        target = self.choose.choice(TARGETS)
        headers: Headers = [(TARGET, target.encode()), (DELIVER_AT, b"%d" % due_ms), (ID, id_), ("trace", b"1")]
        name, condition = None, Condition.ALWAYS
        if self.choose.random() < 0.75:
            name = self.name()
            headers.append((NAME, name))
            condition = self.choose.choice((Condition.ALWAYS, Condition.ALWAYS, Condition.ABSENT, Condition.PRESENT))
            if condition:
                headers.append((IF, condition.encode()))
        self._append_record(headers, id_, due_ms, target, name=name, condition=condition)

    def _append_record(
        self,
        headers: Headers,
        id_: bytes,
        due_ms: int | None,
        target: str,
        *,
        name: bytes | None = None,
        condition: Condition = Condition.ALWAYS,
        is_by_name: bool = False,
        is_by_handle: bool = False,
        is_rejected: bool = False,
    ) -> None:
        if is_by_name:
            name = headers[0][1]
        self.records[self.intake_end] = Record(
            self.now_ms, headers, id_, due_ms, target, name, condition, is_by_name, is_by_handle, is_rejected
        )
        self.intake_end += 1 + (self.choose.random() < 0.1)

    # -- its owners ---------------------------------------------------------------------------------------------------

    def take_over(self) -> None:
        if self.lives == 0:
            self.checked = CheckedStore(journal=self.store.journal, journal_end=self.store.journal_end)
            self.store = self.checked
        self.attempt = self.letters = None
        super().take_over()
        self.state.names.limit = self.oracle.limit = self.most_names
        found = {name: entry.offset for name, entry in self.state.names._index}
        waits = self.oracle.names()
        refused = {at for at, record in self.records.items() if record.is_refused and record.outcome is None}
        assert {name: at for name, at in found.items() if at not in refused} == waits, "another index was recovered"
        assert set(found.values()) - set(waits.values()) == refused, "another index was recovered"

    def turn(self) -> bool:
        steps = [self.read, self.close, self.read_levels, self.fire, self.retry, self.write_letters, self.file]
        steps += [self.trim, self.tidy, self.read_again]
        self.choose.shuffle(steps)
        try:
            done = [do() for do in steps if self.calm or self.choose.random() > self.pauses]
            return any(done)
        except CrashError:
            self.crash()
            return True

    def room_bytes(self) -> int:
        return max(0, self.budget_bytes // 2 - self.state.held_bytes)

    def read(self) -> bool:
        state, choose = self.state, self.choose
        may_pass_over = state.pass_over(is_behind=not self.calm and choose.random() < 0.2, now_ms=self.now_ms)
        is_full = state.held_bytes > self.budget_bytes and not state.is_gated and not may_pass_over
        if self.cursor >= self.intake_end or is_full:
            return False
        for offset in range(self.cursor, min(self.cursor + choose.choice((1, 3, 20)), self.intake_end)):
            if (record := self.records.get(offset)) is not None:
                value = b"v" * choose.choice((1, 1, 600)) if record.target else b""
                state.arrivals.accept(offset, record.timestamp_ms, KEY, value, record.headers, self.now_ms)
                self.oracle.accept(offset, self.now_ms)
            self.cursor = offset + 1
        if self.cursor >= self.intake_end:
            state.arrivals.reach(self.intake_end)
        return True

    def read_again(self) -> bool:
        """Read what was passed over."""
        passed_over = self.state.passed_over
        if not passed_over.span:
            return False
        for offset in range(passed_over.position, passed_over.position + self.choose.choice((1, 5))):
            if (record := self.records.get(offset)) is not None:
                value = b"v" if record.target else b""
                self.state.arrivals.accept_again(offset, record.timestamp_ms, KEY, value, record.headers, self.now_ms)
            assert passed_over.reach(offset + 1) == 0
        return True

    def read_record(self, plan: Plan, offset: int, record: Filed) -> None:
        whole = [one.range for one in plan.present if isinstance(one.range, ClosedRange) and not one.range.passes]
        self.state.level_records.accept(plan.present, offset, record.key, record.value, record.headers, self.now_ms)
        self.turned_to_passes += sum(one.passes is not None for one in whole)

    def commit_checkpoint(self) -> bool:
        is_open = self.attempt is not None or self.letters is not None
        settled = self.state.settle_checkpoint(sums_up=self.choose.random() < 0.5 and not is_open)
        if not self.transact(partial(self.commit, settled, Batch()), self.store.abort):
            return False
        self.state.confirm_checkpoint()
        self.is_uncommitted = False
        return True

    def fire(self) -> bool:
        state, choose = self.state, self.choose
        if not state.collect(self.now_ms):
            return False
        limit_bytes = choose.choice((600, 1 << 62, 1 << 62))
        batch = state.take(choose.choice((1, 2, 7, 50)), self.now_ms, self.apart, limit_bytes)
        self.give_up(batch)
        state.split_off_letters(batch, every=choose.random() < 0.5)
        if not len(batch):
            return True
        state.follow(batch, self.now_ms)
        settled = state.settle(batch)
        if self.transact(partial(self.commit, settled, batch), self.store.abort):
            state.confirm(batch)
        else:
            state.put_back(batch, self.apart)
        return True

    def give_up(self, batch: Batch) -> None:
        batch.give_up({one.sequence: ("too-large", "") for one in batch.due if is_doomed(one.sequence)})

    # -- side transactions --------------------------------------------------------------------------------------------

    def retry(self) -> bool:
        """Begin to deliver what is parked for a target, or end that."""
        state, choose = self.state, self.choose
        state.parked.limit_bytes = choose.choice((0, 1_500, 1 << 40))
        self.apart = self.away | set(state.parked.targets)
        if self.attempt is not None:
            if (state.wants_back() and choose.random() < 0.5) or self.calm or choose.random() < self.hangs:
                self.end_attempt()
            return True
        if not state.parked:
            return False
        topic = choose.choice(sorted(state.parked.targets))
        missing = read_parked(state, self.levels[PARKED], topic, choose.choice((0, 1_500)))
        assert missing == 0, "what is parked is not in the log"
        if not self.calm and choose.random() < 0.1:
            state.parked.leave(topic)
        limit = choose.choice((1, 3, 20))
        if topic in state.parked.purged:
            if len(state.letters) or self.letters is not None:
                return True  # the purge is done behind them
            batch = state.take_purged(topic, limit)
        else:
            batch = state.take_parked(topic, limit, self.now_ms)
            self.give_up(batch)
        if len(batch):
            letters = state.split_off_letters(batch, every=True) if choose.random() < 0.2 else []
            # One that was to be purged is none of that after a crash, and may be delivered late.
            self.oracle.left_behind |= {letter.sequence for letter in letters if letter.code == ErrorCode.PURGED}
            state.follow(batch, self.now_ms)
            journal = state.journal_of_parked(batch)
            self.attempt = topic, batch, self.checked.write(journal), journal, self.now_ms
            if letters and not len(batch):
                self.end_attempt()
        return self.attempt is not None

    def end_attempt(self) -> None:
        assert self.attempt is not None
        topic, batch, first, journal, taken_ms = self.attempt
        self.attempt = None
        is_wanted = self.state.wants_back() or topic in self.away
        if not is_wanted and self.transact(
            partial(self.commit_aside, first, journal, batch, taken_ms), self.store.abort
        ):
            self.state.confirm_parked(batch)
            return
        if is_wanted:
            self.oracle.seen["wanted back"] += topic not in self.away
            self.store.abort()
        self.state.park_again(topic, batch)

    def commit_aside(self, first: int, journal: list[bytes], batch: Batch, taken_ms: int) -> None:
        self.checked.commit_written(first, journal)
        self.oracle.committed(batch, taken_ms)
        self.append_next(batch, taken_ms)

    def write_letters(self) -> bool:
        """Begin to write large dead letters, or end that; some are refused, and a stub is written."""
        state, choose = self.state, self.choose
        if self.letters is None:
            letters = state.take_letters(choose.choice((1, 5)), 1 << 62)
            if letters:
                journal = state.journal_of_letters(letters)
                self.letters = letters, self.checked.write(journal), journal
            return bool(letters)
        if not (state.wants_back() or self.calm or choose.random() < self.hangs):
            return True
        (letters, first, journal), self.letters = self.letters, None
        refused: set[tuple[Source, int]] = set()
        if not self.calm and choose.random() < 0.2:
            refused = {letter.location for letter in letters if choose.random() < 0.5 and not letter.is_stub}
        if refused or state.wants_back():
            self.oracle.seen["letters wanted back"] += state.wants_back()
            self.store.abort()
            state.put_back_letters(letters, refused)
        elif self.transact(partial(self.commit_letters, letters, first, journal), self.store.abort):
            state.confirm_letters(letters)
        else:
            state.put_back_letters(letters, ())
        return True

    def commit_letters(self, letters: Bundle, first: int, journal: list[bytes]) -> None:
        self.checked.commit_written(first, journal)
        self.oracle.step += 1
        self.oracle.left_behind |= {letter.sequence for letter in letters if letter.is_stub}
        for letter in letters.done:
            self.oracle.judge_dead(letter.sequence, letter.code)

    # -- a run --------------------------------------------------------------------------------------------------------

    def run(self) -> None:
        """Send all records, and go on until all that waits has left."""
        choose = self.choose
        turns = 150 if self.schedules else 0
        while self.to_send or turns:
            if self.to_send and choose.random() < 0.5:
                self.send_some()
            # Schedules go on for a while when nothing is sent any more.
            turns -= bool(turns and not self.to_send)
            self.turn()
            self.pass_some_time()
            if choose.random() < self.faults / 5:
                self.crash()
        self.calm = True
        if self.schedules:
            self.cancel_all()
        self.away.clear()
        self.cannot_trim = False
        self.take_over()  # dead letters that were refused are tried again
        for _ in range(MOST_TURNS):
            self.now_ms += 0 if self.turn() else 500
            left = self.oracle.waiting() + self.state.held + sum(log.left for log in self.levels.values())
            if not left and self.cursor == self.intake_end:
                break
        else:
            raise AssertionError(f"it does not come to an end: {self.oracle.waiting()} wait")
        assert self.commit_checkpoint()
        assert self.commit_checkpoint()

    def pass_some_time(self) -> None:
        choose = self.choose
        self.now_ms += choose.choice((0, 0, 1, 100, 700, self.longest_ms // 4))
        if self.steps_back and choose.random() < 0.02:
            self.now_ms -= choose.choice((1, 900, 3_000))
            self.oracle.keeps_order = False
        if choose.random() < self.away_rate:
            self.away = set() if self.away else {choose.choice(TARGETS)}
            self.apart |= self.away
        if choose.random() < 0.05:
            self.cannot_trim = not self.cannot_trim

    def transact(self, commit: Callable[[], None], abort: Callable[[], None]) -> bool:
        each = 0.0 if self.calm else self.faults / 3
        fate = self.choose.choices(("", "abort", "before", "after"), (1 - 3 * each, each, each, each))[0]
        if fate in {"abort", "before"}:
            abort()
        else:
            commit()
        if fate in {"before", "after"}:
            raise CrashError
        return fate != "abort"

    def commit(self, settled: Settlement, batch: Batch) -> None:
        assert isinstance(decode_entry(settled.journal), (DoneEntry, Copy))
        self.store.commit(settled)
        self.oracle.committed(batch, self.now_ms)
        self.append_next(batch, self.now_ms)


def run(seed: int, records: int = 60, schedules: float = 0.0) -> NamedOwner:
    """Run a course to its end, and check that nothing is left.

    Raises:
        AssertionError: a promise is broken, or something is left; the text names the seed.
    """
    owner = NamedOwner(seed, records, schedules)
    try:
        owner.run()
        state = owner.state
        assert (state.held, state.held_bytes) == (0, 0), "memory is left"
        assert state.names.count == 0, "names are left"
        assert state.names.pointer is None, "the journal is read for names that are gone"
        assert state.low == owner.intake_end
    except AssertionError as error:
        raise AssertionError(f"seed {seed}: {error}") from error
    return owner
