"""The overflow wheel against a list: arrivals, filing, draining a little at a time, crashes, outages, in any order.

Buckets, the levels' `closed_ms` and what is done are durable here, written by commits alone; what is in memory, being
filed or half drained goes with a crash. Whatever the course of events: each message fires once and never early, no
message is overtaken by one that is due later, every one finds a bucket, and nothing stays behind.
"""

import math
from dataclasses import dataclass, field
from typing import cast

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from tarry.core.progress.checkpoint import Geometry
from tarry.core.wheel.levels import Bucket, Levels, first_closed_ms

pytestmark = pytest.mark.no_cover

START_MS = 1_700_000_000_000


@dataclass(frozen=True, order=True, slots=True)
class Message:
    """A message, wherever it lies."""

    due_ms: int
    number: int


Source = tuple[int, int] | None
"""Level and slot that a message in memory came from, or the intake."""


@dataclass(slots=True)
class Store:
    """What Kafka keeps.

    Attributes:
        closed_ms: of the last checkpoint.
        draining: buckets closed and not done, by the last checkpoint.
        slots: what each slot holds that is not done, in the order in which it was filed.
        intake: what is not done of the intake.
    """

    closed_ms: tuple[int, ...]
    draining: set[Bucket] = field(default_factory=set)
    slots: dict[tuple[int, int], list[Message]] = field(default_factory=dict)
    intake: list[Message] = field(default_factory=list)


class OverflowWheel(RuleBasedStateMachine):
    """The rules are what can happen; the oracle is in `fire` and in `teardown`."""

    @initialize(
        geometry=st.sampled_from((Geometry(10, 2, 3), Geometry(20, 3, 2), Geometry(16, 4, 3))),
        now_ms=st.integers(START_MS, START_MS + 500),
    )
    def start(self, geometry: Geometry, now_ms: int) -> None:
        self.geometry = geometry
        self.now_ms = now_ms
        self.all_sent: list[Message] = []
        self.fired: list[Message] = []
        self.store = Store(first_closed_ms(geometry, now_ms))
        self.recover()

    def recover(self) -> None:
        """What a new owner does: it knows nothing but the store."""
        self.hot: dict[Message, Source] = {}
        self.to_file: list[Message] = []
        self.unread: dict[Bucket, list[Message]] = {}
        self.levels = Levels(self.geometry, self.store.closed_ms, self.store.draining)
        self.moved: dict[Bucket, list[Message]] = {}
        for bucket in self.levels.draining:
            self.begin_to_drain(bucket)
        for message in self.store.intake:
            self.take_in(message)

    # -- what comes ----------------------------------------------------------------------------------------------------

    @property
    def longest_ms(self) -> int:
        return self.geometry.width_of(self.geometry.levels) * self.geometry.size

    @rule(parts=st.lists(st.floats(0, 1), min_size=1, max_size=5))
    def arrive(self, parts: list[float]) -> None:
        """Messages with delays of all orders of magnitude."""
        for part in parts:
            self.take_in(self.send(self.now_ms + int(math.exp(part * math.log(self.longest_ms)))))

    def send(self, due_ms: int) -> Message:
        message = Message(due_ms, len(self.all_sent))
        self.all_sent.append(message)
        self.store.intake.append(message)
        return message

    def take_in(self, message: Message) -> None:
        if self.levels.bucket_for(message.due_ms) is None:
            self.hot[message] = None
        else:
            self.to_file.append(message)

    @rule(by=st.floats(0, 1))
    def pass_time(self, by: float) -> None:
        """From a millisecond to a few buckets of level 1."""
        self.now_ms += 1 + int(by * 3 * self.geometry.width_ms)

    # -- commits -------------------------------------------------------------------------------------------------------

    def commit_checkpoint(self) -> None:
        self.store.closed_ms = self.levels.closed_ms
        held = {source for source in self.hot.values() if source is not None}
        for bucket in self.levels.draining:
            self.store.draining.add(bucket)
        for bucket in list(self.store.draining):
            slot = (bucket.level, self.levels.slot(bucket))
            if bucket not in self.levels.draining and (bucket.level > 1 or slot not in held):
                self.store.draining.discard(bucket)

    def put(self, bucket: Bucket, message: Message) -> None:
        assert bucket.start_ms >= self.levels.closed_ms[bucket.level - 1], "filed to a closed bucket"
        self.store.slots.setdefault((bucket.level, self.levels.slot(bucket)), []).append(message)

    @rule()
    def file(self) -> None:
        """Put what waits for it into buckets, by the levels as they are now, which are committed first."""
        self.commit_checkpoint()
        for message in self.to_file:
            bucket = self.levels.bucket_for(message.due_ms)
            if bucket is None:
                self.hot[message] = None
            else:
                self.put(bucket, message)
                self.store.intake.remove(message)
        self.to_file = []

    @rule(most=st.integers(1, 20))
    def fire(self, most: int) -> None:
        self.commit_checkpoint()
        # What waits to be filed, and has become hot meanwhile, is not in the wheel yet.
        late = [message.due_ms for message in self.to_file if self.levels.bucket_for(message.due_ms) is None]
        closed = [bucket.start_ms for bucket in self.levels.draining if bucket.level == 1]
        gate_ms = min([self.levels.hot_below_ms, *closed, *late])
        for message in sorted(self.hot)[:most]:
            if message.due_ms > self.now_ms or message.due_ms >= gate_ms:
                break
            assert message == min(self.waiting()), "one that is due earlier is overtaken"
            source = self.hot.pop(message)
            (self.store.intake if source is None else self.store.slots[source]).remove(message)
            self.fired.append(message)

    def waiting(self) -> list[Message]:
        """All that has not fired, wherever it is."""
        return [*self.store.intake, *(message for slot in self.store.slots.values() for message in slot)]

    # -- draining ------------------------------------------------------------------------------------------------------

    @precondition(lambda self: self.levels.next_to_close(self.now_ms) is not None)
    @rule()
    def close_a_bucket(self) -> None:
        bucket = cast("Bucket", self.levels.next_to_close(self.now_ms))
        self.levels.close(bucket)
        self.commit_checkpoint()
        self.begin_to_drain(bucket)

    def begin_to_drain(self, bucket: Bucket) -> None:
        slot = (bucket.level, self.levels.slot(bucket))
        self.unread[bucket] = list(self.store.slots.get(slot, ()))
        self.moved[bucket] = []

    @precondition(lambda self: self.unread)
    @rule(which=st.integers(0, 9), most=st.integers(1, 8))
    def drain_a_little(self, which: int, most: int) -> None:
        bucket = sorted(self.unread)[which % len(self.unread)]
        slot = (bucket.level, self.levels.slot(bucket))
        for message in self.unread[bucket][:most]:
            self.unread[bucket].remove(message)
            place = self.levels.bucket_for(message.due_ms)
            if place is None:
                assert bucket.level == 1, "no pointer covers what jumps from a higher level into memory"
                self.hot[message] = slot
            else:
                self.moved[bucket].append(message)
        if not self.unread[bucket]:
            self.end_draining(bucket)

    def end_draining(self, bucket: Bucket) -> None:
        """The re-filing commits, and with it that the bucket is done."""
        slot = (bucket.level, self.levels.slot(bucket))
        for message in self.moved.pop(bucket):
            place = self.levels.bucket_for(message.due_ms)
            assert place is not None, "it became hot between being read and being filed"
            self.put(place, message)
            self.store.slots[slot].remove(message)
        del self.unread[bucket]
        self.levels.drained(bucket)
        self.commit_checkpoint()

    # -- crashes -------------------------------------------------------------------------------------------------------

    @rule()
    def crash(self) -> None:
        self.recover()

    @rule(rings=st.floats(0, 3), arrivals=st.integers(0, 8))
    def be_away(self, rings: float, arrivals: int) -> None:
        """An outage, of more than a whole ring at times; messages come meanwhile."""
        for number in range(arrivals):
            self.send(self.now_ms + number * self.geometry.width_ms * 3)
        self.now_ms += int(rings * (2 * self.geometry.size + 2) * self.geometry.width_of(self.geometry.levels))
        self.recover()

    # -- at all times --------------------------------------------------------------------------------------------------

    @invariant()
    def nothing_is_lost(self) -> None:
        if hasattr(self, "store"):
            assert sorted([*self.waiting(), *self.fired], key=lambda one: one.number) == self.all_sent

    def teardown(self) -> None:
        if not hasattr(self, "store"):
            return
        self.now_ms += 4 * self.longest_ms
        while len(self.fired) < len(self.all_sent):
            before = (self.levels.closed_ms, len(self.fired))
            while self.unread or self.levels.next_to_close(self.now_ms) is not None:
                if self.unread:
                    self.drain_a_little(0, 1_000)
                else:
                    self.close_a_bucket()
            self.file()
            self.fire(1_000)
            assert before != (self.levels.closed_ms, len(self.fired)), "something stays behind"
        assert not any(self.store.slots.values())


TestOverflowWheel = OverflowWheel.TestCase
TestOverflowWheel.settings = settings(max_examples=30, stateful_step_count=50, deadline=None)
