"""The overflow wheel in any order of events: arrivals, filing, closing, reading a little at a time, crashes, outages.

The owner is `PartitionState` with narrow buckets, and what decides is what becomes visible at the target: whatever the
course of events, each message fires once and never early, no message that was accepted before it was due is overtaken
by one that is due later, and nothing stays behind. Which buckets are closed, and up to where anything may fire, the
model neither knows nor computes.
"""

import math
from collections.abc import Callable
from random import Random

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from tarry.core.progress.checkpoint import Geometry
from tests.support.owner import CrashError, Owner

pytestmark = pytest.mark.no_cover

START_MS = 1_700_000_000_000
TARGET = "orders"
MOST_OUTAGES = 4
"""More outages would need thousands of turns to catch up."""
STEPS = ("read", "close", "read_levels", "fire", "file", "file_moving", "trim", "tidy")


class OverflowWheel(RuleBasedStateMachine):
    """The rules are what can happen; the owner's judge sees each commit."""

    @initialize(
        geometry=st.sampled_from((Geometry(10, 2, 3), Geometry(20, 3, 2), Geometry(16, 4, 3))),
        now_ms=st.integers(START_MS, START_MS + 500),
        seed=st.integers(0, 1 << 32),
    )
    def start(self, geometry: Geometry, now_ms: int, seed: int) -> None:
        self.owner = Owner(Random(seed), now_ms, geometry)
        self.outages = 0
        self.longest_ms = geometry.width_of(geometry.levels) * geometry.size

    # -- what comes ----------------------------------------------------------------------------------------------------

    @rule(parts=st.lists(st.floats(0, 1), min_size=1, max_size=20))
    def arrive(self, parts: list[float]) -> None:
        """Messages with delays of all orders of magnitude."""
        for part in parts:
            self.owner.send(int(math.exp(part * math.log(self.longest_ms))), TARGET)

    @rule(by=st.floats(0, 1))
    def pass_time(self, by: float) -> None:
        """From a millisecond to some buckets of the last level."""
        self.owner.now_ms += int(math.exp(by * math.log(self.longest_ms)))

    # -- what the owner does, in any order -----------------------------------------------------------------------------

    def do(self, step: Callable[[], object]) -> None:
        try:
            step()
        except CrashError:
            self.owner.crash()

    @rule(steps=st.lists(st.sampled_from(STEPS), min_size=1, max_size=8))
    def go_on(self, steps: list[str]) -> None:
        """Some of what a turn does, in any order."""
        for step in steps:
            self.do(getattr(self.owner, step))

    @rule(times=st.integers(1, 10))
    def turn(self, times: int) -> None:
        """All of it, as the service does it."""
        for _ in range(times):
            self.owner.turn()

    # -- crashes -------------------------------------------------------------------------------------------------------

    @rule()
    def crash(self) -> None:
        self.owner.crash()

    @precondition(lambda self: self.outages < MOST_OUTAGES)
    @rule(far=st.floats(0, 3), arrivals=st.integers(0, 8))
    def be_away(self, far: float, arrivals: int) -> None:
        """An outage, of more than the longest delay at times; messages come meanwhile."""
        self.outages += 1
        geometry = self.owner.geometry
        for number in range(arrivals):
            self.owner.send(number * geometry.width_ms * 3, TARGET)
        self.owner.now_ms += int(far * (2 * geometry.size + 2) * geometry.width_of(geometry.levels))
        self.owner.crash()

    # -- at all times --------------------------------------------------------------------------------------------------

    @invariant()
    def little_is_held(self) -> None:
        if hasattr(self, "owner"):
            self.owner.look_at_memory()

    def teardown(self) -> None:
        if not hasattr(self, "owner"):
            return
        owner = self.owner
        owner.calm = True
        for _ in range(50_000):
            if not owner.turn():
                if not owner.judge.waiting() and not any(log.left for log in owner.levels.values()):
                    break
                owner.now_ms += owner.geometry.width_ms
        assert not owner.judge.waiting(), "lost"
        assert not any(log.left for log in owner.levels.values()), "something stays behind"


TestOverflowWheel = OverflowWheel.TestCase
TestOverflowWheel.settings = settings(max_examples=100, stateful_step_count=50)
