"""Wall time that makes a step: what is held back, what is followed, and what is said of it."""

from collections.abc import Callable

import pytest

from tarry.errors import UsageError
from tarry.kafka.broker_time import TOLERANCE_MS, BrokerTime, ComparedClock, refuse_a_clock_that_is_ahead
from tarry.kafka.offsets import Offsets
from tarry.kafka.settings import Cluster
from tarry.service.metrics.families import CLOCK_AHEAD, CLOCK_SKEW
from tarry.service.metrics.tally import Tally
from tarry.service.worker.aside import Aside
from tarry.service.worker.context import Context
from tarry.service.worker.health import HealthReporter
from tarry.service.worker.steady_clock import ASK_ANEW_MS, ASK_UNTOLD_MS, GIVE_UP_MS, SAY_EVERY_MS, STEP_MS, SteadyClock
from tarry.service.worker.view import View
from tarry.testing.fake import FakeBroker
from tarry.testing.manual_clock import ManualClock
from tarry.testing.simulation.process import OwnClock

DAY_MS = 86_400_000


class Machine:
    """A machine with a clock of its own, and a broker."""

    def __init__(self, stamps: str = "LogAppendTime") -> None:
        self.world = ManualClock()
        self.own = OwnClock(self.world)
        self.broker = FakeBroker(self.world)
        self.broker.make_topic("in.status", 1, cleanup_policy="compact", message_timestamp_type=stamps)
        self.cluster = Cluster("fake", {}, self.broker.clients("p"))
        self.said: list[tuple[str, dict[str, object]]] = []
        brokers = BrokerTime(self.cluster, ["in"], self.own, self.say)
        self.steady = SteadyClock(self.own, brokers, self.say)

    def say(self, event: str, **fields: object) -> None:
        self.said.append((event, fields))

    @property
    def events(self) -> list[str]:
        return [event for event, _ in self.said]

    def run(self, ms: int, until: Callable[[], bool] = lambda: False) -> None:
        ends_ms = self.world.monotonic_ms() + ms
        while self.world.monotonic_ms() < ends_ms and not until():
            self.world.advance(10)
            self.steady.turn()


def test_a_clock_that_drifts_is_followed() -> None:
    machine = Machine()
    for _ in range(100):
        machine.own.ahead_ms += STEP_MS // 2
        machine.run(10)
        assert machine.steady.now_ms() == machine.own.now_ms()
    assert machine.events == []


def test_a_step_back_is_followed_at_once() -> None:
    machine = Machine()
    machine.own.ahead_ms = -DAY_MS
    assert machine.steady.now_ms() == machine.own.now_ms()
    machine.run(1_000)
    assert machine.steady.now_ms() == machine.own.now_ms()
    assert machine.events == []


def test_a_step_forward_for_one_turn_does_not_show() -> None:
    machine = Machine()
    machine.own.ahead_ms = DAY_MS
    assert machine.steady.now_ms() == machine.world.now_ms(), "also before the next turn"
    machine.steady.turn()
    assert machine.steady.now_ms() == machine.world.now_ms()
    machine.own.ahead_ms = 0
    machine.run(1_000)
    assert machine.steady.now_ms() == machine.world.now_ms()
    assert machine.events == ["clock_stepped", "clock_back"]


def test_a_step_that_the_brokers_confirm_is_followed() -> None:
    machine = Machine()
    machine.world.jump(3_600_000)  # theirs, too
    machine.run(2_000, lambda: "clock_followed" in machine.events)
    assert machine.said[-1] == ("clock_followed", {"by_ms": 3_600_000, "confirmed": True})
    assert machine.steady.now_ms() == machine.own.now_ms()


def test_a_clock_that_stays_ahead_is_not_followed_and_is_told_of_each_minute() -> None:
    machine = Machine()
    machine.own.ahead_ms = DAY_MS
    machine.run(3 * SAY_EVERY_MS)
    assert machine.steady.now_ms() == machine.world.now_ms()
    assert machine.events == ["clock_stepped", *["clock_ahead"] * 3]
    assert machine.steady.ahead_ms == DAY_MS
    machine.own.ahead_ms = TOLERANCE_MS - 1_000  # it is set, if not exactly
    machine.run(10_000)
    assert machine.steady.now_ms() == machine.own.now_ms()
    assert machine.steady.ahead_ms == 0


def test_how_far_a_clock_is_ahead_is_a_gauge() -> None:
    machine, tally = Machine(), Tally()
    offsets = Offsets(machine.cluster.clients.admin(machine.cluster.client()), "g", machine.cluster)
    view = View(joined=True, waiting=0, states={}, aside=Aside(Context(machine.own, machine.say)))
    health = HealthReporter(machine.steady, tally, 1, offsets, dict, dict, lambda _health: None)
    health.beat(view)
    assert tally.snapshot().gauges[(CLOCK_AHEAD.name,)] == 0
    machine.own.ahead_ms = DAY_MS
    machine.run(SAY_EVERY_MS)
    health.beat(view)
    assert tally.snapshot().gauges[(CLOCK_AHEAD.name,)] == DAY_MS / 1000


@pytest.mark.parametrize("ahead_ms", [5_000, -60_000])
def test_how_far_a_clock_is_from_the_brokers_is_a_gauge_once_they_have_answered(ahead_ms: int) -> None:
    machine, tally = Machine(), Tally()
    machine.own.ahead_ms = ahead_ms
    offsets = Offsets(machine.cluster.clients.admin(machine.cluster.client()), "g", machine.cluster)
    view = View(joined=True, waiting=0, states={}, aside=Aside(Context(machine.own, machine.say)))

    def skew_s() -> float | None:
        health.beat(view)
        return tally.snapshot().gauges.get((CLOCK_SKEW.name,))

    machine.steady = SteadyClock(
        machine.own, BrokerTime(machine.cluster, ["in"], machine.own, machine.say), machine.say
    )
    health = HealthReporter(machine.steady, tally, 1, offsets, dict, dict, lambda _health: None)
    assert skew_s() is None
    machine.run(ASK_UNTOLD_MS + 1_000)
    found_s = skew_s()
    assert found_s is not None
    assert ahead_ms / 1000 - 0.1 <= found_s <= ahead_ms / 1000
    machine.own.ahead_ms = 0  # it is set, and shown at once
    assert skew_s() == pytest.approx(found_s - ahead_ms / 1000)


@pytest.mark.parametrize("away", [False, True], ids=["stamps-of-producers", "brokers-away"])
def test_where_the_brokers_do_not_tell_their_time_a_step_is_followed_after_a_minute(*, away: bool) -> None:
    machine = Machine("CreateTime")
    if away:
        machine.broker.stop()
    machine.own.ahead_ms = 5_000
    machine.run(GIVE_UP_MS - 100)
    assert machine.steady.now_ms() == machine.world.now_ms()
    machine.run(20_000, lambda: "clock_followed" in machine.events)
    assert machine.said[-1] == ("clock_followed", {"by_ms": 5_000, "confirmed": False})
    assert "clock_not_compared" in machine.events


def test_the_answer_to_an_older_question_confirms_no_later_step() -> None:
    machine = Machine()
    machine.world.jump(5_000)  # the brokers' too, and they will say so
    machine.run(10)
    assert machine.events == ["clock_stepped"]
    machine.own.ahead_ms = DAY_MS
    machine.run(10_000)
    assert machine.steady.now_ms() < machine.world.now_ms() + TOLERANCE_MS
    assert machine.events == ["clock_stepped", "clock_ahead"]


def test_an_answer_that_comes_when_the_step_was_taken_back_confirms_no_later_one() -> None:
    machine = Machine()
    machine.world.jump(5_000)
    machine.run(10)
    machine.world.jump(-5_000)
    machine.steady.turn()
    assert machine.events == ["clock_stepped", "clock_back"]
    machine.own.ahead_ms = DAY_MS
    machine.run(10_000)
    assert machine.steady.now_ms() == machine.world.now_ms()
    assert machine.events == ["clock_stepped", "clock_back", "clock_stepped", "clock_ahead"]


def test_the_latest_that_it_may_be_is_a_doubted_step_or_what_the_brokers_said() -> None:
    machine = Machine()
    assert machine.steady.latest_ms() == machine.world.now_ms()
    machine.own.ahead_ms = DAY_MS
    assert machine.steady.latest_ms() == machine.own.now_ms()
    machine.own.ahead_ms = -DAY_MS
    machine.run(1_000)
    assert machine.steady.now_ms() == machine.own.now_ms()
    assert 0 <= machine.steady.latest_ms() - machine.world.now_ms() <= 20, "a clock that was set back asks"


def test_the_brokers_are_asked_again_periodically() -> None:
    machine = Machine()
    for _ in range(2 * ASK_ANEW_MS // 1_000):
        machine.world.advance(1_000)
        machine.own.ahead_ms -= 10  # it drifts
        machine.steady.turn()
    assert machine.own.ahead_ms < -60_000
    assert abs(machine.steady.latest_ms() - machine.world.now_ms()) <= 2_000
    assert machine.events == []


def test_the_brokers_time_measured_at_the_start_is_used_from_the_first_record_on() -> None:
    machine = Machine()
    machine.own.ahead_ms = -DAY_MS
    found_ms = refuse_a_clock_that_is_ahead(machine.cluster, ["in"], machine.own, machine.say)
    steady = SteadyClock(
        machine.own, BrokerTime(machine.cluster, ["in"], machine.own, machine.say), machine.say, found_ms
    )
    assert steady.now_ms() == machine.own.now_ms()
    assert 0 <= steady.latest_ms() - machine.world.now_ms() <= 200


class Paused:
    """A clock of a thread that is held up between two looks at it, now and then."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.looks = 0

    def now_ms(self) -> int:
        self.looks += 1
        if self.looks % 3 == 1:
            self.clock.advance(60_000)
        return self.clock.now_ms()

    def monotonic_ms(self) -> int:
        return self.clock.monotonic_ms()

    def sleep(self, seconds: float) -> None:
        self.clock.sleep(seconds)


def test_a_thread_that_is_held_up_between_two_clocks_sees_no_step() -> None:
    machine = Machine()
    clock = Paused()
    steady = SteadyClock(clock, BrokerTime(machine.cluster, ["in"], clock, machine.say), machine.say)
    for _ in range(20):
        steady.turn()
    assert machine.events == []


def test_a_start_is_refused_where_the_clock_is_ahead_of_the_brokers() -> None:
    machine = Machine()
    machine.own.ahead_ms = DAY_MS
    with pytest.raises(UsageError, match=r"8640\d s ahead of the brokers"):
        refuse_a_clock_that_is_ahead(machine.cluster, ["in"], machine.own, machine.say)
    machine.own.ahead_ms = -DAY_MS
    refuse_a_clock_that_is_ahead(machine.cluster, ["in"], machine.own, machine.say)
    assert machine.events == []


def test_a_start_goes_on_where_the_brokers_do_not_tell_their_time_and_says_so() -> None:
    machine = Machine("CreateTime")
    machine.own.ahead_ms = DAY_MS
    refuse_a_clock_that_is_ahead(machine.cluster, ["in"], machine.own, machine.say)
    refuse_a_clock_that_is_ahead(machine.cluster, ["no-such"], machine.own, machine.say)
    assert machine.events == ["clock_not_compared"] * 2


def test_a_step_that_the_brokers_deny_is_not_the_latest_that_it_may_be() -> None:
    machine = Machine()
    machine.own.ahead_ms = DAY_MS
    assert machine.steady.latest_ms() >= machine.world.now_ms() + DAY_MS
    machine.run(10_000)
    assert "clock_ahead" in machine.events
    assert machine.steady.latest_ms() <= machine.world.now_ms() + TOLERANCE_MS


def test_brokers_that_did_not_tell_their_time_at_the_start_are_asked_soon() -> None:
    machine = Machine()
    machine.own.ahead_ms = -60_000
    brokers = BrokerTime(machine.cluster, ["in"], machine.own, machine.say)
    machine.steady = SteadyClock(machine.own, brokers, machine.say)
    machine.run(120_000)
    assert machine.steady.latest_ms() >= machine.world.now_ms() - 100


@pytest.mark.parametrize(
    ("ahead_ms", "is_wrong"), [(-10_001, True), (-10_000, False), (0, False), (2_000, False), (2_001, True)]
)
def test_a_clock_is_wrong_from_some_seconds_on(ahead_ms: int, is_wrong: bool) -> None:
    assert ComparedClock("a", ahead_ms, 0).is_wrong == is_wrong
