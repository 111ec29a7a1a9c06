"""One partition and its owner: `PartitionState` over `durable`'s lists, driven as the worker's loop drives it.

Random commits are aborted, and the owner crashes at random before and after commits. The next owner knows only the
lists. A judge checks each commit.
"""

import uuid
from collections import Counter
from collections.abc import Callable
from functools import partial
from itertools import chain, groupby
from random import Random
from typing import TYPE_CHECKING

from tarry.core.batch import Batch, FiledRun, Settlement
from tarry.core.partition import Only, PartitionState
from tarry.core.progress.checkpoint import Checkpoint, Geometry
from tarry.core.progress.journal import encode_copy, encode_done
from tarry.core.progress.recovered import Recovered
from tarry.core.progress.source import PARKED, Source
from tarry.core.request.intake_policy import IntakePolicy
from tarry.core.request.reader import RequestReader
from tarry.core.wheel.closed_range import ClosedRange
from tarry.core.wheel.filed import FILED, due_ms_of, filed_headers
from tarry.core.wheel.levels import first_closed_ms
from tarry.core.wheel.overflow import ToRead, Upkeep
from tarry.handle import Handle
from tarry.headers import CANCEL, DELAY_MS, ID, TARGET
from tarry.timer import TimingWheel
from tests.support.durable import Filed, LevelLog, Store, recover
from tests.support.outcomes import Judge, Sent, is_refused
from tests.support.parked import read_parked

if TYPE_CHECKING:
    from tarry.core.message import Headers
    from tarry.core.progress.journal import Range

NAME = "orders.delayed"
DAY_MS = 86_400_000
GEOMETRY = Geometry(20_000, 16, 4)
LONGEST_MS = 30 * DAY_MS

BUDGET_BYTES = 40_000
"""Some sixty messages: a burst that is due together is more than that."""
LARGE_BYTES = 1_500
"""The size of messages of every third bucket, which makes them more than twice as large as the others."""
MOST_TO_FILE = 60
READ_MOST = 25
TURN_BYTES = READ_MOST * 2 * (LARGE_BYTES + 700)
"""The most that a turn reads of the intake, and of a log above level 1, if all messages are large."""


class CrashError(Exception):
    """The owner has crashed in the middle of a step."""


def value_of(sent: Sent) -> bytes:
    """Return the value of a message."""
    if sent.cancels is not None:
        return b""
    return b"x" * (1 if sent.due_ms // GEOMETRY.width_ms % 3 else LARGE_BYTES)


class Plan:
    """What is read of one log, as the worker's `LevelReader` plans it: what is added later waits for the next plan."""

    def __init__(self) -> None:
        self.present: list[ToRead] = []
        self._later: list[ToRead] = []
        self._offsets: list[int] = []
        self._position = 0

    @property
    def is_over(self) -> bool:
        return not self.present and not self._later

    @property
    def needs_from(self) -> int:
        """The offset below which nothing will be read."""
        return min([*self._offsets[:1], *(one.runs[0][0] for one in self._later)], default=1 << 62)

    def add(self, to_read: ToRead) -> None:
        if all(one.range is not to_read.range for one in [*self.present, *self._later]):
            self._later.append(to_read)

    def next(self, most: int) -> list[int]:
        """Return the next offsets to read; the offsets between the runs are left out."""
        if not self.present:
            self.present, self._later = self._later, []
            self._offsets = sorted({at for one in self.present for run in one.runs for at in range(*run)})
            self._position = 0
        read, self._offsets = self._offsets[:most], self._offsets[most:]
        self._position = self._offsets[0] if self._offsets else 1 << 62
        return read

    def ended(self) -> list[ToRead]:
        """Return what was read to its end, once."""
        ended = [one for one in self.present if one.runs[-1][1] <= self._position]
        self.present = [one for one in self.present if one not in ended]
        return ended


class Owner:
    """Owners of a partition, one after the other.

    Args:
        choose: the random source of all choices.
        now_ms: wall time at the start.
        geometry: of the overflow wheel.
    """

    def __init__(self, choose: Random, now_ms: int, geometry: Geometry = GEOMETRY) -> None:
        self.choose = choose
        self.geometry = geometry
        self.now_ms = now_ms
        self.judge = Judge()
        self.intake = self.judge.intake
        # Offsets of long-lived logs, so that the checkpoint is as long as in practice.
        self.first = self.intake_end = self.choose.choice((0, 10**10))
        self.reader = RequestReader(IntakePolicy(NAME, max_delay_ms=LONGEST_MS))
        self.calm = False
        """Whether no more faults are injected."""
        self.broker_forgets = False
        """Whether brokers are killed as well, and then have the records again that were deleted in the last minute."""
        self.away: set[str] = set()
        self.apart: set[str] = set()
        """Targets whose messages are parked, because the target is away or earlier messages are still parked."""
        self.cannot_trim = False
        """Whether the brokers refuse to delete done records for now."""
        self.lives = self.copies_used = 0
        self.turned_to_passes = 0
        """How many ranges turned out too large while they were read whole."""
        self.full_bytes = 0
        """The memory limit above which ranges are read in passes, with all other messages of this turn."""
        self.most_text = 0
        self.upkeep = Upkeep(
            self.choose.choice((6, 30, 1_000)), self.choose.choice((1, 10, 1_000)), self.choose.choice((1, 20, 1_000))
        )
        self.known_from_the_index = 0
        """How many logs a take-over needed not read, although some of their records waited."""
        self.filed_again = 0
        self.filed_to: Counter[int] = Counter()
        """How many messages were filed to each level."""
        closed_ms = first_closed_ms(geometry, self.now_ms)
        birth = Checkpoint(writer=(), released=True, geometry=geometry, closed_ms=closed_ms)
        self.store = Store(journal=[(0, encode_copy(self.first, birth.encode()))], journal_end=1)
        self.levels = {level: LevelLog(self.first, self.first) for level in (*range(1, geometry.levels + 1), PARKED)}
        """The logs of the levels, and the parked log."""
        self.take_over()

    # -- what is sent -------------------------------------------------------------------------------------------------

    def send(self, delay_ms: int, target: str) -> int:
        id_ = str(uuid.UUID(int=self.choose.getrandbits(128), version=4)).encode()
        headers: Headers = [(TARGET, target.encode()), (DELAY_MS, b"%d" % delay_ms), (ID, id_), ("trace", b"1")]
        return self._append(Sent(self.now_ms, headers, self.now_ms + delay_ms, target))

    def cancel(self, offset: int) -> None:
        message = self.intake[offset]
        if message.cancels is None:
            id_ = (dict(message.headers)[ID] or b"").decode()
            headers: Headers = [(CANCEL, str(Handle(NAME, 0, message.due_ms, id_)).encode())]
            self._append(Sent(self.now_ms, headers, message.due_ms, "", offset))

    def _append(self, sent: Sent) -> int:
        offset = self.intake_end
        self.intake[offset] = sent
        self.intake_end += 1 + (self.choose.random() < 0.1)  # now and then a marker
        return offset

    # -- its owners ---------------------------------------------------------------------------------------------------

    def crash(self) -> None:
        """Start another owner; sometimes the group's offsets are lost, or deleted records are there again."""
        if self.choose.random() < 0.2:
            self.store.offset = None
            self.copies_used += 1
        if self.broker_forgets and not self.calm and self.choose.random() < 0.2:
            for log in self.levels.values():
                log.forget_the_deletion(self.now_ms)
        self.take_over()

    def take_over(self) -> None:
        self.lives += 1
        self.spoilt = self.choose.choice((0, 0, 0.05, 0.5))
        recovered = recover(self.store, self.levels, self.intake_end, f"tarry.orders-{self.lives}.fire", self.spoil)
        self.state = PartitionState(
            NAME, 0, self.reader, False, lambda start_ms: TimingWheel(1, 64, start_ms), recovered, self.now_ms
        )
        self.state.overflow.upkeep = self.upkeep
        self.look_at_index(recovered)
        self.cursor = recovered.low
        self.open: dict[int, Plan] = {}
        """What is read of each level's log."""
        self.pace = self.choose.choice((1, READ_MOST))
        """Records of a log that are read in a turn."""
        self.is_uncommitted = False
        self.replayed_bytes = 0
        self.journal_end_before = self.store.journal_end

    def look_at_index(self, recovered: Recovered) -> None:
        """Check that the take-over knows where each record is that waits, or reads it to learn that."""
        overflow, checkpoint = self.state.overflow, recovered.checkpoint
        for level, log in overflow._logs.items():
            begin, done_ms = checkpoint.low[level - 1], checkpoint.done_ms[level - 1]
            runs: list[Range] = list(chain.from_iterable(log._runs.values()))
            runs += chain.from_iterable(one.runs for one in overflow._closed[level])
            self.known_from_the_index += log.is_surveyed and len(runs) > 0
            runs += log.unknown()
            for offset, record in self.levels[level].records.items():
                due_ms = due_ms_of(record.headers) if record.headers[-1:] and record.headers[-1][0] == FILED else 0
                done = recovered.buckets.done.get(overflow.source_of(level, due_ms), ())
                if offset >= begin and due_ms >= done_ms and offset not in done:
                    assert any(first <= offset < end for first, end in runs), f"level {level}, {offset}: in no run"

    def spoil(self, record: bytes) -> bytes | None:
        """Lose or damage a record of the index at random."""
        if self.choose.random() >= self.spoilt:
            return record
        at = self.choose.randrange(2, len(record))
        return self.choose.choice((None, record[:at], record[:at] + bytes([record[at] ^ 1]) + record[at + 1 :]))

    def turn(self) -> bool:
        """Go once around the loop; return whether there was anything to do."""
        try:
            done = [do() for do in (self.read, self.close, self.read_levels, self.fire, self.retry, self.file)]
            return any([*done, self.trim(), self.tidy()])
        except CrashError:
            self.crash()
            return True
        finally:
            self.look_at_memory()

    def read(self) -> bool:
        state = self.state
        is_full = state.held_bytes > BUDGET_BYTES and not state.is_gated
        if self.cursor >= self.intake_end or is_full or state.placing.to_file > MOST_TO_FILE:
            return False
        for offset in range(self.cursor, min(self.cursor + READ_MOST, self.intake_end)):
            if (sent := self.intake.get(offset)) is not None:
                state.arrivals.accept(offset, sent.timestamp_ms, b"k", value_of(sent), sent.headers, self.now_ms)
                self.judge.accept(offset, self.now_ms)
            self.cursor = offset + 1
        if self.cursor >= self.intake_end:
            state.arrivals.reach(self.intake_end)
        return True

    def close(self) -> bool:
        room = self.room_bytes()
        if not self.is_uncommitted:
            self.is_uncommitted = self.state.close_buckets(room, self.now_ms)
        if self.is_uncommitted:
            self.commit_checkpoint()
            return True
        return False

    def room_bytes(self) -> int:
        return max(0, BUDGET_BYTES // 2 - self.state.held_bytes)

    def commit_checkpoint(self) -> bool:
        """Commit the checkpoint with a copy in the journal; return whether it was committed."""
        settled = self.state.settle_checkpoint(sums_up=self.choose.random() < 0.5)
        if not self.transact(partial(self.commit, settled, Batch()), self.store.abort):
            return False
        self.state.confirm_checkpoint()
        self.is_uncommitted = False
        return True

    def read_levels(self) -> bool:
        """Read level 1 at once, and higher levels a little at a time, but not while many messages wait to be filed."""
        for to_read in self.state.level_records.to_read(self.room_bytes()):
            self.open.setdefault(to_read.level, Plan()).add(to_read)
        progress = False
        self.full_bytes = BUDGET_BYTES // 2
        for level, plan in list(self.open.items()):
            is_full = self.state.held_bytes > BUDGET_BYTES
            if level > 1 and (is_full or self.state.placing.moving + self.state.placing.again > MOST_TO_FILE):
                continue
            log = self.levels[level]
            for offset in plan.next(self.choose.choice((1, self.pace))):
                assert offset >= log.start, "deleted before it was read"
                if (record := log.records.get(offset)) is not None:
                    self.read_record(plan, offset, record)
            for ended in plan.ended():
                self.state.level_records.reach_end(ended, self.now_ms)
            progress = True
            if plan.is_over:
                del self.open[level]
        return progress

    def read_record(self, plan: "Plan", offset: int, record: Filed) -> None:
        """Accept a record; if its message exceeds the memory, the range is read in passes from then on."""
        state = self.state
        ranges = [one.range for one in plan.present if isinstance(one.range, ClosedRange)]
        closed = next((one for one in ranges if one.covers(due_ms_of(record.headers))), None)
        placing = state.placing
        held_bytes, to_file, was_whole = state.held_bytes, placing.to_file + placing.again, closed and not closed.passes
        state.level_records.accept(plan.present, offset, record.key, record.value, record.headers, self.now_ms)
        is_held = record.value and state.held_bytes > held_bytes and placing.to_file + placing.again == to_file
        is_whole = closed and not closed.passes
        if not (is_held and is_whole):
            self.full_bytes += max(0, state.held_bytes - held_bytes)
        assert not (is_held and is_whole) or state.held_bytes <= self.full_bytes, "a range takes more than there is"
        self.turned_to_passes += bool(was_whole and not is_whole)

    def fire(self) -> bool:
        state = self.state
        if not state.collect(self.now_ms):
            return False
        batch = state.take(self.choose.choice((1, 7, 50)), self.now_ms, self.apart)
        if not len(batch):
            return True
        settled = state.settle(batch)
        if self.transact(partial(self.commit, settled, batch), self.store.abort):
            state.confirm(batch)
        else:
            state.put_back(batch, self.apart)
        return True

    def retry(self) -> bool:
        """Deliver parked messages of a target that is back, and read those that are in the parked log."""
        state = self.state
        state.parked.limit_bytes = BUDGET_BYTES // 4
        self.apart = self.away | set(state.parked.targets)
        back = sorted(self.apart - self.away)
        for topic in back:
            missing = read_parked(state, self.levels[PARKED], topic, BUDGET_BYTES // 8)
            assert missing == 0, "what is parked is not in the log"
            batch = state.parked.take(topic, 9, self.now_ms)
            if not len(batch):
                continue
            record = encode_done(batch.offsets())
            if self.transact(partial(self.commit_apart, record, batch), self.store.abort):
                state.confirm_parked(batch)
            else:
                state.parked.park_again(topic, batch)
        return bool(back)

    def file_moving(self) -> bool:
        """File only what comes from buckets, as long as reading is more urgent."""
        return self.file("moving")

    def file(self, only: Only | None = None) -> bool:
        only = "parked" if self.is_uncommitted else only
        filing = self.state.take_to_file(self.choose.choice((5, 40)), self.now_ms, only=only)
        if not filing:
            return False
        refused = {message.sequence: ("too-large", "") for message, _ in filing.records if is_refused(message.sequence)}
        if refused:
            self.transact(self.store.abort, self.store.abort)
            self.state.put_back_filed(filing, refused)
            return True
        records: dict[int, list[tuple[Source, Filed]]] = {}
        for message, source in filing.records:
            headers: Headers = filed_headers(message)  # type: ignore[assignment]  # all values are bytes
            filed = Filed(message.original_key, message.value, headers)
            records.setdefault(source.level, []).append((source, filed))

        journal = self.state.journal_of(filing)

        def write(*, commit: bool) -> None:
            for level, of_level in records.items():
                first = self.levels[level].write([filed for _, filed in of_level], commit=commit)
                self.filed_to[level] += len(of_level) * commit
                for source, run in groupby(enumerate(of_level, first), lambda one: one[1][0]):
                    offsets = [offset for offset, _ in run]
                    filing.runs.append(FiledRun(source, offsets[0], offsets[-1] + 1, len(offsets)))
            if commit:
                self.store.commit_without_offset(*journal, *self.state.journal_of_filed(filing))
            else:
                self.store.abort()

        if self.transact(partial(write, commit=True), partial(write, commit=False)):
            self.state.confirm_filed(filing)
            self.filed_again += sum(message.source == source for message, source in filing.records)
        else:
            self.state.put_back_filed(filing, {})
        return True

    def trim(self) -> bool:
        """Delete done records that the last committed checkpoint does not need."""
        below = {} if self.cannot_trim else self.state.to_trim()
        for level, at in below.items():
            if level in self.open and self.open[level].needs_from < at:
                continue
            self.levels[level].trim(at, self.now_ms)
            self.perhaps_crash()
            self.state.trimmed(level, at)
        return bool(below)

    def tidy(self) -> bool:
        """Do the maintenance: note ends of the journal, copy the checkpoint, trim the journal."""
        self.state.note_journal_end(self.journal_end_before)
        self.journal_end_before = self.store.journal_end
        if not self.state.is_low_uncommitted and self.choose.random() > 0.02:
            return False
        if self.commit_checkpoint() and self.choose.random() < 0.5:
            self.store.trim(self.state.reads_from)
        return True

    def look_at_memory(self) -> None:
        """Check that the held memory is bounded, except in a replay, which is always read to its end.

        A turn that begins just below the budget may exceed it by the messages that it reads.
        """
        held = self.state.held_bytes
        if self.state.is_gated:
            self.replayed_bytes = held
        assert held <= max(self.replayed_bytes, BUDGET_BYTES) + TURN_BYTES, "too much is held"

    # -- transactions ------------------------------------------------------------------------------------------------

    def transact(self, commit: Callable[[], None], abort: Callable[[], None]) -> bool:
        """End a transaction, or crash before or after its end; return whether it committed."""
        fate = "" if self.calm else self.choose.choices(("", "abort", "before", "after"), (94, 2, 2, 2))[0]
        if fate in {"abort", "before"}:
            abort()
        else:
            commit()
        if fate in {"before", "after"}:
            raise CrashError
        return fate != "abort"

    def perhaps_crash(self) -> None:
        if not self.calm and self.choose.random() < 0.02:
            raise CrashError

    def commit(self, settled: Settlement, batch: Batch) -> None:
        self.store.commit(settled)
        self.judge.committed(batch, self.now_ms)
        self.most_text = max(self.most_text, len(settled.metadata))

    def commit_apart(self, record: bytes, batch: Batch) -> None:
        self.store.commit_without_offset(record)
        self.judge.committed(batch, self.now_ms)
