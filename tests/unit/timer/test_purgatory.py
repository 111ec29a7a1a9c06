"""The purgatory. With a clock turned by hand where the time matters, with the machine's where threads do."""

import gc
import random
import threading
import weakref
from collections.abc import Callable, Hashable, Iterator

import pytest

from tarry.clock import SystemClock
from tarry.testing import ManualClock
from tarry.timer import DelayedOperationPurgatory, SystemTimer, TimerTask
from tests.support.brokers import wait_until
from tests.unit.timer.operations import Request
from tests.unit.timer.threads import PATIENCE_S, Inbox, in_thread, overtaken_at

Purgatory = DelayedOperationPurgatory[Request]


@pytest.fixture
def hand() -> ManualClock:
    return ManualClock()


@pytest.fixture
def purgatory(hand: ManualClock, inbox: Inbox) -> Iterator[Purgatory]:
    purgatory = Purgatory("test", SystemTimer("test", hand, wheel_size=20, executor=inbox))
    yield purgatory
    purgatory.shutdown()


@pytest.fixture
def busy() -> Iterator[Purgatory]:
    """One whose operations expire by the machine's clock."""
    with Purgatory("busy", SystemTimer("busy", SystemClock())) as purgatory:
        yield purgatory


def sizes(purgatory: Purgatory) -> tuple[int, int]:
    return purgatory.watched(), purgatory.delayed()


def watched(purgatory: Purgatory, *keys: Hashable, delay_ms: int = 30_000) -> Request:
    """A request that waits."""
    request = Request(delay_ms, str(keys))
    first, *others = keys
    assert not purgatory.try_complete_else_watch(request, first, *others)
    return request


def answer(purgatory: Purgatory, request: Request, key: Hashable) -> int:
    request.answered = True
    return purgatory.check_and_complete(key)


def test_an_operation_that_can_be_completed_at_once_is_not_watched(purgatory: Purgatory) -> None:
    request = Request()
    request.answered = True
    assert purgatory.try_complete_else_watch(request, "a")
    assert (request.calls, sizes(purgatory)) == (["completed"], (0, 0))


def test_an_operation_that_another_thread_has_completed_is_not_watched(purgatory: Purgatory) -> None:
    request = Request()
    request.force_complete()
    assert not purgatory.try_complete_else_watch(request, "a")
    assert sizes(purgatory) == (0, 0)


def test_an_operation_that_watches_a_key_is_completed_by_a_check_of_it_once_it_can_be(purgatory: Purgatory) -> None:
    one, two = watched(purgatory, "one"), watched(purgatory, "two")
    assert purgatory.check_and_complete("one") == 0
    assert purgatory.check_and_complete("nobody's") == 0
    assert answer(purgatory, one, "two") == 0, "only what is under the key is asked"
    assert purgatory.check_and_complete("one") == 1
    assert purgatory.check_and_complete("one") == 0
    assert answer(purgatory, two, "two") == 1
    assert (one.calls, two.calls, sizes(purgatory)) == (["completed"], ["completed"], (0, 0))


def test_operations_of_one_key_are_completed_in_the_order_of_their_arrival(purgatory: Purgatory) -> None:
    order: list[str] = []

    class Ordered(Request):
        def on_complete(self) -> None:
            order.append(self.name)

    for name in "abcd":
        request = Ordered(name=name)
        assert not purgatory.try_complete_else_watch(request, "key")
        request.answered = name != "b"
    assert purgatory.check_and_complete("key") == 3
    assert (order, sizes(purgatory)) == (["a", "c", "d"], (1, 1))


def test_a_worked_trace_of_sizes_three_operations_under_up_to_three_keys(purgatory: Purgatory) -> None:
    # Kafka's own: a completion leaves the timer at once, and each list when its key is next checked.
    watched(purgatory, "1")
    two = watched(purgatory, "1", "2")
    three = watched(purgatory, "1", "2", "3")
    assert sizes(purgatory) == (6, 3)
    two.force_complete()
    assert sizes(purgatory) == (6, 2)
    three.force_complete()
    assert sizes(purgatory) == (6, 1)
    seen = []
    for key in "123":
        assert purgatory.check_and_complete(key) == 0
        seen.append(purgatory.watched())
    assert seen == [4, 2, 1]


def test_a_worked_trace_of_a_produce_with_acks_all_that_misses_one_of_three_replicas(
    purgatory: Purgatory, hand: ManualClock, inbox: Inbox
) -> None:
    # The seeds' request: it came at 1 o'clock, has 30 s, and so must be answered by 1:00:30.
    class Produce(Request):
        acknowledged: set[str]

        def try_complete(self) -> bool:
            return self.acknowledged == {"leader", "follower 1", "follower 2"} and self.force_complete()

    def produce() -> Produce:
        request = Produce(30_000)
        request.acknowledged = {"leader"}
        assert not purgatory.try_complete_else_watch(request, "orders-0")
        return request

    late, answered = produce(), produce()
    hand.advance(12_000)
    for request in (late, answered):
        request.acknowledged.add("follower 1")
    assert purgatory.check_and_complete("orders-0") == 0
    answered.acknowledged.add("follower 2")
    assert purgatory.check_and_complete("orders-0") == 1
    assert (answered.calls, late.calls, sizes(purgatory)) == (["completed"], [], (1, 1))

    for step_ms, calls in ((17_999, []), (1, ["completed", "expired"]), (10_000, ["completed", "expired"])):
        hand.advance(step_ms)
        purgatory.advance_clock(0)
        inbox.run_all()
        assert late.calls == calls
    assert (answered.calls, purgatory.delayed()) == (["completed"], 0)


def test_a_worked_trace_of_delays_over_three_wheels_each_expires_at_its_millisecond(
    purgatory: Purgatory, hand: ManualClock, inbox: Inbox
) -> None:
    # The seeds' wheel of 20 buckets of 1 ms, and their delays: 2, 10 and 19 ms lie in the first wheel, 350 in the
    # second, 446 to 473 in one bucket of the third.
    delays_ms = (2, 10, 19, 350, 446, 450, 455, 473)
    requests = {delay_ms: watched(purgatory, delay_ms, delay_ms=delay_ms) for delay_ms in delays_ms}
    answer(purgatory, requests[446], 446)
    expired_ms: dict[int, int] = {}
    for now_ms in range(1, 501):
        hand.advance(1)
        purgatory.advance_clock(0)
        inbox.run_all()
        for delay_ms, request in requests.items():
            if "expired" in request.calls:
                expired_ms.setdefault(delay_ms, now_ms)
    assert expired_ms == {delay_ms: delay_ms for delay_ms in delays_ms if delay_ms != 446}
    assert requests[446].calls == ["completed"]


def test_an_event_between_the_question_and_the_watching_is_not_missed(purgatory: Purgatory) -> None:
    class Overtaken(Request):
        """Its event comes when it has looked and is under no key yet."""

        def try_complete(self) -> bool:
            answered, self.answered = self.answered, True
            if not answered:
                assert purgatory.check_and_complete("key") == 0
            return answered and self.force_complete()

    request = Overtaken()
    assert purgatory.try_complete_else_watch(request, "key")
    assert (request.calls, purgatory.delayed()) == (["completed"], 0)


def test_an_operation_settled_while_it_is_added_to_the_timer_does_not_stay_there(
    hand: ManualClock, inbox: Inbox
) -> None:
    class Overtaken(SystemTimer):
        def add(self, task: TimerTask) -> None:
            assert isinstance(task, Request)
            assert task.force_complete()
            super().add(task)

    purgatory = Purgatory("test", Overtaken("test", hand, executor=inbox))
    watched(purgatory, "key")
    assert purgatory.delayed() == 0


@pytest.mark.parametrize("delay_ms", [0, -1])
def test_an_operation_without_delay_is_checked_and_then_expires(
    purgatory: Purgatory, inbox: Inbox, delay_ms: int
) -> None:
    request = watched(purgatory, "key", delay_ms=delay_ms)
    inbox.run_all()
    assert request.calls == ["completed", "expired"]


def test_an_operation_that_fails_at_a_second_check_still_expires(
    purgatory: Purgatory, hand: ManualClock, inbox: Inbox
) -> None:
    class Fails(Request):
        def try_complete(self) -> bool:
            if purgatory.watched():
                raise ZeroDivisionError
            return False

    request = Fails(5)
    with pytest.raises(ZeroDivisionError):
        purgatory.try_complete_else_watch(request, "key")
    hand.advance(5)
    purgatory.advance_clock(0)
    inbox.run_all()
    assert request.calls == ["completed", "expired"]


def test_operations_after_a_failing_one_are_completed_and_the_failure_is_raised(purgatory: Purgatory) -> None:
    class Fails(Request):
        def on_complete(self) -> None:
            raise ZeroDivisionError

    failing, after = Fails(), Request()
    for request in (failing, after):
        purgatory.try_complete_else_watch(request, "key")
        request.answered = True
    with pytest.raises(ExceptionGroup, match="1 of the operations under 'key' failed") as raised:
        purgatory.check_and_complete("key")
    assert raised.group_contains(ZeroDivisionError)
    assert (after.calls, sizes(purgatory)) == (["completed"], (0, 0))


def test_an_operation_cancelled_for_one_key_is_settled_under_all_its_keys(
    purgatory: Purgatory, hand: ManualClock, inbox: Inbox
) -> None:
    one, two, other = watched(purgatory, "key"), watched(purgatory, "key", "other"), watched(purgatory, "other")
    done = watched(purgatory, "key")
    done.force_complete()
    assert purgatory.cancel_for_key("key") == [one, two]
    assert purgatory.cancel_for_key("key") == []
    assert sizes(purgatory) == (2, 1)
    for request in (one, two, other):
        request.answered = True
    assert purgatory.check_and_complete("key") == 0
    assert purgatory.check_and_complete("other") == 1
    hand.advance(60_000)
    purgatory.advance_clock(0)
    inbox.run_all()
    assert (one.calls, two.calls, other.calls, sizes(purgatory)) == ([], [], ["completed"], (0, 0))


def test_settled_operations_left_under_other_keys_are_purged_beyond_the_interval_and_freed(
    hand: ManualClock, inbox: Inbox
) -> None:
    purgatory = Purgatory("test", SystemTimer("test", hand, executor=inbox), purge_interval=10)
    stays = watched(purgatory, "a", "b")
    kept = weakref.WeakSet[Request]()
    for _ in range(10):
        request = watched(purgatory, "a", "b")
        kept.add(request)
        request.force_complete()
    purgatory.advance_clock(0)
    assert sizes(purgatory) == (22, 1), "as many as the interval are left"
    request = watched(purgatory, "a", "b")
    kept.add(request)
    request.force_complete()
    del request
    gc.disable()
    try:
        purgatory.advance_clock(0)
        assert (sizes(purgatory), len(kept)) == ((2, 1), 0), "freed without the collector of cycles"
    finally:
        gc.enable()
    assert answer(purgatory, stays, "b") == 1


def test_operations_removed_by_their_own_key_do_not_count_towards_a_purge(hand: ManualClock, inbox: Inbox) -> None:
    purgatory = Purgatory("test", SystemTimer("test", hand, executor=inbox), purge_interval=10)
    watched(purgatory, "waits")
    watched(purgatory, "left", "over").force_complete()
    for key in range(100):
        assert answer(purgatory, watched(purgatory, key), key) == 1
        purgatory.advance_clock(0)
    assert purgatory.watched() == 3, "a purge would have found it"


def test_where_nothing_waits_nothing_is_left_over(purgatory: Purgatory) -> None:
    watched(purgatory, "a", "b").force_complete()
    last = watched(purgatory, "a")
    purgatory.advance_clock(0)
    assert purgatory.watched() == 3
    last.force_complete()
    purgatory.advance_clock(0)
    assert purgatory.watched() == 0


def test_with_many_that_wait_a_purge_comes_for_a_quarter_of_them(hand: ManualClock, inbox: Inbox) -> None:
    purgatory = Purgatory("test", SystemTimer("test", hand, executor=inbox), purge_interval=10)
    for _ in range(100):
        watched(purgatory, "many")
    left = []
    for _ in range(26):
        watched(purgatory, "few").force_complete()
        purgatory.advance_clock(0)
        left.append(purgatory.watched() - 100)
    assert left == [*range(1, 26), 0]


def test_a_herd_that_waits_for_a_busy_executor_is_purged_once_it_is_completed_not_before(
    hand: ManualClock, inbox: Inbox
) -> None:
    purgatory = Purgatory("test", SystemTimer("test", hand, executor=inbox), purge_interval=10)
    for key in range(50):
        watched(purgatory, key, delay_ms=5)
    hand.advance(5)
    for _ in range(4):
        purgatory.advance_clock(0)
    assert (sizes(purgatory), purgatory._watchers.leftovers()) == ((50, 0), 0)
    inbox.run_all()
    assert (sizes(purgatory), purgatory._watchers.leftovers()) == ((50, 0), 50)
    purgatory.advance_clock(0)
    assert sizes(purgatory) == (0, 0)


def test_after_its_shutdown_nothing_is_taken_and_what_waits_stays(purgatory: Purgatory) -> None:
    waits, late = watched(purgatory, "key"), Request()
    purgatory.shutdown()
    with pytest.raises(RuntimeError, match="shut down"):
        purgatory.try_complete_else_watch(late, "key")
    assert (late.is_settled, late.calls, waits.is_settled, purgatory.delayed()) == (True, [], False, 1)
    assert answer(purgatory, waits, "key") == 1


def test_its_threads_bear_its_name_and_end_with_it(busy: Purgatory) -> None:
    ran_in: list[str] = []

    class Tells(Request):
        def on_expiration(self) -> None:
            ran_in.append(threading.current_thread().name)

    busy.try_complete_else_watch(Tells(1), "key")
    wait_until(lambda: bool(ran_in), "the operation expires")
    assert ran_in[0].startswith("executor-busy")
    names = [thread.name for thread in threading.enumerate()]
    assert "expired operation reaper busy" in names
    busy.shutdown()
    assert not [thread.name for thread in threading.enumerate() if "busy" in thread.name]


def test_an_event_that_overtakes_the_watching_at_any_line_completes_it(purgatory: Purgatory) -> None:
    lines, more = 0, True
    while more:
        request = Request()

        def watch(request: Request = request, key: int = lines) -> None:
            purgatory.try_complete_else_watch(request, key)

        def bring_about(request: Request = request, key: int = lines) -> None:
            answer(purgatory, request, key)

        lines += 1
        more = overtaken_at(lines, watch, bring_about)
        assert (request.calls, purgatory.delayed()) == (["completed"], 0), f"at line {lines}"
    assert lines > 30
    assert purgatory._watchers.leftovers() == purgatory.watched()


@pytest.mark.usefixtures("hesitant_threads")
def test_an_event_that_races_with_the_watching_completes_it(busy: Purgatory) -> None:
    requests = [Request(3_600_000) for _ in range(800)]
    start = threading.Barrier(2)

    def bring_about() -> None:
        start.wait(PATIENCE_S)
        for key, request in enumerate(requests):
            request.answered = True
            busy.check_and_complete(key)

    events = in_thread(bring_about)
    start.wait(PATIENCE_S)
    for key, request in enumerate(requests):
        busy.try_complete_else_watch(request, key)
    events.join(PATIENCE_S)
    assert [request.calls for request in requests] == [["completed"]] * len(requests)
    assert busy.delayed() == 0


@pytest.mark.usefixtures("hesitant_threads")
def test_with_many_threads_each_operation_is_settled_once_by_event_delay_or_cancel(busy: Purgatory) -> None:
    # Some threads have requests watched, under a key of their own and one that many share; others answer and check
    # the keys that are known by then, cancel some, and force some. What is left expires.
    known: list[tuple[Request, int]] = []
    cancelled: list[Request] = []
    done = threading.Event()

    def watch(seed: int) -> None:
        rng = random.Random(seed)
        for number in range(150):
            key = seed * 1_000_000 + number
            request = Request(rng.choice((1, 3, 20, 100)), str(key))
            known.append((request, key))
            busy.try_complete_else_watch(request, key, key % 7)

    def disturb(seed: int) -> None:
        rng = random.Random(seed)
        actions: list[Callable[[Request, int], object]] = [
            lambda request, key: answer(busy, request, key),
            lambda request, key: answer(busy, request, key % 7),
            lambda request, _: request.force_complete(),
            lambda _, key: cancelled.extend(busy.cancel_for_key(key)),
        ]
        while not done.is_set():
            if known:
                rng.choice(actions)(*rng.choice(known[-50:]))

    watching = [in_thread(lambda seed=seed: watch(seed)) for seed in range(1, 4)]  # type: ignore[misc]  # mypy has no type for a lambda's default
    disturbing = [in_thread(lambda seed=seed: disturb(seed)) for seed in range(3)]  # type: ignore[misc]  # as above
    for thread in watching:
        thread.join(PATIENCE_S)
    wait_until(lambda: all(request.is_settled for request, _ in known), "every request is settled", PATIENCE_S)
    done.set()
    for thread in disturbing:
        thread.join(PATIENCE_S)
    busy.shutdown()  # which waits for completions that are at work

    withdrawn = {id(request) for request in cancelled}
    assert len(withdrawn) == len(cancelled)
    for request, _ in known:
        allowed = [[]] if id(request) in withdrawn else [["completed"], ["completed", "expired"]]
        assert request.calls in allowed
    ways = {tuple(request.calls) for request, _ in known}
    assert ways == {(), ("completed",), ("completed", "expired")}, "each way was taken"
    for _, key in known:
        busy.check_and_complete(key)
        busy.check_and_complete(key % 7)
    assert sizes(busy) == (0, 0)
