"""Those who wait for results, with results fed to them: the purgatory is real, Kafka is not there."""

import json
import threading
from collections.abc import Iterator
from concurrent.futures import Future
from concurrent.futures import wait as wait_for
from datetime import UTC, datetime
from typing import Any

import pytest
from confluent_kafka import KafkaError, Message
from prometheus_client import CollectorRegistry, generate_latest

from tarry.client import CancelReceipt, OutcomeMetrics, Receipt, ScheduleReceipt
from tarry.client.outcome.follower import consume
from tarry.client.outcome.recent import RecentResults
from tarry.client.outcome.result import Result, Wanted, parsed_result
from tarry.client.outcome.waiting import PendingOutcomes
from tarry.clock import SystemClock
from tarry.errors import BrokerError, FatalError
from tarry.handle import Handle
from tarry.headers import derived_id
from tests.support.brokers import wait_until

ID = "8e8c5b0c-0f5d-4b3e-9a55-0c6b1a3f4d21"
DUE_MS = 1_767_225_600_000
HANDLE = Handle("in", 0, DUE_MS, ID)
RECEIPT = Receipt(ID, HANDLE, datetime.fromtimestamp(DUE_MS / 1_000, UTC), 3)
CANCEL = CancelReceipt(HANDLE, 7)
SCHEDULE = ScheduleReceipt(ID, "in", 0, 3)
KEY = (0, ID.encode())


def _value(outcome: str, source: str = "in/0/3", **more: object) -> bytes:
    return json.dumps({"v": 1, "outcome": outcome, "id": ID, "source": source, "due_ms": DUE_MS, **more}).encode()


class _Fed:
    """Pending outcomes, and a source of results for them."""

    def __init__(self) -> None:
        self.recent = RecentResults(10_000, {0: 0})
        self.pending = PendingOutcomes("test", self.recent, SystemClock())
        self._offset = 0

    def feed(self, value: bytes | None, key: tuple[int, bytes] = KEY) -> None:
        self.pending.arrive(key, self._offset, value)
        self._offset += 1

    def wait(
        self,
        subject: Receipt | ScheduleReceipt | CancelReceipt | Handle,
        timeout_s: float | None = None,
        *,
        interim: bool = False,
    ) -> Future[Result]:
        return self.pending.watch(Wanted(subject, interim), timeout_s).future


@pytest.fixture
def fed() -> Iterator[_Fed]:
    fed = _Fed()
    fed.pending.start()
    yield fed
    fed.pending.fail(FatalError("the test is over"))
    fed.pending.shutdown()


def _is_empty(fed: _Fed) -> bool:
    return (fed.pending.waiting, fed.pending.watched(), fed.pending.delayed()) == (0, 0, 0)


def test_a_result_answers_all_calls_that_wait_for_it(fed: _Fed) -> None:
    by_receipt, by_handle, other = fed.wait(RECEIPT), fed.wait(HANDLE), fed.wait(CANCEL)
    fed.feed(_value("fired"))
    assert by_receipt.result(5)["outcome"] == by_handle.result(5)["outcome"] == "fired"
    assert not other.done()
    assert (fed.pending.waiting, fed.pending.delayed()) == (1, 1)


def test_a_result_that_came_before_is_remembered(fed: _Fed) -> None:
    fed.feed(_value("fired"))
    assert fed.wait(RECEIPT).done()
    assert _is_empty(fed)


def test_where_results_are_forgotten_it_is_known_from_where_on_none_is() -> None:
    recent = RecentResults(2, {0: 10, 1: 20})
    for offset in (10, 11):
        recent.put(KEY, offset, b"%d" % offset)
    recent.put((1, b"other"), 25, None)
    assert recent.of([KEY, (1, b"other")]) == [b"11", None]
    assert (recent.begin(0), recent.begin(1), len(recent)) == (11, 20, 2)


@pytest.mark.parametrize(
    ("subject", "value", "is_answer"),
    [
        (RECEIPT, _value("fired"), True),
        (RECEIPT, _value("fired", "in/0/4"), False),
        (RECEIPT, _value("duplicate"), True),
        (RECEIPT, _value("cancel-too-late"), False),
        (HANDLE, _value("fired", "in/0/4"), True),
        (HANDLE, _value("fired", due_ms=DUE_MS + 1), False),
        (HANDLE, _value("dead", due_ms=None, reason="bad-delay"), False),
        (HANDLE, _value("duplicate"), False),
        (HANDLE, _value("cancel-filed"), False),
        (HANDLE, b'{"outcome": ["fired"], "due_ms": []}', False),
        (HANDLE, b"[" * 100_000, False),
        (HANDLE, None, False),
        (RECEIPT, _value("replaced"), True),
        (RECEIPT, _value("scheduled"), False),
        (HANDLE, _value("skipped"), True),
        (CANCEL, _value("cancelled", cancel_source="in/0/7"), True),
        (CANCEL, _value("cancel-filed", "in/0/7", cancel_source="in/0/7"), False),
        (CANCEL, _value("cancelled", cancel_source="in/0/71"), False),
    ],
)
def test_an_answer_is_the_definite_result_of_what_was_asked_for(
    fed: _Fed, subject: Receipt | CancelReceipt | Handle, value: bytes | None, is_answer: bool
) -> None:
    future = fed.wait(subject)
    fed.feed(value)
    assert future.done() == is_answer
    if is_answer:
        assert future.result() == parsed_result(value)


def test_a_cancel_can_be_waited_for_in_two_steps_and_is_found_when_it_is_dead_under_an_id_of_its_own(fed: _Fed) -> None:
    first, definite = fed.wait(CANCEL, interim=True), fed.wait(CANCEL)
    fed.feed(_value("cancel-filed", cancel_source="in/0/7"))
    assert first.result(5)["outcome"] == "cancel-filed"
    assert not definite.done()
    fed.feed(_value("dead", "in/0/7", reason="bad-handle"), (0, derived_id("in", 0, 7)))
    assert definite.result(5)["reason"] == "bad-handle"


@pytest.mark.parametrize("decided", ["scheduled", "skipped", "duplicate", "dead", "fired"])
def test_the_decision_about_a_message_is_its_first_result(fed: _Fed, decided: str) -> None:
    before = fed.wait(RECEIPT, interim=True)
    fed.feed(_value("scheduled", "in/0/4"))
    assert not before.done()
    fed.feed(_value(decided))
    fed.feed(_value("replaced"))
    later, outcome = fed.wait(RECEIPT, interim=True), fed.wait(RECEIPT)
    assert before.result(5)["outcome"] == later.result(5)["outcome"] == decided
    assert outcome.result(5)["outcome"] == ("replaced" if decided == "scheduled" else decided)


def test_whoever_waits_for_several_futures_learns_that_one_was_cancelled(fed: _Fed) -> None:
    future = fed.wait(RECEIPT)
    assert future.cancel()
    assert wait_for([future], 0).done == {future}
    fed.feed(_value("fired"))
    assert future.cancelled()
    assert _is_empty(fed)


def test_when_the_time_is_over_it_is_a_timeout_error(fed: _Fed) -> None:
    future = fed.wait(RECEIPT, 0.05)
    with pytest.raises(TimeoutError, match=r"no outcome of 1\.in\.0\..* within 0\.05 s"):
        future.result(5)
    wait_until(lambda: (fed.pending.waiting, fed.pending.delayed()) == (0, 0), "it has left")
    fed.feed(_value("fired"))
    assert fed.pending.watched() == 0


def test_a_future_that_is_cancelled_waits_no_more(fed: _Fed) -> None:
    future = fed.wait(RECEIPT, 60)
    assert future.cancel()
    assert (fed.pending.waiting, fed.pending.delayed()) == (0, 0)
    fed.feed(_value("fired"))
    assert future.cancelled()
    assert fed.pending.watched() == 0


def test_a_failure_fails_all_waiting_calls_and_all_later_ones(fed: _Fed) -> None:
    futures = [fed.wait(RECEIPT), fed.wait(HANDLE, 60)]
    fed.pending.fail(FatalError("gone"))
    fed.pending.fail(FatalError("closed"))
    for future in futures:
        with pytest.raises(FatalError, match="gone"):
            future.result(5)
    with pytest.raises(FatalError, match="gone"):
        fed.wait(RECEIPT)
    wait_until(lambda: (fed.pending.waiting, fed.pending.delayed()) == (0, 0), "all have left")


def test_nothing_is_missed_where_results_arrive_while_many_begin_to_wait(fed: _Fed) -> None:
    count = 5_000
    keys = [(0, b"%036d" % number) for number in range(count)]
    handles = [Handle("in", 0, DUE_MS, key[1].decode()) for key in keys]
    begin = threading.Barrier(2)

    def feed_all() -> None:
        begin.wait()
        for key in keys:
            fed.feed(_value("fired"), key)

    feeder = threading.Thread(target=feed_all)
    feeder.start()
    begin.wait()
    futures = [fed.wait(handle) for handle in handles]
    feeder.join()
    assert all(future.done() for future in futures)
    wait_until(lambda: _is_empty(fed), "what its own second look completed is purged")


def test_a_purge_leaves_no_entry_under_any_key(fed: _Fed) -> None:
    for number in range(3_000):
        fed.wait(Handle("in", 0, DUE_MS, f"{number:036d}"), 0.05)
    wait_until(lambda: fed.pending.waiting == 0, "all time-outs are over")
    wait_until(lambda: fed.pending.watched() == 0, "their entries are purged")


def test_the_sizes_are_gauges_by_intake() -> None:
    class Sizes:
        intake = "in"
        waiting, watched, delayed, remembered = 3, 4, 2, 9

    registry = CollectorRegistry()
    registry.register(OutcomeMetrics(Sizes()))
    lines = generate_latest(registry).decode().splitlines()
    assert [line for line in lines if not line.startswith("#")] == [
        'tarry_outcomes_waiting{intake="in"} 3.0',
        'tarry_outcomes_delayed{intake="in"} 2.0',
        'tarry_outcomes_watched{intake="in"} 4.0',
        'tarry_outcomes_remembered{intake="in"} 9.0',
    ]


class _Polled:
    """Gives events as a consumer does."""

    def __init__(self, *codes: int | None) -> None:
        self._events = [
            Message("in.results", 0, 5, error=None if code is None else KafkaError(code, "why")) for code in codes
        ]

    def poll(self, _wait_s: float) -> Any:
        return self._events.pop(0) if self._events else None

    def consume(self, most: int, _wait_s: float) -> list[Any]:
        taken, self._events = self._events[:most], self._events[most:]
        return taken


def _consume(*codes: int | None) -> list[int | None]:
    consumer: Any = _Polled(*codes)
    errors = [event.error() for event in consume(consumer, 1, "in.results")]
    return [None if error is None else error.code() for error in errors]


def test_an_error_that_the_client_recovers_from_is_ignored() -> None:
    assert _consume() == []
    end = KafkaError._PARTITION_EOF
    codes = (None, KafkaError._TRANSPORT, end, KafkaError.NOT_LEADER_FOR_PARTITION, KafkaError._ALL_BROKERS_DOWN, None)
    assert _consume(*codes) == [None, end, None]


@pytest.mark.parametrize(
    "code",
    [KafkaError.TOPIC_AUTHORIZATION_FAILED, KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._AUTO_OFFSET_RESET],
)
def test_a_permanent_error_is_raised(code: int) -> None:
    with pytest.raises(BrokerError, match=r"could not read in\.results: .*why") as refusal:
        _consume(None, code)
    assert refusal.value.code == KafkaError(code).name()


@pytest.mark.parametrize("outcome", ["replaced", "cancelled", "dead"])
@pytest.mark.parametrize("source", ["in/0/3", "in/0/17"])
def test_a_schedule_ends_at_its_own_record_or_at_a_next_one(fed: _Fed, outcome: str, source: str) -> None:
    waiting, by_handle = fed.wait(SCHEDULE), fed.wait(Handle.parse(str(SCHEDULE.handle)))
    fed.feed(_value("scheduled"))
    assert not waiting.done()
    fed.feed(_value(outcome, source))
    assert waiting.result(5)["source"] == source
    assert by_handle.result(5)["source"] == source


def test_what_is_said_of_another_record_with_the_id_of_a_schedule_is_not_its_end(fed: _Fed) -> None:
    waiting, second = fed.wait(SCHEDULE), fed.wait(ScheduleReceipt(ID, "in", 0, 9))
    fed.feed(_value("replaced", "in/0/2"))  # of an earlier schedule with this id
    fed.feed(_value("duplicate", "in/0/9"))
    fed.feed(_value("replaced", "in/1/17"))
    fed.feed(b"no result")
    assert (waiting.done(), second.result(5)["outcome"]) == (False, "duplicate")
    fed.feed(_value("cancelled", "in/0/12"))
    assert waiting.result(5)["outcome"] == "cancelled"


def test_the_decision_of_a_schedule_comes_before_its_end(fed: _Fed) -> None:
    decision, end = fed.wait(SCHEDULE, interim=True), fed.wait(SCHEDULE)
    fed.feed(_value("scheduled"))
    assert decision.result(5)["outcome"] == "scheduled"
    assert not end.done()
    fed.feed(_value("skipped"))
    assert end.result(5)["outcome"] == "skipped"
