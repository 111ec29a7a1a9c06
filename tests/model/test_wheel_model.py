"""The wheel against a list sorted by `(due_ms, sequence)`: any tick and size, any calls, any jump."""

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, initialize, invariant, rule

from tarry.timer.task_list import NOWHERE, UNQUEUED, TimerTaskEntry
from tarry.timer.wheel import TimingWheel

small_or_far = st.integers(0, 40) | st.integers(0, 2_000) | st.integers(0, 10**10)


class WheelAgainstSortedList(RuleBasedStateMachine):
    """The oracle knows nothing of buckets: what is due is what the list begins with."""

    entries = Bundle("entries")

    @initialize(
        tick_ms=st.sampled_from((1, 1, 1, 2, 7, 1_000)),
        size=st.sampled_from((2, 3, 5, 20, 64)),
        start_ms=st.integers(0, 100) | st.just(1_675_752_020_558),
    )
    def start(self, tick_ms: int, size: int, start_ms: int) -> None:
        self.tick_ms = tick_ms
        self.now_ms = start_ms
        self.wheel = TimingWheel(tick_ms, size, start_ms)
        self.held: list[TimerTaskEntry] = []
        self.added = 0

    def due_from_ms(self, entry: TimerTaskEntry) -> int:
        return entry.due_ms - entry.due_ms % self.tick_ms

    def hold(self, entry: TimerTaskEntry) -> None:
        due_already = self.due_from_ms(entry) <= self.now_ms
        assert self.wheel.add(entry) is not due_already
        if not due_already:
            self.held.append(entry)

    @rule(target=entries, delay_ms=small_or_far)
    def add(self, delay_ms: int) -> TimerTaskEntry:
        self.added += 1
        entry = TimerTaskEntry(self.now_ms + delay_ms, self.added)
        self.hold(entry)
        return entry

    @rule(target=entries, like=entries, earlier=st.booleans())
    def add_with_an_equal_due_time(self, like: TimerTaskEntry, earlier: bool) -> TimerTaskEntry:
        self.added += 1
        entry = TimerTaskEntry(like.due_ms, -self.added if earlier else self.added)
        self.hold(entry)
        return entry

    @rule(entry=entries, delay_ms=small_or_far)
    def move(self, entry: TimerTaskEntry, delay_ms: int) -> None:
        self.held = [other for other in self.held if other is not entry]
        entry.due_ms = self.now_ms + delay_ms
        self.hold(entry)

    @rule(entry=consumes(entries))
    def cancel(self, entry: TimerTaskEntry) -> None:
        assert self.wheel.cancel(entry) is any(other is entry for other in self.held)
        self.held = [other for other in self.held if other is not entry]

    @rule(step_ms=small_or_far)
    def advance(self, step_ms: int) -> None:
        self.move_to(self.now_ms + step_ms)

    @rule()
    def advance_to_the_next_bucket(self) -> None:
        if self.wheel.next_due_ms is not None:
            self.move_to(self.wheel.next_due_ms)

    @rule(back_ms=st.integers(1, 5_000))
    def advance_into_the_past(self, back_ms: int) -> None:
        before_ms = self.wheel.current_ms
        assert self.wheel.advance(before_ms - back_ms) == []
        assert self.wheel.current_ms == before_ms

    def move_to(self, now_ms: int) -> None:
        self.now_ms = max(self.now_ms, now_ms)
        due = [entry for entry in self.held if self.due_from_ms(entry) <= self.now_ms]
        self.held = [entry for entry in self.held if self.due_from_ms(entry) > self.now_ms]
        fired = self.wheel.advance(now_ms)
        assert len({id(entry) for entry in fired}) == len(fired)
        assert {id(entry) for entry in fired} == {id(entry) for entry in due}
        keys = [(entry.due_ms, entry.sequence) for entry in fired]
        assert keys == sorted(keys)
        for entry in fired:
            assert (entry.bucket, entry.prev, entry.next) == (None, NOWHERE, NOWHERE)

    @invariant()
    def it_holds_what_the_list_holds(self) -> None:
        assert len(self.wheel) == len(self.held)
        next_due_ms = self.wheel.next_due_ms
        if not self.held:
            assert next_due_ms is None
        else:
            assert next_due_ms is not None
            assert self.now_ms < next_due_ms <= min(map(self.due_from_ms, self.held))

    @invariant()
    def every_wheel_is_trimmed_and_covers_what_it_holds(self) -> None:
        queued = {id(bucket) for bucket in self.wheel.queue}
        found = 0
        for level in self.wheel.levels:
            assert level.current_ms == self.now_ms - self.now_ms % level.tick_ms
            for slot, bucket in enumerate(level.buckets):
                held = list(bucket)
                found += len(held)
                assert (id(bucket) in queued) is bool(held)
                if bucket.expiration_ms != UNQUEUED:
                    assert bucket.expiration_ms // level.tick_ms % len(level.buckets) == slot
                    assert level.current_ms < bucket.expiration_ms < level.end_ms
                for entry in held:
                    assert entry.bucket is bucket
                    assert 0 <= entry.due_ms - bucket.expiration_ms < level.tick_ms
        assert found == len(self.held)


TestWheelAgainstSortedList = WheelAgainstSortedList.TestCase
TestWheelAgainstSortedList.settings = settings(max_examples=150, stateful_step_count=60)
