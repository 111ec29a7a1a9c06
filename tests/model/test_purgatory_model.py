"""The purgatory against a list of what waits: any keys, delays, events, cancels and steps of the clock."""

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, initialize, invariant, rule

from tarry.testing import ManualClock
from tarry.timer import DelayedOperationPurgatory, SystemTimer
from tests.unit.timer.operations import Request
from tests.unit.timer.threads import Inbox

keys = st.integers(0, 5)


class Waiting:
    """A request as the oracle knows it: its keys, its due time, and its expected outcome."""

    def __init__(self, request: Request, under: tuple[int, ...], due_ms: int) -> None:
        self.request = request
        self.under = under
        self.due_ms = due_ms
        self.calls: list[str] = []
        self.settled = False

    def settle(self, *calls: str) -> None:
        if not self.settled:
            self.settled = True
            self.calls = list(calls)


class PurgatoryAgainstList(RuleBasedStateMachine):
    """The oracle knows nothing of timers and of purges: it looks at all that ever came, each time."""

    requests = Bundle("requests")

    @initialize(purge_interval=st.integers(0, 5), wheel_size=st.sampled_from((2, 3, 20)))
    def start(self, purge_interval: int, wheel_size: int) -> None:
        self.clock = ManualClock()
        self.inbox = Inbox()
        timer = SystemTimer("model", self.clock, wheel_size=wheel_size, executor=self.inbox)
        self.purgatory = DelayedOperationPurgatory[Request]("model", timer, purge_interval=purge_interval)
        self.purge_interval = purge_interval
        self.all: list[Waiting] = []

    def unsettled(self, key: int) -> list[Waiting]:
        return [waiting for waiting in self.all if key in waiting.under and not waiting.settled]

    @rule(
        target=requests,
        delay_ms=st.integers(0, 30) | st.integers(0, 3_000),
        under=st.lists(keys, min_size=1, max_size=3),
    )
    def watch(self, delay_ms: int, under: list[int]) -> Waiting:
        waiting = Waiting(Request(delay_ms), tuple(under), self.clock.monotonic_ms() + delay_ms)
        assert not self.purgatory.try_complete_else_watch(waiting.request, *under)
        self.all.append(waiting)
        self.expire()
        return waiting

    @rule(under=keys)
    def watch_what_is_answered_already(self, under: int) -> None:
        request = Request()
        request.answered = True
        before = self.purgatory.watched()
        assert self.purgatory.try_complete_else_watch(request, under)
        assert (request.calls, self.purgatory.watched()) == (["completed"], before)

    @rule(waiting=requests)
    def answer(self, waiting: Waiting) -> None:
        waiting.request.answered = True

    @rule(key=keys)
    def check(self, key: int) -> None:
        completed = [waiting for waiting in self.unsettled(key) if waiting.request.answered]
        assert self.purgatory.check_and_complete(key) == len(completed)
        for waiting in completed:
            waiting.settle("completed")

    @rule(waiting=requests)
    def force(self, waiting: Waiting) -> None:
        assert waiting.request.force_complete() is not waiting.settled
        waiting.settle("completed")

    @rule(waiting=requests)
    def withdraw(self, waiting: Waiting) -> None:
        assert waiting.request.withdraw() is not waiting.settled
        waiting.settle()

    @rule(key=keys)
    def cancel(self, key: int) -> None:
        cancelled = self.unsettled(key)
        assert self.purgatory.cancel_for_key(key) == [waiting.request for waiting in cancelled]
        for waiting in cancelled:
            waiting.settle()

    @rule(step_ms=st.integers(0, 40) | st.integers(0, 3_000))
    def advance(self, step_ms: int) -> None:
        self.clock.advance(step_ms)
        self.purgatory.advance_clock(0)
        self.expire()

    def expire(self) -> None:
        self.inbox.run_all()
        for waiting in self.all:
            if waiting.due_ms <= self.clock.monotonic_ms():
                waiting.settle("completed", "expired")

    @rule()
    def purge(self) -> None:
        self.purgatory.advance_clock(0)
        self.inbox.run_all()
        waits = sum(not waiting.settled for waiting in self.all)
        entries = sum(len(waiting.under) for waiting in self.all if not waiting.settled)
        left = self.purgatory.watched() - entries
        assert 0 <= left <= 3 * (max(self.purge_interval, waits // 4) if waits else 0)

    @invariant()
    def became_of_each_what_had_to(self) -> None:
        for waiting in self.all:
            assert waiting.request.calls == waiting.calls
            assert waiting.request.is_settled is waiting.settled
            assert waiting.request.is_completed is bool(waiting.calls)

    @invariant()
    def what_waits_is_in_the_timer_and_under_its_keys(self) -> None:
        assert self.purgatory.delayed() == sum(not waiting.settled for waiting in self.all)
        for key in range(6):
            under = [request for request in self.purgatory._watchers.watching(key) if not request.is_settled]
            assert under == [w.request for w in self.unsettled(key) for _ in range(w.under.count(key))]


TestPurgatoryAgainstList = PurgatoryAgainstList.TestCase
TestPurgatoryAgainstList.settings = settings(max_examples=150, stateful_step_count=50)
