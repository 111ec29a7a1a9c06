"""One partition against a list of what was sent: crashes at every step, aborts, clock steps, lost offsets.

Sometimes the target is away: its messages are tried in transactions of their own, and where there are many of them they
are filed to the parked log, and read from there again. A purge makes dead letters of those that wait for the target.

The log, the group's offset and the journal are lists here, written at commits alone, as Kafka's transactions write
them. A recovery knows nothing but these. Whatever the course of events: each message leaves once, never early, in the
order of (due time, offset) where it was accepted before it was due, and nothing stays behind. What expires is
delivered by then, or is dead.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from tarry.core.batch import Batch, FiledRun, Resolution
from tarry.core.message import Headers, HeldMessage
from tarry.core.partition import PartitionState
from tarry.core.progress.checkpoint import Checkpoint, Geometry, decode_checkpoint
from tarry.core.progress.journal import encode_copy, encode_done
from tarry.core.progress.log_order import is_ahead
from tarry.core.progress.source import PARKED
from tarry.core.request.intake_policy import IntakePolicy
from tarry.core.request.reader import RequestReader
from tarry.core.wheel.filed import filed_headers
from tarry.core.window.parked import WantedMessages
from tarry.headers import DELAY_MS, DELIVER_AT, EXPIRES_AT, ID, PURGE, TARGET, ErrorCode, Outcome
from tarry.timer import TimingWheel
from tests.support.durable import Filed, LevelLog, Store, recover

NAME = "orders.delayed"
TO = "orders"
START_MS = 1_700_000_000_000
GEOMETRY = Geometry(20_000, 10, 0)
FATES = ("commit", "commit", "abort", "crash after", "crash before")


@dataclass(slots=True)
class Sent:
    """A record of the intake, and what has become of it."""

    timestamp_ms: int
    headers: Headers
    due_ms: int | None
    """When it is to leave; None for one that can never be delivered."""
    key: bytes = b"k"
    accepted_at: int | None = None
    """The step in which an owner read it before it was due."""
    left: bool = False
    is_parked: bool = False
    """Whether it is in the parked log, and done in the intake."""
    is_purge: bool = False
    expires_ms: int | None = None


class Partition(RuleBasedStateMachine):
    """The rules are what can happen; the oracle is in `leave` and in the invariants."""

    policy = IntakePolicy(topic=NAME, max_delay_ms=3_600_000)
    keeps_order = False
    latest_ms: int | None = None
    """The latest time that it may be, where the clock may be behind."""
    attempt: Batch | None
    """The batch of a parked transaction that is open."""
    attempted: tuple[int, int]
    """The time and the step in which it was taken, and sent."""
    wanted: WantedMessages | None
    """What is being read of the parked log."""
    cursor: int
    """The next offset that the reader gets."""

    @initialize(
        tick_ms=st.sampled_from((1, 1, 1, 10)),
        size=st.sampled_from((2, 8, 64)),
        first=st.integers(0, 3),
        journalled=st.integers(0, 3),
    )
    def start(self, tick_ms: int, size: int, first: int, journalled: int) -> None:
        self.tick_ms, self.size = tick_ms, size
        self.reader = RequestReader(replace(self.policy, tick_ms=tick_ms))
        self.now_ms = START_MS
        self.step = self.incarnation = 0
        self.log: dict[int, Sent] = {}
        self.log_end = first
        self.left: list[tuple[int, int, int]] = []
        """For each message that has left: due time, offset, step."""
        self.asked_end: int | None = None
        self.last_due_ms = 0
        self.purged_upto_ms = 0
        """The latest time at which a purge was read."""
        self.lowest = first
        self.away: set[str] = set()
        self.is_set_back = False
        """Whether the clock was set back while messages were parked that still are."""
        self.ordered_from = 0
        """The step from which on what is accepted leaves in order."""
        birth = Checkpoint(writer=(), released=True, geometry=GEOMETRY, pointer=journalled)
        self.store = Store(
            journal=[(journalled, encode_copy(first, birth.encode()))],
            journal_start=journalled,
            journal_end=journalled + 1,
        )
        self.parked_log = LevelLog(first, first)
        self.take_over()

    # -- the intake ----------------------------------------------------------------------------------------------------

    def send(self, timestamp_ms: int, headers: Headers, due_ms: int | None) -> None:
        if due_ms is not None:
            due_ms = -(-due_ms // self.tick_ms) * self.tick_ms
        self.log[self.log_end] = Sent(timestamp_ms, headers, due_ms)
        self.log_end += 1

    @rule(
        delays_ms=st.lists(st.integers(0, 3) | st.integers(0, 50) | st.integers(0, 9_000), min_size=1, max_size=6),
        skew_ms=st.sampled_from((0, 0, 0, -10, -3_000, 1_500)),
        by_time=st.booleans(),
    )
    def append(self, delays_ms: Sequence[int], skew_ms: int, by_time: bool) -> None:
        timestamp_ms = self.now_ms + skew_ms
        for delay_ms in delays_ms:
            due_ms = timestamp_ms + delay_ms
            when = (DELIVER_AT, b"%d" % due_ms) if by_time else (DELAY_MS, b"%d" % delay_ms)
            self.send(timestamp_ms, [(TARGET, TO.encode()), when, ("trace", b"1")], due_ms)

    @rule(times=st.integers(2, 4), delay_ms=st.integers(0, 40))
    def append_with_equal_due_times(self, times: int, delay_ms: int) -> None:
        for _ in range(times):
            self.send(self.now_ms, [(TARGET, TO.encode()), (DELAY_MS, b"%d" % delay_ms)], self.now_ms + delay_ms)

    @rule()
    def append_what_can_never_be_delivered(self) -> None:
        self.send(self.now_ms, [(ID, b"no uuid")], None)

    @rule(
        delay_ms=st.integers(0, 50) | st.integers(0, 9_000),
        spare_ms=st.sampled_from((-1, 0, 1, 1, 30, 30, 4_000)),
    )
    def append_what_expires(self, delay_ms: int, spare_ms: int) -> None:
        due_ms = -(-(self.now_ms + delay_ms) // self.tick_ms) * self.tick_ms
        expires_ms = due_ms + spare_ms
        when: Headers = [(DELIVER_AT, b"%d" % due_ms), (EXPIRES_AT, b"%d" % expires_ms)]
        # With a fixed delay it is judged when it is due.
        is_dead = spare_ms < 0 and not self.keeps_order
        self.send(self.now_ms, [(TARGET, TO.encode()), *when], None if is_dead else due_ms)
        self.log[self.log_end - 1].expires_ms = expires_ms

    @rule()
    def append_a_purge(self) -> None:
        self.log[self.log_end] = Sent(self.now_ms, [(PURGE, TO.encode())], self.now_ms, is_purge=True)
        self.log_end += 1

    @rule(many=st.integers(1, 3))
    def append_markers(self, many: int) -> None:
        self.log_end += many

    @rule(most=st.integers(1, 12))
    def read(self, most: int) -> None:
        self.read_some(most)

    @rule()
    def read_to_the_end(self) -> None:
        self.read_some(len(self.log))

    def read_some(self, most: int) -> None:
        at_hand = [offset for offset in range(self.cursor, self.log_end) if offset in self.log]
        for offset in at_hand[:most]:
            sent = self.log[offset]
            if sent.is_purge:
                self.purged_upto_ms = max(
                    self.now_ms if self.latest_ms is None else self.latest_ms, self.purged_upto_ms
                )
            self.accept(offset, sent)
            self.cursor = offset + 1
            if sent.accepted_at is None and sent.due_ms is not None and self.now_ms < sent.due_ms:
                sent.accepted_at = self.step
        if len(at_hand) <= most:
            self.cursor = self.log_end
            self.state.arrivals.reach(self.log_end)

    @rule()
    def read_again_what_was_read(self) -> None:
        for offset, sent in self.log.items():
            if offset < self.state.position:
                self.accept(offset, sent)

    def accept(self, offset: int, sent: Sent) -> None:
        self.state.arrivals.accept(offset, sent.timestamp_ms, sent.key, b"v", sent.headers, self.now_ms, self.latest_ms)

    # -- time ----------------------------------------------------------------------------------------------------------

    @rule(by_ms=st.integers(1, 5) | st.integers(1, 100) | st.integers(1, 20_000))
    def pass_time(self, by_ms: int) -> None:
        self.now_ms += by_ms

    @rule()
    def pass_time_to_the_next_due(self) -> None:
        due_ms = self.state.next_due_ms()
        if due_ms is not None:
            self.now_ms = max(self.now_ms, due_ms)

    @rule(by_ms=st.sampled_from((1, 40, 900, 1_000, 1_001, 5_000)))
    def set_the_clock_back(self, by_ms: int) -> None:
        self.now_ms -= by_ms
        # Those that are parked were due by another clock: they may be delivered before messages that come now.
        self.is_set_back = self.is_set_back or bool(self.state.parked)

    @rule()
    def collect(self) -> None:
        self.state.collect(self.now_ms)

    @rule(
        delays_ms=st.permutations((5, 20, 20, 300)),
        wait_ms=st.sampled_from((25, 400)),
        notes=st.booleans(),
    )
    def let_some_become_due(self, delays_ms: Sequence[int], wait_ms: int, notes: bool) -> None:
        """Prepare the state that most courses need: messages that were read in time and are due."""
        self.append(delays_ms, 0, by_time=False)
        self.read_to_the_end()
        if notes:
            self.state.note_journal_end(self.store.journal_end)
        self.now_ms += wait_ms

    # -- transactions --------------------------------------------------------------------------------------------------

    @rule(limit=st.integers(1, 4) | st.just(50), give_up=st.integers(0, 7))
    def fire(self, limit: int, give_up: int) -> None:
        if batch := self.take(limit, give_up):
            self.store.commit(self.state.settle(batch))
            self.state.confirm(batch)
            self.leave(batch)

    @rule(limit=st.integers(1, 4) | st.just(50), give_up=st.integers(0, 7), settled=st.booleans())
    def fire_and_abort(self, limit: int, give_up: int, settled: bool) -> None:
        due_below_ms = decode_checkpoint(self.state.settle_checkpoint().metadata).due_below_ms
        low, held_bytes = self.state.low, self.state.held_bytes
        if batch := self.take(limit, give_up):
            if settled:
                self.state.settle(batch)
                self.store.abort()
            self.state.put_back(batch)
            assert self.state.low == low
            assert self.state.held_bytes == held_bytes
            assert decode_checkpoint(self.state.settle_checkpoint().metadata).due_below_ms == due_below_ms

    @rule(limit=st.integers(1, 4) | st.just(50))
    def fire_and_crash_before_the_commit(self, limit: int) -> None:
        if batch := self.take(limit, 0):
            self.state.settle(batch)
            self.store.abort()
            self.take_over()

    @rule(limit=st.integers(1, 4) | st.just(50), give_up=st.integers(0, 7))
    def fire_and_crash_after_the_commit(self, limit: int, give_up: int) -> None:
        if batch := self.take(limit, give_up):
            self.store.commit(self.state.settle(batch))
            self.leave(batch)
            self.take_over()

    def take(self, limit: int, give_up: int) -> Batch | None:
        """A batch as the worker takes it; every `give_up`-th of its messages turns out undeliverable."""
        if not self.state.collect(self.now_ms):
            return None
        batch = self.state.take(limit, self.now_ms, self.away)
        assert len(batch) <= limit
        if give_up:
            batch.give_up({m.sequence: ("too-large", "") for m in batch.due[::give_up]})
        batch.expire(self.now_ms)
        return batch if len(batch) else None

    def leave(self, batch: Batch) -> None:
        """Note messages that were taken, sent and committed at once."""
        self.step += 1
        self.judge(batch, self.now_ms, self.step)

    def judge(self, batch: Batch, sent_ms: int, step: int) -> None:
        """The oracle: what is committed now leaves once, was not sent early, and in order."""
        assert not (self.state.is_gated and batch.due)
        retired = {message.sequence for message in batch.retired}
        for dead in batch.dead:
            self.leave_once(dead.sequence)
            assert (self.log[dead.sequence].due_ms is None) is (dead.sequence not in retired)
            assert dead.headers == self.log[dead.sequence].headers
            if dead.code == ErrorCode.PURGED:
                assert dead.due_ms is not None
                assert dead.due_ms <= self.purged_upto_ms, "no purge was behind it"
            if dead.code == ErrorCode.EXPIRED and dead.sequence in retired:
                assert (self.log[dead.sequence].expires_ms or sent_ms) < sent_ms, "expired in time"
        for resolution in batch.resolutions:
            self.check_purge(resolution)
        for message in batch.due:
            self.leave_once(message.sequence)
            self.check_due(message, sent_ms)
            self.check_order(message)
            self.left.append((message.due_ms, message.sequence, step))

    def check_purge(self, purge: Resolution) -> None:
        assert purge.outcome is Outcome.PURGED
        assert self.log[purge.message.sequence].is_purge
        self.leave_once(purge.message.sequence)
        if not self.is_set_back:
            key = purge.message.due_ms, purge.message.sequence
            for offset, sent in self.log.items():
                if offset < purge.message.sequence and sent.due_ms is not None and (sent.due_ms, offset) < key:
                    assert sent.left, "the purge left it"

    def leave_once(self, offset: int) -> None:
        assert not self.log[offset].left, "it left twice"
        self.log[offset].left = True

    def check_due(self, message: HeldMessage, sent_ms: int) -> None:
        assert message.due_ms == self.log[message.sequence].due_ms
        assert message.due_ms <= sent_ms, "early"
        assert sent_ms <= (self.log[message.sequence].expires_ms or sent_ms), "after its expiry"

    def check_order(self, message: HeldMessage) -> None:
        accepted_at = self.log[message.sequence].accepted_at
        if accepted_at is not None and not self.is_set_back and accepted_at >= self.ordered_from:
            ahead = [(due_ms, offset) for due_ms, offset, step in self.left if step > accepted_at]
            assert max(ahead, default=(0, 0)) < (message.due_ms, message.sequence), "out of order"

    # -- a target that is away -------------------------------------------------------------------------------------

    @rule()
    def send_the_target_away(self) -> None:
        self.away = {TO}

    @precondition(lambda self: self.away and self.attempt is None)
    @rule(limit=st.integers(1, 4) | st.just(50), give_up=st.integers(0, 7), purges=st.booleans())
    def try_the_target(self, limit: int, give_up: int, purges: bool) -> None:
        """Begin a parked transaction; others come and go before it ends."""
        parked = self.state.parked
        batch = parked.take_purged(TO, limit) if purges else parked.take(TO, limit, self.now_ms)
        if len(batch):
            if give_up and not purges:
                batch.give_up({m.sequence: ("too-large", "") for m in batch.due[::give_up]})
            batch.expire(self.now_ms)
            self.step += 1
            self.attempt, self.attempted = batch, (self.now_ms, self.step)
        elif not self.state.parked:
            self.away.clear()

    @precondition(lambda self: self.attempt is not None)
    @rule(fate=st.sampled_from(("commit", "commit", "abort", "crash after", "crash before")))
    def end_the_try(self, fate: str) -> None:
        assert self.attempt is not None
        batch, self.attempt = self.attempt, None
        if fate in ("abort", "crash before"):
            self.store.abort()
        else:
            self.store.commit_without_offset(encode_done(batch.offsets()))
            self.judge(batch, *self.attempted)
        if fate == "commit":
            self.state.confirm_parked(batch)
        elif fate == "abort":
            self.state.parked.park_again(TO, batch)
        else:
            self.take_over()

    @rule(limit_bytes=st.sampled_from((0, 600, 2_000, 1 << 40)), fate=st.sampled_from(FATES))
    def file_what_is_parked(self, limit_bytes: int, fate: str) -> None:
        """File what exceeds a share of memory, or was parked for long, to the parked log."""
        self.state.parked.limit_bytes = limit_bytes
        if not self.state.has_to_file(self.now_ms):
            return
        low = self.state.low
        filing = self.state.take_to_file(3, self.now_ms)
        assert filing
        assert all(source.level == PARKED for _, source in filing.records)
        journal = self.state.journal_of(filing)
        is_committed = fate not in ("abort", "crash before")
        filed = [
            Filed(message.original_key, message.value, filed_headers(message))  # type: ignore[arg-type]
            for message, _ in filing.records
        ]
        first = self.parked_log.write(filed, commit=is_committed)
        if not is_committed:
            self.store.abort()
        else:
            for offset, (message, source) in enumerate(filing.records, first):
                filing.runs.append(FiledRun(source, offset, offset + 1, 1))
                self.log[message.sequence].is_parked = True
            self.store.commit_without_offset(*journal, *self.state.journal_of_filed(filing))
        if fate == "commit":
            self.state.confirm_filed(filing)
        elif fate == "abort":
            self.state.put_back_filed(filing, {})
            assert self.state.low == low
        else:
            self.take_over()

    @rule(delays_ms=st.permutations((5, 20, 20, 300)), limit_bytes=st.sampled_from((0, 1_200)))
    def let_some_be_parked_and_filed(self, delays_ms: Sequence[int], limit_bytes: int) -> None:
        """Prepare the state that most courses need here."""
        self.let_some_become_due(delays_ms, 400, notes=False)
        self.send_the_target_away()
        self.fire(limit=50, give_up=0)
        self.file_what_is_parked(limit_bytes, "commit")

    @precondition(lambda self: self.wanted is None)
    @rule(limit_bytes=st.sampled_from((0, 1_200, 10_000)))
    def want_what_was_filed(self, limit_bytes: int) -> None:
        self.wanted = self.state.parked.wanted(TO, limit_bytes)
        assert self.wanted is None or self.wanted.start >= self.parked_log.start, "deleted before it was read"

    @precondition(lambda self: self.wanted is not None)
    @rule(most=st.integers(1, 20))
    def read_on_what_was_filed(self, most: int) -> None:
        assert self.wanted is not None
        for _ in range(most):
            if self.wanted.is_complete:
                break
            offset = self.wanted.position
            if filed := self.parked_log.records.get(offset):
                self.wanted.accept(offset, filed.key, filed.value, filed.headers)
            else:
                self.wanted.reach(offset + 1)
        if self.wanted.is_complete:
            assert self.state.parked.restore(self.wanted) == 0, "it is not there any more"
            self.wanted = None

    @rule()
    def trim_the_parked_log(self) -> None:
        below = self.state.to_trim().get(PARKED)
        if below is not None and (self.wanted is None or self.wanted.position >= below):
            self.parked_log.trim(below, self.now_ms)
            self.state.trimmed(PARKED, below)

    # -- the checkpoint ------------------------------------------------------------------------------------------------

    @rule()
    def ask_for_the_journals_end(self) -> None:
        self.asked_end = self.store.journal_end

    @precondition(lambda self: self.asked_end is not None)
    @rule()
    def note_the_journals_end(self) -> None:
        assert self.asked_end is not None
        self.state.note_journal_end(self.asked_end)

    @rule(trims=st.booleans(), sums_up=st.booleans())
    def copy_the_checkpoint(self, trims: bool, sums_up: bool) -> None:
        self.store.commit(self.state.settle_checkpoint(sums_up=sums_up and self.attempt is None))
        self.state.confirm_checkpoint()
        if trims:
            self.store.trim(self.state.reads_from)

    @rule()
    def release_to_the_next_owner(self) -> None:
        if self.attempt is not None:
            self.end_the_try("abort")
        self.store.commit(self.state.settle_checkpoint(released=True))
        assert self.store.offset is not None
        assert decode_checkpoint(self.store.offset[1]).released
        self.take_over()

    @rule()
    def crash(self) -> None:
        self.take_over()

    @rule()
    def lose_the_groups_offsets(self) -> None:
        self.store.offset = None
        self.lowest, _ = self.store.last_copy()
        self.take_over()

    def take_over(self) -> None:
        self.incarnation += 1
        recovered = recover(self.store, {PARKED: self.parked_log}, self.log_end, f"w-{self.incarnation}")
        low, done = recovered.low, recovered.done
        left = {offset for offset, sent in self.log.items() if (sent.left or sent.is_parked) and offset >= low}
        # What is no record, a marker, counts as done in a summary.
        assert {offset for offset in self.log if offset >= low and offset in done} == left
        self.state = PartitionState(
            NAME,
            0,
            self.reader,
            self.keeps_order,
            lambda start_ms: TimingWheel(self.tick_ms, self.size, start_ms),
            recovered,
            self.now_ms,
        )
        self.attempt = None
        self.wanted = None
        self.cursor = low
        self.replay_end = self.log_end

    # -- at all times --------------------------------------------------------------------------------------------------

    @invariant()
    def what_is_below_the_committed_watermark_has_left(self) -> None:
        assert self.store.offset is not None
        low = self.store.offset[0]
        assert all(sent.left or sent.is_parked for offset, sent in self.log.items() if offset < low)
        assert low >= self.lowest
        self.lowest = low

    @invariant()
    def the_order_holds_again_once_nothing_is_parked(self) -> None:
        if self.is_set_back and not self.state.parked and self.attempt is None:
            self.is_set_back, self.ordered_from = False, self.step

    @invariant()
    def the_watermark_is_the_first_that_is_held(self) -> None:
        known = [offset for offset, sent in self.log.items() if offset < self.state.position or sent.is_parked]
        waiting = [offset for offset in known if not self.log[offset].left]
        of_intake = [offset for offset in waiting if not self.log[offset].is_parked]
        assert self.state.low == min(of_intake, default=self.state.position)
        in_log = self.state.parked.log.unread(TO)
        assert self.state.held == len(waiting) - in_log - (0 if self.attempt is None else len(self.attempt))
        assert (self.state.held_bytes > 0) is (len(waiting) > in_log)

    @invariant()
    def the_gate_is_closed_until_the_replay_is_through(self) -> None:
        if self.state.position < self.replay_end:
            assert self.state.is_gated
            read = (sent for offset, sent in self.log.items() if offset < self.state.position)
            is_dead = any(sent.due_ms is None and not sent.left for sent in read)
            assert self.state.next_due_ms() == (0 if is_dead else None)
            assert self.state.collect(self.now_ms) is is_dead

    def teardown(self) -> None:
        if not hasattr(self, "state"):
            return
        self.now_ms += 10**8
        self.read_to_the_end()
        if self.attempt is not None:
            self.end_the_try("commit")
        while self.state.collect(self.now_ms) or self.state.parked:
            self.fire(limit=7, give_up=0)
            for purges in (True, False):
                self.try_the_target(limit=7, give_up=0, purges=purges)
                if self.attempt is not None:
                    self.end_the_try("commit")
            if self.wanted is None:
                self.want_what_was_filed(limit_bytes=10_000)
            else:
                self.read_on_what_was_filed(most=len(self.log))
        assert all(sent.left for sent in self.log.values()), "lost"
        assert (self.state.held, self.state.held_bytes) == (0, 0)
        assert self.state.low == self.log_end


class FixedDelay(Partition):
    """An intake with a fixed delay: the log's order is kept, though the log's own stamps may step back."""

    policy = IntakePolicy(topic=NAME, fixed_delay_ms=300, fixed_target=TO)
    keeps_order = True

    def __init__(self) -> None:
        super().__init__()
        self.latest_ms: int = START_MS
        self.read_at_ms: dict[int, int] = {}
        """The time at which a record was first at hand to be read."""
        self.was_ahead = False
        """Whether a stamp was far ahead of that."""

    @invariant()
    def brokers_tell_the_time_where_the_clock_was_set_back(self) -> None:
        self.latest_ms = max(self.latest_ms, self.now_ms)

    @rule()
    def append_a_stamp_that_is_far_ahead(self) -> None:
        stamp_ms = self.latest_ms + 3_600_000
        self.send(stamp_ms, [("trace", b"1")], stamp_ms)

    def send(self, timestamp_ms: int, headers: Headers, due_ms: int | None) -> None:
        headers = [header for header in headers if header[0] not in (DELAY_MS, DELIVER_AT, TARGET)]
        super().send(timestamp_ms, headers, None if due_ms is None else timestamp_ms + 300)
        sent = self.log[self.log_end - 1]
        if sent.due_ms is not None:
            # No record is due before the one in front of it.
            self.last_due_ms = sent.due_ms = max(sent.due_ms, self.last_due_ms)

    def read_some(self, most: int) -> None:
        for offset in range(self.cursor, self.log_end):
            self.read_at_ms.setdefault(offset, self.latest_ms)
            sent = self.log.get(offset)
            self.was_ahead = self.was_ahead or (sent is not None and is_ahead(sent.timestamp_ms, self.latest_ms))
        super().read_some(most)

    def check_due(self, message: HeldMessage, sent_ms: int) -> None:
        sent = self.log[message.sequence]
        assert sent.due_ms is not None
        if self.was_ahead:
            # A stamp that was far ahead counted as of its reading: no later, and nothing is early.
            first_ms = min(sent.timestamp_ms, self.read_at_ms[message.sequence]) + 300
            assert first_ms <= message.due_ms <= sent.due_ms
            assert message.due_ms <= sent_ms, "early"
        else:
            super().check_due(message, sent_ms)

    def check_order(self, message: HeldMessage) -> None:
        assert message.sequence > max((offset for _, offset, _ in self.left), default=-1), "out of the log's order"


TestPartition = Partition.TestCase
TestPartition.settings = settings(max_examples=150, stateful_step_count=50)
TestFixedDelay = FixedDelay.TestCase
TestFixedDelay.settings = settings(max_examples=150, stateful_step_count=50)
