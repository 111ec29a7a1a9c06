"""Named records that wait until an attempt to deliver what they replace is aborted."""

import random
from collections import deque
from typing import TYPE_CHECKING

from tarry.core.batch import Batch
from tarry.core.message import NEVER_MS
from tarry.core.request.request import NameCancelRequest, Request
from tarry.core.window.deferred import Deferred, NamedRecord
from tarry.headers import DELIVER_AT, IF, NAME, TARGET, Outcome
from tests.support.named_owner import NamedOwner

if TYPE_CHECKING:
    from tarry.core.message import Headers


class Course:
    """A partition with a message of a name that an attempt tries to deliver."""

    def __init__(self) -> None:
        self.owner = NamedOwner(1, 0)
        self.state, self.now_ms = self.owner.state, self.owner.now_ms
        self.end = self.owner.first
        self.state.arrivals.reach(self.end)
        self.send("orders", 0, named=True)
        self.fire(away={"orders"})
        self.attempt = self.state.take_parked("orders", 9, self.now_ms)
        assert len(self.attempt) == 1

    def send(self, target: str, delay_ms: int, *, named: bool, condition: bytes = b"") -> int:
        headers: Headers = [(TARGET, target.encode()), (DELIVER_AT, b"%d" % (self.now_ms + delay_ms))]
        headers += [(NAME, b"x")] if named else []
        headers += [(IF, condition)] if condition else []
        self.state.arrivals.accept(self.end, self.now_ms, b"k", b"v", headers, self.now_ms)
        self.end += 1
        return self.end - 1

    def fire(self, away: set[str] | None = None) -> Batch:
        self.state.collect(self.now_ms)
        batch = self.state.take(99, self.now_ms, away or set())
        self.state.settle(batch)
        self.state.confirm(batch)
        return batch


def test_a_record_that_replaces_what_is_in_flight_is_decided_when_the_attempt_is_aborted() -> None:
    course = Course()
    second = course.send("bills", 0, named=True)
    assert course.state.wants_back()
    assert len(course.fire()) == 0
    course.state.park_again("orders", course.attempt)
    batch = course.fire()
    (decision,) = batch.decisions
    assert [answer.outcome for answer in decision.answers] == [Outcome.REPLACED]
    assert [message.sequence for message in batch.due] == [second]
    assert len(course.state.take_parked("orders", 9, course.now_ms)) == 0
    course.fire()
    assert (course.state.held, course.state.held_bytes, course.state.low) == (0, 0, course.end)


def test_nothing_waits_for_the_next_attempt_once_the_record_that_waited_is_skipped() -> None:
    course = Course()
    course.send("bills", 0, named=True, condition=b"absent")
    assert course.state.wants_back()
    course.state.park_again("orders", course.attempt)
    (decision,) = course.fire(away={"orders"}).decisions
    assert [answer.outcome for answer in decision.answers] == [Outcome.SKIPPED]
    course.attempt = course.state.take_parked("orders", 9, course.now_ms)
    assert len(course.attempt) == 1
    assert not course.state.wants_back()


def test_a_record_that_waits_for_an_attempt_that_commits_is_the_first_of_its_name() -> None:
    course = Course()
    course.send("bills", 0, named=True)
    course.state.confirm_parked(course.attempt)
    (decision,) = course.fire().decisions
    assert decision.answers == ()
    assert (course.state.held, course.state.held_bytes) == (0, 0)


def test_nothing_fires_that_is_due_after_a_message_that_waits_to_be_decided() -> None:
    course = Course()
    second, third = course.send("bills", 10, named=True), course.send("bills", 20, named=False)
    course.now_ms += 30
    assert course.fire().due == []
    course.state.park_again("orders", course.attempt)
    assert [message.sequence for message in course.fire().due] == [second, third]


def test_a_message_that_waited_to_be_decided_is_not_passed_over_behind_later_ones() -> None:
    course = Course()
    course.state.pass_over(is_behind=True, now_ms=course.now_ms)
    second, third = course.send("bills", 30_000, named=True), course.send("bills", 30_000, named=False)
    course.state.park_again("orders", course.attempt)
    course.fire()
    assert second not in course.state.passed_over
    assert third in course.state.passed_over
    assert course.state.placing.to_file == 1


def test_the_gate_is_the_earliest_due_time_of_those_that_wait(seed: int) -> None:
    choose = random.Random(seed)
    deferred, waiting = Deferred(), deque[NamedRecord]()
    for offset in range(2_000):
        if waiting and choose.random() < 0.5:
            assert deferred.pop() is waiting.popleft()
        else:
            message = Request(choose.randint(0, 30), "orders", -1, b"0" * 36, carries=True)
            request = choose.choice((message, NameCancelRequest(b"h" * 16, b"0" * 36)))
            waiting.append(NamedRecord(request, offset, 0, None, None, None, 0))
            deferred.add(waiting[-1])
        assert deferred.gate == (min((one.due_ms for one in waiting), default=NEVER_MS), -1)
        assert len(deferred) == len(waiting)
